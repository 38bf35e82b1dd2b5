#pragma once

#include <cstdint>
#include <vector>

#include "models/vision_language.h"
#include "runtime/behaviours.h"

namespace oometer {

/// Which of a tower's tokens go on: "default" drops the class token, "full" keeps it (the original code's "patch" and
/// "cls_patch").
enum class FeatureSelect : std::uint8_t { without_class_token, full };

/// What the classes are called.
struct LlavaClass {
  const char *model_type, *class_name, *model, *projector;
};
inline constexpr LlavaClass kLlava{"llava", "LlavaForConditionalGeneration", "LlavaModel", "LlavaMultiModalProjector"},
    kLlavaNext{"llava_next", "LlavaNextForConditionalGeneration", "LlavaNextModel", "LlavaNextMultiModalProjector"};

/// transformers 5.23, models/llava/configuration_llava.py, class LlavaConfig; and the same model as the original code
/// (haotian-liu/LLaVA v1.2.2) describes it.
///
/// tie_word_embeddings: the text config's own flag is carried upwards (LlavaConfig.__post_init__).
struct LlavaConfig : VisionLanguageConfig {
  const LlavaClass* of = &kLlava;
  /// Indices into the tower's hidden states [embeddings, layer 1, ..., layer N], all in 0..N.
  std::vector<std::int64_t> vision_feature_layers;
  /// The config gave a list: the features are concatenated along the channels (torch.cat, even of one).
  bool vision_feature_layer_is_list = false;
  FeatureSelect vision_feature_select = FeatureSelect::without_class_token;
  Activation projector_hidden_act = Activation::gelu;
  bool projector_bias = true;
  /// Linear layers in the projector, an activation between each two: 2 in transformers; the original code's
  /// mm_projector_type is "linear" (1), "mlpNx_gelu" (N) or "identity" (0).
  std::int64_t projector_depth = 2;
  /// config.json written by the original code (LlavaLlamaForCausalLM): only runtime.framework "llava" runs it.
  bool original_format = false;
  bool original_code = false;  ///< runtime.framework "llava" runs it

  /// LLaVA-NeXT's (models/llava_next): the sizes that images are brought to, each several tiles of the tower's own
  /// image_size, whose features are packed without what was padding, each row followed by image_newline. None: LLaVA.
  struct Resolution {
    std::int64_t height, width;
    bool operator==(const Resolution&) const = default;
  };
  std::vector<Resolution> image_grid_pinpoints;
  /// LLaVA-OneVision's (models/llava_onevision; vision_aspect_ratio "anyres_max_N"): features of more than N tiles are
  /// scaled down. 0: LLaVA-NeXT.
  std::int64_t max_num_patches = 0;
  bool is_onevision() const { return max_num_patches != 0; }
  bool is_next() const { return !image_grid_pinpoints.empty(); }
  /// The tower is SigLIP's, not CLIP's.
  bool has_siglip() const { return !vision.family->has_class_token; }
  struct Anyres {
    std::int64_t tile_rows = 0, tile_columns = 0;
    std::int64_t unpadded_rows = 0, unpadded_columns = 0;                ///< of features, padding left out
    std::int64_t rows = 0, columns = 0;                                  ///< the same, where they are scaled down
    std::int64_t tokens = 0;                                             ///< of the language model
    std::int64_t tiles() const { return tile_rows * tile_columns + 1; }  ///< and the whole image scaled down
  };
  /// Of an image of so many pixels.
  Anyres anyres(std::int64_t height, std::int64_t width) const;

  /// Channels that the projector takes in.
  std::int64_t projector_input_size() const {
    return vision.hidden_size * static_cast<std::int64_t>(vision_feature_layers.size());
  }
  /// Tokens of the language model that one image takes.
  std::int64_t tokens_per_image() const {
    // A tower without a class token loses its first patch.
    return vision.num_positions() - (vision_feature_select == FeatureSelect::full ? 0 : 1);
  }

  bool operator==(const LlavaConfig&) const = default;
};

/// With Framework::llava the original code's keys (mm_projector_type, mm_vision_select_layer, ...) count.
LlavaConfig read_llava_config(ConfigReader& reader, Framework framework);
LlavaConfig read_llava_next_config(ConfigReader& reader);

}  // namespace oometer
