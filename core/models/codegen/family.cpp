#include "config/reader.h"
#include "models/gptj/gptj.h"
#include "nn/kv_cache.h"
#include "ops/ops.h"

/// transformers 5.23, models/codegen/modeling_codegen.py: GPT-J with queries, values and keys in one projection.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{
    "CodeGenForCausalLM", "CodeGenModel", "CodeGenBlock", "CodeGenAttention", "CodeGenMLP", "LayerNorm", ""};
constexpr ModelClass kClasses[] = {{"codegen", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};
constexpr std::int64_t kParts = 4;  ///< mp_num: of the projection, each with its queries, values and keys

struct CodeGenAttention {
  CodeGenAttention(const Builder& builder, const TextConfig& c)
      : qkv_proj(builder.child("qkv_proj", "Linear"), c.hidden_size, 3 * c.hidden_size, false),
        out_proj(builder.child("out_proj", "Linear"), c.hidden_size, c.hidden_size, false),
        embed_positions(sinusoidal_positions(builder, c.max_position_embeddings, c.rotary_dim)),
        head_dim(c.head_dim),
        rotary_dim(c.rotary_dim),
        attn_dropout(c.attention_dropout),
        resid_dropout(c.residual_dropout),
        layer_idx(layer_index(builder)),
        module(builder.module) {}

  AttentionOutputs operator()(const Tensor& argument, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    Context& context = argument.context();
    ModuleCall self(context, module);
    const Tensor hidden_states = self.argument(argument);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1), hidden = hidden_states.size(2),
                       local_dim = hidden / kParts, heads = hidden / head_dim;
    Tensor qkv_split = view(qkv_proj(hidden_states), {batch, length, kParts, 3 * local_dim});  // and qkv
    AttentionInputs states;
    {
      const TensorList parts = split(qkv_split, {local_dim, local_dim, local_dim}, -1);
      states = {parts[0], parts[2], parts[1]};
    }
    for (Tensor* of_parts : {&states.query, &states.key, &states.value})  // of parts apart: a copy
      *of_parts = reshape(*of_parts, {batch, length, heads, head_dim});
    states.value = transpose(states.value, 1, 2);
    const Tensor& ids = positions.position_ids;
    Tensor sincos = empty(context, Op::index, {ids.size(0), ids.size(1), rotary_dim}, DType::float32);
    SinCos tables{slice(sincos, -1, 0, rotary_dim / 2), slice(sincos, -1, rotary_dim / 2, rotary_dim / 2)};
    const auto rot = [&](const Tensor& x) { return slice(x, -1, 0, rotary_dim); };
    const auto pass = [&](const Tensor& x) { return slice(x, -1, rotary_dim, head_dim - rotary_dim); };
    Tensor k_rot = rot(states.key);
    Tensor k_pass = pass(states.key);
    Tensor q_rot = rot(states.query);
    Tensor q_pass = pass(states.query);
    k_rot = apply_rotary_pos_emb(k_rot, tables);
    q_rot = apply_rotary_pos_emb(q_rot, tables);
    states.key = cat({k_rot, k_pass}, -1);
    states.query = cat({q_rot, q_pass}, -1);
    states.key = transpose(states.key, 1, 2);
    states.query = transpose(states.query, 1, 2);
    if (KvCache* const layer_past = context.past_key_values) {
      const Tensor key = to(states.key, hidden_states.dtype());
      KvCache::States updated = layer_past->update(layer_idx, key, states.value);
      states.key = std::move(updated.keys);
      states.value = std::move(updated.values);
    }
    AttentionOutputs outputs = attn(states, attention_mask);
    outputs.output = contiguous(transpose(outputs.output, 1, 2));
    outputs.output = view(outputs.output, hidden_states.sizes());
    outputs.output = out_proj(outputs.output);
    outputs.output = self.result(dropout(outputs.output, resid_dropout));
    for (Tensor* name : {&qkv_split, &states.query, &states.value, &states.key, &sincos, &tables.sin, &tables.cos,
                         &k_rot, &k_pass, &q_rot, &q_pass})
      name->reset();  // as a frame lets its names go
    return outputs;
  }

  /// _attn: the weights are computed in float32.
  AttentionOutputs attn(const AttentionInputs& states, const Tensor& mask) const {
    const Context& context = states.query.context();
    const Tensor query = to(states.query, DType::float32), key = to(states.key, DType::float32);
    AttentionOutputs outputs;
    Tensor& weights = outputs.weights;
    weights = matmul(query, transpose(key, 2, 3));
    if (mask) weights = add(weights, mask);
    weights = div_scalar(weights);
    weights = softmax(weights, context.autocast.enabled ? DType::float32 : weights.dtype());
    weights = to(weights, states.value.dtype());
    weights = dropout(weights, attn_dropout);
    outputs.output = matmul(weights, states.value);
    return outputs;
  }

  Linear qkv_proj, out_proj;
  Tensor embed_positions;
  std::int64_t head_dim, rotary_dim;
  double attn_dropout, resid_dropout;
  std::size_t layer_idx;
  ModuleId module;
};

GptjAttention make_attention(const Builder& builder, const TextConfig& c, const ModelOptions&) {
  return CodeGenAttention(builder, c);
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = gptj_traits(config);
  allow_compared(t, {Feature::fsdp});
  t.has_no_peft_targets();
  t.lora_targets = {"qkv_proj"};  // peft 0.21, utils/constants.py
  t.refuse(Feature::flash_attention_2, "inconsistent",
           "transformers has no flash attention for CodeGen: expected eager");
  return t;
}

}  // namespace

namespace family {
extern const Family codegen = gptj_family<kNames, make_attention, kParts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
