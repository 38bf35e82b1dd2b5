#include "models/family.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/llama/family.h"
#include "models/perception_lm/perception_lm.h"
#include "models/registry.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"perception_lm", "PerceptionLMForConditionalGeneration"}};
constexpr const char* kBlocks[] = {"EvaBlock"};
constexpr std::int64_t kGiganticMlp = 8960;

/// timm's own arguments of an architecture (models/eva.py), and model_args in their place.
PerceptionEncoderConfig read_encoder(ConfigReader& reader) {
  struct Size {
    std::int64_t embed_dim, depth, num_heads, patch_size, image_size;
    bool class_token, scales_layers, has_last_norm;
  };
  const Size size =
      reader.choice<Size>("architecture", {},
                          {{"vit_pe_core_tiny_patch16_384", {192, 12, 3, 16, 384, true, false, true}},
                           {"vit_pe_core_small_patch16_384", {384, 12, 6, 16, 384, true, false, true}},
                           {"vit_pe_core_base_patch16_224", {768, 12, 12, 16, 224, true, false, true}},
                           {"vit_pe_core_large_patch14_336", {1024, 24, 16, 14, 336, true, false, true}},
                           {"vit_pe_core_gigantic_patch14_448", {1536, 50, 16, 14, 448, false, false, true}},
                           {"vit_pe_lang_large_patch14_448", {1024, 23, 16, 14, 448, true, true, false}},
                           {"vit_pe_lang_gigantic_patch14_448", {1536, 47, 16, 14, 448, false, true, false}}});
  PerceptionEncoderConfig c;
  if (size.depth == 0) {
    if (!reader.has("architecture"))
      reader.fail("architecture", "missing", "expected timm's name of a Perception Encoder");
    return c;
  }
  ConfigReader args = reader.object("model_args");
  c.embed_dim = args.integer("embed_dim", size.embed_dim);
  c.depth = args.integer("depth", size.depth, layer_count);
  c.num_heads = args.integer("num_heads", size.num_heads);
  c.patch_size = args.integer("patch_size", size.patch_size, {1, 65'536});
  c.class_token = args.boolean("class_token", size.class_token);
  c.has_last_norm = args.boolean("use_post_transformer_norm", size.has_last_norm);
  c.scales_layers = args.is_null("init_values") ? false : args.has("init_values") || size.scales_layers;
  args.number("init_values", 0.1, -1e9, 1e9);
  c.hidden_features = size.embed_dim == 1536 ? c.embed_dim * kGiganticMlp / 1536 : 4 * c.embed_dim;
  if (args.has("mlp_ratio"))
    c.hidden_features =
        static_cast<std::int64_t>(static_cast<double>(c.embed_dim) * args.number("mlp_ratio", 4, 0, 1024));
  const std::vector<std::int64_t> sides = args.integers("img_size", {1, 65'536});
  c.image_size = sides.empty() ? size.image_size : sides.front();
  if (!std::all_of(sides.begin(), sides.end(), [&](std::int64_t side) { return side == c.image_size; }))
    args.fail_found("img_size", "not-modelled", "images that are no squares are not supported yet");
  if (!args.has("global_pool") || !args.text("global_pool", "").empty())
    args.fail("global_pool", "not-modelled", "a pool behind the encoder is not supported yet: expected \"\"");
  args.ignore({"ref_feat_shape", "num_classes"});
  args.finish();
  if (c.embed_dim % c.num_heads != 0 || c.embed_dim / c.num_heads % 4 != 0)
    reader.fail("model_args", "inconsistent",
                "found embed_dim " + std::to_string(c.embed_dim) +
                    "; expected a multiple of 4 for each of num_heads (" + std::to_string(c.num_heads) + ")");
  if (c.image_size < c.patch_size)
    reader.fail("model_args", "inconsistent", "found an img_size that is smaller than a patch");
  reader.ignore({"model_type", "do_pooling", "num_classes", "num_features", "global_pool", "label_names",
                 "pretrained_cfg", "initializer_range"});
  return c;
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  PerceptionLmConfig c;
  ConfigReader vision = reader.object("vision_config"), text = reader.object("text_config");
  c.vision = read_encoder(vision);
  vision.finish();
  c.text = read_language_config(text);
  text.finish();
  c.vision_use_cls_token = reader.boolean("vision_use_cls_token", true);
  c.projector_pooling_ratio = reader.integer("projector_pooling_ratio", 1, {1, 1024});
  c.tie_word_embeddings = reader.is_null("tie_word_embeddings")
                              ? c.text.tie_word_embeddings
                              : reader.boolean("tie_word_embeddings", c.text.tie_word_embeddings);
  if (c.vision_use_cls_token != c.vision.class_token)
    reader.fail("vision_use_cls_token", "inconsistent", "expected what the encoder's class_token is");
  if (c.projector_pooling_ratio > c.vision.side())
    reader.fail_found("projector_pooling_ratio", "inconsistent",
                      "expected at most " + std::to_string(c.vision.side()) + ": nothing is left of an image");
  reader.ignore({"image_token_id", "video_token_id"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_perception_lm(context, config.as<PerceptionLmConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<PerceptionLmConfig>();
  ModelTraits t = vision_language_traits(kClasses[0].class_name, c.text, c.tie_word_embeddings);
  t.set_parts("vision_tower", "multi_modal_projector", "language_model");
  t.image_keys = {"image_size", "tiles"};
  t.image_size = c.vision.image_size;
  t.cuts_images = t.chooses_tiles = true;
  t.default_sequence_length = std::max(t.default_sequence_length, 37 * c.tokens_per_tile());
  t.oldest_transformers = {5, 23, 0};
  t.allow({Feature::quantization, Feature::fsdp, Feature::packing});
  t.refuse(Feature::flash_attention_2, "inconsistent", "timm's encoder is not made for it: use sdpa or eager");
  t.refuse(Feature::zero3, "not-modelled",
           "timm's encoder, whose parameters ZeRO-3 gathers for another module, is not supported yet: expected another "
           "strategy");
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

/// PerceptionLMImageProcessor._fit_image_to_canvas and, where no canvas is large enough, _find_closest_aspect_ratio:
/// columns times rows of tiles.
std::int64_t count_tiles_of(double height, double width, double tile) {
  constexpr std::int64_t kMost = 36;
  struct Shapes {
    double ratio;
    std::vector<std::pair<std::int64_t, std::int64_t>> of;
  };
  std::vector<Shapes> shapes;  // in the order in which Python's dictionary has them
  for (std::int64_t count = kMost; count > 0; --count)
    for (std::int64_t columns = 1; columns <= count; ++columns) {
      if (count % columns != 0) continue;
      const double ratio = static_cast<double>(columns) / static_cast<double>(count / columns);
      auto found = std::find_if(shapes.begin(), shapes.end(), [&](const Shapes& its) { return its.ratio == ratio; });
      if (found == shapes.end()) found = shapes.insert(shapes.end(), {ratio, {}});
      found->of.emplace_back(columns, count / columns);
    }
  const double scale = width / height;
  std::int64_t best = 0;
  double shorter = 0;
  for (const Shapes& its : shapes)
    for (const auto& [columns, rows] : its.of) {
      const double wide = static_cast<double>(columns) * tile, high = static_cast<double>(rows) * tile;
      if (wide < width || high < height) continue;
      const double factor = std::min(wide / width, high / height);
      const double its_shorter = scale > 1   ? std::floor(factor * width / scale)
                                 : scale < 1 ? std::floor(factor * height * scale)
                                             : factor * height;
      if (best != 0 && its_shorter < shorter) continue;
      best = columns * rows;
      shorter = its_shorter;
    }
  if (best != 0) return best;
  const Shapes* closest = nullptr;
  const auto distance = [&](double ratio) { return std::abs(scale >= 1 ? ratio - scale : 1 / ratio - 1 / scale); };
  for (const Shapes& its : shapes)
    if ((scale >= 1 ? its.ratio <= scale : its.ratio > scale) &&
        (!closest || distance(its.ratio) < distance(closest->ratio)))
      closest = &its;
  for (const auto& [columns, rows] : closest->of) best = std::max(best, columns * rows);
  return best;
}

ImageCount count_image(const FamilyConfig& config, std::int64_t height, std::int64_t width, std::int64_t tiles) {
  const auto& c = config.as<PerceptionLmConfig>();
  if (tiles == 0)  // the whole image comes first
    tiles = 1 + count_tiles_of(static_cast<double>(height), static_cast<double>(width),
                               static_cast<double>(c.vision.image_size));
  return {tiles, tiles * c.tokens_per_tile()};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<PerceptionLmConfig>();
  const PerceptionEncoderConfig& v = c.vision;
  const std::int64_t tiles = std::max<std::int64_t>(data.images(), 1) * std::max<std::int64_t>(data.tiles, 1),
                     patches = v.side() * v.side() + 1;
  return std::max(
      {largest_tensor_of(c.text, data),
       bytes_of_layer(tiles, patches, v.embed_dim, std::max(v.hidden_features, 3 * v.embed_dim), v.num_heads),
       bytes_of({tiles, 3, v.image_size, v.image_size}), bytes_of({v.embed_dim, 3, v.patch_size, v.patch_size}),
       bytes_of({tiles, patches, c.text.hidden_size}),
       bytes_of({c.text.hidden_size, std::max(c.text.hidden_size, v.embed_dim)})});
}

}  // namespace

namespace family {
extern const Family perception_lm{.classes = kClasses,
                                  .blocks = kBlocks,
                                  .read = read,
                                  .build = build,
                                  .traits = traits,
                                  .largest_tensor = largest_tensor,
                                  .count_image = count_image};
}  // namespace family

}  // namespace oometer
