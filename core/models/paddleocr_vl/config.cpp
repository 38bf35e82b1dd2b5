#include "models/paddleocr_vl/config.h"

#include <numeric>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/kit/grids.h"
#include "models/llama/family.h"

namespace oometer {

namespace {

constexpr LlamaClassNames kText{"PaddleOCRVLForConditionalGeneration",
                                "PaddleOCRTextModel",
                                "PaddleOCRDecoderLayer",
                                "PaddleOCRAttention",
                                "PaddleOCRMLP",
                                "PaddleOCRRMSNorm",
                                "PaddleOCRRotaryEmbedding",
                                true};
constexpr VisionFamily kVision{"PaddleOCRVisionModel",
                               "PaddleOCRVisionEmbeddings",
                               "PaddleOCRVisionEncoder",
                               "PaddleOCRVisionEncoderLayer",
                               "PaddleOCRVisionAttention",
                               "PaddleOCRVisionMLP",
                               false,
                               true,
                               true};

ClipVisionConfig read_vision(ConfigReader& reader, std::int64_t& spatial_merge_size) {
  ClipVisionConfig d;
  d.family = &kVision;
  d.hidden_size = 1152;
  d.intermediate_size = 4304;
  d.num_hidden_layers = 27;
  d.num_attention_heads = 16;
  d.image_size = 384;
  d.patch_size = 14;
  d.hidden_act = Activation::gelu_tanh;
  const ClipVisionConfig c = read_vision_sizes(reader, d);
  spatial_merge_size = reader.integer("spatial_merge_size", spatial_merge_size, {1, 1024});
  reader.ignore({"model_type", "layer_norm_eps", "rope_parameters", "temporal_patch_size", "tokens_per_second"});
  if (c.attention_dropout != 0)
    reader.fail_found("attention_dropout", "not-modelled", "dropout in this tower is not supported yet: expected 0");
  check_axial_heads(reader, c.hidden_size, "num_attention_heads", c.num_attention_heads);
  return c;
}

TextConfig read_text(ConfigReader& reader) {
  TextConfig d;
  d.names = &kText;
  d.vocab_size = 103424;
  d.hidden_size = 1024;
  d.intermediate_size = 3072;
  d.num_hidden_layers = 18;
  d.num_attention_heads = 16;
  d.num_key_value_heads = 2;
  d.max_position_embeddings = 131072;
  d.tie_word_embeddings = true;
  TextConfig c = read_text_sizes(reader, d, 128);
  c.qkv_bias = c.output_bias = c.mlp_bias = reader.boolean("use_bias", false);
  c.attention_dropout = 0;  // PaddleOCRAttention
  check_llama_heads(reader, c);
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

}  // namespace

PaddleOcrVlConfig read_paddleocr_vl_config(ConfigReader& reader) {
  PaddleOcrVlConfig c;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_vision(vision, c.spatial_merge_size);
  vision.finish();
  const bool ties = reader.boolean("tie_word_embeddings", true);
  if (reader.has("text_config")) {
    ConfigReader text = reader.object("text_config");
    c.text = read_text(text);
    text.finish();
  } else {
    c.text = read_text(reader);
    c.text.tie_word_embeddings = true;  // PaddleOCRTextConfig's own: the flat form's goes to PaddleOCRVLConfig alone
  }
  c.tie_word_embeddings = ties || c.text.tie_word_embeddings;  // __post_init__
  reader.ignore({"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"});
  return c;
}

}  // namespace oometer
