#include "models/family.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "config/reader.h"
#include "models/llama/family.h"
#include "models/registry.h"
#include "models/sizes.h"
#include "models/vision_language.h"
#include "models/voxtral/voxtral.h"

namespace oometer {

std::int64_t VoxtralConfig::windows(double seconds) const {
  return std::max<std::int64_t>(static_cast<std::int64_t>(std::ceil(seconds / audio.window_seconds())), 1);
}

WhisperConfig read_voxtral_encoder(ConfigReader& reader) {
  WhisperConfig c;
  c.hidden_size = reader.integer("hidden_size", 1280);
  c.intermediate_size = reader.integer("intermediate_size", 5120);
  c.num_hidden_layers = reader.integer("num_hidden_layers", 32, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", 20);
  c.num_mel_bins = reader.integer("num_mel_bins", 128);
  c.max_source_positions = reader.integer("max_source_positions", 1500);
  c.hidden_act = reader.activation("activation_function", Activation::gelu);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.dropout = reader.number("dropout", 0, 0, 1);
  c.activation_dropout = reader.number("activation_dropout", 0, 0, 1);
  reader.ignore({"model_type", "scale_embedding", "layerdrop", "vocab_size", "head_dim", "num_key_value_heads"});
  check_encoder_heads(reader, c);
  return c;
}

namespace {

constexpr ModelClass kClasses[] = {{"voxtral", "VoxtralForConditionalGeneration"}};
constexpr const char* kBlocks[] = {"VoxtralEncoderLayer"};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  VoxtralConfig c;
  if (!reader.has("text_config"))
    reader.fail("text_config", "not-modelled", "the class's own one is not supported yet: expected an object");
  ConfigReader audio = reader.object("audio_config"), text = reader.object("text_config");
  c.audio = read_voxtral_encoder(audio);
  audio.finish();
  if (c.audio.max_source_positions * c.audio.hidden_size % c.audio.intermediate_size != 0)
    audio.fail_found("max_source_positions", "inconsistent",
                     "expected states that can be joined to rows of intermediate_size (" +
                         std::to_string(c.audio.intermediate_size) + ")");
  c.text = read_language_config(text);
  text.finish();
  c.projector_hidden_act = reader.activation("projector_hidden_act", Activation::gelu);
  reader.ignore({"audio_token_id", "hidden_size", "vocab_size"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_voxtral(context, config.as<VoxtralConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<VoxtralConfig>();
  ModelTraits t = vision_language_traits("VoxtralForConditionalGeneration", c.text, false);
  t.language = "language_model";
  t.takes_images = false;
  t.max_audios = 64;
  t.usual_audio_seconds = c.audio.window_seconds();
  t.convolutions = 2;
  t.default_sequence_length = c.tokens_per_window() + 512;
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules = {c.text.names->decoder_layer, "VoxtralEncoderLayer"};
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::pretrain, Feature::finetune})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.allow({Feature::quantization});
  return t;
}

AudioCount count_audio(const FamilyConfig& config, double seconds) {
  const auto& c = config.as<VoxtralConfig>();
  const std::int64_t windows = c.windows(seconds), tokens = checked_product(windows, c.tokens_per_window());
  return {tokens, "Each audio is cut into " + std::to_string(windows) + " window(s) of " +
                      std::to_string(c.audio.frames() / 100) + " s, the last one padded: " + std::to_string(tokens) +
                      " tokens."};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<VoxtralConfig>();
  const std::int64_t windows = checked_product(std::max<std::int64_t>(data.audios(), 1), c.windows(data.audio_seconds));
  return std::max({largest_tensor_of(c.text, data), largest_tensor_of_whisper_encoder(c.audio, windows),
                   bytes_of({windows, c.tokens_per_window(), c.text.hidden_size}),
                   bytes_of({c.text.hidden_size, std::max(c.text.hidden_size, c.audio.intermediate_size)})});
}

}  // namespace

namespace family {
extern const Family voxtral{.classes = kClasses,
                            .blocks = kBlocks,
                            .read = read,
                            .build = build,
                            .traits = traits,
                            .largest_tensor = largest_tensor,
                            .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
