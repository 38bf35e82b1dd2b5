#include "models/kimi_k25/config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/kit/packed_images.h"
#include "rounding.h"

namespace oometer {

namespace {

KimiK25VisionConfig read_kimi_k25_vision(ConfigReader& reader) {
  constexpr Range kPatchRange{1, 1 << 16};
  KimiK25VisionConfig c;
  c.patch_size = reader.integer("patch_size", c.patch_size, kPatchRange);
  c.pos_emb_side = read_square_positions(reader, c.pos_emb_side);
  c.pos_emb_time = reader.integer("pos_emb_time", c.pos_emb_time, kPatchRange);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  const std::vector<std::int64_t> merge = reader.integers("merge_kernel_size", {1, 1024});
  if (!merge.empty()) c.merge_size = merge.front();
  if (!merge.empty() && (merge.size() != 2 || merge[0] != merge[1] || c.merge_size == 1))
    reader.fail_found("merge_kernel_size", "not-modelled", "expected a number above 1 twice, as published models have");
  reader.ignore({"model_type", "rope_parameters"});
  check_axial_heads(reader, c.hidden_size, "num_attention_heads", c.num_attention_heads);
  return c;
}

}  // namespace

KimiK25Config read_kimi_k25_config(ConfigReader& reader) {
  KimiK25Config c;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_kimi_k25_vision(vision);
  vision.finish();
  ConfigReader text = reader.object("text_config");
  const std::string kind = text.text("model_type", "deepseek_v3");
  if (kind != "deepseek_v3" && kind != "kimi_k2")  // __post_init__
    text.fail_found("model_type", "not-modelled", "expected \"deepseek_v3\"");
  c.text = read_deepseek_config(text, deepseek_v3_defaults());
  text.finish();
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  reader.ignore({"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id",
                 "projection_layer_norm_eps"});
  if (const std::int64_t width = reader.integer("projection_hidden_size", 1152); width != c.vision.hidden_size)
    reader.fail_found("projection_hidden_size", "inconsistent",
                      "expected the tower's hidden_size (" + std::to_string(c.vision.hidden_size) + ")");
  return c;
}

std::pair<std::int64_t, std::int64_t> kimi_k25_patches(std::int64_t height, std::int64_t width,
                                                       const KimiK25VisionConfig& config) {
  constexpr double kMaxPatches = 16'384;
  constexpr std::int64_t kMaxSide = 512;  // patches
  const std::int64_t patch = config.patch_size, longest = kMaxSide * patch, factor = config.merge_size * patch;
  const auto of = [](std::int64_t x) { return static_cast<double>(x); };
  const double patches = std::max(1.0, of(height / patch)) * std::max(1.0, of(width / patch));
  const double scale =
      std::min({1.0, std::sqrt(kMaxPatches / patches), of(longest) / of(height), of(longest) / of(width)});
  const auto side = [&](std::int64_t pixels) {
    const std::int64_t scaled = std::max<std::int64_t>(1, static_cast<std::int64_t>(of(pixels) * scale));
    return round_up(std::min(scaled, longest), factor) / patch;
  };
  return {side(height), side(width)};
}

}  // namespace oometer
