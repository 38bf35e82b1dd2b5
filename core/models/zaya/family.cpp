#include <string>
#include <tuple>
#include <utility>

#include "config/reader.h"
#include "models/kit/causal_conv.h"
#include "models/kit/mixture.h"
#include "models/kit/recurrent.h"
#include "models/masking.h"
#include "nn/activation.h"
#include "ops/experts.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

/// transformers 5.23, models/zaya/modeling_zaya.py: attention whose queries and keys go through convolutions, routers
/// that read what the layer before has routed by, and residuals in float32.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"ZayaForCausalLM", "ZayaModel",   "ZayaDecoderLayer",   "ZayaAttention",
                                 "ZayaExperts",     "ZayaRMSNorm", "ZayaRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"zaya", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct ZayaConfig : TextConfig {
  std::int64_t router_hidden_size = 256, cca_time0 = 2, cca_time1 = 2;
  bool lm_head_bias = false;

  bool operator==(const ZayaConfig&) const = default;
};

ZayaConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 262'272;
  d.hidden_size = d.intermediate_size = 2048;
  d.num_hidden_layers = 40;
  d.num_attention_heads = 8;
  d.num_key_value_heads = 2;
  d.max_position_embeddings = 131'072;
  d.tie_word_embeddings = d.has_pad_token = true;
  ZayaConfig c;
  static_cast<TextConfig&>(c) = read_text_sizes(reader, d, 128);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.rotary_dim = c.head_dim / 2;
  if (!reader.is_null("rope_parameters") && reader.has("rope_parameters")) {
    ConfigReader rope = reader.object("rope_parameters");
    ConfigReader hybrid = rope.object("hybrid");
    c.rotary_dim =
        static_cast<std::int64_t>(static_cast<double>(c.head_dim) * hybrid.number("partial_rotary_factor", 1, 0, 1));
    hybrid.ignore({"rope_type", "rope_theta"});
    rope.ignore({"rope_type", "hybrid_sliding"});
  }
  if (c.rotary_dim < 2 || c.rotary_dim % 2 != 0)
    reader.fail("rope_parameters", "inconsistent", "expected an even number of a head's elements to be rotated");
  check_llama_heads(reader, c);
  ExpertsConfig& e = c.experts;
  e.num_experts = reader.integer("num_experts", 16, {1, 1 << 16});
  e.num_experts_per_tok = reader.integer("num_experts_per_tok", 1);
  if (e.num_experts_per_tok != 1)
    reader.fail_found("num_experts_per_tok", "inconsistent", "a token gets one expert in this class: expected 1");
  e.intermediate_size = reader.integer("moe_intermediate_size", 2048);
  c.router_hidden_size = reader.integer("router_hidden_size", 256);
  c.cca_time0 = reader.integer("cca_time0", 2, {1, 1024});
  c.cca_time1 = reader.integer("cca_time1", 2, {1, 1024});
  c.lm_head_bias = reader.boolean("lm_head_bias", false);
  for (const std::string& type : reader.texts_of_layers("layer_types", c.num_hidden_layers))
    if (type != "hybrid") {
      reader.fail("layer_types", "not-modelled",
                  "found \"" + type + "\": layers with a sliding window are not supported yet; expected \"hybrid\"");
      break;
    }
  reader.ignore({"sliding_window"});
  reader.refuse("output_router_logits", "routers' logits among the outputs are not supported yet: set it to false");
  if (c.num_key_value_heads * c.head_dim % 2 != 0)
    reader.fail_found("head_dim", "inconsistent", "values are made of two halves: expected an even size");
  return c;
}

/// 1 / x
Tensor reciprocal(const Tensor& x) {
  // -grad * (result * result)
  Record record(Op::reciprocal,
                [](Backward& b) {
                  const Tensor negated = neg(b.grad());
                  const Tensor squared = mul(b.saved(0), b.saved(0));
                  b.give(0, mul(negated, squared));
                },
                {&x});
  Tensor result = empty_like(Op::reciprocal, x);
  record.save_output(result);
  return record.output(std::move(result));
}

struct Conv1d {
  Conv1d(const Builder& builder, std::int64_t channels, std::int64_t kernel, std::int64_t its_groups)
      : weight(builder.parameter("weight", {channels, channels / its_groups, kernel})),
        bias(builder.parameter("bias", {channels})),
        groups(its_groups),
        module(builder.module) {}

  Tensor operator()(const Tensor& x) const {
    ModuleCall call(x.context(), module);
    return call.result(
        convolution(call.argument(x), weight, bias,
                    {.stride = {1}, .padding = {0}, .dilation = {1}, .output_padding = {0}, .groups = groups}));
  }

  Tensor weight, bias;
  std::int64_t groups;
  ModuleId module;
};

struct ZayaCCAProjection {
  ZayaCCAProjection(const Builder& builder, const ZayaConfig& c)
      : hidden_size(c.hidden_size),
        kernel(c.cca_time0 + c.cca_time1 - 2),
        head_dim(c.head_dim),
        num_groups(c.num_attention_heads / c.num_key_value_heads),
        q_proj(linear(builder, "q_proj", c, c.num_attention_heads * c.head_dim)),
        k_proj(linear(builder, "k_proj", c, c.num_key_value_heads * c.head_dim)),
        v_proj_current(linear(builder, "v_proj_current", c, c.num_key_value_heads * c.head_dim / 2)),
        v_proj_delayed(linear(builder, "v_proj_delayed", c, c.num_key_value_heads * c.head_dim / 2)),
        conv_qk_depthwise(builder.child("conv_qk_depthwise", "Conv1d"), channels(c), c.cca_time0, channels(c)),
        conv_qk_grouped(builder.child("conv_qk_grouped", "Conv1d"), channels(c), c.cca_time1,
                        c.num_key_value_heads + c.num_attention_heads),
        module(builder.module) {}

  static Linear linear(const Builder& builder, const char* name, const ZayaConfig& c, std::int64_t to) {
    return Linear(builder.child(name, "Linear"), c.hidden_size, to, c.qkv_bias);
  }
  static std::int64_t channels(const ZayaConfig& c) {
    return (c.num_key_value_heads + c.num_attention_heads) * c.head_dim;
  }

  /// Heads are behind tokens.
  AttentionInputs operator()(const Tensor& argument, const Tensor& conv_mask) const {
    ModuleCall call(argument.context(), module);
    const Tensor given = call.argument(argument);
    const Tensor hidden_states = apply_mask_to_padding_states(given, conv_mask);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1);
    const auto heads = [&](const Tensor& x) { return view(x, {batch, length, x.size(2) / head_dim, head_dim}); };
    const Tensor projected_queries = q_proj(hidden_states), projected_keys = k_proj(hidden_states);
    Tensor qk_states = cat({projected_queries, projected_keys}, -1);
    Tensor query_residual = heads(projected_queries), key_residual = transpose(heads(projected_keys), 1, 2);
    const std::int64_t num_heads = query_residual.size(2);
    key_residual = transpose(repeat_kv(key_residual, num_heads), 1, 2);
    {
      Tensor sum = add(query_residual, key_residual);
      query_residual = mul_scalar(sum);
    }
    key_residual = mean(view(query_residual, {batch, length, num_heads / num_groups, num_groups, head_dim}),
                        std::vector<int>{3}, false);
    qk_states = transpose(qk_states, 1, 2);
    qk_states = pad(qk_states, 2, kernel);
    qk_states = conv_qk_depthwise(qk_states);
    qk_states = transpose(conv_qk_grouped(qk_states), 1, 2);
    const std::int64_t query_size = num_heads * head_dim;
    AttentionInputs states;
    states.query = add(heads(slice(qk_states, 2, 0, query_size)), query_residual);
    states.key = add(heads(slice(qk_states, 2, query_size, qk_states.size(2) - query_size)), key_residual);
    const Tensor value_current = v_proj_current(hidden_states), delayed_v_state = v_proj_delayed(hidden_states);
    Tensor recurrent_v_state;
    {
      const Tensor zeros = empty(argument.context(), Op::zeros, {batch, 1, hidden_size}, hidden_states.dtype());
      recurrent_v_state = v_proj_delayed(zeros);
    }
    const Tensor value_delayed = cat({recurrent_v_state, slice(delayed_v_state, 1, 0, length - 1)}, 1);
    const Tensor value = cat({value_current, value_delayed}, -1);
    states.query = call.result(states.query);
    states.key = call.result(states.key);
    states.value = call.result(heads(value));
    return states;
  }

  std::int64_t hidden_size, kernel, head_dim, num_groups;
  Linear q_proj, k_proj, v_proj_current, v_proj_delayed;
  Conv1d conv_qk_depthwise, conv_qk_grouped;
  ModuleId module;
};

struct ZayaAttention {
  ZayaAttention(const Builder& builder, const ZayaConfig& c, const ModelOptions& options)
      : o_proj(builder.child("o_proj", "Linear"), c.num_attention_heads * c.head_dim, c.hidden_size, c.output_bias),
        qkv_proj(builder.child("qkv_proj", "ZayaCCAProjection"), c),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    const Builder norm = builder.child("qk_norm", "ZayaQKNorm");
    qk_norm = norm.module;
    temp = norm.parameter("temp", {c.num_key_value_heads});
  }

  // ZayaQKNorm.forward
  void normalise(AttentionInputs& states) const {
    ModuleCall norm(states.query.context(), qk_norm);
    Tensor query_states = norm.argument(states.query), key_states = norm.argument(states.key);
    const auto normalised = [](const Tensor& x) {
      Tensor scale;
      {
        Tensor length = linalg_vector_norm(x, true);
        length = clamp(length, false);
        scale = reciprocal(length);  // Tensor.__rtruediv__ holds the divisor until it returns
        scale = mul_scalar(scale);
      }
      return mul(x, scale);
    };
    query_states = normalised(query_states);
    key_states = normalised(key_states);
    key_states = mul(key_states, view(temp, {1, 1, temp.size(0), 1}));
    states.query = norm.result(query_states);
    states.key = norm.result(key_states);
  }

  AttentionOutputs operator()(const Tensor& argument, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    AttentionInputs states = qkv_proj(hidden_states, positions.padding_mask);
    normalise(states);
    for (Tensor* x : {&states.query, &states.key, &states.value}) *x = transpose(*x, 1, 2);
    std::tie(states.query, states.key) = rotate_first_halves(states.query, states.key, positions);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask);
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  Linear o_proj;
  ZayaCCAProjection qkv_proj;
  Tensor temp;
  ModuleId qk_norm = 0;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

/// ZayaRouter: beside its routing it gives the states that the next layer's reads.
struct ZayaRouter {
  ZayaRouter(const Builder& builder, const ZayaConfig& c)
      : down_proj(builder.child("down_proj", "Linear"), c.hidden_size, c.router_hidden_size, true),
        module(builder.module) {
    if (builder.context->log.modules[builder.context->log.modules[builder.context->log.modules[module].parent].parent]
            .index != 0)
      router_states_scale = builder.parameter("router_states_scale", {c.router_hidden_size});
    const Builder mlp = builder.child("router_mlp", "ZayaRouterMLP");
    const std::int64_t width = c.router_hidden_size;
    mlp_module = mlp.module;
    norm = LlamaRMSNorm(mlp.child("norm", kNames.rms_norm), width);
    fc1 = Linear(mlp.child("fc1", "Linear"), width, width, true);
    fc2 = Linear(mlp.child("fc2", "Linear"), width, width, true);
    out_proj = Linear(mlp.child("out_proj", "Linear"), width, c.experts.num_experts + 1, false);
    balancing_biases = builder.buffer({c.experts.num_experts + 1}, DType::float32);
  }

  // ZayaRouterMLP.forward
  Tensor router_mlp(const Tensor& argument) const {
    ModuleCall call(argument.context(), mlp_module);
    Tensor hidden_states = norm(call.argument(argument));
    for (const Linear* fc : {&fc1, &fc2}) {
      const Tensor widened = (*fc)(hidden_states);
      hidden_states = activate(Activation::gelu, widened);
    }
    return call.result(out_proj(hidden_states));
  }

  Routing operator()(const Tensor& argument, const Tensor& router_states, Tensor& next) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor hidden_states = call.argument(argument);
    Tensor router_hidden_states = down_proj(hidden_states);
    if (router_states_scale && router_states) {
      const Tensor scaled = mul(router_states, router_states_scale);
      router_hidden_states = add(router_hidden_states, scaled);
    }
    Tensor router_hidden_states_next;
    {
      const Tensor last = slice(router_hidden_states, 1, 0, router_hidden_states.size(1));
      router_hidden_states_next = clone(last);
    }
    Routing routing;
    routing.router_logits = router_mlp(router_hidden_states);
    Tensor router_probs =
        softmax(routing.router_logits, context.autocast.enabled ? DType::float32 : routing.router_logits.dtype());
    const Shape chosen{router_probs.size(0), router_probs.size(1), 1};
    Tensor biased_router_probs, values, router_indices;
    {
      Tensor widened;
      if (router_probs.dtype() != DType::float32)
        widened = empty(context, Op::to_copy, router_probs.sizes(), DType::float32);
      biased_router_probs = empty(context, Op::add, router_probs.sizes(), DType::float32);
    }
    values = empty(context, Op::topk, chosen, DType::float32);  // `_`
    router_indices = empty(context, Op::topk, chosen, DType::int64);
    router_probs = gather(router_probs, router_indices);
    const Tensor skip_expert = empty(context, Op::eq, chosen, DType::boolean);
    router_probs = masked_fill(router_probs, skip_expert);
    router_indices = empty(context, Op::masked_fill, chosen, DType::int64);
    routing.router_logits = call.result(routing.router_logits);
    routing.topk_weights = call.result(view(router_probs, {router_probs.numel(), 1}));
    routing.topk_indices = view(router_indices, {router_indices.numel(), 1});
    next = call.result(router_hidden_states_next);
    return routing;
  }

  Linear down_proj, fc1, fc2, out_proj;
  LlamaRMSNorm norm;
  Tensor router_states_scale, balancing_biases;
  ModuleId module, mlp_module = 0;
};

struct ZayaResidualScaling {
  ZayaResidualScaling(const Builder& builder, std::int64_t hidden_size) : module(builder.module) {
    const auto vector = [&](const char* name) { return builder.parameter(name, {hidden_size}); };
    hidden_states_scale = vector("hidden_states_scale");
    hidden_states_bias = vector("hidden_states_bias");
    residual_scale = vector("residual_scale");
    residual_bias = vector("residual_bias");
  }

  Tensor operator()(const Tensor& given_states, const Tensor& given_residual) const {
    ModuleCall call(given_states.context(), module);
    const auto scaled = [](const Tensor& x, const Tensor& bias, const Tensor& scale) {
      const Tensor sum = add(x, bias);
      return mul(sum, scale);
    };
    const Tensor hidden_states = scaled(call.argument(given_states), hidden_states_bias, hidden_states_scale);
    const Tensor residual = scaled(call.argument(given_residual), residual_bias, residual_scale);
    return call.result(add(hidden_states, residual));
  }

  Tensor hidden_states_scale, hidden_states_bias, residual_scale, residual_bias;
  ModuleId module;
};

class ZayaDecoderLayer : public DecoderLayer {
 public:
  ZayaDecoderLayer(const Builder& builder, const ZayaConfig& c, const ModelOptions& options)
      : self_attn_(builder.child("self_attn", kNames.attention), c, options),
        mlp_(builder.child("mlp", "ZayaSparseMoeBlock")),
        gate_(mlp_.child("gate", "ZayaRouter"), c),
        experts_(make_experts(mlp_, "ZayaExperts", c)),
        input_layernorm_(builder.child("input_layernorm", kNames.rms_norm), c.hidden_size),
        post_attention_layernorm_(builder.child("post_attention_layernorm", kNames.rms_norm), c.hidden_size),
        post_attention_residual_scale_(builder.child("post_attention_residual_scale", "ZayaResidualScaling"),
                                       c.hidden_size),
        post_mlp_residual_scale_(builder.child("post_mlp_residual_scale", "ZayaResidualScaling"), c.hidden_size),
        mlp_module_(mlp_.module),
        module_(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    const ModuleScope scope(hidden_in.context(), module_);
    Tensor residual = hidden_in, hidden_states, prev_router_hidden_states = positions.prev_topk_indices;
    const auto normed = [](const LlamaRMSNorm& norm, const Tensor& x) {
      const Tensor lowered = to(x, norm.weight.dtype());
      return norm(lowered);
    };
    hidden_states = normed(input_layernorm_, residual);
    AttentionOutputs attention = self_attn_(hidden_states, positions, attention_mask);
    hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
    residual = post_attention_residual_scale_(hidden_states, residual);
    hidden_states = normed(post_attention_layernorm_, residual);
    {  // ZayaSparseMoeBlock.forward
      ModuleCall call(hidden_in.context(), mlp_module_);
      const Tensor states = call.argument(hidden_states);
      Tensor next;
      const Routing routing = gate_(states, prev_router_hidden_states, next);  // the logits stay in `_`
      const Tensor flat = view(states, {states.numel() / states.size(2), states.size(2)});
      const Tensor expert_output = experts_(flat, routing.topk_indices, routing.topk_weights);
      hidden_states = call.result(view(expert_output, states.sizes()));
      prev_router_hidden_states = call.result(next);
    }
    hidden_states = post_mlp_residual_scale_(hidden_states, residual);
    if (!hidden_in.context().recomputing) *positions.topk_indices = prev_router_hidden_states;
    return hidden_states;
  }

 private:
  ZayaAttention self_attn_;
  Builder mlp_;
  ZayaRouter gate_;
  Experts experts_;
  LlamaRMSNorm input_layernorm_, post_attention_layernorm_;
  ZayaResidualScaling post_attention_residual_scale_, post_mlp_residual_scale_;
  ModuleId mlp_module_, module_;
};

class ZayaForCausalLM : public LanguageModel {
 public:
  ZayaForCausalLM(Context& context, const ZayaConfig& c, const DataConfig& data, const ModelOptions& options)
      : LanguageModel(context, kNames.causal_lm, Modality::language, data, options) {
    DecoderParts parts;
    parts.layer = [c, options](const Builder& layer, std::size_t) {
      return std::make_unique<ZayaDecoderLayer>(layer, c, options);
    };
    parts.rotary_dim = c.rotary_dim;
    parts.head_bias = c.lm_head_bias;
    parts.rest = [this, size = c.hidden_size](const Builder& decoder) {
      input_hidden_states_scale_ = decoder.parameter("input_hidden_states_scale", {size});
      input_hidden_states_bias_ = decoder.parameter("input_hidden_states_bias", {size});
    };
    const auto make_norm = [](const Builder& norm, std::int64_t size) {
      return [its = LlamaRMSNorm(norm, size)](const Tensor& x) {
        const Tensor lowered = to(x, its.weight.dtype());
        return its(lowered);
      };
    };
    parts.norm = make_norm;
    make_decoder(root_.child("model", kNames.model), c, options, std::move(parts));
    make_head(root_, c, c.tie_word_embeddings);
    if (options.checkpointing.mode == CheckpointMode::reentrant)
      context.refusal = Error{"not-modelled", "/training/activation_checkpointing",
                              "found \"reentrant\", which is not supported yet where layers hand on what they routed "
                              "by; expected \"non-reentrant\""};
    is_causal_lm = true;
  }

  Tensor embed(const Tensor& input_ids) const override { return language_model_.embed(input_ids); }

  ModelOutputs forward(const ModelInputs& inputs) override {
    return causal_lm_outputs(model_forward(inputs), lm_head_, inputs, loss_function);
  }

 private:
  // ZayaModel.forward
  Tensor model_forward(const ModelInputs& inputs) const {
    const Decoder& model = language_model_;
    ModuleCall call(context_, model.module);
    const Tensor inputs_embeds = inputs.inputs_embeds ? inputs.inputs_embeds : model.embed(inputs.input_ids);
    const Tensor position_ids =
        inputs.position_ids ? inputs.position_ids : model.positions(context_, inputs_embeds.size(1));
    const MaskArguments given{position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q};
    const Tensor causal_mask = create_causal_mask(inputs_embeds, given, model.masked);
    PositionEmbeddings positions = [&] {
      const Tensor conv_mask = create_recurrent_attention_mask(inputs_embeds, given);
      PositionEmbeddings made = model.rotary_emb(inputs_embeds, position_ids);
      made.padding_mask = conv_mask;
      return made;
    }();
    positions.rows = inputs.rows;
    positions.cu_seq_lens = inputs.cu_seq_lens_q;
    positions.topk_indices = std::make_shared<Tensor>();  // the routers' states, by a name of another class
    Tensor hidden_states;
    {
      Tensor scaled = add(inputs_embeds, input_hidden_states_bias_);
      scaled = mul(scaled, input_hidden_states_scale_);
      hidden_states = to(scaled, DType::float32);
    }
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      PositionEmbeddings its = positions;
      its.prev_topk_indices = *positions.topk_indices;
      return [&layer = *model.layers[i], its = std::move(its), causal_mask](const Tensor& hidden) {
        return layer(hidden, its, causal_mask);
      };
    };
    const auto kind = [](std::size_t i) { return static_cast<int>(i); };
    hidden_states =
        model.blocks.run(0, model.layers.size(), std::move(hidden_states), model.checkpointing, block, {.kind = kind});
    const Tensor last_hidden_state = model.norm(hidden_states);
    positions.topk_indices->reset();
    return call.result(last_hidden_state);
  }

  Tensor input_hidden_states_scale_, input_hidden_states_bias_;
};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<ZayaConfig>());
  t.has_no_peft_targets();
  for (const Feature feature : {Feature::inference, Feature::generate_options, Feature::lengths, Feature::packing})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.generates = false;
  return t;
}

}  // namespace

namespace family {
extern const Family zaya{
    .classes = kClasses,
    .blocks = kBlocks,
    .read = [](ConfigReader& reader, const ModelClass&, Framework) -> FamilyConfig { return read(reader); },
    .build = [](Context& context, const FamilyConfig& config, const DataConfig& data,
                const ModelOptions& options) -> std::unique_ptr<Model> {
      return std::make_unique<ZayaForCausalLM>(context, config.as<ZayaConfig>(), data, options);
    },
    .traits = traits,
    .largest_tensor = [](const FamilyConfig& config,
                         const DataConfig& data) { return largest_tensor_of_text(config.as<ZayaConfig>(), data); }};
}  // namespace family

}  // namespace oometer
