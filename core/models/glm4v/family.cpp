#include "models/family.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/glm4v/glm4v.h"
#include "models/kit/grids.h"
#include "models/kit/mixture.h"
#include "models/kit/text_family.h"
#include "models/llama/family.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr const Glm4vClass* kNamed[] = {&kGlm4v, &kGlm46V, &kGlmOcr, &kGlm4vMoe};  ///< as kClasses
constexpr ModelClass kClasses[] = {{kGlm4v.model_type, kGlm4v.class_name},
                                   {kGlm46V.model_type, kGlm46V.class_name},
                                   {kGlmOcr.model_type, kGlmOcr.class_name},
                                   {kGlm4vMoe.model_type, kGlm4vMoe.class_name}};
constexpr const char* kBlocks[] = {"Glm4vTextDecoderLayer", "Glm4vVisionBlock",         "GlmOcrTextDecoderLayer",
                                   "GlmOcrVisionBlock",     "Glm4vMoeTextDecoderLayer", "Glm4vMoeVisionBlock"};

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
  t.allow({Feature::quantization, Feature::zero3, Feature::fsdp, Feature::image_preferences, Feature::packing});
  if (c.of == &kGlm4v) t.allow({Feature::liger});  // Liger does not know the others
  if (c.of->has_experts())                         // a checkpoint's e_score_correction_bias comes among its weights
    t.refuse(Feature::quantization, "not-modelled",
             "quantised weights beside this class's experts are not supported yet: leave it out");
  t.has_experts = c.of->has_experts();
  t.balances_experts = c.text.experts.balances;
  t.counts_experts = c.text.experts.are_counted;
  t.outputs_router_logits = c.text.experts.outputs_router_logits;
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

/// As of GLM-4.5 (_MODEL_TO_CONVERSION_PATTERN): the tower's projections go by the same names.
void convert_targets(ConfigReader& reader, const FamilyConfig& config, LoraConfig& lora) {
  const auto& c = config.as<Glm4vConfig>();
  if (!c.of->has_experts()) return;
  std::vector<std::string> paths = projection_paths(c.text, kExpertProjections);
  for (std::string& path : paths)
    if (path.starts_with("model.")) path.insert(6, "language_model.");
  const auto add = [&](const std::string& at, std::initializer_list<const char*> names) {
    for (const char* name : names) paths.push_back("model.visual." + at + name);
  };
  for (std::int64_t i = 0; i < c.vision.depth; ++i)
    add("blocks." + std::to_string(i) + ".",
        {"attn.qkv", "attn.proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"});
  add("merger.", {"proj", "gate_proj", "up_proj", "down_proj"});
  const bool all_linear = lora.target_modules.all_linear;
  convert_expert_targets(reader, lora, paths, kExpertProjections);
  const std::vector<std::string>& names = lora.target_modules.names;
  if (all_linear || std::find(names.begin(), names.end(), "proj") != names.end())
    reader.fail_found("target_modules", "not-modelled",
                      "peft makes names of it, of which proj is the tower's convolution, too, whose adapter is not "
                      "supported yet; expected other names of layers (q_proj, k_proj, v_proj, o_proj)");
}

}  // namespace

namespace family {
extern const Family glm4v{.classes = kClasses,
                          .blocks = kBlocks,
                          .read = read,
                          .build = build,
                          .traits = traits,
                          .largest_tensor = largest_tensor,
                          .read_images = read_images,
                          .convert_targets = convert_targets};
}  // namespace family

}  // namespace oometer
