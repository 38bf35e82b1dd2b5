#include "models/family.h"

#include <algorithm>

#include "config/reader.h"
#include "models/beit/beit.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"beit", "BeitForImageClassification"}, {"beit", "BeitModel"}};
constexpr const char* kBlocks[] = {kBeit.layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  BeitConfig c;
  c.names = &kBeit;
  read_vit_sizes(reader, of, c);
  reader.ignore({"qkv_bias"});
  c.qkv_bias = true;
  c.key_bias = false;
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.use_mask_token = reader.boolean("use_mask_token", false);
  c.use_absolute_position_embeddings = reader.boolean("use_absolute_position_embeddings", false);
  c.use_relative_position_bias = reader.boolean("use_relative_position_bias", false);
  if (reader.boolean("use_shared_relative_position_bias", false))
    reader.fail_found("use_shared_relative_position_bias", "not-modelled",
                      "one bias of all layers, as BEiT is pre-trained with, is not supported yet: expected false");
  c.layer_scale_init_value = reader.number("layer_scale_init_value", c.layer_scale_init_value, 0, 1e6);
  c.drop_path_rate = reader.number("drop_path_rate", c.drop_path_rate, 0, 1);
  c.use_mean_pooling = reader.boolean("use_mean_pooling", true);
  reader.ignore({"vocab_size", "pool_scales", "use_auxiliary_head", "auxiliary_loss_weight", "auxiliary_channels",
                 "auxiliary_num_convs", "auxiliary_concat_input", "semantic_loss_ignore_index", "out_features",
                 "out_indices", "segmentation_indices", "stage_names", "add_fpn", "reshape_hidden_states"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_beit(context, config.as<BeitConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<BeitConfig>();
  ModelTraits t = vit_traits(c);
  t.no_split_modules = {c.names->layer};
  t.has_idle_parts = c.use_mask_token;
  if (c.use_relative_position_bias)
    t.refuse(Feature::flash_attention, "inconsistent",
             "PyTorch's flash attention takes no bias, which BEiT's positions are: expected eager, sdpa or another "
             "kernel");
  t.refuse(Feature::flash_attention_2, "inconsistent",
           "transformers has no flash attention for BEiT, whose positions are a bias: expected eager or sdpa");
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<BeitConfig>();
  const std::int64_t tokens = c.num_positions();
  return std::max({largest_tensor_of_vit(c, data), bytes_of({tokens, tokens, c.num_attention_heads}),
                   2 * bytes_of({tokens, tokens}), bytes_of({c.num_relative_distance(), c.num_attention_heads})});
}

}  // namespace

namespace family {
extern const Family beit{.classes = kClasses,
                         .blocks = kBlocks,
                         .read = read,
                         .build = build,
                         .traits = traits,
                         .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
