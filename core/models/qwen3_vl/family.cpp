#include "models/family.h"

#include <algorithm>

#include "models/kit/grids.h"
#include "models/kit/text_family.h"
#include "models/llama/family.h"
#include "models/qwen3_vl/qwen3_vl.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"qwen3_vl", "Qwen3VLForConditionalGeneration"},
                                   {"qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration"},
                                   {"qwen3_5", "Qwen3_5ForConditionalGeneration"},
                                   {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"}};
constexpr const Qwen3VLClass* kNamed[] = {&kQwen3VL, &kQwen3VLMoe, &kQwen35, &kQwen35Moe};  ///< as kClasses
constexpr const char* kBlocks[] = {"Qwen3VLTextDecoderLayer", "Qwen3VLVisionBlock",   "Qwen3VLMoeTextDecoderLayer",
                                   "Qwen3VLMoeVisionBlock",   "Qwen3_5DecoderLayer",  "Qwen3_5VisionBlock",
                                   "Qwen3_5MoeDecoderLayer",  "Qwen3_5MoeVisionBlock"};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  return read_qwen3_vl_config(reader, *kNamed[&of - kClasses]);
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_qwen3_vl(context, config.as<Qwen3VLConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Qwen3VLConfig>();
  ModelTraits t = vision_language_traits(c.of->class_name, c.text, c.tie_word_embeddings);
  t.kernels = c.text.mixer.kernels;
  t.set_parts("visual", "visual.merger", "language_model");
  // As LLaMA-Factory cuts the model (model/model_utils/visual.py): the mergers of the deepstack belong to the tower.
  t.pretrain = {{}, {t.projector}, {}};
  t.finetune = {{"visual.pos_embed", "visual.patch_embed", "visual.blocks"}, {}, {}};
  if (c.of->has_deepstack) t.finetune.freeze.emplace_back("visual.deepstack_merger_list");
  t.image_keys = {"image_size", "image_sizes", "grid_thw", "frames", "video", "min_pixels", "max_pixels"};
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules.emplace_back(c.of->block);
  t.has_experts = c.text.experts.num_experts != 0;
  t.balances_experts = c.text.experts.balances;
  t.outputs_router_logits = c.text.experts.outputs_router_logits;
  t.allow({Feature::quantization, Feature::zero3, Feature::fsdp, Feature::image_preferences, Feature::packing});
  if (c.of == &kQwen35) {
    t.allow({Feature::liger});
    t.liger.usual.rope = t.liger.usual.fused_linear_cross_entropy = false;
    t.liger.lacks.rope = t.liger.lacks.fused_linear_cross_entropy = true;
    t.liger.note =
        "Liger's fused_linear_cross_entropy is left out, as it must be here: with transformers 5 its forward of this "
        "class stops (it reads rope_deltas, which have gone)";
  } else {
    t.stop_at_liger(t.kNoLigerOutputs);
  }
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Qwen3VLConfig>();
  const Qwen3VisionConfig& v = c.vision;
  const std::int64_t frames = checked_product(data.images(), data.grid_t), merged = v.hidden_size * v.merge_unit();
  return std::max(
      {largest_tensor_of_text_family(c.text, data), bytes_of({v.num_position_embeddings, v.hidden_size}),
       bytes_of_layer(frames, data.grid_h * data.grid_w, 4 * v.hidden_size, v.intermediate_size, v.num_heads),
       bytes_of({frames, data.grid_h * data.grid_w, v.patch_elements()}), bytes_of({v.hidden_size, v.patch_elements()}),
       bytes_of({merged, std::max(merged, v.out_hidden_size)})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const Qwen3VisionConfig& v = config.as<Qwen3VLConfig>().vision;
  // preprocessor_config.json of Qwen/Qwen3-VL-8B-Instruct: size.shortest_edge and size.longest_edge
  GridRule rule{v.patch_size, v.spatial_merge_size, v.temporal_patch_size, 65'536, 16'777'216};
  // video_preprocessor_config.json of Qwen/Qwen3-VL-8B-Instruct
  rule.video = {v.patch_size, v.spatial_merge_size, v.temporal_patch_size, 4'096, 25'165'824, VideoProcessor::qwen3_vl};
  read_grid(reader, rule, data);
}

}  // namespace

namespace family {
extern const Family qwen3_vl{.classes = kClasses,
                             .blocks = kBlocks,
                             .read = read,
                             .build = build,
                             .traits = traits,
                             .largest_tensor = largest_tensor,
                             .read_images = read_images};
}  // namespace family

}  // namespace oometer
