#include "config/reader.h"
#include "models/glm4v/config.h"
#include "models/glm4v/glm4v.h"
#include "models/kit/mixture.h"

/// The language model of transformers 5.23, models/glm4v_moe/modeling_glm4v_moe.py: GLM-4.5's layers without norms of
/// queries and keys, with GLM-4V's positions.
namespace oometer {

TextConfig read_glm4v_moe_text(ConfigReader& reader) {
  TextConfig d;
  d.names = &kGlm4vMoeText;
  d.vocab_size = 151'424;
  d.intermediate_size = 10'944;
  d.num_hidden_layers = 46;
  d.num_attention_heads = 96;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 65'536;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = reader.boolean("attention_bias", true);
  read_partial_rotary(reader, c, 0.5);
  check_llama_heads(reader, c);
  read_grouped_experts(reader, c,
                       {.num_experts = 128,
                        .num_experts_per_tok = 8,
                        .intermediate_size = 1408,
                        .norm_topk_prob = true,
                        .balances = true,
                        .are_counted = false},
                       1, 1);
  check_glm4v_sections(reader, c);
  reader.ignore({"model_type", "use_qk_norm", "num_nextn_predict_layers", "num_mtp_layers"});  // nothing reads them
  return c;
}

namespace {

// Glm4vMoeTextDecoderLayer
std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  AttentionParts its;
  its.rotate = rotate_first_halves;
  its.norms_at = HeadNorms::viewed;
  return pre_norm_layer(builder, c, options, its, [&](const Builder& layer) -> TextLayer::MLP {
    if (c.experts.are_in(index))
      return make_moe_with_shared(layer.child("mlp", "Glm4vMoeTextMoE"), c, "Glm4vMoeTextExperts",
                                  "Glm4vMoeTextTopkRouter", true);
    return LlamaMLP(layer.child("mlp", c.names->mlp), c);
  });
}

// Layers are called with the positions of frame, row and column, which none of them reads: a checkpoint keeps them, as
// it keeps all that its layer is called with.
PositionEmbeddings rotary_with_positions(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids,
                                         DType dtype) {
  PositionEmbeddings positions = glm4v_rotary(rotary_emb, position_ids, dtype);
  positions.alibi = position_ids;  // of a name that this class has no use for
  return positions;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.rotary = rotary_with_positions;
  return parts;
}

}  // namespace

DecoderParts glm4v_moe_text_parts(const TextConfig& config, const ModelOptions& options) {
  return balanced<parts>(config, options);
}

}  // namespace oometer
