#include <numeric>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/glm4v/config.h"
#include "models/glm4v/glm4v.h"
#include "models/kit/text_family.h"

/// The language model of transformers 5.23, models/glm4v/modeling_glm4v.py: GLM-4's layers with Qwen2-VL's positions.
/// GLM-OCR's projections have no biases.
namespace oometer {

// Glm4vTextRotaryEmbedding.forward: of the angles of all three positions each section takes one's; a pair of
// neighbours has one. Glm4vMoeTextRotaryEmbedding repeats all of them: the same memory.
PositionEmbeddings glm4v_rotary(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids, DType dtype) {
  Context& context = position_ids.context();
  ModuleCall call(context, rotary_emb.module);
  const NoGrad no_grad(context);
  Tensor cos, sin;  // they go after freqs, cos first
  Tensor freqs = rotary_angles(position_ids, rotary_emb.inv_freq);
  const auto of = [&](Op op) {
    const Tensor values = pointwise(op, {&freqs}, DType::float32);
    return mul_scalar(values);
  };
  cos = of(Op::cos);
  sin = of(Op::sin);
  const auto recomposition_frequencies = [&](const Tensor& freq) {
    Shape sizes = select(freq, 0, 0).sizes();
    const Tensor chosen = empty(context, Op::cat, sizes, DType::float32);
    sizes[2] *= 2;
    return empty(context, Op::clone, sizes, DType::float32);  // repeat_interleave
  };
  sin = recomposition_frequencies(sin);
  cos = recomposition_frequencies(cos);
  PositionEmbeddings result{to(cos, dtype), to(sin, dtype)};
  freqs.reset();
  cos.reset();
  return {call.result(result.cos), call.result(result.sin)};
}

namespace {

// Glm4vTextDecoderLayer
std::unique_ptr<DecoderLayer> make_glm4v_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                               std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, sandwich_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, c.names->rms_norm), norm_of(options.liger, rms_norm), {c.hidden_size});
  };
  AttentionParts its;
  its.projects_first = true;
  its.rotate = rotate_first_halves;  // of pairs: the same memory
  layer->self_attn = TextAttention(builder.child("self_attn", c.names->attention), c, options, its);
  layer->mlp = FusedMLP(builder.child("mlp", c.names->mlp), c, options.liger);
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  layer->attention_norm = norm("post_self_attn_layernorm");
  layer->output_norm = norm("post_mlp_layernorm");
  return layer;
}

}  // namespace

TextConfig read_glm4v_text(ConfigReader& reader, const Glm4vClass& of) {
  TextConfig d;
  d.names = of.text;
  if (of.is_ocr()) {
    d.vocab_size = 59392;
    d.hidden_size = 1024;
    d.intermediate_size = 4096;
    d.num_hidden_layers = d.num_attention_heads = 16;
    d.num_key_value_heads = 8;
    d.max_position_embeddings = 131072;
  } else {
    d.vocab_size = 151552;
    d.intermediate_size = 13696;
    d.num_hidden_layers = 40;
    d.num_key_value_heads = 2;
    d.max_position_embeddings = 32768;
  }
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = !of.is_ocr();
  read_partial_rotary(reader, c, 1);
  check_llama_heads(reader, c);
  if (!of.is_ocr() && c.head_dim * c.num_attention_heads != c.hidden_size)  // Glm4vTextAttention.__init__
    reader.fail_found(
        "hidden_size", "inconsistent",
        "expected num_attention_heads (" + std::to_string(c.num_attention_heads) + ") times the size of a head");
  check_glm4v_sections(reader, c);
  reader.ignore({"model_type", "attention_bias"});
  return c;
}

void check_glm4v_sections(ConfigReader& reader, const TextConfig& c) {
  ConfigReader rope = reader.object(reader.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  const std::vector<std::int64_t> sections =
      rope.has("mrope_section") ? rope.integers("mrope_section") : std::vector<std::int64_t>{8, 12, 12};
  if (std::accumulate(sections.begin(), sections.end(), std::int64_t{0}) * 2 != c.rotary_dim)
    rope.fail("mrope_section", "inconsistent",
              "found sections that are not half of what is rotated together (8, 12 and 12 where there is none); they "
              "must be " +
                  std::to_string(c.rotary_dim / 2));
}

DecoderParts glm4v_text_parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_glm4v_layer);
  parts.rotary = glm4v_rotary;
  return parts;
}

}  // namespace oometer
