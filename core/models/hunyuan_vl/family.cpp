#include "models/family.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/hunyuan_v1_dense/hunyuan_v1_dense.h"
#include "models/hunyuan_vl/hunyuan_vl.h"
#include "models/kit/grids.h"
#include "models/kit/recurrent.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr LlamaClassNames kText{
    "HunYuanVLForConditionalGeneration", "HunYuanVLTextModel", "HunYuanVLDenseV1DecoderLayer",
    "HunYuanVLDenseV1Attention",         "HunYuanVLMLP",       "HunYuanVLRMSNorm",
    "HunYuanVLRotaryEmbedding"};
constexpr VisionFamily kVision{"HunYuanVLVisionTransformer",
                               "HunYuanVLVisionPatchEmbed",
                               "",
                               "HunYuanVLVisionBlock",
                               "HunYuanVLVisionAttention",
                               "HunYuanVLVisionMLP",
                               false,
                               true,
                               true};
constexpr ModelClass kClasses[] = {{"hunyuan_vl", kText.causal_lm}};
constexpr const char* kBlocks[] = {kText.decoder_layer, kVision.encoder_layer};

ClipVisionConfig read_vision(ConfigReader& reader, std::int64_t& spatial_merge_size) {
  ClipVisionConfig c;
  c.family = &kVision;
  c.hidden_size = reader.integer("hidden_size", 1152);
  c.intermediate_size = reader.integer("intermediate_size", 4304);
  c.num_hidden_layers = reader.integer("num_hidden_layers", 27, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", 16);
  c.num_channels = reader.integer("num_channels", 3);
  c.image_size = reader.integer("max_image_size", 2048, {1, 65'536});
  c.patch_size = reader.integer("patch_size", 16, {1, 65'536});
  c.hidden_act = reader.activation("hidden_act", Activation::gelu);
  spatial_merge_size = reader.integer("spatial_merge_size", 2, {1, 1024});
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  if (c.image_size < c.patch_size)
    reader.fail_found("patch_size", "inconsistent",
                      "expected at most max_image_size (" + std::to_string(c.image_size) + "): no patch fits");
  for (const char* key : {"temporal_patch_size", "head_dim"})
    if (reader.has(key) && reader.integer(key, 1) != (key[0] == 't' ? 1 : c.hidden_size / c.num_attention_heads))
      reader.fail_found(key, "not-modelled", "another one is not supported yet: leave it out");
  if (reader.text("interpolate_mode", "bilinear") != "bilinear")
    reader.fail_found("interpolate_mode", "not-modelled", "expected \"bilinear\": another is not supported yet");
  reader.ignore({"model_type", "rms_norm_eps", "attention_dropout", "num_key_value_heads", "out_hidden_size",
                 "img_max_token_num", "min_image_size", "max_vit_seq_len", "text_hidden_size"});
  return c;
}

/// rope_parameters.mrope_section, or as older files have it.
std::int64_t read_axes(ConfigReader& reader, const TextConfig& c) {
  ConfigReader rope = reader.object(reader.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  const char* key = rope.has("xdrope_section") ? "xdrope_section" : "mrope_section";
  const std::vector<std::int64_t> sections = rope.integers(key);
  if (sections.empty() || std::accumulate(sections.begin(), sections.end(), std::int64_t{0}) * 2 != c.head_dim)
    rope.fail(key, "inconsistent",
              "expected sections that are half of a head together, which is " + std::to_string(c.head_dim / 2));
  return std::max<std::int64_t>(1, std::ssize(sections));
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  HunyuanVlConfig c;
  if (!reader.has("text_config"))
    reader.fail("text_config", "not-modelled",
                "a language model's fields at the top are not supported yet: expected them in text_config");
  ConfigReader vision = reader.object("vision_config"), text = reader.object("text_config");
  c.vision = read_vision(vision, c.spatial_merge_size);
  vision.finish();
  c.text = read_hunyuan_text(text, kText);
  if (!text.has("tie_word_embeddings")) c.text.tie_word_embeddings = true;
  c.axes = read_axes(text, c.text);
  text.ignore({"model_type", "sep_token_id"});
  text.finish();
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true) || c.text.tie_word_embeddings;
  reader.ignore({"image_token_id", "im_start_id", "im_end_id", "im_newline_id"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_hunyuan_vl(context, config.as<HunyuanVlConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<HunyuanVlConfig>();
  ModelTraits t = vision_language_traits(kText.causal_lm, c.text, c.tie_word_embeddings);
  t.set_parts("vision_tower", "vision_tower.patch_merger", "language_model");
  t.pretrain = {{}, {t.projector}, {}};  // the merger is a part of the tower
  t.finetune = {{"vision_tower.embeddings", "vision_tower.layers"}, {}, {}};
  t.image_keys = {"image_size", "image_sizes", "grid_thw", "min_pixels", "max_pixels"};
  t.convolutions = 3;
  t.has_idle_parts = true;  // the merger's image_sep
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules.emplace_back(kBlocks[1]);
  t.allow({Feature::quantization, Feature::fsdp});
  t.refuse(Feature::zero3, "not-modelled",
           "a merger that runs for each image on shards is not supported yet: expected another strategy");
  t.generates = false;
  for (const Feature feature : {Feature::inference, Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<HunyuanVlConfig>();
  const ClipVisionConfig& v = c.vision;
  const std::int64_t images = data.images(), patches = data.grid_h * data.grid_w,
                     pixels = v.num_channels * v.patch_size * v.patch_size;
  return std::max({largest_tensor_of_text(c.text, data),
                   bytes_of_layer(images, patches, v.hidden_size, v.intermediate_size, v.num_attention_heads),
                   bytes_of({images, patches, std::max(pixels, 4 * v.hidden_size)}),
                   bytes_of({c.side(), c.side(), v.hidden_size}), bytes_of({v.hidden_size, pixels}),
                   bytes_of({2 * v.hidden_size, v.hidden_size, c.spatial_merge_size, c.spatial_merge_size}),
                   bytes_of({4 * v.hidden_size, std::max(2 * v.hidden_size, c.text.hidden_size)})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const auto& c = config.as<HunyuanVlConfig>();
  // HunYuanVLImageProcessor's own size, of single images
  read_grid(reader, {c.vision.patch_size, c.spatial_merge_size, 1, 512 * 512, 2048 * 2048}, data);
  if (data.grid_t == 0) return;
  if (data.grid_t != 1)
    reader.fail(reader.has("grid_thw") ? "grid_thw" : "frames", "not-modelled",
                "videos of this model are not supported yet: expected one frame");
  if (data.grid_h <= 1 || data.grid_w <= 1)
    reader.fail("grid_thw", "inconsistent", "expected at least two rows and two columns of patches");
  data.tokens_per_image = c.tokens(data);
}

}  // namespace

namespace family {
extern const Family hunyuan_vl{.classes = kClasses,
                               .blocks = kBlocks,
                               .read = read,
                               .build = build,
                               .traits = traits,
                               .largest_tensor = largest_tensor,
                               .read_images = read_images};
}  // namespace family

}  // namespace oometer
