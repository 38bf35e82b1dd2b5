#include "models/qwen3_5/qwen3_5.h"

#include "models/llama/llama.h"
#include "ops/ops.h"

namespace oometer {

PositionEmbeddings embed_interleaved_positions(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids,
                                               DType dtype) {
  Context& context = position_ids.context();
  ModuleCall call(context, rotary_emb.module);
  const NoGrad no_grad(context);
  const std::int64_t batch = position_ids.size(-2), length = position_ids.size(-1);
  const Tensor axes = expand(position_ids, {3, batch, length}), freqs = rotary_angles(axes, rotary_emb.inv_freq);
  const auto scaled = [&](Op op) {
    const Tensor values = pointwise(op, {&freqs}, DType::float32);
    return mul_scalar(values);
  };
  Tensor cos = scaled(Op::cos), sin = scaled(Op::sin);
  const auto recomposed = [](const Tensor& freq) {
    const Tensor freqs_thw = select(freq, 0, 0);
    return cat({freqs_thw, freqs_thw}, -1);
  };
  sin = recomposed(sin);
  cos = recomposed(cos);
  const Tensor cos_like_x = to(cos, dtype), sin_like_x = to(sin, dtype);
  return {call.result(cos_like_x), call.result(sin_like_x)};
}

DecoderParts parts_like_qwen3_5(const TextConfig& config, const ModelOptions& options, const GatedLayerNames& names) {
  DecoderParts parts =
      parts_of(config, options,
               [&names](const Builder& builder, const TextConfig& c, const ModelOptions& its, std::size_t index) {
                 return make_gated_layer(builder, c, its, index, names);
               });
  parts.norm = final_norm(norm_of(options.liger, rms_norm_one_plus, liger_norm_apart));
  parts.positions_by_sample = true;
  parts.rotary = embed_interleaved_positions;
  return parts;
}

}  // namespace oometer
