#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/kit/audio_chunks.h"
#include "models/kit/thinker.h"
#include "models/llama/family.h"
#include "models/qwen2_5_omni/qwen2_5_omni.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"qwen2_5_omni_thinker", "Qwen2_5OmniThinkerForConditionalGeneration"},
                                   {"qwen2_5_omni", "Qwen2_5OmniThinkerForConditionalGeneration"},
                                   {"qwen2_5_omni", "Qwen2_5OmniForConditionalGeneration"},
                                   {"qwen2_5_omni", "Qwen2_5OmniModel"}};
constexpr const char* kBlocks[] = {"Qwen2_5OmniDecoderLayer", "Qwen2_5OmniVisionBlock", "Qwen2_5OmniAudioEncoderLayer"};

/// class Qwen2_5OmniAudioEncoderConfig: Whisper's fields, of the large encoder.
void read_audio(ConfigReader& reader, Qwen25OmniConfig& c) {
  WhisperConfig& encoder = c.audio;
  encoder.num_mel_bins = 128;
  encoder.hidden_size = 1280;
  encoder.num_hidden_layers = 32;
  encoder.num_attention_heads = 20;
  encoder.intermediate_size = 5120;
  read_whisper_encoder(reader, encoder);
  c.n_window = reader.integer("n_window", c.n_window, {2, 1 << 20});
  c.output_dim = reader.integer("output_dim", c.output_dim);
  // The class applies none of its dropouts.
  reader.ignore({"model_type", "scale_embedding", "init_std"});
  if (encoder.hidden_size % 2 != 0) reader.fail_found("d_model", "inconsistent", "expected an even number");
  if (c.n_window > encoder.max_source_positions)
    reader.fail_found("n_window", "inconsistent",
                      "expected at most max_source_positions (" + std::to_string(encoder.max_source_positions) +
                          "), which are the states of a chunk");
}

Qwen25OmniConfig read_thinker(ConfigReader& reader) {
  Qwen25OmniConfig c;
  c.grids.names = &kQwen25OmniClassNames;
  ConfigReader audio = reader.object("audio_config"), vision = reader.object("vision_config"),
               text = reader.object("text_config");
  read_audio(audio, c);
  audio.finish();
  c.grids.vision = read_qwen_vision(vision, true);
  vision.finish();
  LlamaConfig defaults;
  defaults.names = &kQwen25OmniClassNames.text;
  defaults.vocab_size = 152064;
  defaults.hidden_size = 3584;
  defaults.intermediate_size = 18944;
  defaults.num_hidden_layers = defaults.num_attention_heads = 28;
  defaults.num_key_value_heads = 4;
  defaults.max_position_embeddings = 32768;
  defaults.qkv_bias = true;
  c.grids.text = read_qwen_vl_text(text, defaults, 28);
  text.finish();
  // Not the text's own word, which nobody reads.
  c.grids.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  reader.ignore({"model_type", "architectures", "audio_token_index", "image_token_index", "video_token_index",
                 "audio_token_id", "image_token_id", "video_token_id", "position_id_per_seconds", "seconds_per_chunk",
                 "audio_start_token_id", "audio_end_token_id", "vision_start_token_id", "vision_end_token_id",
                 "vision_token_id", "user_token_id", "ignore_index", "init_std"});
  check_width(audio, "output_dim", c.output_dim, c.grids.text);
  check_width(vision, "out_hidden_size", c.grids.vision.out_hidden_size, c.grids.text);
  return c;
}

/// A thinker's own config, or that of a whole model, of which from_pretrained of the thinker takes its part.
FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  if (&of - kClasses >= 2)
    reader.fail_found("architectures", "not-modelled",
                      "only the thinker of such a model is trained, which is supported: expected "
                      "[\"Qwen2_5OmniThinkerForConditionalGeneration\"]");
  if (!reader.has("thinker_config")) return read_thinker(reader);
  ConfigReader thinker = reader.object("thinker_config");
  Qwen25OmniConfig c = read_thinker(thinker);
  thinker.finish();
  reader.ignore({"talker_config", "token2wav_config", "enable_audio_output", "enable_talker"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_qwen2_5_omni(context, config.as<Qwen25OmniConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Qwen25OmniConfig>();
  ModelTraits t = thinker_traits(kQwen25OmniClassNames.text.causal_lm, c.grids.text, c.grids.tie_word_embeddings);
  t.max_audio_seconds = static_cast<double>(kQwen25OmniFrames) / 100;
  t.audio_why = "where the processor cuts audio";
  t.convolutions = 3;
  t.has_idle_parts = true;  // audio_bos_eos_token
  t.no_split_modules = {"Qwen2_5OmniDecoderLayer", "Qwen2_5OmniVisionBlock", "Qwen2_5OmniAudioEncoder",
                        "Qwen2_5OmniVisionEncoder", "Qwen2_5OmniAudioEncoderLayer"};
  t.allow({Feature::quantization, Feature::zero3, Feature::fsdp});
  return t;
}

AudioCount count_audio(const FamilyConfig&, double seconds) {
  const std::int64_t frames = begun_frames(seconds), states = (frames - 1) / 2 + 1,
                     tokens = states < 2 ? 0 : (states - 2) / 2 + 1;
  return {tokens, std::to_string(frames) + " frames of 10 ms, in a spectrogram padded to " +
                      std::to_string(kQwen25OmniFrames / 100) + " s, are " + std::to_string(states) +
                      " states, of which two make a token: " + std::to_string(tokens) + " tokens."};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Qwen25OmniConfig>();
  const QwenVisionConfig& v = c.grids.vision;
  const std::int64_t frames = checked_product(data.images(), data.grid_t), merged = v.hidden_size * v.merge_unit(),
                     heard = checked_product(std::max<std::int64_t>(data.audios(), 1), kQwen25OmniFrames);
  return std::max(
      {largest_tensor_of(c.grids.text, data),
       bytes_of_layer(frames, data.grid_h * data.grid_w, 3 * v.hidden_size, v.intermediate_size, v.num_heads),
       bytes_of({frames, data.grid_h * data.grid_w, v.patch_elements()}), bytes_of({v.hidden_size, v.patch_elements()}),
       bytes_of({merged, std::max(merged, v.out_hidden_size)}), bytes_of({heard, c.audio.num_mel_bins}),
       bytes_of({heard, std::max(c.audio.hidden_size, c.audio.intermediate_size)}),
       bytes_of(
           {c.audio.hidden_size, std::max({3 * c.audio.hidden_size, 3 * c.audio.num_mel_bins, c.audio.intermediate_size,
                                           c.output_dim, c.audio.max_source_positions})})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  read_grid(reader, config.as<Qwen25OmniConfig>().grids, data);
  check_one_frame(reader, data);
}

}  // namespace

namespace family {
extern const Family qwen2_5_omni{.classes = kClasses,
                                 .blocks = kBlocks,
                                 .read = read,
                                 .build = build,
                                 .traits = traits,
                                 .largest_tensor = largest_tensor,
                                 .read_images = read_images,
                                 .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
