#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/sizes.h"
#include "models/vit_mae/vit_mae.h"
#include "ops/argsort.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"vit_mae", "ViTMAEForPreTraining"}, {"vit_mae", "ViTMAEModel"}};
constexpr const char* kBlocks[] = {kVitMae.layer};

void check(ConfigReader& reader, const VitMaeConfig& c) {
  if (c.num_patches() > kMostSortedInOneBlock)
    reader.fail_found("image_size", "not-modelled",
                      "more than 4,096 patches are not supported yet: expected at most " +
                          std::to_string(64 * c.patch_size) + " pixels");
  if (c.num_kept == 0)
    reader.fail_found("mask_ratio", "inconsistent",
                      "it leaves none of " + std::to_string(c.num_patches()) + " patches: expected e.g. 0.75");
  if (c.hidden_size % 4 != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of 4, as its positions are sines of two axes");
  if (!c.pretrains) return;
  if (c.decoder_hidden_size % c.decoder_num_attention_heads != 0)
    reader.fail_found(
        "decoder_hidden_size", "inconsistent",
        "expected a multiple of decoder_num_attention_heads (" + std::to_string(c.decoder_num_attention_heads) + ")");
  if (c.decoder_hidden_size % 4 != 0)
    reader.fail_found("decoder_hidden_size", "inconsistent",
                      "expected a multiple of 4, as its positions are sines of two axes");
  if (c.image_size % c.patch_size != 0)
    reader.fail_found("image_size", "inconsistent",
                      "expected a multiple of patch_size (" + std::to_string(c.patch_size) +
                          "), into which ForPreTraining cuts the pixels");
}

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  VitMaeConfig c;
  c.names = &kVitMae;
  c.pretrains = &of == &kClasses[0];
  read_vit_sizes(reader, of, c);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.decoder_num_attention_heads = reader.integer("decoder_num_attention_heads", c.decoder_num_attention_heads);
  c.decoder_hidden_size = reader.integer("decoder_hidden_size", c.decoder_hidden_size);
  c.decoder_num_hidden_layers = reader.integer("decoder_num_hidden_layers", c.decoder_num_hidden_layers, layer_count);
  c.decoder_intermediate_size = reader.integer("decoder_intermediate_size", c.decoder_intermediate_size);
  c.norm_pix_loss = reader.boolean("norm_pix_loss", false);
  const double mask_ratio = reader.number("mask_ratio", 0.75, 0, 1);
  c.num_kept = static_cast<std::int64_t>(static_cast<double>(c.num_patches()) * (1 - mask_ratio));
  if (reader.ok()) check(reader, c);
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_vit_mae(context, config.as<VitMaeConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<VitMaeConfig>();
  ModelTraits t = vit_traits(c);
  t.no_split_modules.emplace_back("ViTMAEDecoder");
  if (c.pretrains) {
    t.has_loss = true;
    t.losses = {};
    t.tower = c.names->base;
  } else {
    t.losses = {"last_hidden_state"};
  }
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<VitMaeConfig>();
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1), tokens = c.num_patches() + 1;
  return std::max({bytes_of_layer(images, c.num_kept + 1, c.hidden_size, c.intermediate_size, c.num_attention_heads),
                   bytes_of_layer(images, tokens, c.decoder_hidden_size, c.decoder_intermediate_size,
                                  c.decoder_num_attention_heads),
                   bytes_of({images, c.num_channels, c.image_size, c.image_size}), bytes_of({tokens, c.hidden_size}),
                   bytes_of({tokens, c.patch_elements()}), bytes_of({c.hidden_size, c.patch_elements()}),
                   bytes_of({c.decoder_hidden_size, c.patch_elements()})});
}

}  // namespace

namespace family {
extern const Family vit_mae{.classes = kClasses,
                            .blocks = kBlocks,
                            .read = read,
                            .build = build,
                            .traits = traits,
                            .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
