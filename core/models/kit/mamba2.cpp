#include "models/kit/mamba2.h"

#include <string>
#include <utility>

#include "config/reader.h"
#include "models/kit/gated_delta_net.h"
#include "nn/kv_cache.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "peft/targets.h"

namespace oometer {

namespace {

/// Sums from each place of a chunk to each later one.
Tensor segment_sum(Tensor input) {
  Context& context = input.context();
  const std::int64_t chunk = input.size(-1);
  Shape sizes = input.sizes();
  sizes.push_back(chunk);
  input = expand(unsqueeze(input, -1), sizes);
  const auto lower_triangle = [&] {
    const Tensor ones = empty(context, Op::ones_like, {chunk, chunk}, DType::boolean);
    return triangle(ones);
  };
  const auto filled = [](const Tensor& x, const Tensor& mask) {
    const Tensor other = empty_like(Op::bitwise_not, mask);
    return masked_fill(x, other);
  };
  Tensor mask = lower_triangle();
  input = filled(input, mask);
  Tensor sums = cumsum(input, input.ndim() - 2, input.dtype());
  mask = lower_triangle();
  return filled(sums, mask);
}

Tensor exp_of_segments(Tensor x) {
  const Tensor sums = segment_sum(std::move(x));
  return exp(sums);
}

/// reshape_into_chunks: [b, s, ...] to [b, chunks, chunk, ...].
Tensor into_chunks(const Tensor& x, std::int64_t pad_size, std::int64_t chunk) {
  const Tensor padded = pad(x, 1, pad_size);
  Shape sizes{padded.size(0), padded.size(1) / chunk, chunk};
  for (int i = 2; i < padded.ndim(); ++i) sizes.push_back(padded.size(i));
  return reshape(padded, sizes);
}

/// mamba2_selective_state_update, of a token: hidden_states and dt [b, heads, d], A [heads, d, state], B and C [b,
/// groups, state], D and dt_bias [heads, d]. `z`: the gate; null: it comes later.
Tensor mamba2_selective_state_update(const Tensor& state, const ScanInputs& in, const Tensor& z) {
  if (has(in.dt.context().behaviours.kernels, Kernels::mamba2)) return selective_state_update(state, in.hidden_states);
  const std::int64_t batch = in.hidden_states.size(0), heads = in.hidden_states.size(1),
                     head_dim = in.hidden_states.size(2), groups = in.b.size(1), size = in.b.size(2);
  Tensor dt;
  {
    const Tensor bias = to(in.dt_bias, in.dt.dtype());
    dt = add(in.dt, bias);
  }
  dt = activation_of_input(Op::softplus, Op::softplus_backward, dt, false);
  dt = unsqueeze(dt, -1);
  Tensor d_a;
  {
    Tensor rate;
    {
      const Tensor steps = to(dt, DType::float32);
      rate = mul(steps, in.a);
    }
    d_a = exp(rate);
  }
  const auto of_heads = [&](const Tensor& x) {
    const Tensor of_groups = view(x, {batch, groups, 1, size});
    return contiguous(expand(of_groups, {batch, groups, heads / groups, size}));
  };
  const Tensor b = reshape(of_heads(in.b), {batch, heads, 1, size});
  const Tensor d_b = mul(dt, b);
  const Tensor d_bx = mul(d_b, unsqueeze(in.hidden_states, -1));
  Tensor ssm_states;
  {
    const Tensor kept = mul(state, d_a);
    ssm_states = add(kept, d_bx);
  }
  {
    const Tensor typed = to(ssm_states, state.dtype());
    copy_in_place(state, typed);
  }
  const Tensor c = of_heads(in.c);
  ssm_states = to(ssm_states, c.dtype());
  Tensor out = bmm(view(ssm_states, {batch * heads, head_dim, size}), view(c, {batch * heads, size, 1}));
  out = view(out, {batch, heads, head_dim});
  {
    const Tensor skipped = mul(in.hidden_states, in.d);
    out = add(out, skipped);
  }
  if (z) {
    const Tensor share = silu(z);
    out = mul(out, share);
  }
  return to(out, in.hidden_states.dtype());
}

}  // namespace

ChunkScan mamba2_chunk_scan(const ScanInputs& in, std::int64_t chunk) {
  const bool return_final_states = in.dt.context().past_key_values != nullptr;
  if (has(in.dt.context().behaviours.kernels, Kernels::mamba2)) {
    ChunkScan scan = mamba_chunk_scan_combined(in.hidden_states, in.b, chunk);
    if (!return_final_states) scan.final_state.reset();
    return scan;
  }
  const std::int64_t batch = in.hidden_states.size(0), length = in.hidden_states.size(1),
                     heads = in.hidden_states.size(2), head_dim = in.hidden_states.size(3), groups = in.b.size(2);
  Tensor dt;
  {
    const Tensor bias = to(in.dt_bias, in.dt.dtype());
    dt = add(in.dt, bias);
  }
  {
    const Tensor steps = autocast_float32(dt);
    dt = activation_of_input(Op::softplus, Op::softplus_backward, steps, false);
  }
  dt = clamp(dt, true);
  Tensor hidden_states = to(in.hidden_states, DType::float32);
  const auto of_heads = [&](const Tensor& x) {
    const Tensor as_float = to(x, DType::float32);
    return repeat_interleave(as_float, heads / groups, 2);
  };
  Tensor b = of_heads(in.b), c = of_heads(in.c);
  const std::int64_t pad_size = (chunk - length % chunk) % chunk;
  Tensor d_residual;
  {
    const Tensor padded = pad(hidden_states, 1, pad_size);
    d_residual = mul(unsqueeze(in.d, -1), padded);
  }
  {
    const Tensor steps = to(unsqueeze(dt, -1), DType::float32);
    hidden_states = mul(hidden_states, steps);
  }
  Tensor a;
  {
    const Tensor rate = to(in.a, DType::float32), steps = to(dt, DType::float32);
    a = mul(rate, steps);
  }
  {
    TensorList chunks;
    for (const Tensor* x : {&hidden_states, &a, &b, &c}) chunks.push_back(into_chunks(*x, pad_size, chunk));
    hidden_states = chunks[0];
    a = chunks[1];
    b = chunks[2];
    c = chunks[3];
  }
  a = permute(a, {0, 3, 1, 2});
  const Tensor a_cumsum = cumsum(a, 3, a.dtype());
  const Tensor l = exp_of_segments(a);
  const Tensor g = einsum("bclhn", "bcshn", "bclsh", c, b);
  const Tensor m = mul(g, permute(l, {0, 2, 3, 4, 1}));
  const Tensor y_diag = einsum("bclsh", "bcshp", "bclhp", m, hidden_states);

  Tensor decay_states = sub(slice(a_cumsum, 3, chunk - 1, 1), a_cumsum);
  decay_states = exp(decay_states);
  const Tensor b_decay = mul(b, unsqueeze(permute(decay_states, {0, 2, 3, 1}), -1));
  Tensor states = einsum("bclhn", "bclhp", "bchpn", b_decay, hidden_states);

  const Tensor previous_states = empty_like(Op::zeros_like, states.size(1) == 1 ? states : slice(states, 1, 0, 1));
  states = cat({previous_states, states}, 1);
  Tensor decay_chunk;
  {
    const Tensor last = select(a_cumsum, 3, chunk - 1);
    Tensor padded = pad(last, 2, 1);
    decay_chunk = transpose(exp_of_segments(std::move(padded)), 1, 3);
  }
  const Tensor new_states = einsum("bzch", "bzhpn", "bchpn", decay_chunk, states);
  const std::int64_t chunks = new_states.size(1) - 1;
  states = slice(new_states, 1, 0, chunks);
  Tensor final_state = select(new_states, 1, chunks);

  const Tensor state_decay_out = exp(a_cumsum);
  const Tensor c_times_states = einsum("bclhn", "bchpn", "bclhp", c, states);
  const Tensor y_off = mul(c_times_states, unsqueeze(permute(state_decay_out, {0, 2, 3, 1}), -1));
  Tensor output;
  {
    const Tensor sum = add(y_diag, y_off);
    output = contiguous(sum);
  }
  output = reshape(output, {batch, length + pad_size, heads, head_dim});
  output = add(output, d_residual);
  if (!return_final_states) final_state.reset();
  return {pad_size == 0 ? output : slice(output, 1, 0, length), final_state};
}

Mamba2Mixer::Mamba2Mixer(const Builder& builder, const TextConfig& config, Activation activation, std::size_t layer_idx,
                         const Mamba2Parts& parts)
    : sizes_(config.mixer), parts_(parts), activation_(activation), layer_idx_(layer_idx), module_(builder.module) {
  Context& context = *builder.context;
  const std::int64_t hidden = config.hidden_size, heads = sizes_.num_value_heads, inner = sizes_.value_size(),
                     channels = inner + 2 * sizes_.key_size();
  conv1d_ = CausalConv(builder.child("conv1d", "Conv1d"), channels, sizes_.conv_kernel, sizes_.conv_bias);
  in_proj_ = Linear(builder.child("in_proj", "Linear"), hidden, inner + channels + heads, sizes_.bias);
  dt_bias_ = builder.parameter("dt_bias", {heads});
  a_log_ = builder.parameter("A_log", {heads});
  if (parts.has_norm) norm_ = Norm(builder.child("norm", parts.norm_type), nullptr, {inner});
  d_ = builder.parameter("D", {heads});
  {  // init_..._weights
    const Tensor a = empty(context, Op::arange, {heads}, DType::float32);
    const Tensor log = empty_like(Op::log, a);
  }
  out_proj_ = Linear(builder.child("out_proj", "Linear"), inner, hidden, parts.output_bias.value_or(sizes_.bias));
}

// MambaRMSNormGated.forward, FalconH1RMSNormGated.forward: each group is normalised by itself.
Tensor Mamba2Mixer::norm(const Tensor& argument, const Tensor& gate) const {
  ModuleCall call(argument.context(), norm_.module);
  const Tensor hidden_in = call.argument(argument);
  const Shape& sizes = hidden_in.sizes();
  Tensor hidden_states = to(hidden_in, DType::float32);
  const auto gated = [&](const Tensor& x) {
    Tensor share = to(gate, DType::float32);
    share = silu(share);
    return mul(x, share);
  };
  if (!parts_.norms_before_gate) hidden_states = gated(hidden_states);
  const std::int64_t groups = sizes_.num_key_heads;
  Tensor group = view(hidden_states, {sizes[0], sizes[1], groups, sizes[2] / groups});
  Tensor variance = pow(group, 2);
  variance = mean(variance, -1, true);
  {
    Tensor scale = add_scalar(variance);
    scale = rsqrt(scale);
    group = mul(group, scale);
  }
  if (parts_.scales_in_float32) {
    group = mul(view(norm_.weight, {groups, sizes[2] / groups}), group);
    hidden_states = view(group, sizes);
    if (parts_.norms_before_gate) hidden_states = gated(hidden_states);
    return call.result(to(hidden_states, hidden_in.dtype()));
  }
  hidden_states = view(group, sizes);
  const Tensor cast = to(hidden_states, hidden_in.dtype());
  return call.result(mul(norm_.weight, cast));
}

AttentionOutputs Mamba2Mixer::operator()(const Tensor& argument, const Tensor& attention_mask) const {
  ModuleCall call(argument.context(), module_);
  const Tensor hidden_in = call.argument(argument);
  const DType dtype = hidden_in.dtype();
  const std::int64_t batch = hidden_in.size(0), length = hidden_in.size(1), inner = sizes_.value_size(),
                     keys = sizes_.key_size(), heads = sizes_.num_value_heads, groups = sizes_.num_key_heads;
  Tensor hidden_states = apply_mask_to_padding_states(hidden_in, attention_mask);
  if (parts_.mup_vector) hidden_states = mul_scalar(hidden_states);
  Tensor projected_states = in_proj_(hidden_states);
  if (parts_.mup_vector) projected_states = mul(projected_states, *parts_.mup_vector);
  Tensor a = to(a_log_, DType::float32);
  a = exp(a);
  a = neg(a);
  const bool has_kernel = has(argument.context().behaviours.kernels, Kernels::mamba2);
  // mamba2_split_conv1d_scan_combined is called with them, before it is known whether there is such a kernel.
  if (ModuleListener* const modules = argument.context().training ? argument.context().modules : nullptr)
    for (const Tensor* weight : {&conv1d_.weight, &conv1d_.bias, &norm_.weight, &out_proj_.weight, &out_proj_.bias})
      if (*weight) modules->read(*weight);
  if (has_kernel && argument.context().training) {
    const Tensor filters = view(conv1d_.weight, {conv1d_.weight.size(0), sizes_.conv_kernel});
    return {call.result(mamba_split_conv1d_scan_combined({projected_states, filters, conv1d_.bias, dt_bias_, a, d_,
                                                          norm_.weight, out_proj_.weight, out_proj_.bias,
                                                          sizes_.chunk_size, sizes_.num_key_heads})),
            {}};
  }
  Tensor gate, mixed, dt;
  {
    const TensorList split_states = split(projected_states, {inner, inner + 2 * keys, heads}, -1);
    gate = split_states[0];
    mixed = split_states[1];
    dt = split_states[2];
  }
  mixed = transpose(mixed, 1, 2);
  KvCache* const cache = argument.context().past_key_values;
  mixed = cache ? conv1d_(std::move(mixed), activation_, layer_idx_) : conv1d_(mixed, activation_);
  mixed = apply_mask_to_padding_states(transpose(mixed, 1, 2), attention_mask);
  Tensor b, c;
  {
    const TensorList parts = split(mixed, {inner, keys, keys}, -1);
    hidden_states = parts[0];
    b = parts[1];
    c = parts[2];
  }
  const std::int64_t head_dim = sizes_.value_head_dim, state = sizes_.key_head_dim;
  if (cache && has_kernel && parts_.has_norm && parts_.scales_in_float32)
    argument.context().refusal =
        Error{"not-modelled", "/runtime/kernels",
              "found installed kernels, with which generation is not supported yet where mamba_rms_norm is true: "
              "expected torch"};
  const bool decodes = cache && length == 1 && cache->linear_states(layer_idx_).recurrent;
  ChunkScan scan_result;
  Tensor scan_output;
  if (decodes) {
    const auto of_elements = [&](const Tensor& x) { return expand(unsqueeze(x, -1), {heads, head_dim}); };
    const ScanInputs token{view(hidden_states, {batch, heads, head_dim}),
                           expand(transpose(dt, 1, 2), {batch, heads, head_dim}),
                           expand(unsqueeze(unsqueeze(a, -1), -1), {heads, head_dim, state}),
                           view(b, {batch, groups, state}),
                           view(c, {batch, groups, state}),
                           of_elements(d_),
                           of_elements(dt_bias_)};
    const Tensor z = parts_.has_norm ? Tensor() : view(gate, {batch, heads, head_dim});
    scan_output = mamba2_selective_state_update(cache->linear_states(layer_idx_).recurrent, token, z);
    scan_output = view(scan_output, {batch, 1, inner});
  } else {
    scan_result = mamba2_chunk_scan(
        {view(hidden_states, {batch, length, heads, head_dim}), dt, a, view(b, {batch, length, groups, state}),
         view(c, {batch, length, groups, state}), d_, dt_bias_},
        sizes_.chunk_size);
    if (cache) update_recurrent_state(*cache, layer_idx_, scan_result.final_state);
    scan_output = reshape(scan_result.output, {batch, length, inner});
  }
  if (parts_.has_norm) {
    scan_output = norm(scan_output, gate);
  } else if (!decodes) {
    const Tensor share = silu(gate);
    scan_output = mul(scan_output, share);
  }
  const Tensor cast = to(scan_output, dtype);
  return {call.result(out_proj_(cast)), {}};
}

void read_mamba2_sizes(ConfigReader& reader, TextConfig& c, MixerConfig usual, const char* inner_key,
                       std::int64_t usual_inner) {
  c.mixer = std::move(usual);
  MixerConfig& m = c.mixer;
  m.kernels = Kernels::mamba2 | Kernels::causal_conv1d;
  std::int64_t inner = reader.integer("mamba_expand", 2) * c.hidden_size;
  const bool has_own = inner_key != nullptr && !reader.is_null(inner_key);
  if (has_own) inner = reader.integer(inner_key, usual_inner);
  m.num_value_heads = reader.integer("mamba_n_heads", 128);
  m.num_key_heads = reader.integer("mamba_n_groups", 1);
  m.key_head_dim = reader.integer("mamba_d_state", m.key_head_dim);
  m.conv_kernel = reader.integer("mamba_d_conv", 4);
  m.chunk_size = reader.integer("mamba_chunk_size", 256);
  m.conv_bias = reader.boolean("mamba_conv_bias", true);
  m.bias = reader.boolean("mamba_proj_bias", false);
  m.value_head_dim = inner / m.num_value_heads;
  if (!reader.is_auto("mamba_d_head")) m.value_head_dim = reader.integer("mamba_d_head", m.value_head_dim);
  if (m.value_size() != inner)
    reader.fail_found("mamba_n_heads", "inconsistent",
                      std::string("expected heads of ") + (has_own ? inner_key : "mamba_expand * hidden_size") + " (" +
                          std::to_string(inner) + ") elements together");
  reader.ignore({"time_step_limit", "time_step_min", "time_step_max", "time_step_floor", "time_step_rank"});
  read_mamba_groups(reader, c);
}

void read_mamba_groups(ConfigReader& reader, const TextConfig& c) {
  if (c.mixer.num_value_heads % c.mixer.num_key_heads != 0)
    reader.fail(reader.has("n_groups") ? "n_groups" : "mamba_n_groups", "inconsistent",
                "found " + std::to_string(c.mixer.num_key_heads) + "; expected a divisor of the heads (" +
                    std::to_string(c.mixer.num_value_heads) + ")");
}

void refuse_mamba_targets(ConfigReader& reader, const LoraConfig& lora, const std::vector<std::string>& mixers) {
  const TargetModules& targets = lora.target_modules;
  for (const std::string& mixer : mixers)
    for (const std::string name : {"out_proj", "conv1d"}) {
      const std::string path = mixer + "." + name;
      const bool is_linear = targets.all_linear && name == "out_proj" && !is_excluded(targets, path);
      if (!is_linear && !is_targeted(targets, path)) continue;
      return reader.fail_found("target_modules", "inconsistent",
                               "peft refuses " + name +
                                   " of Mamba's models, whose kernels read its weight themselves; expected the names "
                                   "of other layers, such as [\"in_proj\"]");
    }
}

}  // namespace oometer
