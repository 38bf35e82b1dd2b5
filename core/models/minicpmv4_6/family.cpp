#include "models/family.h"

#include <algorithm>

#include "config/reader.h"
#include "models/kit/grids.h"
#include "models/kit/image_size.h"
#include "models/kit/recurrent.h"
#include "models/minicpmv4_6/minicpmv4_6.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

const MiniCpmVFamily kMiniCpmV46{
    "MiniCPMV4_6ForConditionalGeneration",
    "MiniCPMV4_6Model",
    "MiniCPMV4_6ViTWindowAttentionMerger",
    "MiniCPMV4_6DownsampleMLP",
    "MiniCPMV4_6Merger",
    {"MiniCPMV4_6VisionModel", "MiniCPMV4_6VisionEmbeddings", "MiniCPMV4_6VisionEncoder",
     "MiniCPMV4_6VisionEncoderLayer", "MiniCPMV4_6VisionAttention", "MiniCPMV4_6VisionMLP", false, false, true},
    true,
    false};
const MiniCpmVFamily kMiniCpmV47{
    "MiniCPMV4_7ForConditionalGeneration",
    "MiniCPMV4_7Model",
    "MiniCPMV4_7ViTWindowAttentionMerger",
    "MiniCPMV4_7DownsampleMLP",
    "MiniCPMV4_7Merger",
    {"MiniCPMV4_7VisionModel", "MiniCPMV4_7VisionEmbeddings", "MiniCPMV4_7VisionEncoder",
     "MiniCPMV4_7VisionEncoderLayer", "MiniCPMV4_7VisionAttention", "MiniCPMV4_7VisionMLP", false, false, true},
    true,
    false,
    true};
const MiniCpmVFamily kMiniCpmOcr{
    "MiniCPMOcrForConditionalGeneration",
    "MiniCPMOcrModel",
    "MiniCPMOcrViTWindowAttentionMerger",
    "MiniCPMOcrDownsampleMLP",
    "MiniCPMOcrMerger",
    {"MiniCPMOcrVisionModel", "MiniCPMOcrVisionEmbeddings", "MiniCPMOcrVisionEncoder", "MiniCPMOcrVisionEncoderLayer",
     "MiniCPMOcrVisionAttention", "MiniCPMOcrVisionMLP", false, false, true},
    false,
    true};

namespace {

constexpr ModelClass kClasses[] = {{"minicpmv4_6", "MiniCPMV4_6ForConditionalGeneration"},
                                   {"minicpmv4_7", "MiniCPMV4_7ForConditionalGeneration"},
                                   {"minicpm_ocr", "MiniCPMOcrForConditionalGeneration"}};
constexpr const MiniCpmVFamily* kNamed[] = {&kMiniCpmV46, &kMiniCpmV47, &kMiniCpmOcr};  ///< as kClasses
constexpr const char* kBlocks[] = {"MiniCPMV4_6VisionEncoderLayer", "MiniCPMV4_7VisionEncoderLayer",
                                   "MiniCPMOcrVisionEncoderLayer"};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  return read_minicpm_v_config(reader, *kNamed[&of - kClasses]);
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_minicpm_v(context, config.as<MiniCpmVConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<MiniCpmVConfig>();
  ModelTraits t = vision_language_traits(c.family->class_name, c.text, c.tie_word_embeddings);
  t.kernels = c.text.mixer.kernels;
  t.set_parts("vision_tower", "merger", "language_model");
  t.image_keys = {"image_size", "image_sizes"};
  t.has_idle_parts = !c.downsamples_16_times;
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules.emplace_back(c.vision.family->encoder_layer);
  t.allow({Feature::quantization, Feature::fsdp});
  if (!c.family->has_canvas_positions) t.allow({Feature::image_preferences});
  t.prompts_take_images = !c.family->has_canvas_positions;
  refuse_generate_options(t);
  for (const Feature feature : {Feature::zero3, Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<MiniCpmVConfig>();
  const ClipVisionConfig& v = c.vision;
  const std::int64_t patches = data.all_patches(), square = MiniCpmVConfig::kMerge * MiniCpmVConfig::kMerge,
                     wide = square * v.hidden_size;
  return std::max({largest_tensor_of_text_family(c.text, data),
                   bytes_of_layer(1, std::max<std::int64_t>(data.patches(), 1), v.hidden_size, v.intermediate_size,
                                  v.num_attention_heads),
                   bytes_of({patches, std::max(v.hidden_size, v.intermediate_size)}),
                   bytes_of({patches, v.num_channels, v.patch_size, v.patch_size}),
                   bytes_of({v.num_positions(), v.hidden_size}), bytes_of({wide, square * v.intermediate_size}),
                   bytes_of({wide, std::max(wide, c.text.hidden_size)})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const auto& c = config.as<MiniCpmVConfig>();
  const auto size = read_image_size(reader, data, {448, 448});
  if (!size) return;
  data.image_height = size->first;
  data.image_width = size->second;
  const auto sizes = c.cut(data.image_height, data.image_width);
  data.tiles = static_cast<std::int64_t>(sizes.size());
  data.tokens_per_image = 0;
  data.grid_t = data.grid_h = 1;
  data.grid_w = 0;  // all patches of an image are in one row
  for (const auto& [rows, columns] : sizes) {
    data.grid_w += rows * columns;
    data.tokens_per_image += c.tokens(rows, columns);
  }
  check_sequences(reader,
                  checked_product(data.images(), data.patches() / (MiniCpmVConfig::kMerge * MiniCpmVConfig::kMerge)));
}

}  // namespace

namespace family {
extern const Family minicpmv4_6{.classes = kClasses,
                                .blocks = kBlocks,
                                .read = read,
                                .build = build,
                                .traits = traits,
                                .largest_tensor = largest_tensor,
                                .read_images = read_images};
}  // namespace family

}  // namespace oometer
