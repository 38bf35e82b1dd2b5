#include "models/llava/config.h"

#include <optional>
#include <string>
#include <string_view>

#include "config/reader.h"
#include "models/registry.h"
#include "models/siglip/config.h"

namespace oometer {
namespace {

/// The towers that the original code's scripts name, as published on the hub.
struct Tower {
  std::string_view name;
  ClipVisionConfig config;
};

ClipVisionConfig clip_large(std::int64_t image_size) {
  ClipVisionConfig c;
  c.hidden_size = 1024;
  c.intermediate_size = 4096;
  c.projection_dim = 768;
  c.num_hidden_layers = 24;
  c.num_attention_heads = 16;
  c.image_size = image_size;
  c.patch_size = 14;
  return c;
}

/// An absent or null sub-config is what LlavaConfig.sub_configs_defaults says; one that is given, however empty, is
/// read with the defaults of its own class (SubConfigSpec.create_subconfig).
ClipVisionConfig read_vision(ConfigReader& reader) {
  if (!reader.has("vision_config")) return clip_large(336);
  ConfigReader vision = reader.object("vision_config");
  using Read = ClipVisionConfig (*)(ConfigReader&);
  const Read read = vision.choice<Read>(
      "model_type", read_clip_vision_config,
      {{"clip_vision_model", read_clip_vision_config}, {"siglip_vision_model", read_siglip_vision_config}});
  ClipVisionConfig c = read(vision);
  vision.finish();
  return c;
}

LlamaConfig read_text(ConfigReader& reader) {
  ConfigReader text = reader.object("text_config");
  LlamaConfig c = read_language_config(text);
  text.finish();
  return c;
}

/// mm_projector_type of build_vision_projector (llava/model/multimodal_projector/builder.py): the number of linears.
std::optional<std::int64_t> projector_depth(const std::string& type) {
  if (type == "linear") return 1;
  if (type == "identity") return 0;
  constexpr std::string_view kPrefix = "mlp";
  constexpr std::string_view kSuffix = "x_gelu";
  if (type.size() <= kPrefix.size() + kSuffix.size() || type.size() > 12 || !type.starts_with(kPrefix) ||
      !type.ends_with(kSuffix)) {
    return std::nullopt;
  }
  std::int64_t depth = 0;
  for (std::size_t i = kPrefix.size(); i < type.size() - kSuffix.size(); ++i) {
    if (type[i] < '0' || type[i] > '9') return std::nullopt;
    depth = depth * 10 + (type[i] - '0');
  }
  return depth >= 1 ? std::optional(depth) : std::nullopt;
}

/// Keys of the original code's config.json that name what its training script did.
void read_original_keys(ConfigReader& reader, LlavaConfig& c) {
  const std::string type = reader.text("mm_projector_type", c.original_format ? "linear" : "mlp2x_gelu");
  if (const auto depth = projector_depth(type)) {
    c.projector_depth = *depth;
  } else {
    reader.fail_found("mm_projector_type", "unknown-value", "expected linear, identity or mlpNx_gelu (mlp2x_gelu)");
  }
  c.vision_feature_select =
      reader.choice<FeatureSelect>("mm_vision_select_feature", c.vision_feature_select,
                                   {{"patch", FeatureSelect::without_class_token}, {"cls_patch", FeatureSelect::full}});
  const auto width = reader.optional_integer("mm_hidden_size");
  if (width && *width != c.vision.hidden_size) {
    reader.fail_found("mm_hidden_size", "inconsistent",
                      "expected the tower's hidden size (" + std::to_string(c.vision.hidden_size) + ")");
  }
  reader.choice<int>("mm_patch_merge_type", 0, {{"flat", 0}});
  reader.choice<int>("image_aspect_ratio", 0, {{"pad", 0}, {"square", 0}});
  reader.ignore({"freeze_mm_mlp_adapter", "freeze_mm_vision_resampler", "image_crop_resolution", "image_grid_pinpoints",
                 "image_split_resolution", "mm_projector_lr", "mm_resampler_type", "mm_use_im_patch_token",
                 "mm_use_im_start_end", "mm_vision_tower", "tokenizer_model_max_length", "tokenizer_padding_side",
                 "tune_mm_mlp_adapter", "tune_mm_vision_resampler", "unfreeze_mm_vision_tower", "use_mm_proj"});
}

/// config.json of the original code: a LlamaConfig with the tower's name in mm_vision_tower.
LlavaConfig read_original(ConfigReader& reader) {
  LlavaConfig c;
  c.original_format = true;
  c.text = read_llama_config(reader);
  c.tie_word_embeddings = c.text.tie_word_embeddings;
  const Tower towers[] = {{"openai/clip-vit-large-patch14-336", clip_large(336)},
                          {"openai/clip-vit-large-patch14", clip_large(224)},
                          {"openai/clip-vit-base-patch32", ClipVisionConfig{}}};
  const std::string name = reader.text("mm_vision_tower", towers[0].name);
  std::string known;
  bool found = false;
  for (const Tower& tower : towers) {
    known += (known.empty() ? "" : ", ") + std::string(tower.name);
    if (name == tower.name) {
      c.vision = tower.config;
      found = true;
    }
  }
  if (!found) reader.fail_found("mm_vision_tower", "not-modelled", "the towers modelled are: " + known);
  read_original_keys(reader, c);
  return c;
}

}  // namespace

LlavaConfig read_llava_config(ConfigReader& reader, Framework framework) {
  LlavaConfig c;
  const char* layer_key = "vision_feature_layer";
  if (!reader.has("text_config") && !reader.has("vision_config") && reader.has("mm_vision_tower")) {
    c = read_original(reader);
    layer_key = "mm_vision_select_layer";
  } else {
    c.vision = read_vision(reader);
    c.text = read_text(reader);
    c.projector_hidden_act = reader.activation("projector_hidden_act", Activation::gelu);
    c.projector_bias = reader.boolean("multimodal_projector_bias", true);
    c.vision_feature_select =
        reader.choice<FeatureSelect>("vision_feature_select_strategy", FeatureSelect::without_class_token,
                                     {{"default", FeatureSelect::without_class_token}, {"full", FeatureSelect::full}});
    // LlavaConfig.__post_init__: the text config's flag counts where its own is not set.
    c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false) || c.text.tie_word_embeddings;
    c.text.has_pad_token = c.text.has_pad_token || reader.has("pad_token_id");  // GenerationConfig.from_model_config
    // The processor's count; the model goes by the features that come out of the tower. vocab_size and its like at the
    // top are left from older versions of the class.
    reader.ignore({"image_seq_length", "image_token_index", "image_token_id", "vocab_size", "hidden_size"});
    if (framework == Framework::llava) {
      read_original_keys(reader, c);
      if (reader.has("mm_vision_select_layer")) layer_key = "mm_vision_select_layer";
    }
  }

  c.original_code = framework == Framework::llava;

  // Hidden states are [embeddings, layer 1, ..., layer N]; a negative index counts from the end.
  const std::int64_t states = c.vision.num_hidden_layers + 1;
  const Range index{-states, states - 1};
  c.vision_feature_layer_is_list = framework == Framework::transformers && reader.is_list(layer_key);
  if (c.vision_feature_layer_is_list) {
    c.vision_feature_layers = reader.integers(layer_key, index);
    if (c.vision_feature_layers.empty()) {
      reader.fail_found(layer_key, "out-of-range", "expected a layer's index or a list of at least one");
    }
  } else {
    c.vision_feature_layers = {reader.integer(layer_key, -2, index)};
  }
  for (std::int64_t& layer : c.vision_feature_layers) layer += layer < 0 ? states : 0;

  if (c.tokens_per_image() == 0)
    reader.fail_found("vision_feature_select_strategy", "inconsistent",
                      "expected \"full\": the image's only patch is dropped otherwise");
  if (c.projector_depth == 0 && c.projector_input_size() != c.text.hidden_size) {
    reader.fail_found("mm_projector_type", "inconsistent",
                      "expected a projector: the tower's " + std::to_string(c.projector_input_size()) +
                          " channels are not the language model's " + std::to_string(c.text.hidden_size));
  }
  return c;
}

}  // namespace oometer
