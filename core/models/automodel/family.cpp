#include <algorithm>
#include <string_view>
#include <utility>

#include "autograd/checkpoint.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"
#include "models/qwen2/config.h"
#include "models/qwen3/config.h"
#include "ops/float32_rms_norm.h"
#include "ops/ops.h"

/// NeMo Automodel 0.7's own classes (components/models/llama/model.py and rope_utils.py, qwen2/model.py,
/// qwen3/model.py): transformers' with positions in float32 and, but for Qwen3, norms of their own.
namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"automodel_llama", "LlamaForCausalLM"},
                                   {"automodel_qwen2", "Qwen2ForCausalLM"},
                                   {"automodel_qwen3", "Qwen3ForCausalLM"}};

TextConfig text_of(const LlamaConfig& config) {
  TextConfig c;
  static_cast<LlamaConfig&>(c) = config;
  return c;
}

TextConfig read(ConfigReader& reader, const ModelClass& of) {
  const std::string_view type = of.model_type;
  if (type == "automodel_qwen2") return text_of(read_qwen2_config(reader));
  if (type == "automodel_qwen3") return text_of(read_qwen3_config(reader));
  return text_of(read_llama_config(reader));
}

Tensor float32_norm(const Norm& norm, const Tensor& argument) {
  ModuleCall call(argument.context(), norm.module);
  return call.result(float32_rms_norm(call.argument(argument), norm.weight));
}

Norm::Forward norm_of_class(const TextConfig& c) { return c.names->norms_heads ? rms_norm : float32_norm; }

/// apply_rotary_pos_emb
std::pair<Tensor, Tensor> rotate_in_float32(const Tensor& q_in, const Tensor& k_in,
                                            const PositionEmbeddings& positions) {
  const Tensor cos = unsqueeze(positions.cos, 1), sin = unsqueeze(positions.sin, 1);
  Tensor q = to(q_in, DType::float32), k = to(k_in, DType::float32);
  Tensor q_embed = rotate(q, cos, sin), k_embed = rotate(k, cos, sin);
  std::pair<Tensor, Tensor> results;
  results.first = to(q_embed, q_in.dtype());
  results.second = to(k_embed, k_in.dtype());
  for (Tensor* name : {&q, &k, &q_embed, &k_embed}) name->reset();
  return results;
}

/// LlamaRotaryEmbedding.forward: rows of tables that are made for the longest batch so far.
PositionEmbeddings embed_positions(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids, DType) {
  Context& context = position_ids.context();
  ModuleCall call(context, rotary_emb.module);
  const NoGrad no_grad(context);
  const std::int64_t length = position_ids.size(-1), width = 2 * rotary_emb.inv_freq.size(-1);
  { const Tensor most = empty(context, Op::max, {}, DType::int64); }
  if (!rotary_emb.cos_cached || length > rotary_emb.cos_cached.size(0)) {  // _build_cache
    const Tensor t = empty(context, Op::arange, {length}, DType::float32);
    const Tensor inv_freq = empty(context, Op::mul, {width / 2}, DType::float32);
    const Tensor freqs = empty(context, Op::mul, {length, width / 2}, DType::float32);
    const Tensor emb = cat({freqs, freqs}, -1);
    const auto table = [&](Op op) {
      const Tensor values = pointwise(op, {&emb}, DType::float32);
      Tensor scaled = mul_scalar(values);
      context.set_role(scaled, Role::buffer, rotary_emb.module);
      return scaled;
    };
    rotary_emb.cos_cached = table(Op::cos);
    rotary_emb.sin_cached = table(Op::sin);
  }
  const Shape sizes{position_ids.size(0), length, width};
  Tensor cos = empty(context, Op::index, sizes, DType::float32);
  Tensor sin = empty(context, Op::index, sizes, DType::float32);
  return {call.result(cos), call.result(sin)};
}

/// checkpoint_wrapper of attention, MLP and each norm (components/distributed/activation_checkpointing.py:
/// apply_submodule_checkpointing).
template <Norm::Forward forward>
Tensor checkpointed_norm(const Norm& norm, const Tensor& x) {
  return checkpoint(CheckpointMode::non_reentrant, x,
                    [norm](const Tensor& argument) { return forward(norm, argument); });
}

void checkpoint_parts(TextLayer& layer) {
  layer.mlp = [mlp = std::move(layer.mlp)](const Tensor& x) {
    return checkpoint(CheckpointMode::non_reentrant, x, mlp);
  };
  layer.self_attn = [attend = std::move(layer.self_attn)](const Tensor& x, const PositionEmbeddings& positions,
                                                          const Tensor& attention_mask) -> AttentionOutputs {
    return {checkpoint(CheckpointMode::non_reentrant, x,
                       [attend, positions, attention_mask](const Tensor& argument) {
                         return attend(argument, positions, attention_mask).output;
                       }),
            {}};
  };
  for (Norm* norm : {&layer.input_norm, &layer.feedforward_norm})
    norm->forward = norm->forward == rms_norm ? checkpointed_norm<rms_norm> : checkpointed_norm<float32_norm>;
}

/// Its LlamaRotaryEmbedding has no original_inv_freq.
class OwnCausalLM : public CausalLM {
 public:
  OwnCausalLM(Context& context, const TextConfig& config, const DataConfig& data, const ModelOptions& options,
              DecoderParts parts)
      : CausalLM(context, config, data, options, std::move(parts)) {
    Tensor& original = language_model_.rotary_emb.original_inv_freq;
    const auto is_it = [&](const Buffer& buffer) { return buffer.tensor.get() == original.get(); };
    buffers.erase(std::remove_if(buffers.begin(), buffers.end(), is_it), buffers.end());
    original.reset();
  }
};

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& given) {
  const auto& c = config.as<TextConfig>();
  ModelOptions options = given;
  options.checkpointing.mode = CheckpointMode::none;
  const bool checkpoints = given.checkpointing.mode != CheckpointMode::none;
  DecoderParts parts;
  parts.layer = [c, options, checkpoints](const Builder& builder, std::size_t) -> std::unique_ptr<DecoderLayer> {
    AttentionParts its;
    its.rotate = rotate_in_float32;
    if (c.names->norms_heads) its.norms_at = HeadNorms::viewed, its.norm = rms_norm, its.norm_type = c.names->rms_norm;
    std::unique_ptr<TextLayer> layer = pre_norm_layer(builder, c, options, its, norm_of_class(c));
    if (checkpoints) checkpoint_parts(*layer);
    return layer;
  };
  parts.rotary = embed_positions;
  parts.norm = final_norm(norm_of_class(c));
  return std::make_unique<OwnCausalLM>(context, c, data, options, std::move(parts));
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_of_text_family(config);
  t.allow({Feature::fsdp});
  for (const Feature feature : {Feature::packing, Feature::inference, Feature::liger, Feature::chunked_cross_entropy})
    t.refuse(feature, "not-modelled", "this is not supported yet with NeMo Automodel's own " + t.class_name);
  t.generates = false;
  return t;
}

}  // namespace

namespace family {
extern const Family automodel = {
    .classes = kClasses,
    .blocks = {},
    .read = [](ConfigReader& reader, const ModelClass& of, Framework) -> FamilyConfig { return read(reader, of); },
    .build = build,
    .traits = traits,
    .largest_tensor = largest_tensor_of_text_family};
}  // namespace family

}  // namespace oometer
