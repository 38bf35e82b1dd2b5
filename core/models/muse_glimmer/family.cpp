#include "models/family.h"

#include <algorithm>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/kit/grids.h"
#include "models/kit/image_size.h"
#include "models/kit/text_family.h"
#include "models/muse_glimmer/muse_glimmer.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"muse_glimmer", kMuseGlimmerNames.causal_lm}};
constexpr const char* kBlocks[] = {kMuseGlimmerNames.decoder_layer, kMuseGlimmerVisionLayer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) { return read_muse_glimmer_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_muse_glimmer(context, config.as<MuseGlimmerConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<MuseGlimmerConfig>();
  ModelTraits t = vision_language_traits(kMuseGlimmerNames.causal_lm, c.text, c.tie_word_embeddings);
  t.set_parts("vision_tower", "", "language_model");  // what projects is more than one module
  t.image_keys = {"image_size", "image_sizes"};
  t.convolutions = 0;
  t.oldest_transformers = {5, 23, 0};
  t.allow({Feature::image_preferences, Feature::packing});
  t.no_split_modules = {kMuseGlimmerNames.decoder_layer, kMuseGlimmerVisionLayer};
  for (const Feature feature :
       {Feature::headinfer, Feature::quantized_cache, Feature::turn_images, Feature::pretrain, Feature::finetune})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  // A checkpoint of a layer that does not rotate holds no cos and sin, here it does: until the first layer is through.
  if (!c.text.rotates_in(0))
    t.refuse(Feature::checkpointing, "not-modelled",
             "checkpoints are not supported yet where the first layer has no positions (layer_rope_theta, or the " +
                 std::string("usual one for one layer more than a multiple of four)"));
  t.leave_liger_out();
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<MuseGlimmerConfig>();
  const MuseGlimmerVisionConfig& v = c.vision;
  const std::int64_t images = data.images(), patches = data.patches();
  return std::max({largest_tensor_of_text_family(c.text, data),
                   bytes_of_layer(images, patches, v.hidden_size, v.intermediate_size, v.num_attention_heads),
                   bytes_of({images, patches, std::max({v.patch_elements(), 4 * v.hidden_size, std::int64_t{16}})}),
                   bytes_of({v.hidden_size, v.patch_elements()}),
                   bytes_of({v.pos_emb_height, v.pos_emb_height, v.hidden_size}),
                   bytes_of({c.projector_hidden_size, std::max(c.out_hidden_size, c.text.hidden_size)})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const MuseGlimmerVisionConfig& v = config.as<MuseGlimmerConfig>().vision;
  const auto size = read_image_size(reader, data, {672, 448});
  if (!size) return;
  const auto [height, width] = *size;
  const auto [rows, columns] = muse_glimmer_tokens(height, width, v);
  data.image_height = height;
  data.image_width = width;
  data.grid_t = 1;
  data.grid_h = rows * v.merge_size;
  data.grid_w = columns * v.merge_size;
  data.tokens_per_image = rows * columns;
  check_sequences(reader, checked_product(data.images(), windows_with_padding({v.pos_emb_height, 1}, data)));
}

}  // namespace

namespace family {
extern const Family muse_glimmer{.classes = kClasses,
                                 .blocks = kBlocks,
                                 .read = read,
                                 .build = build,
                                 .traits = traits,
                                 .largest_tensor = largest_tensor,
                                 .read_images = read_images};
}  // namespace family

}  // namespace oometer
