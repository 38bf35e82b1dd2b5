#include "models/family.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "config/reader.h"
#include "models/granite/granite.h"
#include "models/granite_speech/granite_speech.h"
#include "models/kit/text_family.h"
#include "models/sizes.h"
#include "models/vision_language.h"
#include "rounding.h"

namespace oometer {

std::int64_t GraniteSpeechConfig::states(double seconds) {
  const auto samples = static_cast<std::int64_t>(std::llround(seconds * 16'000));
  return std::max<std::int64_t>((samples / 160 + 1) / 2, 1);
}

std::int64_t GraniteSpeechConfig::windows(double seconds) const { return divide_up(states(seconds), window_size); }

namespace {

constexpr ModelClass kClasses[] = {{"granite_speech", kGraniteSpeech.conditional_generation},
                                   {"granite_speech_plus", kGraniteSpeechPlus.conditional_generation}};
constexpr const char* kBlocks[] = {"GraniteDecoderLayer"};

GraniteSpeechEncoderConfig read_encoder(ConfigReader& reader, bool joins_layers) {
  GraniteSpeechEncoderConfig c;
  c.input_dim = reader.integer("input_dim", c.input_dim);
  c.num_layers = reader.integer("num_layers", c.num_layers, layer_count);
  c.hidden_dim = reader.integer("hidden_dim", c.hidden_dim);
  c.feedforward_mult = reader.integer("feedforward_mult", c.feedforward_mult, {1, 1024});
  c.num_heads = reader.integer("num_heads", c.num_heads);
  c.dim_head = reader.optional_integer("dim_head").value_or(std::max<std::int64_t>(c.hidden_dim / c.num_heads, 1));
  c.output_dim = reader.integer("output_dim", c.output_dim);
  c.context_size = reader.integer("context_size", c.context_size);
  c.max_pos_emb = reader.integer("max_pos_emb", c.max_pos_emb);
  c.conv_kernel_size = reader.integer("conv_kernel_size", c.conv_kernel_size, {1, 1024});
  c.conv_expansion_factor = reader.integer("conv_expansion_factor", c.conv_expansion_factor, {1, 1024});
  c.dropout = reader.number("dropout", c.dropout, 0, 1);
  if (c.context_size > c.max_pos_emb)
    reader.fail_found("context_size", "inconsistent",
                      "expected at most max_pos_emb (" + std::to_string(c.max_pos_emb) + ")");
  if (joins_layers && !reader.is_null("cat_hidden_layers") && reader.has("cat_hidden_layers"))
    c.cat_hidden_layers = reader.integers("cat_hidden_layers", {0, c.num_layers - 1});
  if (std::set(c.cat_hidden_layers.begin(), c.cat_hidden_layers.end()).size() != c.cat_hidden_layers.size())
    reader.fail_found("cat_hidden_layers", "inconsistent", "expected each layer once: the class joins it once");
  reader.ignore({"model_type"});
  return c;
}

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  GraniteSpeechConfig c;
  c.names = &of == kClasses ? &kGraniteSpeech : &kGraniteSpeechPlus;
  ConfigReader encoder = reader.object("encoder_config"), projector = reader.object("projector_config"),
               text = reader.object("text_config");
  c.encoder = read_encoder(encoder, c.names->joins_layers);
  encoder.finish();
  c.projector = read_qformer_config(projector, kBlip2QFormer);
  if (projector.text("model_type", "blip_2_qformer") != "blip_2_qformer")
    projector.fail_found("model_type", "not-modelled", "expected blip_2_qformer; others are not supported yet");
  projector.finish();
  if (text.text("model_type", "granite") != "granite")
    text.fail_found("model_type", "not-modelled", "expected granite; other language models are not supported yet");
  c.text = read_granite_config(text);
  text.finish();
  c.downsample_rate = reader.integer("downsample_rate", c.downsample_rate);
  c.window_size = reader.integer("window_size", c.window_size);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  const std::int64_t joined =
      c.encoder.hidden_dim * (1 + static_cast<std::int64_t>(c.encoder.cat_hidden_layers.size()));
  if (c.projector.encoder_hidden_size != joined)
    projector.fail(projector.has("encoder_hidden_size") ? "encoder_hidden_size" : "hidden_size", "inconsistent",
                   "expected an encoder_hidden_size (1408 unless the config says another) of " +
                       std::to_string(joined) + ", which the encoder gives");
  if (c.window_size % c.downsample_rate != 0)
    reader.fail_found("window_size", "inconsistent",
                      "expected a multiple of downsample_rate (" + std::to_string(c.downsample_rate) + ")");
  reader.ignore({"audio_token_index", "audio_token_id", "initializer_range", "has_lora_adapter"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_granite_speech(context, config.as<GraniteSpeechConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<GraniteSpeechConfig>();
  ModelTraits t = vision_language_traits(c.names->conditional_generation, c.text, c.tie_word_embeddings);
  t.language = "language_model";
  t.takes_images = false;
  t.max_audios = 64;
  t.convolutions = 3;
  t.default_sequence_length = c.tokens(t.usual_audio_seconds) + 256;
  t.oldest_transformers = {5, 23, 0};
  t.has_idle_parts = c.encoder.num_layers < 2;  // out and out_mid stand behind a layer in the middle
  t.refuse(Feature::checkpointing, "inconsistent",
           t.class_name + " does not support gradient checkpointing (a ValueError): expected none");
  t.refuse(Feature::flash_attention_2, "inconsistent", "the Q-Former has no flash attention: expected sdpa or eager");
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::chunked_cross_entropy,
                                Feature::pretrain, Feature::finetune, Feature::zero3, Feature::fsdp})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

AudioCount count_audio(const FamilyConfig& config, double seconds) {
  const auto& c = config.as<GraniteSpeechConfig>();
  const std::int64_t tokens = c.tokens(seconds);
  return {tokens, std::to_string(GraniteSpeechConfig::states(seconds)) + " states of 20 ms, in " +
                      std::to_string(c.windows(seconds)) + " window(s) of " + std::to_string(c.window_size) + ", are " +
                      std::to_string(tokens) + " tokens: " + std::to_string(c.queries()) + " a window."};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<GraniteSpeechConfig>();
  const GraniteSpeechEncoderConfig& e = c.encoder;
  const std::int64_t audios = std::max<std::int64_t>(data.audios(), 1),
                     states = GraniteSpeechConfig::states(data.audio_seconds),
                     blocks = checked_product(audios, divide_up(states, e.context_size)),
                     windows = checked_product(audios, c.windows(data.audio_seconds)),
                     inner = e.hidden_dim * e.conv_expansion_factor;
  return std::max(
      {largest_tensor_of_text_family(c.text, data),
       bytes_of({blocks, e.num_heads, e.context_size, std::max(e.context_size, e.dim_head)}),
       bytes_of({blocks, e.context_size, std::max(e.hidden_dim * e.feedforward_mult, 2 * e.num_heads * e.dim_head)}),
       bytes_of({audios, 2 * inner, states + e.conv_kernel_size}), bytes_of({audios, states, e.input_dim}),
       bytes_of({audios, states, e.output_dim}), bytes_of({e.hidden_dim, 2 * inner}),
       bytes_of({e.hidden_dim, std::max({e.hidden_dim * e.feedforward_mult, e.input_dim, e.output_dim,
                                         2 * e.num_heads * e.dim_head})}),
       bytes_of({e.context_size, e.context_size, e.dim_head}), bytes_of({2 * e.max_pos_emb + 1, e.dim_head}),
       largest_tensor_of_qformer(c.projector, windows, c.queries(), c.window_size),
       bytes_of({windows, c.window_size, std::max(c.text.hidden_size, c.projector.encoder_hidden_size)}),
       bytes_of({c.projector.hidden_size, c.text.hidden_size})});
}

}  // namespace

namespace family {
extern const Family granite_speech{.classes = kClasses,
                                   .blocks = kBlocks,
                                   .read = read,
                                   .build = build,
                                   .traits = traits,
                                   .largest_tensor = largest_tensor,
                                   .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
