#include "models/family.h"

#include <algorithm>

#include "config/reader.h"
#include "models/glm4v/glm4v.h"
#include "models/kit/grids.h"
#include "models/kit/text_family.h"
#include "models/llama/family.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr const Glm4vClass* kNamed[] = {&kGlm4v, &kGlm46V, &kGlmOcr};  ///< as kClasses
constexpr ModelClass kClasses[] = {{kGlm4v.model_type, kGlm4v.class_name},
                                   {kGlm46V.model_type, kGlm46V.class_name},
                                   {kGlmOcr.model_type, kGlmOcr.class_name}};
constexpr const char* kBlocks[] = {"Glm4vTextDecoderLayer", "Glm4vVisionBlock", "GlmOcrTextDecoderLayer",
                                   "GlmOcrVisionBlock"};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  return read_glm4v_config(reader, *kNamed[&of - kClasses]);
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_glm4v(context, config.as<Glm4vConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Glm4vConfig>();
  ModelTraits t = vision_language_traits(c.of->class_name, c.text, c.tie_word_embeddings);
  t.set_parts("visual", "visual.merger", "language_model");
  // As LLaMA-Factory cuts the model (model/model_utils/visual.py), which names none of the tower's other parts.
  t.pretrain = {{}, {t.projector}, {}};
  t.finetune = {{"visual.patch_embed", "visual.blocks"}, {}, {}};
  t.image_keys = {"image_size", "image_sizes", "grid_thw", "video", "min_pixels", "max_pixels"};
  t.convolutions = 2;
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules.emplace_back(c.of->tower->block);
  t.allow({Feature::quantization, Feature::zero3, Feature::fsdp});
  if (c.of == &kGlm4v) t.allow({Feature::liger});  // Liger does not know the others
  t.liger.usual.rope = false;
  t.liger.lacks.rope = true;
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Glm4vConfig>();
  const Glm4vVisionConfig& v = c.vision;
  const std::int64_t images = checked_product(data.images(), data.grid_t), patches = data.grid_h * data.grid_w;
  return std::max(
      {largest_tensor_of_text_family(c.text, data), bytes_of({v.side(), v.side(), v.hidden_size}),
       bytes_of_layer(images, patches, 4 * v.hidden_size, v.mlp_size(), v.num_heads),
       bytes_of({images, patches, std::max({v.patch_elements(), v.out_hidden_size, 2 * v.hidden_size, images})}),
       bytes_of({images, patches / v.merge_unit(), v.merger_size()}), bytes_of({v.hidden_size, v.patch_elements()}),
       bytes_of({v.out_hidden_size, std::max(v.merger_size(), v.hidden_size * v.merge_unit())})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const Glm4vVisionConfig& v = config.as<Glm4vConfig>().vision;
  // preprocessor_config.json of zai-org/GLM-4.1V-9B-Thinking: size.shortest_edge and size.longest_edge
  GridRule rule{v.patch_size, v.spatial_merge_size, v.temporal_patch_size, 12'544, 9'633'792, true};
  if (config.as<Glm4vConfig>().of == &kGlm4v)  // Glm46VProcessor samples otherwise; the class's own limits
    rule.video = {v.patch_size, v.spatial_merge_size, v.temporal_patch_size, 12'544, 47'040'000, VideoProcessor::glm4v};
  read_grid(reader, rule, data);
}

}  // namespace

namespace family {
extern const Family glm4v{.classes = kClasses,
                          .blocks = kBlocks,
                          .read = read,
                          .build = build,
                          .traits = traits,
                          .largest_tensor = largest_tensor,
                          .read_images = read_images};
}  // namespace family

}  // namespace oometer
