#include "models/family.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "config/reader.h"
#include "models/clip/family.h"
#include "models/granite/granite.h"
#include "models/granite4_vision/granite4_vision.h"
#include "models/kit/text_family.h"
#include "models/llava/next.h"
#include "models/siglip/config.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr LlamaClassNames kTextNames{"Granite4VisionForConditionalGeneration",
                                     "Granite4VisionTextModel",
                                     "Granite4VisionTextDecoderLayer",
                                     "Granite4VisionTextAttention",
                                     "Granite4VisionTextMLP",
                                     "Granite4VisionTextRMSNorm",
                                     "Granite4VisionTextRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"granite4_vision", kTextNames.causal_lm}};
constexpr const char* kBlocks[] = {kTextNames.decoder_layer, kClipVision.encoder_layer, kSiglipVision.encoder_layer,
                                   kBlip2QFormer.layer};

ClipVisionConfig read_vision(ConfigReader& reader) {
  ConfigReader vision = reader.object("vision_config");
  using Read = ClipVisionConfig (*)(ConfigReader&);
  const Read read = vision.choice<Read>(
      "model_type", read_clip_vision_config,
      {{"clip_vision_model", read_clip_vision_config}, {"siglip_vision_model", read_siglip_vision_config}});
  ClipVisionConfig c = read(vision);
  vision.finish();
  return c;
}

TextConfig read_text(ConfigReader& reader) {
  ConfigReader text = reader.object("text_config");
  if (const std::string type = text.text("model_type", "granite"); type != "granite" && type != "granite4_vision_text")
    text.fail_found("model_type", "not-modelled", "expected granite; other language models are not supported yet");
  TextConfig c = read_granite_config(text);
  c.names = &kTextNames;
  text.finish();
  return c;
}

/// Granite4VisionConfig.__post_init__ gives the Q-Former the tower's width.
QFormerConfig read_qformer(ConfigReader& reader, const ClipVisionConfig& vision) {
  ConfigReader qformer = reader.object("qformer_config");
  if (qformer.text("model_type", "blip_2_qformer") != "blip_2_qformer")
    qformer.fail_found("model_type", "not-modelled", "expected blip_2_qformer; others are not supported yet");
  QFormerConfig c = read_qformer_config(qformer, kBlip2QFormer);
  if (!reader.has("qformer_config")) {  // Granite4VisionConfig.sub_configs_defaults
    c.num_hidden_layers = c.cross_attention_frequency = 1;
    c.max_position_embeddings = 2048;
  }
  qformer.finish();
  c.hidden_size = c.encoder_hidden_size = vision.hidden_size;
  c.num_attention_heads = vision.hidden_size / 64;
  if (c.num_attention_heads == 0 || c.hidden_size % c.num_attention_heads != 0)
    reader.fail(reader.has("vision_config") ? "vision_config" : "qformer_config", "inconsistent",
                "found a hidden_size of " + std::to_string(vision.hidden_size) +
                    " in the tower; expected a multiple of 64, of which each head of the Q-Former has one");
  if (c.num_attention_heads == 0) c.num_attention_heads = 1;
  return c;
}

/// "1/2": as many of a window's patches are left along each side.
void read_downsample_rate(ConfigReader& reader, Granite4VisionConfig& c) {
  constexpr const char* kKey = "downsample_rate";
  const std::string rate = reader.text(kKey, "");
  const std::size_t slash = rate.find('/');
  const auto side_of = [](const std::string& digits) -> std::int64_t {
    const bool is_number = !digits.empty() && digits.size() <= 4 &&
                           std::all_of(digits.begin(), digits.end(), [](char d) { return d >= '0' && d <= '9'; });
    return is_number ? std::stoll(digits) : 0;
  };
  if (slash != std::string::npos) {
    c.query_side = side_of(rate.substr(0, slash));
    c.window_side = side_of(rate.substr(slash + 1));
  }
  if (c.query_side == 0 || c.window_side == 0) {
    const char* const why = "expected a fraction of numbers from 1 to 9999, as \"4/8\"";
    reader.has(kKey) ? reader.fail_found(kKey, "wrong-type", why) : reader.fail(kKey, "missing-key", why);
    c.query_side = c.window_side = 1;
  } else if (c.query_side > c.window_side) {
    reader.fail_found(kKey, "not-modelled", "more features than patches are not supported yet: expected at most 1");
  } else if (c.image_side() % c.window_side != 0) {
    reader.fail_found(kKey, "inconsistent",
                      "expected windows that divide the " + std::to_string(c.image_side()) + " patches of a side");
  } else if (!c.spatial_target_layers.empty() && (c.window_side != 2 * c.query_side || c.image_side() % 2 != 0)) {
    reader.fail_found(kKey, "inconsistent",
                      "expected a half, as \"4/8\", and an even number of patches along a side (found " +
                          std::to_string(c.image_side()) + "): of spatial features each is one corner of four patches");
  }
}

void read_deepstack_map(ConfigReader& reader, Granite4VisionConfig& c) {
  constexpr const char* kKey = "deepstack_layer_map";
  const std::int64_t states = c.vision.num_hidden_layers + 1;
  const nlohmann::json* const list = reader.has(kKey) ? reader.find(kKey) : nullptr;
  const auto is_index = [](const nlohmann::json& index, std::int64_t least, std::int64_t beyond) {
    return index.is_number_integer() && index >= least && index < beyond;
  };
  if (list && list->is_array())
    for (const nlohmann::json& pair : *list) {
      if (!pair.is_array() || pair.size() != 2 || !is_index(pair[0], -states, states) ||
          !is_index(pair[1], 0, c.text.num_hidden_layers))
        break;
      const std::int64_t layer = pair[0];
      c.deepstack_layer_map.emplace_back(layer < 0 ? layer + states : layer, pair[1].get<std::int64_t>());
    }
  if (c.deepstack_layer_map.empty() || c.deepstack_layer_map.size() != list->size()) {
    const std::string why = "expected a list of [layer of the tower, layer of the text], from -" +
                            std::to_string(states) + " to " + std::to_string(states - 1) + " and from 0 to " +
                            std::to_string(c.text.num_hidden_layers - 1);
    list ? reader.fail_found(kKey, "wrong-type", why) : reader.fail(kKey, "missing-key", why);
    c.deepstack_layer_map = {{0, 0}};
  }
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  Granite4VisionConfig c;
  c.vision = read_vision(reader);
  c.text = read_text(reader);
  c.qformer = read_qformer(reader, c.vision);
  const std::int64_t states = c.vision.num_hidden_layers + 1;
  read_deepstack_map(reader, c);
  c.spatial_vision_layer = reader.integer("spatial_vision_layer", -1, {-states, states - 1});
  if (c.spatial_vision_layer < 0) c.spatial_vision_layer += states;
  c.spatial_target_layers = {12, 15, 18, 21};
  if (reader.has("spatial_target_layers"))
    c.spatial_target_layers = reader.integers("spatial_target_layers", {0, 1'000'000});
  if (c.spatial_target_layers.size() > 4)
    reader.fail_found("spatial_target_layers", "inconsistent",
                      "expected at most 4 layers: one for each corner of 2 x 2 patches");
  read_downsample_rate(reader, c);
  c.projector_dropout = reader.number("projector_dropout", 0.1, 0, 1);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  c.tiles.of = &kLlavaNext;
  c.tiles.vision = c.vision;
  c.tiles.text = c.text;
  c.tiles.tie_word_embeddings = c.tie_word_embeddings;
  c.tiles.image_grid_pinpoints = read_grid_pinpoints(reader, c.vision.image_size);
  c.tiles.vision_feature_select =
      reader.choice<FeatureSelect>("vision_feature_select_strategy", FeatureSelect::without_class_token,
                                   {{"default", FeatureSelect::without_class_token}, {"full", FeatureSelect::full}});
  if (c.tiles.tokens_per_image() != c.vision.num_patches())
    reader.fail_found("vision_feature_select_strategy", "inconsistent",
                      c.tiles.has_siglip() ? "expected \"full\": this tower has no class token to drop"
                                           : "expected \"default\": with the class token the features are no grid");
  const std::int64_t features = std::max<std::int64_t>(c.windows_of_side() * c.query_side, 1);
  c.tiles.vision.patch_size = std::max<std::int64_t>(c.vision.image_size / features, 1);
  if (c.tiles.vision.image_size / c.tiles.vision.patch_size != features)
    reader.fail("downsample_rate", "not-modelled",
                "found a tower of so many patches that what is left of them is not supported yet");
  c.text.has_pad_token = c.text.has_pad_token || reader.has("pad_token_id");
  reader.ignore({"image_seq_length", "image_token_index", "image_token_id", "vision_feature_layer",
                 "use_image_newline_parameter", "use_spatial_sampling", "spatial_stride", "projector_hidden_act",
                 "multimodal_projector_bias", "vocab_size", "hidden_size"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_granite4_vision(context, config.as<Granite4VisionConfig>(), data, options);
}

/// The Q-Former's attention calls functional.dropout.
FamilyConfig without_dropout(const FamilyConfig& config) {
  Granite4VisionConfig c = config.as<Granite4VisionConfig>();
  c.projector_dropout = c.qformer.hidden_dropout_prob = 0;
  return c;
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Granite4VisionConfig>();
  ModelTraits t = vision_language_traits(kClasses[0].class_name, c.tiles);
  t.set_parts("vision_tower", "", "language_model");
  t.no_split_modules.emplace_back("Granite4VisionWindowQFormerDownsampler");
  t.cuts_images = true;
  t.image_keys.insert(t.image_keys.end(), {"image_sizes", "tiles"});
  t.default_sequence_length =
      std::max(t.default_sequence_length, c.tiles.anyres(c.vision.image_size, c.vision.image_size).tokens);
  t.oldest_transformers = {5, 23, 0};
  t.has_idle_parts = true;  // the tower's last norm
  t.allow({Feature::quantization, Feature::packing, Feature::image_preferences});
  t.refuse(Feature::flash_attention_2, "inconsistent", "the Q-Former has no flash attention: expected sdpa or eager");
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images, Feature::pretrain,
                                Feature::finetune, Feature::zero3, Feature::fsdp})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

ImageCount count_image(const FamilyConfig& config, std::int64_t height, std::int64_t width, std::int64_t) {
  const LlavaConfig::Anyres anyres = config.as<Granite4VisionConfig>().tiles.anyres(height, width);
  return {anyres.tiles(), anyres.tokens};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Granite4VisionConfig>();
  const std::int64_t windows = data.all_tiles() * c.windows_of_side() * c.windows_of_side(),
                     seen = c.window_side * c.window_side;
  return std::max({largest_tensor_of(c.vision, data), largest_tensor_of_text_family(c.text, data),
                   largest_tensor_of_qformer(c.qformer, windows, c.query_side * c.query_side, seen),
                   bytes_of({windows, seen, std::max(c.vision.hidden_size, c.text.hidden_size)}),
                   bytes_of({c.vision.hidden_size, c.text.hidden_size})});
}

}  // namespace

namespace family {
extern const Family granite4_vision{.classes = kClasses,
                                    .blocks = kBlocks,
                                    .read = read,
                                    .build = build,
                                    .traits = traits,
                                    .largest_tensor = largest_tensor,
                                    .count_image = count_image,
                                    .without_dropout = without_dropout};
}  // namespace family

}  // namespace oometer
