#include "models/gemma4/config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "config/reader.h"

namespace oometer {

namespace {

Gemma4VisionConfig read_gemma4_vision_config(ConfigReader reader) {
  Gemma4VisionConfig c;
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.num_key_value_heads = reader.integer("num_key_value_heads", c.num_key_value_heads);
  c.head_dim = reader.integer("head_dim", c.head_dim);
  c.pooling_kernel_size = reader.integer("pooling_kernel_size", c.pooling_kernel_size);
  c.patch_size = reader.integer("patch_size", c.patch_size);
  c.position_embedding_size = reader.integer("position_embedding_size", c.position_embedding_size);
  c.hidden_act = reader.activation("hidden_activation", c.hidden_act);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.use_clipped_linears = reader.boolean("use_clipped_linears", false);
  c.standardize = reader.boolean("standardize", false);
  reader.ignore({"attention_bias", "default_output_length", "global_head_dim", "max_position_embeddings"});
  if (c.head_dim % 4 != 0)
    reader.fail_found("head_dim", "inconsistent", "positions turn its four quarters: expected a multiple of 4");
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    reader.fail_found("num_key_value_heads", "inconsistent",
                      "expected a divisor of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  reader.finish();
  return c;
}

Gemma4AudioConfig read_gemma4_audio_config(ConfigReader reader) {
  Gemma4AudioConfig c;
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  const std::vector<std::int64_t> channels = reader.integers("subsampling_conv_channels");
  if (channels.size() == 2)
    c.subsampling_conv_channels = {channels[0], channels[1]};
  else if (!channels.empty())
    reader.fail_found("subsampling_conv_channels", "inconsistent", "expected two numbers of channels");
  c.conv_kernel_size = reader.integer("conv_kernel_size", c.conv_kernel_size);
  c.output_proj_dims = reader.integer("output_proj_dims", c.output_proj_dims);
  c.use_clipped_linears = reader.boolean("use_clipped_linears", true);
  reader.ignore({"attention_chunk_size", "attention_context_left", "attention_context_right",
                 "attention_invalid_logits_value", "attention_logit_cap", "gradient_clipping", "hidden_act",
                 "residual_weight"});
  reader.finish();
  return c;
}

/// What both classes have. `usual`: whether an image's tokens see each other unless the config says otherwise.
void read_rest(ConfigReader& reader, Gemma4Config& c, Gemma4TextConfig (*read_text)(ConfigReader&), bool usual) {
  ConfigReader text = reader.object("text_config");
  c.sees_blocks = usual && !text.is_null("use_bidirectional_attention");
  if (text.has("use_bidirectional_attention")) c.sees_blocks = text.text("use_bidirectional_attention", "") == "vision";
  c.text = read_text(text);
  text.finish();
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.max_soft_tokens = reader.integer("vision_soft_tokens_per_image", c.max_soft_tokens);
  reader.ignore({"audio_token_id", "boa_token_id", "boi_token_id", "eoa_token_id", "eoa_token_index", "eoi_token_id",
                 "image_token_id", "video_token_id", "audio_config", "vision_config"});
}

}  // namespace

Gemma4Config read_gemma4_config(ConfigReader& reader) {
  Gemma4Config c;
  if (reader.is_object("vision_config")) c.vision = read_gemma4_vision_config(reader.object("vision_config"));
  if (reader.is_object("audio_config")) c.audio = read_gemma4_audio_config(reader.object("audio_config"));
  read_rest(reader, c, read_gemma4_text_config, false);
  return c;
}

Gemma4Config read_gemma4_unified_config(ConfigReader& reader) {
  Gemma4Config c;
  c.is_unified = true;
  read_rest(reader, c, read_gemma4_unified_text_config, true);
  if (reader.is_object("vision_config")) {
    ConfigReader vision = reader.object("vision_config");
    Gemma4UnifiedVisionConfig& v = c.unified_vision.emplace();
    v.patch_size = vision.integer("patch_size", v.patch_size);
    v.pooling_kernel_size = vision.integer("pooling_kernel_size", v.pooling_kernel_size);
    v.mm_embed_dim = vision.integer("mm_embed_dim", v.mm_embed_dim);
    v.mm_posemb_size = vision.integer("mm_posemb_size", v.mm_posemb_size);
    if (vision.integer("output_proj_dims", 3840) != v.mm_embed_dim)
      vision.fail("output_proj_dims", "inconsistent",
                  "expected mm_embed_dim (" + std::to_string(v.mm_embed_dim) + "), whose features are projected");
    vision.ignore({"hidden_size", "model_patch_size", "num_soft_tokens"});
    vision.finish();
  }
  if (reader.is_object("audio_config")) {
    ConfigReader audio = reader.object("audio_config");
    c.audio_embed_dim = audio.integer("audio_embed_dim", 640);
    audio.ignore({"audio_samples_per_token", "hidden_size", "output_proj_dims"});
    audio.finish();
  }
  return c;
}

std::optional<std::pair<std::int64_t, std::int64_t>> gemma4_patches(std::int64_t height, std::int64_t width,
                                                                    const Gemma4Config& c) {
  const std::int64_t side = c.pooling_kernel_size();  // patches of a token, along a side
  const std::int64_t pixels = side * c.patch_size();
  const double target = static_cast<double>(c.max_soft_tokens * pixels * pixels);
  const double factor = std::sqrt(target / static_cast<double>(height * width));
  const auto tokens_along = [&](std::int64_t length) {
    return static_cast<std::int64_t>(std::floor(factor * static_cast<double>(length) / static_cast<double>(pixels)));
  };
  std::int64_t rows = tokens_along(height), columns = tokens_along(width);
  if (rows == 0 && columns == 0) return {};
  if (rows == 0) {
    rows = 1;
    columns = std::min(width / height, c.max_soft_tokens);
  } else if (columns == 0) {
    columns = 1;
    rows = std::min(height / width, c.max_soft_tokens);
  }
  return {{rows * side, columns * side}};
}

}  // namespace oometer
