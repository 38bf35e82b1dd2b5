#include <algorithm>
#include <string_view>
#include <tuple>
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
  TextConfig c = text_of(type == "automodel_qwen2"   ? read_qwen2_config(reader)
                         : type == "automodel_qwen3" ? read_qwen3_config(reader)
                                                     : read_llama_config(reader));
  if (c.sliding_window != 0)
    reader.fail("sliding_window", "not-modelled",
                "layers that slide are not supported yet with NeMo Automodel's own classes; expected none");
  return c;
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
    Tensor t = empty(context, Op::arange, {length}, DType::float32), inv_freq;
    {  // _compute_default_inv_freq
      const auto made = [&](Op op) { return empty(context, op, {width / 2}, DType::float32); };
      Tensor exponents = made(Op::to_copy);
      {
        Tensor quotients = made(Op::div);
        exponents = std::move(quotients);
      }
      const Tensor powers = made(Op::pow);
      { const Tensor base = empty(context, Op::empty, {}, DType::float64); }
      exponents.reset();
      const Tensor inverse = made(Op::reciprocal);
      inv_freq = made(Op::mul);
    }
    Tensor freqs = empty(context, Op::mul, {length, width / 2}, DType::float32);
    Tensor emb = cat({freqs, freqs}, -1);
    const auto table = [&](Op op) {
      const Tensor values = pointwise(op, {&emb}, DType::float32);
      Tensor scaled = mul_scalar(values);
      context.set_role(scaled, Role::buffer, rotary_emb.module);
      return scaled;
    };
    rotary_emb.cos_cached = table(Op::cos);
    rotary_emb.sin_cached = table(Op::sin);
    for (Tensor* name : {&t, &inv_freq, &freqs, &emb}) name->reset();
  }
  const Shape sizes{position_ids.size(0), length, width};
  Tensor cos = empty(context, Op::index, sizes, DType::float32);
  Tensor sin = empty(context, Op::index, sizes, DType::float32);
  return {call.result(cos), call.result(sin)};
}

/// LlamaAttention.forward, whose names of what is projected stay until it returns.
struct OwnAttention {
  OwnAttention(const Builder& builder, const TextConfig& c, const ModelOptions& options)
      : head_dim(c.head_dim),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    const auto linear = [&](const char* name, std::int64_t in, std::int64_t out, bool bias) {
      return Linear(builder.child(name, "Linear"), in, out, bias);
    };
    const std::int64_t width = c.num_attention_heads * head_dim, kv_width = c.num_key_value_heads * head_dim;
    q_proj = linear("q_proj", c.hidden_size, width, c.qkv_bias);
    k_proj = linear("k_proj", c.hidden_size, kv_width, c.qkv_bias);
    v_proj = linear("v_proj", c.hidden_size, kv_width, c.qkv_bias);
    o_proj = linear("o_proj", width, c.hidden_size, c.output_bias);
  }
  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(hidden_states.context(), module);
    Tensor q = q_proj(hidden_states), k = k_proj(hidden_states), v = v_proj(hidden_states);
    AttentionInputs states{heads_of(q, head_dim), heads_of(k, head_dim), heads_of(v, head_dim)};
    std::tie(states.query, states.key) = rotate_in_float32(states.query, states.key, positions);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask);
    attention.output = self.result(o_proj(attention.output));
    for (Tensor* name : {&q, &k, &v, &states.query, &states.key, &states.value}) name->reset();
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  std::int64_t head_dim;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

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
  options.checkpointing = {};
  const bool checkpoints = given.checkpointing.mode != CheckpointMode::none;
  DecoderParts parts;
  parts.layer = [c, options, checkpoints](const Builder& builder, std::size_t) -> std::unique_ptr<DecoderLayer> {
    std::unique_ptr<TextLayer> layer;
    if (c.names->norms_heads) {
      AttentionParts its;
      its.rotate = rotate_in_float32;
      its.norms_at = HeadNorms::projected, its.norm = rms_norm, its.norm_type = c.names->rms_norm;
      layer = pre_norm_layer(builder, c, options, its, rms_norm);
    } else {
      layer = std::make_unique<TextLayer>(builder, pre_norm);
      layer->self_attn = OwnAttention(builder.child("self_attn", c.names->attention), c, options);
      layer->mlp = LlamaMLP(builder.child("mlp", c.names->mlp), c, options.liger);
      layer->input_norm = Norm(builder.child("input_layernorm", c.names->rms_norm), float32_norm, {c.hidden_size});
      layer->feedforward_norm =
          Norm(builder.child("post_attention_layernorm", c.names->rms_norm), float32_norm, {c.hidden_size});
    }
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
  for (const Feature feature : {Feature::packing, Feature::flash_attention_2, Feature::eager_attention,
                                Feature::inference, Feature::liger, Feature::chunked_cross_entropy})
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
