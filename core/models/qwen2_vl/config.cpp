#include "models/qwen2_vl/config.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "config/reader.h"
#include "models/kit/grids.h"
#include "models/qwen2/config.h"
#include "rounding.h"

namespace oometer {

constexpr QwenVLClassNames kQwen2VLClassNames{
    {"Qwen2VLForConditionalGeneration", "Qwen2VLTextModel", "Qwen2VLDecoderLayer", "Qwen2VLAttention", "Qwen2MLP",
     "Qwen2VLRMSNorm", "Qwen2VLRotaryEmbedding", true},
    "Qwen2VLModel",
    "Qwen2VisionTransformerPretrainedModel",
    "PatchEmbed",
    "Qwen2VLVisionRotaryEmbedding",
    "Qwen2VLVisionBlock",
    "LayerNorm",
    "VisionAttention",
    "VisionMlp",
    "PatchMerger",
    false};

constexpr QwenVLClassNames kQwen25VLClassNames{
    {"Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLTextModel", "Qwen2_5_VLDecoderLayer", "Qwen2_5_VLAttention",
     "Qwen2MLP", "Qwen2_5_VLRMSNorm", "Qwen2_5_VLRotaryEmbedding", true},
    "Qwen2_5_VLModel",
    "Qwen2_5_VisionTransformerPretrainedModel",
    "Qwen2_5_VisionPatchEmbed",
    "Qwen2_5_VLVisionRotaryEmbedding",
    "Qwen2_5_VLVisionBlock",
    "Qwen2_5_VLRMSNorm",
    "Qwen2_5_VLVisionAttention",
    "Qwen2_5_VLMLP",
    "Qwen2_5_VLPatchMerger",
    true};

namespace {

/// Sides of images in pixels, and how many frames.
constexpr Range kPixels{1, 1 << 16};

}  // namespace

QwenVisionConfig read_qwen_vision(ConfigReader& reader, bool has_windows) {
  QwenVisionConfig c;
  const char* width = has_windows ? "hidden_size" : "embed_dim";
  c.depth = reader.integer("depth", c.depth, layer_count);
  c.hidden_size = reader.integer(width, has_windows ? c.hidden_size : 1280);
  c.num_heads = reader.integer("num_heads", c.num_heads);
  c.in_channels = reader.integer("in_channels", c.in_channels, {1, 1024});
  c.patch_size = reader.integer("patch_size", c.patch_size, kPixels);
  c.spatial_merge_size = reader.integer("spatial_merge_size", c.spatial_merge_size, {1, 1024});
  c.temporal_patch_size = reader.integer("temporal_patch_size", c.temporal_patch_size, {1, 1024});
  c.hidden_act = reader.activation("hidden_act", has_windows ? Activation::silu : Activation::quick_gelu);
  c.out_hidden_size = reader.integer(has_windows ? "out_hidden_size" : "hidden_size", c.out_hidden_size);
  if (has_windows) {
    c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
    c.window_size = reader.integer("window_size", c.window_size, kPixels);
    if (reader.has("fullatt_block_indexes"))
      c.fullatt_block_indexes = reader.integers("fullatt_block_indexes", {-layer_count.max, layer_count.max});
    if (c.window_size / c.spatial_merge_size / c.patch_size == 0)
      reader.fail_found("window_size", "inconsistent", "expected at least spatial_merge_size patches");
  } else {
    c.intermediate_size = c.hidden_size * reader.integer("mlp_ratio", 4, {1, 1024});
  }
  // in_chans is not the class's name for in_channels; the others are the processor's, or of the positions' values.
  reader.ignore({"model_type", "in_chans", "spatial_patch_size", "tokens_per_second"});
  // Half of a head rotates by the row and half by the column, each half in pairs (compute_axial_rope_parameters).
  if (c.hidden_size % c.num_heads != 0 || c.head_dim() % 4 != 0)
    reader.fail_found(width, "inconsistent",
                      "expected num_heads (" + std::to_string(c.num_heads) + ") heads of a multiple of 4");
  return c;
}

LlamaConfig read_qwen_vl_text(ConfigReader& reader, const LlamaConfig& defaults, std::int64_t usual_window_layers) {
  LlamaConfig c = read_llama_sizes(reader, defaults);
  check_llama_heads(reader, c);
  if (c.head_dim * c.num_attention_heads != c.hidden_size)  // Qwen2VLAttention.__init__
    reader.fail_found(
        "hidden_size", "inconsistent",
        "expected num_attention_heads (" + std::to_string(c.num_attention_heads) + ") times the size of a head");
  read_layer_types(reader, c, usual_window_layers);
  if (c.sliding_window != 0)
    reader.fail("use_sliding_window", "not-modelled",
                "found layers that slide, which are not modelled: expected full attention in every layer");
  ConfigReader rope = reader.object(reader.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  const std::vector<std::int64_t> sections =
      rope.has("mrope_section") ? rope.integers("mrope_section") : std::vector<std::int64_t>{16, 24, 24};
  if (std::accumulate(sections.begin(), sections.end(), std::int64_t{0}) * 2 != c.head_dim)
    rope.fail("mrope_section", "inconsistent",
              "found sections that are not half of a head together (16, 24 and 24 where there is none); they must be " +
                  std::to_string(c.head_dim / 2));
  reader.ignore({"model_type"});
  return c;
}

namespace {

LlamaConfig read_text(ConfigReader& reader, const LlamaClassNames& names) {
  LlamaConfig defaults;
  defaults.names = &names;
  defaults.vocab_size = 152064;
  defaults.hidden_size = 8192;
  defaults.intermediate_size = 29568;
  defaults.num_hidden_layers = 80;
  defaults.num_attention_heads = 64;
  defaults.num_key_value_heads = 8;
  defaults.max_position_embeddings = 32768;
  defaults.qkv_bias = true;
  return read_qwen_vl_text(reader, defaults, 80);
}

}  // namespace

QwenVLConfig read_qwen_vl_config(ConfigReader& reader, const QwenVLClassNames& names) {
  QwenVLConfig c;
  c.names = &names;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_qwen_vision(vision, names.has_windows);
  vision.finish();
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  if (reader.has("text_config")) {
    ConfigReader text = reader.object("text_config");
    c.text = read_text(text, names.text);
    text.finish();
    // Left from the flat form: nothing reads them then.
    reader.ignore({"attention_dropout", "hidden_act", "hidden_size", "intermediate_size", "max_position_embeddings",
                   "max_window_layers", "num_attention_heads", "num_hidden_layers", "num_key_value_heads",
                   "sliding_window", "use_sliding_window", "vocab_size"});
  } else {
    c.text = read_text(reader, names.text);
  }
  c.tie_word_embeddings = c.tie_word_embeddings || c.text.tie_word_embeddings;  // __post_init__
  reader.ignore(
      {"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id", "vision_token_id"});
  if (c.vision.out_hidden_size != c.text.hidden_size)
    vision.fail_found(names.has_windows ? "out_hidden_size" : "hidden_size", "inconsistent",
                      "expected the language model's hidden size (" + std::to_string(c.text.hidden_size) + ")");
  return c;
}

void read_grid(ConfigReader& reader, const QwenVLConfig& config, DataConfig& data) {
  const QwenVisionConfig& v = config.vision;
  // preprocessor_config.json of Qwen/Qwen2-VL-7B-Instruct and Qwen/Qwen2.5-VL-7B-Instruct; the class itself has a
  // max_pixels of 28 * 28 * 1280.
  GridRule rule{v.patch_size, v.spatial_merge_size, v.temporal_patch_size, 56 * 56, 12'845'056};
  rule.video = {v.patch_size, v.spatial_merge_size, v.temporal_patch_size, 56 * 56, 12'845'056};  // they have one file
  read_grid(reader, rule, data);
  if (data.grid_t > 0) check_sequences(reader, checked_product(data.images(), windows_with_padding(v.windows(), data)));
}

}  // namespace oometer
