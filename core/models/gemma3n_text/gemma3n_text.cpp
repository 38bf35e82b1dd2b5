#include "models/gemma3n_text/gemma3n_text.h"

#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>

#include "models/gemma4_text/attention.h"
#include "models/gemma4_text/per_layer_inputs.h"
#include "models/kit/text_family.h"
#include "nn/activation.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

/// As a frame lets its names go.
void let_go(std::initializer_list<Tensor*> names) {
  for (Tensor* name : names) name->reset();
}

struct Gemma3nTextLaurelBlock {
  Gemma3nTextLaurelBlock(const Builder& builder, const Gemma3nTextConfig& c)
      : linear_left(builder.child("linear_left", "Linear"), c.hidden_size, c.laurel_rank, false),
        linear_right(builder.child("linear_right", "Linear"), c.laurel_rank, c.hidden_size, false),
        post_laurel_norm(gemma4_norm(builder, "post_laurel_norm", c)),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = call.argument(argument);
    Tensor laurel_hidden_states = linear_left(hidden_states);
    laurel_hidden_states = linear_right(laurel_hidden_states);
    const Tensor normed_laurel_hidden_states = post_laurel_norm(laurel_hidden_states);
    return call.result(add(hidden_states, normed_laurel_hidden_states));
  }

  Linear linear_left, linear_right;
  Norm post_laurel_norm;
  ModuleId module;
};

struct Gemma3nTextMLP {
  Gemma3nTextMLP(const Builder& builder, const Gemma3nTextConfig& c, std::size_t layer)
      : gate_proj(builder.child("gate_proj", "Linear"), c.hidden_size, c.intermediate_sizes[layer], false),
        up_proj(builder.child("up_proj", "Linear"), c.hidden_size, c.intermediate_sizes[layer], false),
        down_proj(builder.child("down_proj", "Linear"), c.intermediate_sizes[layer], c.hidden_size, false),
        act_fn(c.hidden_act),
        is_sparse(c.sparse[layer]),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = call.argument(argument);
    Tensor gate = gate_proj(hidden_states);
    if (is_sparse) gate = gaussian_topk(gate);
    const Tensor activations = activate(act_fn, gate);
    const Tensor up = up_proj(hidden_states);
    const Tensor product = mul(activations, up);
    return call.result(down_proj(product));
  }

  /// _gaussian_topk
  static Tensor gaussian_topk(const Tensor& inputs) {
    Context& context = inputs.context();
    Tensor target_sparsity = empty(context, Op::to_copy, {}, DType::float32);
    Tensor std_multiplier;
    {  // loc + scale * erfinv(2 * value - 1) * sqrt(2)
      Tensor value = mul_scalar(target_sparsity);
      value = add_scalar(value);
      value = empty_like(Op::pow, value);
      value = mul_scalar(value);
      value = mul_scalar(value);
      std_multiplier = add_scalar(value);
    }
    std_multiplier = to(std_multiplier, inputs.dtype());
    Tensor inputs_mean = mean(inputs, -1, true);
    Tensor inputs_std = standard_deviation(inputs, {-1}, true);
    Tensor cutoff_x;
    {
      const Tensor deviation = mul(inputs_std, std_multiplier);
      cutoff_x = add(inputs_mean, deviation);
    }
    Tensor above = sub(inputs, cutoff_x);
    Tensor result = relu(above);
    let_go({&above, &target_sparsity, &std_multiplier, &inputs_mean, &inputs_std, &cutoff_x});
    return result;
  }

  Linear gate_proj, up_proj, down_proj;
  Activation act_fn;
  bool is_sparse;
  ModuleId module;
};

/// Its methods are called in place of it.
struct Gemma3nTextAltUp {
  Gemma3nTextAltUp(const Builder& builder, const Gemma3nTextConfig& c)
      : correct_output_scale(builder.parameter("correct_output_scale", {c.hidden_size})),
        correction_coefs(builder.child("correction_coefs", "Linear"), c.altup_num_inputs, c.altup_num_inputs, false),
        prediction_coefs(builder.child("prediction_coefs", "Linear"), c.altup_num_inputs,
                         c.altup_num_inputs * c.altup_num_inputs, false),
        modality_router(builder.child("modality_router", "Linear"), c.hidden_size, c.altup_num_inputs, false),
        router_norm(gemma4_norm(builder, "router_norm", c)),
        router_input_scale(builder.buffer({}, builder.dtype)),
        num_inputs(c.altup_num_inputs) {}

  Tensor compute_router_modalities(const Tensor& x) const {
    Tensor router_inputs = router_norm(x);
    router_inputs = mul(router_inputs, router_input_scale);
    const Tensor routed = modality_router(router_inputs);
    Tensor modalities = to(routed, DType::float32);
    modalities = tanh(modalities);
    modalities = to(modalities, x.dtype());
    let_go({&router_inputs});
    return modalities;
  }

  Tensor predict(const Tensor& hidden_states) const {
    Tensor modalities = compute_router_modalities(select(hidden_states, 0, 0));
    Tensor all_coefs = prediction_coefs(modalities);
    all_coefs = reshape(all_coefs, {all_coefs.size(0), all_coefs.size(1), num_inputs, num_inputs});
    all_coefs = permute(all_coefs, {0, 1, 3, 2});
    Tensor predictions = matmul(permute(hidden_states, {1, 2, 3, 0}), all_coefs);
    predictions = permute(predictions, {3, 0, 1, 2});
    predictions = add_in_place(predictions, hidden_states);
    Tensor result;
    {
      const Tensor dense = contiguous(predictions);
      result = to(dense, hidden_states.dtype());
    }
    let_go({&modalities, &all_coefs, &predictions});
    return result;
  }

  Tensor correct(const Tensor& predictions, const Tensor& activated) const {
    Tensor modalities = compute_router_modalities(activated);
    Tensor innovation = sub(activated, select(predictions, 0, 0));
    innovation = repeat(innovation, {num_inputs, 1, 1, 1});
    Tensor weight, all_coefs;
    if (activated.context().training) {
      weight = clamp(correction_coefs.weight, true);
      const Tensor coefs = linear(modalities, weight, {});
      all_coefs = add_scalar(coefs);
    } else {
      const Tensor coefs = correction_coefs(modalities);
      all_coefs = add_scalar(coefs);
    }
    all_coefs = unsqueeze(permute(all_coefs, {2, 0, 1}), -1);
    Tensor corrected = mul(innovation, all_coefs);
    corrected = add_in_place(corrected, predictions);
    Tensor result = to(corrected, activated.dtype());
    let_go({&modalities, &innovation, &weight, &all_coefs, &corrected});
    return result;
  }

  Tensor scale_corrected_output(const Tensor& corrected) const {
    Tensor scaled = to(corrected, correct_output_scale.dtype());
    scaled = mul(scaled, correct_output_scale);
    return to(scaled, corrected.dtype());
  }

  Tensor correct_output_scale;
  Linear correction_coefs, prediction_coefs, modality_router;
  Norm router_norm;
  Tensor router_input_scale;
  std::int64_t num_inputs;
};

class Gemma3nTextDecoderLayer : public DecoderLayer {
 public:
  Gemma3nTextDecoderLayer(const Builder& builder, const Gemma3nTextConfig& c, const ModelOptions& options,
                          std::size_t layer)
      : self_attn_(builder.child("self_attn", c.names->attention), c, options, layer),
        mlp_(builder.child("mlp", c.names->mlp), c, layer),
        input_layernorm_(gemma4_norm(builder, "input_layernorm", c)),
        post_attention_layernorm_(gemma4_norm(builder, "post_attention_layernorm", c)),
        pre_feedforward_layernorm_(gemma4_norm(builder, "pre_feedforward_layernorm", c)),
        post_feedforward_layernorm_(gemma4_norm(builder, "post_feedforward_layernorm", c)),
        altup_(builder.child("altup", "Gemma3nTextAltUp"), c),
        laurel_(builder.child("laurel", "Gemma3nTextLaurelBlock"), c),
        per_layer_input_gate_(builder.child("per_layer_input_gate", "Linear"), c.hidden_size,
                              c.hidden_size_per_layer_input, false),
        per_layer_projection_(builder.child("per_layer_projection", "Linear"), c.hidden_size_per_layer_input,
                              c.hidden_size, false),
        post_per_layer_input_norm_(gemma4_norm(builder, "post_per_layer_input_norm", c)),
        act_fn_(c.hidden_act),
        scales_(c.altup_correct_scale),
        module_(builder.module) {}

  Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    const ModuleScope scope(hidden_states.context(), module_);
    Tensor predictions = altup_.predict(hidden_states);
    Tensor active_prediction = select(predictions, 0, 0);
    Tensor active_prediction_normed = input_layernorm_(active_prediction);
    Tensor laurel_output = laurel_(active_prediction_normed);
    AttentionOutputs attention = self_attn_(active_prediction_normed, positions, attention_mask);
    Tensor attn = std::move(attention.output);
    attn = post_attention_layernorm_(attn);
    Tensor attn_gated = add(active_prediction, attn);
    Tensor attn_laurel = add(attn_gated, laurel_output);
    attn_laurel = div_scalar(attn_laurel);
    Tensor attn_norm = pre_feedforward_layernorm_(attn_laurel);
    Tensor attn_ffw = mlp_(attn_norm);
    Tensor attn_ffw_norm = post_feedforward_layernorm_(attn_ffw);
    Tensor attn_ffw_laurel_gated = add(attn_laurel, attn_ffw_norm);
    Tensor corrected_predictions = altup_.correct(predictions, attn_ffw_laurel_gated);
    Tensor first_prediction = clone(select(corrected_predictions, 0, 0));
    if (scales_) first_prediction = altup_.scale_corrected_output(first_prediction);
    first_prediction = per_layer_input_gate_(first_prediction);
    first_prediction = activate(act_fn_, first_prediction);
    first_prediction = mul(first_prediction, positions.per_layer_input);
    first_prediction = per_layer_projection_(first_prediction);
    first_prediction = post_per_layer_input_norm_(first_prediction);
    // `corrected_predictions[1:] += first_prediction` adds, and then assigns the sum.
    Tensor others = slice(corrected_predictions, 0, 1, corrected_predictions.size(0) - 1);
    others = add_in_place(others, first_prediction);
    Tensor result = copy_into(std::move(corrected_predictions), others);
    others.reset();
    let_go({&predictions, &active_prediction, &active_prediction_normed, &laurel_output, &attn, &attention.weights,
            &attn_gated, &attn_laurel, &attn_norm, &attn_ffw, &attn_ffw_norm, &attn_ffw_laurel_gated,
            &first_prediction});
    return result;
  }

 private:
  Gemma4TextAttention self_attn_;
  Gemma3nTextMLP mlp_;
  Norm input_layernorm_, post_attention_layernorm_, pre_feedforward_layernorm_, post_feedforward_layernorm_;
  Gemma3nTextAltUp altup_;
  Gemma3nTextLaurelBlock laurel_;
  Linear per_layer_input_gate_, per_layer_projection_;
  Norm post_per_layer_input_norm_;
  Activation act_fn_;
  bool scales_;
  ModuleId module_;
};

class Gemma3nPerLayerInputs : public Gemma4PerLayerTable {
 public:
  Gemma3nPerLayerInputs(const Builder& decoder, const Gemma3nTextConfig& c)
      : Gemma4PerLayerTable(decoder, c, "Gemma3nTextScaledWordEmbedding") {
    per_layer_projection_scale_ = decoder.buffer({}, decoder.dtype);
    per_layer_input_scale_ = decoder.buffer({}, decoder.dtype);
  }

  Tensor get(const Tensor& input_ids) const override {
    Context& context = input_ids.context();
    const ModuleScope scope(context, module_);
    const Tensor in_table = [&] {
      const Tensor not_negative = empty_like(Op::ge, input_ids, DType::boolean);
      const Tensor below = empty_like(Op::lt, input_ids, DType::boolean);
      return empty_like(Op::bitwise_and, input_ids, DType::boolean);
    }();
    Tensor known;
    {
      const Tensor zero = empty(context, Op::empty, {}, DType::int64);
      known = empty_like(Op::where, input_ids);
    }
    return look_up(known);
  }

  Tensor project(const Tensor& inputs_embeds, const Tensor& per_layer_inputs) const override {
    Tensor per_layer_projection = per_layer_model_projection_(inputs_embeds);
    {
      const Tensor scale = to(per_layer_projection_scale_, inputs_embeds.dtype());
      per_layer_projection = mul_in_place(per_layer_projection, scale);
    }
    per_layer_projection = by_layer(per_layer_projection);
    per_layer_projection = per_layer_projection_norm_(per_layer_projection);
    const Tensor both = add(per_layer_projection, per_layer_inputs);
    const Tensor scale = to(per_layer_input_scale_, inputs_embeds.dtype());
    return mul(both, scale);
  }

 private:
  Tensor per_layer_projection_scale_, per_layer_input_scale_;
};

/// AltUp's states of a token: the embeddings, and projections of them of the same magnitude; their mean in the end.
class AltUpStreams : public Streams {
 public:
  AltUpStreams(const Builder& decoder, const Gemma3nTextConfig& c) {
    const auto make = [&](const char* name, std::vector<Linear>& projections) {
      for (std::int32_t i = 0; i + 1 < c.altup_num_inputs; ++i)
        projections.emplace_back(decoder.child(name, "Linear", i), c.hidden_size, c.hidden_size, false);
    };
    make("altup_projections", altup_projections_);
    make("altup_unembed_projections", altup_unembed_projections_);
  }

  Tensor open(const Tensor& inputs_embeds, TensorList& names) const override {
    Names its;
    Tensor result = stacked(
        inputs_embeds, [&] { return inputs_embeds; }, inputs_embeds.dtype(), altup_projections_, its,
        [&](std::size_t) { return inputs_embeds; });
    names = std::move(its.temp_hidden_states);
    for (Tensor* name : {&its.target_magnitude, &its.projected, &its.current_hidden_state, &its.new_magnitude})
      names.push_back(std::move(*name));
    return result;
  }

  Tensor close(Tensor& hidden_states, TensorList& names) const override {
    Names its;
    const Tensor hidden_states_0 = names.front();
    const std::size_t count = altup_projections_.size() + 1;
    const Tensor altup_proj = names[count + 1];
    its = {std::move(names[count]), {}, std::move(names[count + 2]), std::move(names[count + 3]), {}};
    names.resize(count);
    its.temp_hidden_states = std::move(names);
    Tensor stack;
    {
      const Tensor of_magnitude = select(hidden_states, 0, 0);
      stack = stacked(
          of_magnitude, [&] { return select(hidden_states, 0, 0); }, hidden_states_0.dtype(),
          altup_unembed_projections_, its,
          [&](std::size_t i) { return select(hidden_states, 0, static_cast<std::int64_t>(i) + 1); });
    }
    hidden_states = std::move(stack);
    hidden_states = mean(hidden_states, std::vector<int>{0}, false);
    names = std::move(its.temp_hidden_states);
    for (const Tensor& name : {hidden_states_0, altup_proj, its.target_magnitude, its.projected, its.new_magnitude})
      names.push_back(name);
    return hidden_states;
  }

 private:
  /// Of forward's. `projected`: altup_proj, then altup_unemb_proj.
  struct Names {
    Tensor target_magnitude, projected, current_hidden_state, new_magnitude;
    TensorList temp_hidden_states;
  };

  /// torch.mean(x ** 2, dim=-1, keepdim=True)
  static Tensor mean_square(const Tensor& x) {
    const Tensor square = pow(x, 2);
    return mean(square, -1, true);
  }

  /// `of_magnitude` and `first` are the same state, which the class takes twice.
  static Tensor stacked(const Tensor& of_magnitude, const std::function<Tensor()>& first, DType dtype,
                        const std::vector<Linear>& projections, Names& its,
                        const std::function<Tensor(std::size_t)>& input) {
    {
      const Tensor square = mean_square(of_magnitude);
      its.target_magnitude = pow(square, 0.5);
    }
    its.temp_hidden_states = TensorList{first()};
    for (std::size_t i = 0; i < projections.size(); ++i) {
      its.projected = projections[i](input(i));
      its.current_hidden_state = to(its.projected, dtype);
      its.new_magnitude = mean_square(its.current_hidden_state);
      {
        const Tensor clamped = clamp(its.new_magnitude, false);
        its.new_magnitude = sqrt(clamped);
      }
      {
        const Tensor scaled = mul(its.current_hidden_state, its.target_magnitude);
        its.current_hidden_state = div(scaled, its.new_magnitude);
      }
      its.temp_hidden_states.push_back(its.current_hidden_state);
    }
    return stack(its.temp_hidden_states);
  }

  std::vector<Linear> altup_projections_, altup_unembed_projections_;
};

/// Layers of one do the same in forward and backward, as Gemma 4's.
int kind_of(const Gemma3nTextConfig& c, std::size_t layer) {
  const bool is_last = layer + 1 == static_cast<std::size_t>(c.num_hidden_layers);
  const bool shares = layer >= c.first_shared_layer();
  const bool is_alone = c.intermediate_sizes[layer] != c.intermediate_sizes[0];
  if (is_last || is_alone || c.stores(layer) || (shares && c.is_last_of_its_type(layer)))
    return 8 + static_cast<int>(layer);
  return 4 * c.sparse[layer] + 2 * shares + c.slides(layer);
}

}  // namespace

DecoderParts gemma3n_text_parts(const Gemma3nTextConfig& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& layer, std::size_t index) -> std::unique_ptr<DecoderLayer> {
    return std::make_unique<Gemma3nTextDecoderLayer>(layer, config, options, index);
  };
  parts.norm = final_norm(rms_norm_by_pow);
  parts.kind = [config](std::size_t layer) { return kind_of(config, layer); };
  if (config.softcaps_logits) parts.logits = softcap;
  parts.scales_embeddings = true;
  parts.rotary_by_type = config.has_both_types();
  parts.per_layer = [config](const Builder& decoder) -> std::unique_ptr<PerLayerInputs> {
    return std::make_unique<Gemma3nPerLayerInputs>(decoder, config);
  };
  parts.streams = [config](const Builder& decoder) -> std::unique_ptr<Streams> {
    return std::make_unique<AltUpStreams>(decoder, config);
  };
  if (config.num_kv_shared_layers != 0) parts.first_shared_layer = config.first_shared_layer();
  return parts;
}

}  // namespace oometer
