#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/llama/family.h"
#include "models/qwen3_asr/qwen3_asr.h"
#include "models/registry.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"qwen3_asr", "Qwen3ASRForConditionalGeneration"}};
constexpr const char* kBlocks[] = {"Qwen3ASRAudioEncoderLayer"};

/// class Qwen3ASREncoderConfig
void read_audio(ConfigReader& reader, Qwen3AsrConfig& c) {
  WhisperConfig& encoder = c.audio;
  encoder.num_mel_bins = 128;
  encoder.hidden_size = 1024;
  encoder.num_hidden_layers = 24;
  encoder.num_attention_heads = 16;
  encoder.intermediate_size = 4096;
  read_whisper_encoder(reader, encoder);
  encoder.max_source_positions = reader.integer("max_position_embeddings", 13);
  reader.ignore({"max_source_positions", "conv_chunksize"});
  read_convolved_audio(reader, c, "max_position_embeddings", "processor");  // _get_audio_token_length
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  Qwen3AsrConfig c;
  if (!reader.has("text_config"))
    reader.fail("text_config", "not-modelled", "the class's own one is not supported yet: expected an object");
  ConfigReader audio = reader.object("audio_config"), text = reader.object("text_config");
  read_audio(audio, c);
  audio.finish();
  c.text = read_language_config(text);
  text.finish();
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  reader.ignore({"audio_token_id", "timestamp_token_id", "token_classification_bias"});
  if (c.output_dim != c.text.hidden_size)
    audio.fail_found("output_dim", "inconsistent",
                     "expected the language model's hidden size (" + std::to_string(c.text.hidden_size) + ")");
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_qwen3_asr(context, config.as<Qwen3AsrConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Qwen3AsrConfig>();
  ModelTraits t = vision_language_traits("Qwen3ASRForConditionalGeneration", c.text, c.tie_word_embeddings);
  t.language = "language_model";
  t.takes_images = false;
  t.max_audios = 1;  // its processor takes one a text
  t.usual_audio_seconds = 30;
  t.convolutions = 3;
  t.default_sequence_length = 1024;
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules = {"Qwen3ASRAudioEncoderLayer"};
  for (const Feature feature : {Feature::fsdp, Feature::headinfer, Feature::quantized_cache, Feature::flash_attention,
                                Feature::pretrain, Feature::finetune})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.allow({Feature::quantization});
  return t;
}

AudioCount count_audio(const FamilyConfig& config, double seconds) {
  const AudioChunks chunks = config.as<Qwen3AsrConfig>().chunks(1, seconds);
  return {chunks.states(), std::to_string(chunks.frames) + " frames of 10 ms, padded to chunks of " +
                               std::to_string(chunks.chunk) + ", are " + std::to_string(chunks.states()) +
                               " tokens: 13 of each whole chunk."};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Qwen3AsrConfig>();
  return std::max({largest_tensor_of(c.text, data), largest_tensor_of_audio(c, data),
                   bytes_of({data.micro_batch_size, data.sequence_length, c.text.hidden_size})});
}

}  // namespace

namespace family {
extern const Family qwen3_asr{.classes = kClasses,
                              .blocks = kBlocks,
                              .read = read,
                              .build = build,
                              .traits = traits,
                              .largest_tensor = largest_tensor,
                              .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
