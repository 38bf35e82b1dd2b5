#include "models/family.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "config/reader.h"
#include "models/llama/family.h"
#include "models/qwen2_audio/qwen2_audio.h"
#include "models/registry.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

std::int64_t Qwen2AudioConfig::frames(double seconds) const {
  const auto samples = static_cast<std::int64_t>(std::llround(seconds * 16'000));
  return std::clamp<std::int64_t>((samples + 159) / 160, 1, audio.frames());
}

namespace {

constexpr ModelClass kClasses[] = {{"qwen2_audio", "Qwen2AudioForConditionalGeneration"}};
constexpr const char* kBlocks[] = {"Qwen2AudioEncoderLayer"};

/// class Qwen2AudioEncoderConfig: Whisper's fields, of the large encoder.
WhisperConfig read_encoder(ConfigReader& reader) {
  WhisperConfig c;
  c.num_mel_bins = 128;
  c.hidden_size = 1280;
  c.num_hidden_layers = 32;
  c.num_attention_heads = 20;
  c.intermediate_size = 5120;
  read_whisper_encoder(reader, c);
  reader.ignore({"model_type", "scale_embedding", "init_std"});
  return c;
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  Qwen2AudioConfig c;
  if (!reader.has("text_config"))
    reader.fail("text_config", "not-modelled", "the class's own one is not supported yet: expected an object");
  ConfigReader audio = reader.object("audio_config"), text = reader.object("text_config");
  c.audio = read_encoder(audio);
  audio.finish();
  c.text = read_language_config(text);
  text.finish();
  if (reader.boolean("tie_word_embeddings", false))
    reader.fail_found("tie_word_embeddings", "not-modelled", "a head that is the embeddings is not supported yet");
  reader.ignore({"audio_token_id", "audio_token_index", "ignore_index", "hidden_size", "vocab_size"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_qwen2_audio(context, config.as<Qwen2AudioConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Qwen2AudioConfig>();
  ModelTraits t = vision_language_traits("Qwen2AudioForConditionalGeneration", c.text, false);
  t.language = "language_model";
  t.takes_images = false;
  t.max_audios = 64;
  t.usual_audio_seconds = t.max_audio_seconds = c.audio.window_seconds();
  t.audio_why = "the encoder's window, to which the processor cuts audio";
  t.convolutions = 2;
  t.default_sequence_length = c.tokens(t.usual_audio_seconds) + 256;
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules = {"Qwen2AudioAttention", "Qwen2AudioEncoderLayer", c.text.names->decoder_layer};
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::pretrain, Feature::finetune})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.allow({Feature::quantization});
  return t;
}

AudioCount count_audio(const FamilyConfig& config, double seconds) {
  const auto& c = config.as<Qwen2AudioConfig>();
  const std::int64_t tokens = c.tokens(seconds);
  return {tokens, std::to_string(c.frames(seconds)) + " frames of 10 ms, padded to the encoder's window of " +
                      std::to_string(c.audio.frames()) + ", are " + std::to_string(c.states(seconds)) +
                      " states, of which two make a token: " + std::to_string(tokens) + " tokens."};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Qwen2AudioConfig>();
  const std::int64_t audios = std::max<std::int64_t>(data.audios(), 1), states = c.audio.max_source_positions;
  return std::max({largest_tensor_of(c.text, data), largest_tensor_of_whisper_encoder(c.audio, audios),
                   bytes_of({audios, states, c.text.hidden_size}), bytes_of({audios, states, states}),
                   bytes_of({c.text.hidden_size, c.audio.hidden_size})});
}

}  // namespace

namespace family {
extern const Family qwen2_audio{.classes = kClasses,
                                .blocks = kBlocks,
                                .read = read,
                                .build = build,
                                .traits = traits,
                                .largest_tensor = largest_tensor,
                                .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
