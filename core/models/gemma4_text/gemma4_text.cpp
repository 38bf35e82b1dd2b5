#include "models/gemma4_text/gemma4_text.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "models/gemma4_text/attention.h"
#include "models/gemma4_text/per_layer_inputs.h"
#include "models/kit/mixture.h"
#include "models/kit/norms.h"
#include "models/kit/recurrent.h"
#include "models/kit/text_attention.h"
#include "models/llama/llama.h"
#include "models/sizes.h"
#include "nn/activation.h"
#include "nn/kv_cache.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

struct Gemma4TextRouter {
  Gemma4TextRouter(const Builder& builder, const Gemma4TextConfig& c)
      : norm(norm_without_scale(builder, "norm", c)),
        proj(builder.child("proj", "Linear"), c.hidden_size, c.experts.num_experts, false),
        scale(builder.parameter("scale", {c.hidden_size})),
        per_expert_scale(builder.parameter("per_expert_scale", {c.experts.num_experts})),
        top_k_experts(c.experts.num_experts_per_tok),
        module(builder.module) {}

  /// The probabilities are in the logits' place.
  Routing operator()(const Tensor& argument) const {
    ModuleCall self(argument.context(), module);
    Tensor hidden_states = norm(self.argument(argument));
    {
      const Tensor scaled = mul(hidden_states, scale);
      hidden_states = mul_scalar(scaled);
    }
    const Tensor expert_scores = proj(hidden_states);
    Routing routing;
    routing.router_logits = softmax(expert_scores, DType::float32);
    TopK best = topk(routing.router_logits, top_k_experts);
    routing.topk_indices = std::move(best.indices);
    {
      const Tensor total = sum(best.values, {-1}, true);
      routing.topk_weights = div_in_place(std::move(best.values), total);
    }
    {
      const Tensor of_experts = index(per_expert_scale, 0, routing.topk_indices);
      routing.topk_weights = mul(routing.topk_weights, of_experts);
    }
    routing.router_logits = self.result(std::move(routing.router_logits));
    routing.topk_weights = self.result(std::move(routing.topk_weights));
    return routing;
  }

  Norm norm;
  Linear proj;
  Tensor scale, per_expert_scale;
  std::int64_t top_k_experts;
  ModuleId module;
};

/// enable_moe_block: experts beside the MLP.
struct Gemma4MoeBlock {
  Gemma4MoeBlock(const Builder& layer, const Gemma4TextConfig& c)
      : router(layer.child("router", "Gemma4TextRouter"), c),
        experts(make_experts(layer, "Gemma4TextExperts", c, {.checkpoint = {}})),
        post_feedforward_layernorm_1(gemma4_norm(layer, "post_feedforward_layernorm_1", c)),
        post_feedforward_layernorm_2(gemma4_norm(layer, "post_feedforward_layernorm_2", c)),
        pre_feedforward_layernorm_2(gemma4_norm(layer, "pre_feedforward_layernorm_2", c)) {}

  Gemma4TextRouter router;
  Experts experts;
  Norm post_feedforward_layernorm_1, post_feedforward_layernorm_2, pre_feedforward_layernorm_2;
};

/// What a layer does with the embeddings that it has of its own.
struct Gemma4PerLayerInput {
  Gemma4PerLayerInput(const Builder& layer, const Gemma4TextConfig& c)
      : gate(layer.child("per_layer_input_gate", "Linear"), c.hidden_size, c.hidden_size_per_layer_input, false),
        projection(layer.child("per_layer_projection", "Linear"), c.hidden_size_per_layer_input, c.hidden_size, false),
        norm(gemma4_norm(layer, "post_per_layer_input_norm", c)) {}

  Linear gate, projection;
  Norm norm;
};

LlamaConfig mlp_config(const Gemma4TextConfig& c, std::size_t layer) {
  LlamaConfig its = c;
  if (c.use_double_wide_mlp && layer >= c.first_shared_layer()) its.intermediate_size *= 2;
  return its;
}

class Gemma4TextDecoderLayer : public DecoderLayer {
 public:
  Gemma4TextDecoderLayer(const Builder& builder, const Gemma4TextConfig& c, const ModelOptions& options,
                         std::size_t layer)
      : self_attn_(builder.child("self_attn", c.names->attention), c, options, layer),
        mlp_(builder.child("mlp", c.names->mlp), mlp_config(c, layer),
             c.experts.num_experts == 0 ? options.liger : LigerConfig{}),
        input_layernorm_(gemma4_norm(builder, "input_layernorm", c, options.liger)),
        post_attention_layernorm_(gemma4_norm(builder, "post_attention_layernorm", c, options.liger)),
        pre_feedforward_layernorm_(gemma4_norm(builder, "pre_feedforward_layernorm", c, options.liger)),
        post_feedforward_layernorm_(gemma4_norm(builder, "post_feedforward_layernorm", c, options.liger)),
        layer_scalar_(builder.buffer({1}, builder.dtype)),
        act_fn_(c.hidden_act),
        module_(builder.module) {
    if (c.hidden_size_per_layer_input != 0) per_layer_.emplace(builder, c);
    if (c.experts.num_experts != 0) moe_.emplace(builder, c);
  }

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    const ModuleScope scope(hidden_in.context(), module_);
    Tensor residual = hidden_in;
    Tensor hidden_states = input_layernorm_(hidden_in);
    AttentionOutputs attention = self_attn_(hidden_states, positions, attention_mask);
    hidden_states = std::move(attention.output);
    hidden_states = post_attention_layernorm_(hidden_states);
    hidden_states = add(residual, hidden_states);
    residual = hidden_states;
    hidden_states = pre_feedforward_layernorm_(hidden_states);
    hidden_states = mlp_(hidden_states);
    Tensor hidden_states_1, hidden_states_flat, hidden_states_2;
    Routing routing;
    if (moe_) {
      hidden_states_1 = moe_->post_feedforward_layernorm_1(hidden_states);
      hidden_states_flat = view(residual, {residual.size(0) * residual.size(1), residual.size(2)});
      routing = moe_->router(hidden_states_flat);
      attention.weights.reset();  // `_` is bound again
      hidden_states_2 = moe_->pre_feedforward_layernorm_2(hidden_states_flat);
      hidden_states_2 = moe_->experts(hidden_states_2, routing.topk_indices, routing.topk_weights);
      hidden_states_2 = view(hidden_states_2, residual.sizes());
      hidden_states_2 = moe_->post_feedforward_layernorm_2(hidden_states_2);
      hidden_states = add(hidden_states_1, hidden_states_2);
    }
    hidden_states = post_feedforward_layernorm_(hidden_states);
    hidden_states = add(residual, hidden_states);
    if (per_layer_) {
      residual = hidden_states;
      hidden_states = per_layer_->gate(hidden_states);
      hidden_states = activate(act_fn_, hidden_states);
      hidden_states = mul(hidden_states, positions.per_layer_input);
      hidden_states = per_layer_->projection(hidden_states);
      hidden_states = per_layer_->norm(hidden_states);
      hidden_states = add(residual, hidden_states);
    }
    return mul_in_place(hidden_states, layer_scalar_);
  }

 private:
  Gemma4TextAttention self_attn_;
  LlamaMLP mlp_;
  Norm input_layernorm_, post_attention_layernorm_, pre_feedforward_layernorm_, post_feedforward_layernorm_;
  Tensor layer_scalar_;
  Activation act_fn_;
  std::optional<Gemma4PerLayerInput> per_layer_;
  std::optional<Gemma4MoeBlock> moe_;
  ModuleId module_;
};

class Gemma4PerLayerInputs : public Gemma4PerLayerTable {
 public:
  Gemma4PerLayerInputs(const Builder& decoder, const Gemma4TextConfig& c)
      : Gemma4PerLayerTable(decoder, c, "Gemma4TextScaledWordEmbedding") {}

  Tensor get(const Tensor& input_ids) const override {
    const ModuleScope scope(input_ids.context(), module_);
    return look_up(input_ids);
  }

  Tensor project(const Tensor& inputs_embeds, const Tensor& per_layer_inputs) const override {
    Tensor per_layer_projection = per_layer_model_projection_(inputs_embeds);
    per_layer_projection = mul_scalar(per_layer_projection);
    per_layer_projection = by_layer(per_layer_projection);
    per_layer_projection = per_layer_projection_norm_(per_layer_projection);
    const Tensor both = add(per_layer_projection, per_layer_inputs);
    return mul_scalar(both);
  }
};

/// Layers of one do the same in forward and backward. Backward begins with the last one that takes part in something
/// that is added up: the per-layer embeddings' gradient, that of keys and values that others share.
int kind_of(const Gemma4TextConfig& c, std::size_t layer) {
  const bool is_last = layer + 1 == static_cast<std::size_t>(c.num_hidden_layers);
  const bool shares = layer >= c.first_shared_layer();
  if (is_last || c.stores(layer) || (shares && c.is_last_of_its_type(layer))) return 4 + static_cast<int>(layer);
  return 2 * shares + c.slides(layer);
}

}  // namespace

void allow_gemma4_liger(ModelTraits& traits, const Gemma4TextConfig& config) {
  traits.allow({Feature::liger});
  traits.liger.usual.rope = false;
  traits.liger.ignores.rope = true;                                  // "currently a no-op for Gemma 4"
  traits.liger.swiglu = config.hidden_act == Activation::gelu_tanh;  // LigerGEGLUMLP
}

DecoderParts gemma4_text_parts(const Gemma4TextConfig& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& layer, std::size_t index) -> std::unique_ptr<DecoderLayer> {
    return std::make_unique<Gemma4TextDecoderLayer>(layer, config, options, index);
  };
  parts.norm = final_norm(norm_of(options.liger, rms_norm_by_pow, liger_norm_apart));
  parts.kind = [config](std::size_t layer) { return kind_of(config, layer); };
  if (config.softcaps_logits) parts.logits = softcap;
  parts.scales_embeddings = true;
  parts.rotary_by_type = config.has_both_types();
  parts.rotary_dim = config.global_head_dim;
  // _compute_proportional_rope_parameters appends float32 zeros to the quarter that is rotated: so is the whole.
  parts.float32_frequencies = true;
  if (config.hidden_size_per_layer_input != 0)
    parts.per_layer = [config](const Builder& decoder) -> std::unique_ptr<PerLayerInputs> {
      return std::make_unique<Gemma4PerLayerInputs>(decoder, config);
    };
  if (config.num_kv_shared_layers != 0) parts.first_shared_layer = config.first_shared_layer();
  return parts;
}

double largest_tensor_of_gemma4_text(const Gemma4TextConfig& c, const DataConfig& data) {
  const std::int64_t width = c.num_hidden_layers * c.hidden_size_per_layer_input;
  return std::max({largest_tensor_of_text(c, data), bytes_of({c.vocab_size_per_layer_input, width}),
                   bytes_of({data.micro_batch_size, data.sequence_length, width}),
                   bytes_of({data.micro_batch_size, data.sequence_length, c.num_attention_heads, c.global_head_dim}),
                   bytes_of({data.micro_batch_size, data.sequence_length, 2 * c.intermediate_size}),
                   bytes_of({c.hidden_size, 2 * c.intermediate_size})});
}

}  // namespace oometer
