#include "models/kit/mamba.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/kit/gated_delta_net.h"
#include "nn/kv_cache.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

/// hidden_states, dt and gate [b, d, s], A [d, state], B and C [b, s, state], D and delta_bias [d].
struct SelectiveScan {
  Tensor hidden_states, dt, a, b, c, d, gate, delta_bias;
};

struct ScanResult {
  Tensor output;     ///< [b, d, s]
  Tensor ssm_state;  ///< [b, d, state], behind the last token
};

ScanResult mamba_selective_scan(const SelectiveScan& in) {
  Context& context = in.hidden_states.context();
  const DType input_dtype = in.hidden_states.dtype();
  const std::int64_t batch = in.hidden_states.size(0), inner = in.hidden_states.size(1),
                     length = in.hidden_states.size(2), state = in.a.size(1);
  Tensor dt;
  {
    const Tensor bias = to(in.delta_bias, in.dt.dtype());
    dt = add(in.dt, unsqueeze(bias, -1));
  }
  {
    const Tensor steps = autocast_float32(dt);
    dt = activation_of_input(Op::softplus, Op::softplus_backward, steps, false);
  }
  Tensor discrete_a, discrete_b, delta_b_u;
  {
    const Tensor of_states = unsqueeze(unsqueeze(in.a, 0), 2), steps = unsqueeze(dt, 3);
    const Tensor rate = mul(of_states, steps);
    discrete_a = exp(rate);
  }
  {
    const Tensor as_float = to(unsqueeze(in.b, 1), DType::float32);
    discrete_b = mul(unsqueeze(dt, 3), as_float);
  }
  {
    const Tensor as_float = to(unsqueeze(in.hidden_states, 3), DType::float32);
    delta_b_u = mul(discrete_b, as_float);
  }
  Tensor ssm_state = empty(context, Op::zeros, {batch, inner, state}, input_dtype), scan_output;
  TensorList scan_outputs;
  for (std::int64_t index = 0; index < length; ++index) {
    {
      const Tensor kept = mul(select(discrete_a, 2, index), ssm_state);
      ssm_state = add(kept, select(delta_b_u, 2, index));
    }
    {
      const Tensor cast = to(ssm_state, input_dtype);
      scan_output = matmul(cast, unsqueeze(select(in.c, 1, index), -1));
    }
    scan_outputs.push_back(select(scan_output, 2, 0));
  }
  scan_output = stack(scan_outputs, 2);
  {
    const Tensor skipped = mul(in.hidden_states, unsqueeze(unsqueeze(in.d, 0), 2));
    scan_output = add(scan_output, skipped);
  }
  const Tensor share = silu(in.gate);
  scan_output = mul(scan_output, share);
  if (!context.past_key_values) ssm_state.reset();  // return_last_state
  return {scan_output, ssm_state};
}

/// mamba_selective_state_update, of a token: hidden_states, dt and gate [b, d], B and C [b, state]. Gives [b, d].
Tensor mamba_selective_state_update(const Tensor& state, const SelectiveScan& in) {
  const auto as_float = [](const Tensor& x) { return to(x, DType::float32); };
  Tensor dt;
  {
    const Tensor bias = to(in.delta_bias, in.dt.dtype());
    dt = add(in.dt, bias);
  }
  dt = activation_of_input(Op::softplus, Op::softplus_backward, dt, false);
  Tensor d_a, d_b, d_bx, ssm_state, out;
  {
    Tensor rate;
    {
      const Tensor steps = as_float(dt);
      rate = mul(unsqueeze(steps, -1), in.a);
    }
    d_a = exp(rate);
  }
  {
    const Tensor steps = as_float(dt), b = as_float(in.b);
    d_b = mul(unsqueeze(steps, -1), unsqueeze(b, 1));
  }
  {
    const Tensor hidden_states = as_float(in.hidden_states);
    d_bx = mul(d_b, unsqueeze(hidden_states, -1));
  }
  {
    const Tensor before = as_float(state), kept = mul(before, d_a);
    ssm_state = add(kept, d_bx);
  }
  {
    const Tensor typed = to(ssm_state, state.dtype());
    copy_in_place(state, typed);
  }
  {
    const Tensor typed = to(ssm_state, in.c.dtype());
    out = matmul(typed, unsqueeze(in.c, -1));
  }
  out = select(out, 2, 0);
  {
    const Tensor skipped = mul(in.hidden_states, in.d);
    out = add(out, skipped);
  }
  {
    const Tensor share = silu(in.gate);
    out = mul(out, share);
  }
  return to(out, in.hidden_states.dtype());
}

/// weight @ x of a matrix and matrices (LinearAlgebra.cpp, matmul): folded, and copied into order, where the weight
/// trains.
Tensor matmul_by(const Tensor& weight_in, const Tensor& x_in) {
  const Tensor x = autocast_lower(x_in), weight = autocast_lower(weight_in);
  if (!weight.requires_grad()) {
    const Tensor spread = expand(unsqueeze(weight, 0), {x.size(0), weight.size(0), weight.size(1)});
    return matmul(spread, x);
  }
  const Tensor folded = matmul(transpose(x, 1, 2), transpose(weight, 0, 1));
  return contiguous(transpose(folded, 1, 2));
}

}  // namespace

MambaMixer::MambaMixer(const Builder& builder, const TextConfig& config, std::int64_t time_step_rank,
                       std::size_t layer_idx, const MambaParts& parts)
    : inner_(config.mixer.value_size()),
      state_(config.mixer.key_head_dim),
      rank_(time_step_rank),
      parts_(parts),
      activation_(config.hidden_act),
      layer_idx_(layer_idx),
      module_(builder.module) {
  const std::int64_t hidden = config.hidden_size;
  conv1d_ = CausalConv(builder.child("conv1d", "Conv1d"), inner_, config.mixer.conv_kernel, config.mixer.conv_bias);
  in_proj_ = Linear(builder.child("in_proj", "Linear"), hidden, 2 * inner_, config.mixer.bias);
  x_proj_ = Linear(builder.child("x_proj", "Linear"), inner_, rank_ + 2 * state_, false);
  dt_proj_ = Linear(builder.child("dt_proj", "Linear"), rank_, inner_, true);
  Tensor a;
  if (parts.makes_rates) {
    const Tensor row = empty(*builder.context, Op::arange, {state_}, DType::int64);
    a = empty(*builder.context, Op::clone, {inner_, state_}, DType::int64);
  }
  a_log_ = builder.parameter("A_log", {inner_, state_});
  d_ = builder.parameter("D", {inner_});
  out_proj_ = Linear(builder.child("out_proj", "Linear"), inner_, hidden, config.mixer.bias);
  if (parts.norm == nullptr) return;
  const auto norm = [&](const char* name, std::int64_t size) {
    const Builder its = builder.child(name, parts.norm_type);
    if (!parts.has_buffers) return Norm(its, parts.norm, {size});
    its.buffer({size}, its.dtype);
    return Norm(its, parts.norm);
  };
  dt_layernorm_ = norm("dt_layernorm", parts.has_buffers ? inner_ : rank_);
  b_layernorm_ = norm("b_layernorm", state_);
  c_layernorm_ = norm("c_layernorm", state_);
}

Tensor MambaMixer::operator()(const Tensor& argument, const Tensor& attention_mask) const {
  ModuleCall call(argument.context(), module_);
  Tensor hidden_states = call.argument(argument);
  const DType dtype = hidden_states.dtype();
  hidden_states = apply_mask_to_padding_states(hidden_states, attention_mask);
  const Tensor projected_states = transpose(in_proj_(hidden_states), 1, 2);
  Tensor a = to(a_log_, DType::float32);
  a = exp(a);
  a = neg(a);
  const auto as_float = [](const Tensor& x) { return to(x, DType::float32); };
  if (parts_.hands_to_kernel && argument.context().training) {
    const Tensor out_bias = out_proj_.bias ? as_float(out_proj_.bias) : Tensor();
    const Tensor d = as_float(d_);
    const Tensor delta_bias = as_float(dt_proj_.bias);
  }
  Tensor mixed, gate;
  {
    const TensorList halves = split(projected_states, {inner_, inner_}, 1);
    mixed = halves[0];
    gate = halves[1];
  }
  KvCache* const cache = argument.context().past_key_values;
  mixed = cache ? conv1d_(std::move(mixed), activation_, layer_idx_) : conv1d_(mixed, activation_);
  mixed = apply_mask_to_padding_states(transpose(mixed, 1, 2), attention_mask);
  Tensor time_step, b, c;
  {
    const TensorList parts = split(x_proj_(mixed), {rank_, state_, state_}, -1);
    time_step = parts[0];
    b = parts[1];
    c = parts[2];
  }
  if (parts_.norm) {
    time_step = dt_layernorm_(time_step);
    b = b_layernorm_(b);
    c = c_layernorm_(c);
  }
  time_step = matmul_by(dt_proj_.weight, transpose(time_step, 1, 2));
  const Tensor time_proj_bias = as_float(dt_proj_.bias);
  ScanResult scan_result;
  Tensor scan_output;
  if (cache && argument.size(1) == 1 && cache->linear_states(layer_idx_).recurrent) {
    const auto of_token = [](const Tensor& x, int dim) { return select(x, dim, 0); };
    scan_output = mamba_selective_state_update(cache->linear_states(layer_idx_).recurrent,
                                               {of_token(mixed, 1), of_token(time_step, 2), a, of_token(b, 1),
                                                of_token(c, 1), d_, of_token(gate, 2), time_proj_bias});
    scan_output = unsqueeze(scan_output, -1);
  } else {
    {
      const Tensor d = as_float(d_);
      scan_result = mamba_selective_scan({transpose(mixed, 1, 2), time_step, a, b, c, d, gate, time_proj_bias});
    }
    if (cache) update_recurrent_state(*cache, layer_idx_, scan_result.ssm_state);
    scan_output = scan_result.output;
  }
  const Tensor cast = to(transpose(scan_output, 1, 2), dtype);
  return call.result(out_proj_(cast));
}

MambaBlock::MambaBlock(const Builder& builder, const TextConfig& config, bool residual_in_fp32,
                       const std::function<Mixer(const Builder& block)>& make_mixer)
    : norm_(builder.child("norm", config.names->rms_norm), rms_norm, {config.hidden_size}),
      mixer_(make_mixer(builder)),
      residual_in_fp32_(residual_in_fp32),
      module_(builder.module) {}

Tensor MambaBlock::operator()(const Tensor& hidden_in, const PositionEmbeddings&, const Tensor& attention_mask) const {
  const ModuleScope scope(hidden_in.context(), module_);
  Tensor residual = hidden_in, hidden_states;
  {
    const Tensor cast = to(hidden_in, norm_.weight.dtype());
    hidden_states = norm_(cast);
  }
  if (residual_in_fp32_) residual = to(residual, DType::float32);
  hidden_states = mixer_(hidden_states, attention_mask);
  return add(residual, hidden_states);
}

DecoderParts mamba_model_parts() {
  DecoderParts parts;
  parts.kind = [](std::size_t i) { return int{i == 0}; };  // the first one's residual is not float32 yet
  parts.embed_tokens = "embeddings";
  parts.last_norm = "norm_f";
  parts.model = "backbone";
  parts.makes_masks = false;
  parts.norm = final_norm(rms_norm);
  parts.logits = [](const Tensor& logits) { return to(logits, DType::float32); };
  return parts;
}

void read_state_space_model(ConfigReader& reader, StateSpaceConfig& c) {
  c.vocab_size = reader.integer("vocab_size", c.vocab_size);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.hidden_act = reader.activation("hidden_act", Activation::silu);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", c.tie_word_embeddings);
  c.residual_in_fp32 = reader.boolean("residual_in_fp32", true);
  c.has_pad_token = !reader.is_null("pad_token_id");
  c.rotary_dim = -1;
  // It attends to nothing: one head, and a length at which nothing stops.
  c.num_attention_heads = c.num_key_value_heads = 1;
  c.head_dim = c.hidden_size;
  c.max_position_embeddings = 1 << 20;
  c.mixer.kernels = Kernels::mamba | Kernels::causal_conv1d;
  c.mixer.layers.assign(static_cast<std::size_t>(c.num_hidden_layers), true);
  c.mixer.conv_kernel = reader.integer("conv_kernel", 4);
  c.mixer.conv_bias = reader.boolean("use_conv_bias", true);
  c.mixer.bias = reader.boolean("use_bias", false);
  reader.ignore({"pad_token_id", "layer_norm_epsilon", "time_step_min", "time_step_max", "time_step_floor",
                 "rescale_prenorm_residual", "rms_norm", "intermediate_size"});
}

ModelTraits state_space_traits(const StateSpaceConfig& config) {
  ModelTraits t = recurrent_traits(config);
  t.language = "backbone";
  t.default_sequence_length = 2048;
  t.refuse(Feature::sdpa, "inconsistent",
           t.class_name + " attends to nothing, and loads as eager only: expected eager");
  t.refuse(Feature::flash_attention_2, "inconsistent", t.class_name + " attends to nothing: expected eager");
  for (const Feature feature :
       {Feature::zero3, Feature::fsdp, Feature::packing, Feature::flash_attention, Feature::quantization})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.has_no_liger();
  return t;
}

void refuse_dt_proj(ConfigReader& reader, const LoraConfig& lora, const char* others) {
  const std::vector<std::string>& names = lora.target_modules.names;
  if (lora.target_modules.all_linear || std::find(names.begin(), names.end(), "dt_proj") != names.end())
    reader.fail_found(
        "target_modules", "not-modelled",
        std::string("it reaches dt_proj, which is not supported yet; expected names of other layers (") + others + ")");
}

}  // namespace oometer
