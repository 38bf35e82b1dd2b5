#include "models/family.h"

#include <algorithm>

#include "config/reader.h"
#include "models/janus/janus.h"
#include "models/registry.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"janus", "JanusForConditionalGeneration"}};
constexpr const char* kBlocks[] = {kJanusVision.encoder_layer};

// class JanusVisionConfig (models/janus/configuration_janus.py)
void read_vision(ConfigReader& reader, JanusConfig& config) {
  ClipVisionConfig& c = config.vision;
  c.family = &kJanusVision;
  c.hidden_size = reader.integer("hidden_size", 1024, {1, 1 << 20});
  c.num_hidden_layers = reader.integer("num_hidden_layers", 24, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", 16);
  c.num_channels = reader.integer("num_channels", 3);
  c.image_size = reader.integer("image_size", 384, {1, 65'536});
  c.patch_size = reader.integer("patch_size", 16, {1, 65'536});
  c.hidden_act = reader.activation("hidden_act", Activation::gelu);
  c.attention_dropout = reader.number("attention_dropout", 0.0, 0.0, 1.0);
  c.intermediate_size = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(c.hidden_size) * reader.number("mlp_ratio", 4.0, 0.0, 1024.0)));
  c.projection_dim = reader.integer("projection_dim", 2048);
  config.attention_bias = reader.boolean("attention_bias", true);
  config.hidden_dropout = reader.number("hidden_dropout_rate", 0.0, 0.0, 1.0);
  config.projection_dropout = reader.number("projection_dropout", 0.0, 0.0, 1.0);
  config.depth = reader.integer("depth", 2, layer_count);
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  if (c.patch_size > c.image_size)
    reader.fail_found("patch_size", "inconsistent",
                      "expected at most image_size (" + std::to_string(c.image_size) + "): no patch fits");
  if (reader.boolean("use_qk_norm", false))
    reader.fail_found("use_qk_norm", "inconsistent",
                      "expected false: the class gives norms of the hidden size heads that are narrower");
  reader.ignore({"model_type", "layer_norm_eps", "initializer_range", "num_image_tokens"});
}

// class JanusVQVAEConfig
void read_vq(ConfigReader& reader, JanusConfig& config) {
  VqganConfig defaults;
  defaults.family = &kJanusVqgan;
  defaults.embed_dim = 8;
  defaults.num_embeddings = 16384;
  config.vq = read_vqgan_config(reader, defaults);
  config.vq.attends.assign(config.vq.levels(), false);
  config.vq.attends.back() = true;
  config.out_channels = reader.integer("out_channels", 3);
  config.vq_projection_dim = reader.integer("projection_dim", 2048);
  config.vq_layers = reader.integer("num_hidden_layers", 2, layer_count);
  config.image_token_embed_dim = reader.integer("image_token_embed_dim", 2048);
  reader.ignore({"hidden_act", "num_patches"});
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  JanusConfig c;
  ConfigReader vision = reader.object("vision_config"), vq = reader.object("vq_config"),
               text = reader.object("text_config");
  read_vision(vision, c);
  read_vq(vq, c);
  c.text = read_language_config(text);
  if (c.vision.projection_dim != c.text.hidden_size)
    vision.fail_found("projection_dim", "inconsistent",
                      "expected the hidden size of the text (" + std::to_string(c.text.hidden_size) + ")");
  vision.finish();
  vq.finish();
  text.finish();
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  reader.ignore({"image_token_id"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_janus(context, config.as<JanusConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<JanusConfig>();
  ModelTraits t = vision_language_traits(kClasses[0].class_name, c);
  t.set_parts("vision_model", "aligner", "language_model");
  t.cuts_images = true;  // the processor makes a square of any
  t.image_keys.push_back("image_sizes");
  t.has_idle_parts = true;  // what makes images
  t.default_sequence_length = std::max(t.default_sequence_length, c.vision.num_patches());
  t.oldest_transformers = {5, 23, 0};
  t.allow({Feature::quantization});
  // accelerate wraps the VQ-VAE's blocks, too, which nothing runs
  for (const Feature feature : {Feature::fsdp, Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

ImageCount count_image(const FamilyConfig& config, std::int64_t, std::int64_t, std::int64_t) {
  return {1, config.as<JanusConfig>().vision.num_patches()};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<JanusConfig>();
  const std::int64_t widest = *std::max_element(c.vq.channel_multiplier.begin(), c.vq.channel_multiplier.end());
  return std::max({largest_tensor_of(c, data), bytes_of({c.text.hidden_size, c.vision.hidden_size}),
                   bytes_of({c.text.hidden_size, c.text.hidden_size}),
                   bytes_of({data.images(), c.vision.num_patches(), c.text.hidden_size}),
                   bytes_of({9, c.vq.base_channels * widest, c.vq.base_channels * widest}),
                   bytes_of({9, c.vq.base_channels * widest, 2 * c.vq.latent_channels}),
                   bytes_of({c.vq_projection_dim, std::max({c.vq.num_embeddings, c.vq_projection_dim,
                                                            c.image_token_embed_dim, c.vq.embed_dim})}),
                   bytes_of({c.vq.num_embeddings, c.vq.embed_dim})});
}

}  // namespace

namespace family {
extern const Family janus{.classes = kClasses,
                          .blocks = kBlocks,
                          .read = read,
                          .build = build,
                          .traits = traits,
                          .largest_tensor = largest_tensor,
                          .count_image = count_image};
}  // namespace family

}  // namespace oometer
