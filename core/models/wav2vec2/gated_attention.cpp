#include "models/wav2vec2/gated_attention.h"

#include <algorithm>
#include <utility>

#include "ops/integers.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

/// x.unsqueeze(0).repeat(batch, 1, 1, 1)
Tensor repeat_for_batch(const Tensor& x, std::int64_t batch) {
  // repeat_backward (FunctionsManual.cpp): the repeats' gradients, summed.
  Record record(Op::repeat,
                [](Backward& b) {
                  const Tensor& grad = b.grad();
                  if (grad.size(0) == 1) return b.give(0, view(grad, b.node.sizes));
                  b.give(0, reduce(Op::sum, grad, {0}, false, grad.dtype()));
                },
                {&x});
  if (record) record->sizes = x.sizes();
  return record.output(empty(x.context(), Op::repeat, {batch, x.size(0), x.size(1), x.size(2)}, x.dtype()));
}

/// torch.baddbmm(bias, a, b), of a bias that wants a gradient, too.
Tensor biased_product(const Tensor& bias_in, const Tensor& a_in, const Tensor& b_in) {
  const Tensor second = autocast_lower(b_in), first = autocast_lower(a_in), bias = autocast_lower(bias_in);
  Record record(Op::baddbmm,
                [](Backward& b) {
                  if (b.wants(0)) b.give(0, b.grad());
                  if (b.wants(1)) b.give(1, bmm(b.grad(), transpose(b.saved(1), 1, 2)));
                  if (b.wants(2)) b.give(2, bmm(transpose(b.saved(0), 1, 2), b.grad()));
                },
                {&bias, &first, &second});
  record.wants(2) ? record.save(first) : record.skip();
  record.wants(1) ? record.save(second) : record.skip();
  const NoGrad no_grad(first.context());
  return record.output(baddbmm(bias, first, second, false));
}

/// _relative_positions_bucket
Tensor relative_positions_bucket(const Tensor& given) {
  Context& context = given.context();
  const Shape& sizes = given.sizes();
  const auto floats = [&](Op op) { return empty(context, op, sizes, DType::float32); };
  Tensor relative_buckets;
  {
    Tensor is_after = empty(context, Op::gt, sizes, DType::boolean);
    const Tensor as_integers = integers(context, Op::to_copy, sizes);
    is_after.reset();
    relative_buckets = integers(context, Op::mul, sizes);
  }
  const Tensor relative_positions = integers(context, Op::abs, sizes);
  const Tensor is_small = empty(context, Op::lt, sizes, DType::boolean);
  Tensor relative_positions_if_large;
  {
    Tensor as_floats = floats(Op::to_copy);
    const Tensor quotient = floats(Op::div);
    as_floats.reset();
    relative_positions_if_large = floats(Op::log);
  }
  relative_positions_if_large = floats(Op::div);
  relative_positions_if_large = floats(Op::mul);
  Tensor relative_position_if_large;
  {
    const Tensor sum = floats(Op::add);
    relative_position_if_large = integers(context, Op::to_copy, sizes);
  }
  {
    const Tensor last = integers(context, Op::full_like, sizes);
    relative_position_if_large = integers(context, Op::minimum, sizes);
  }
  const Tensor chosen = integers(context, Op::where, sizes);
  return relative_buckets;
}

}  // namespace

GatedAttention::GatedAttention(const Builder& builder, const Wav2Vec2Config& c, bool has_relative_position_bias)
    : heads(c.num_attention_heads), head_dim(c.head_dim()), dropout_p(c.attention_dropout), module(builder.module) {
  const auto projection = [&](const char* name) {
    return Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, true);
  };
  const auto first = static_cast<std::ptrdiff_t>(builder.parameters->size());
  k_proj = projection("k_proj");
  v_proj = projection("v_proj");
  q_proj = projection("q_proj");
  out_proj = projection("out_proj");
  gru_rel_pos_const = builder.parameter("gru_rel_pos_const", {1, heads, 1, 1});
  // named_parameters() has a module's own first.
  std::rotate(builder.parameters->begin() + first, builder.parameters->end() - 1, builder.parameters->end());
  gru_rel_pos_linear = Linear(builder.child("gru_rel_pos_linear", "Linear"), head_dim, 8, true);
  if (has_relative_position_bias)
    rel_attn_embed.emplace(builder.child("rel_attn_embed", "Embedding"), c.num_buckets, heads);
}

Tensor GatedAttention::compute_bias(Context& context, std::int64_t length) const {
  const Tensor context_position = integers(context, Op::arange, {length});
  const Tensor memory_position = integers(context, Op::arange, {length});
  const Tensor relative_position = integers(context, Op::sub, {length, length});
  const Tensor relative_position_bucket = relative_positions_bucket(relative_position);
  const Tensor values = (*rel_attn_embed)(relative_position_bucket);
  return permute(values, {2, 0, 1});
}

AttentionOutputs GatedAttention::operator()(const Tensor& argument, const Tensor& attention_mask,
                                            Tensor& position_bias) const {
  Context& context = argument.context();
  ModuleCall self(context, module);
  const Tensor hidden_states = self.argument(argument);
  const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1);
  if (!position_bias) {
    position_bias = compute_bias(context, length);
    position_bias = repeat_for_batch(position_bias, batch);
    position_bias = view(position_bias, {batch * heads, length, length});
  }
  // How much of the bias each head and state takes: [b, heads, length, 1].
  const Tensor gated_hidden_states = permute(view(hidden_states, {batch, length, heads, head_dim}), {0, 2, 1, 3});
  Tensor relative_position_proj = gru_rel_pos_linear(gated_hidden_states);
  relative_position_proj = sum(view(relative_position_proj, {batch, heads, length, 2, 4}), {-1}, false);
  const TensorList gates = split(sigmoid(relative_position_proj), {1, 1}, 3);
  Tensor gate_output;
  {
    Tensor scaled = mul(gates[1], gru_rel_pos_const);
    const Tensor shifted = add_scalar(scaled);
    scaled.reset();
    gate_output = mul(gates[0], shifted);
  }
  gate_output = add_scalar(gate_output);
  const Tensor gated_position_bias = mul(view(gate_output, {batch * heads, length, 1}), position_bias);
  AttentionOutputs outputs = multi_head_attention(hidden_states, attention_mask, gated_position_bias);
  outputs.output = self.result(outputs.output);
  return outputs;
}

// torch_multi_head_self_attention, and F.multi_head_attention_forward (torch 2.15, nn/functional.py), which takes
// states [length, batch, width]
AttentionOutputs GatedAttention::multi_head_attention(const Tensor& hidden_states, const Tensor& attention_mask,
                                                      const Tensor& gated_position_bias) const {
  Context& context = hidden_states.context();
  const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1), width = heads * head_dim;
  const Tensor query = transpose(hidden_states, 0, 1);
  Tensor padding, key_padding_mask, attn_mask = gated_position_bias;
  if (attention_mask) padding = empty(context, Op::ne, attention_mask.sizes(), DType::boolean);
  const Tensor in_proj_bias = cat({q_proj.bias, k_proj.bias, v_proj.bias}, 0);
  if (padding) key_padding_mask = empty(context, Op::zeros_like, padding.sizes(), query.dtype());  // _canonical_mask
  const TensorList biases = split(in_proj_bias, {width, width, width}, 0);
  const auto of_heads = [&](const Tensor& states) {
    return transpose(view(states, {length, batch * heads, head_dim}), 0, 1);
  };
  Tensor q = linear(query, q_proj.weight, biases[0]);
  Tensor k = linear(query, k_proj.weight, biases[1]);
  Tensor v = linear(query, v_proj.weight, biases[2]);
  q = of_heads(q);
  k = of_heads(k);
  v = of_heads(v);
  if (key_padding_mask) {
    // expand(-1, heads, -1, -1).reshape(), of one sample a view
    const Shape of_all{batch * heads, 1, length};
    key_padding_mask = batch == 1 ? expand(unsqueeze(key_padding_mask, 0), of_all)
                                  : empty(context, Op::clone, of_all, key_padding_mask.dtype());
    attn_mask = add(attn_mask, key_padding_mask);
  }
  Tensor attn_output_weights;
  {
    const Tensor q_scaled = mul_scalar(q);
    attn_output_weights = biased_product(attn_mask, q_scaled, transpose(k, -2, -1));
  }
  k.reset();
  attn_output_weights = softmax(attn_output_weights, context.autocast.enabled ? DType::float32 : q.dtype());
  attn_output_weights = dropout(attn_output_weights, dropout_p);
  Tensor attn_output = bmm(autocast_lower(attn_output_weights), autocast_lower(v));
  v.reset();
  attn_output = reshape(transpose(attn_output, 0, 1), {length * batch, width});
  attn_output = linear(attn_output, out_proj.weight, out_proj.bias);
  attn_output = view(attn_output, {length, batch, width});
  attn_output_weights = view(attn_output_weights, {batch, heads, length, length});
  attn_output_weights = mean(attn_output_weights, 1, false);
  return {transpose(attn_output, 0, 1), attn_output_weights};
}

}  // namespace oometer
