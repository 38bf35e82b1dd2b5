#include "models/family.h"

#include <string>

#include "config/reader.h"
#include "models/dinov3_vit/dinov3_vit.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"dinov3_vit", "DINOv3ViTModel"}};
constexpr const char* kBlocks[] = {kDinov3.layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  Dinov3Config c;
  c.names = &kDinov3;
  c.hidden_size = 384;
  c.num_attention_heads = 6;
  read_vit_sizes(reader, of, c);
  c.intermediate_size = reader.integer("intermediate_size", 1536);
  c.attention_probs_dropout_prob = reader.number("attention_dropout", 0, 0, 1);
  c.query_bias = reader.boolean("query_bias", true);
  c.key_bias = reader.boolean("key_bias", false);
  c.value_bias = reader.boolean("value_bias", true);
  c.proj_bias = reader.boolean("proj_bias", true);
  c.mlp_bias = reader.boolean("mlp_bias", true);
  c.use_gated_mlp = reader.boolean("use_gated_mlp", false);
  c.num_register_tokens = reader.integer("num_register_tokens", 0, {0, 1 << 16});
  c.use_mask_token = true;
  const auto is_given = [&](const char* key, bool usual) {
    return reader.is_null(key) ? false : reader.has(key) ? true : usual;
  };
  c.shifts = is_given("pos_embed_shift", false);
  c.jitters = is_given("pos_embed_jitter", false);
  c.rescales = is_given("pos_embed_rescale", true);
  if (reader.number("drop_path_rate", 0, 0, 1) != 0)
    reader.fail_found("drop_path_rate", "not-modelled", "stochastic depth is not supported yet: expected 0");
  if (c.head_dim() % 4 != 0)
    reader.fail_found(
        "hidden_size", "inconsistent",
        "expected num_attention_heads (" + std::to_string(c.num_attention_heads) + ") heads of a multiple of 4");
  reader.ignore({"layerscale_value", "rope_theta", "out_features", "out_indices", "stage_names", "apply_layernorm",
                 "reshape_hidden_states", "pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_dinov3(context, config.as<Dinov3Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = vit_traits(config.as<Dinov3Config>());
  t.has_idle_parts = true;  // mask_token
  t.image_size = 0;         // any
  t.refuse(Feature::zero3, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of_vit(config.as<Dinov3Config>(), data);
}

/// Positions are angles.
void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  read_images_of_any_size(reader, config.as<Dinov3Config>(), data);
}

}  // namespace

namespace family {
extern const Family dinov3_vit{.classes = kClasses,
                               .blocks = kBlocks,
                               .read = read,
                               .build = build,
                               .traits = traits,
                               .largest_tensor = largest_tensor,
                               .read_images = read_images};
}  // namespace family

}  // namespace oometer
