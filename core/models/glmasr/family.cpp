#include "models/family.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "config/reader.h"
#include "models/glmasr/glmasr.h"
#include "models/llama/family.h"
#include "models/registry.h"
#include "models/sizes.h"
#include "models/vision_language.h"
#include "rounding.h"

namespace oometer {

namespace {

constexpr std::int64_t kHop = 160;  ///< samples of a frame, at 16 kHz (WhisperFeatureExtractor.hop_length)

std::int64_t samples(double seconds) { return static_cast<std::int64_t>(std::llround(seconds * 16'000)); }

}  // namespace

std::int64_t GlmAsrConfig::windows(double seconds) const {
  return std::max<std::int64_t>(divide_up(samples(seconds), kHop * audio.frames()), 1);
}

std::int64_t GlmAsrConfig::frames(double seconds) const {
  return std::max<std::int64_t>(divide_up(samples(seconds), kHop), 1);
}

std::int64_t GlmAsrConfig::tokens(double seconds) const { return ((frames(seconds) - 1) / 2 + 1) / 4; }

namespace {

constexpr ModelClass kClasses[] = {{"glmasr", "GlmAsrForConditionalGeneration"}};
constexpr const char* kBlocks[] = {"GlmAsrEncoderLayer"};

GlmAsrEncoderConfig read_encoder_config(ConfigReader& reader) {
  GlmAsrEncoderConfig c;
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.num_key_value_heads = reader.optional_integer("num_key_value_heads").value_or(c.num_attention_heads);
  c.num_mel_bins = reader.integer("num_mel_bins", c.num_mel_bins);
  c.max_position_embeddings = reader.integer("max_position_embeddings", c.max_position_embeddings);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.head_dim =
      reader.optional_integer("head_dim").value_or(std::max<std::int64_t>(c.hidden_size / c.num_attention_heads, 1));
  double factor = reader.number("partial_rotary_factor", 0.5, 0, 1);
  if (reader.has("rope_parameters") && !reader.is_null("rope_parameters")) {
    ConfigReader rope = reader.object("rope_parameters");
    factor = rope.number("partial_rotary_factor", factor, 0, 1);
    if (rope.text("rope_type", "default") != "default")
      rope.fail_found("rope_type", "not-modelled", "others are not supported yet: expected default");
    rope.ignore({"rope_theta"});
    rope.finish();
  }
  c.rotary_dim = static_cast<std::int64_t>(static_cast<double>(c.head_dim) * factor);
  if (c.rotary_dim < 2 || c.rotary_dim % 2 != 0)
    reader.fail("head_dim", "inconsistent",
                "found " + std::to_string(c.head_dim) + " elements of a head, of which " +
                    std::to_string(c.rotary_dim) + " are rotated; expected an even number of them");
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    reader.fail_found("num_key_value_heads", "inconsistent",
                      "expected a divisor of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  if (c.max_position_embeddings % 4 != 0)
    reader.fail_found("max_position_embeddings", "not-modelled",
                      "windows of which four states are not always a token are not supported yet: expected a multiple "
                      "of 4");
  if (c.max_position_embeddings * c.hidden_size % c.intermediate_size != 0 || c.intermediate_size > 4 * c.hidden_size)
    reader.fail_found("intermediate_size", "inconsistent",
                      "expected rows of so many elements that a window's states can be joined to, four or fewer at a "
                      "time");
  reader.ignore({"model_type", "initializer_range", "rope_theta"});
  return c;
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  GlmAsrConfig c;
  if (!reader.has("text_config"))
    reader.fail("text_config", "not-modelled", "the class's own one is not supported yet: expected an object");
  ConfigReader audio = reader.object("audio_config"), text = reader.object("text_config");
  c.audio = read_encoder_config(audio);
  audio.finish();
  // What is not there has a default of the class's own.
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                          "num_key_value_heads"})
    if (reader.has("text_config") && !text.has(key))
      text.fail(key, "missing", "found nothing; the class's own default is not supported yet");
  c.text = read_language_config(text);
  text.finish();
  c.projector_hidden_act = reader.activation("projector_hidden_act", Activation::gelu);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  reader.ignore({"audio_token_id", "hidden_size", "vocab_size"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_glmasr(context, config.as<GlmAsrConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<GlmAsrConfig>();
  ModelTraits t = vision_language_traits("GlmAsrForConditionalGeneration", c.text, c.tie_word_embeddings);
  t.language = "language_model";
  t.takes_images = false;
  t.max_audios = 1;  // its processor takes one a text
  t.usual_audio_seconds = c.audio.window_seconds();
  t.max_audio_seconds =
      std::max(std::floor(655 / t.usual_audio_seconds), 1.0) * t.usual_audio_seconds;  // max_audio_len
  t.audio_why = "what the processor cuts audio to";
  t.convolutions = 2;
  t.default_sequence_length = c.tokens(t.usual_audio_seconds) + 256;
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules = {"GlmAsrAttention", "GlmAsrEncoderLayer", c.text.names->decoder_layer};
  for (const Feature feature :
       {Feature::fsdp, Feature::headinfer, Feature::quantized_cache, Feature::pretrain, Feature::finetune})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.allow({Feature::quantization});
  return t;
}

AudioCount count_audio(const FamilyConfig& config, double seconds) {
  const auto& c = config.as<GlmAsrConfig>();
  const std::int64_t tokens = c.tokens(seconds);
  return {tokens, std::to_string(c.frames(seconds)) + " frames of 10 ms, in " + std::to_string(c.windows(seconds)) +
                      " window(s) of " + std::to_string(c.audio.frames()) + ", the last one padded, are " +
                      std::to_string(tokens) + " tokens: one of eight frames."};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<GlmAsrConfig>();
  const std::int64_t windows = checked_product(std::max<std::int64_t>(data.audios(), 1), c.windows(data.audio_seconds)),
                     states = c.audio.max_position_embeddings, width = c.audio.hidden_size;
  return std::max({largest_tensor_of(c.text, data),
                   bytes_of_layer(windows, states, width, c.audio.intermediate_size, c.audio.num_attention_heads),
                   bytes_of({windows, c.audio.frames(), std::max(width, c.audio.num_mel_bins)}),
                   3 * bytes_of({c.audio.frames(), std::max(width, c.audio.num_mel_bins)}),
                   bytes_of({windows, c.audio.rows(), 2 * c.text.hidden_size}),
                   bytes_of({2 * c.text.hidden_size, std::max(c.text.hidden_size, c.audio.intermediate_size)}),
                   3 * bytes_of({width, std::max(width, c.audio.num_mel_bins)}),
                   bytes_of({c.audio.num_attention_heads * c.audio.head_dim, width})});
}

}  // namespace

namespace family {
extern const Family glmasr{.classes = kClasses,
                           .blocks = kBlocks,
                           .read = read,
                           .build = build,
                           .traits = traits,
                           .largest_tensor = largest_tensor,
                           .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
