#include "models/mllama/config.h"

#include <nlohmann/json.hpp>
#include <string>

#include "config/reader.h"

namespace oometer {

namespace {

constexpr LlamaClassNames kMllamaText{"MllamaForConditionalGeneration",
                                      "MllamaTextModel",
                                      "MllamaSelfAttentionDecoderLayer",
                                      "MllamaTextSelfAttention",
                                      "MllamaTextMLP",
                                      "MllamaTextRMSNorm",
                                      "MllamaRotaryEmbedding",
                                      true};

MllamaVisionConfig read_mllama_vision(ConfigReader& reader) {
  constexpr Range kPatchRange{1, 1 << 16};
  MllamaVisionConfig c;
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_global_layers = reader.integer("num_global_layers", c.num_global_layers, layer_count);
  c.attention_heads = reader.integer("attention_heads", c.attention_heads);
  c.num_channels = reader.integer("num_channels", c.num_channels, {1, 1024});
  c.image_size = reader.integer("image_size", c.image_size, kPatchRange);
  c.patch_size = reader.integer("patch_size", c.patch_size, kPatchRange);
  c.max_num_tiles = reader.integer("max_num_tiles", c.max_num_tiles, {1, 1024});
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  if (reader.has("intermediate_layers_indices"))
    c.intermediate_layers_indices = reader.integers("intermediate_layers_indices", {-layer_count.max, layer_count.max});
  if (const nlohmann::json* ratios = reader.find("supported_aspect_ratios"); ratios && ratios->is_array())
    c.max_aspect_ratio_id = static_cast<std::int64_t>(ratios->size());
  const std::int64_t width = reader.integer("vision_output_dim", 7680);
  reader.ignore({"model_type", "norm_eps", "attention_dropout", "projection_dim", "num_attention_heads"});
  for (const std::int64_t layer : c.intermediate_layers_indices)
    if (layer >= c.num_hidden_layers || layer < -c.num_hidden_layers)
      reader.fail_found("intermediate_layers_indices", "out-of-range",
                        "expected the index of one of the tower's " + std::to_string(c.num_hidden_layers) + " layers");
  if (c.hidden_size % c.attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of attention_heads (" + std::to_string(c.attention_heads) + ")");
  if (width != c.output_dim())
    reader.fail_found("vision_output_dim", "inconsistent",
                      "expected " + std::to_string(c.output_dim()) +
                          ": hidden_size of the last layer and of each of intermediate_layers_indices");
  if (c.patch_size > c.image_size)
    reader.fail_found("patch_size", "inconsistent",
                      "expected at most image_size (" + std::to_string(c.image_size) + "): no patch fits");
  else if (c.num_patches() == c.padded_patches())  // `attention_mask[:, :, -0:] = 0` masks all
    reader.fail_found("image_size", "inconsistent",
                      "expected one whose patches and class token are no multiple of 8, of which the class masks all");
  return c;
}

}  // namespace

MllamaConfig read_mllama_config(ConfigReader& reader) {
  MllamaConfig c;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_mllama_vision(vision);
  vision.finish();
  ConfigReader text = reader.object("text_config");
  LlamaConfig d;
  d.names = &kMllamaText;
  d.vocab_size = 128256;
  d.intermediate_size = 14336;
  d.num_hidden_layers = 40;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 131072;
  d.has_pad_token = true;
  c.text = read_llama_sizes(text, d);
  c.text.attention_dropout = text.number("dropout", 0, 0, 1);
  check_llama_heads(text, c.text);
  if (c.text.head_dim * c.text.num_attention_heads != c.text.hidden_size)  // MllamaTextSelfAttention.__init__
    text.fail_found(
        "hidden_size", "inconsistent",
        "expected num_attention_heads (" + std::to_string(c.text.num_attention_heads) + ") times the size of a head");
  std::vector<std::int64_t> layers{3, 8, 13, 18, 23, 28, 33, 38};
  if (text.has("cross_attention_layers")) layers = text.integers("cross_attention_layers", {0, layer_count.max});
  c.has_cross_attention.resize(static_cast<std::size_t>(c.text.num_hidden_layers));
  for (const std::int64_t layer : layers)
    if (layer < c.text.num_hidden_layers) c.has_cross_attention[static_cast<std::size_t>(layer)] = true;
  text.ignore({"model_type", "tie_word_embeddings"});  // its head has a weight of its own whatever the file says
  text.finish();
  c.text.tie_word_embeddings = false;
  reader.ignore({"image_token_index", "image_token_id", "tie_word_embeddings"});
  return c;
}

}  // namespace oometer
