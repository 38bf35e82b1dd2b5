#include "models/swinv2/swinv2.h"

#include <optional>
#include <utility>

#include "nn/activation.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

/// F.normalize over the last dimension
Tensor normalize(const Tensor& x) {
  Tensor denom = linalg_vector_norm(x);
  denom = clamp(denom, false);
  return div(x, expand(denom, x.sizes()));
}

/// Positions by a small network of the distances between two tokens of a window.
struct ContinuousPositionBias {
  ContinuousPositionBias(const Builder& builder, std::int64_t heads, std::int64_t window)
      : window_area(window * window) {
    constexpr std::int64_t width = 512;
    const Builder mlp = builder.child("continuous_position_bias_mlp", "Sequential");
    sequential = mlp.module;
    first = Linear(mlp.child("0", "Linear"), 2, width, true);
    relu = mlp.child("1", "ReLU").module;
    second = Linear(mlp.child("2", "Linear"), width, heads, false);
    create_coords_table_and_index(builder, window);
  }

  void create_coords_table_and_index(const Builder& builder, std::int64_t window) {
    Context& context = *builder.context;
    const std::int64_t distances = 2 * window - 1;
    const Shape table{1, distances, distances, 2};
    const auto line = [&] {
      const Tensor whole = integers(context, Op::arange, {distances});
      return empty(context, Op::to_copy, {distances}, DType::float32);
    };
    const auto next = [&](Op op) { return empty(context, op, table, DType::float32); };
    Tensor relative_coords_h = line(), relative_coords_w = line(), stacked = next(Op::stack), coords = next(Op::clone);
    stacked.reset();
    Tensor sign = next(Op::sign), distance = next(Op::abs);
    distance = next(Op::add);
    distance = next(Op::log);
    Tensor product = next(Op::mul);
    sign.reset();
    distance.reset();
    if (builder.dtype == DType::float32) {
      relative_coords_table = builder.buffer(table, DType::float32);
      product.reset();
      coords.reset();
    } else {
      const Tensor quotient = next(Op::div);
      product.reset();
      coords.reset();
      relative_coords_table = builder.buffer(table, builder.dtype);
    }
    Tensor coords_h = integers(context, Op::arange, {window}), coords_w = integers(context, Op::arange, {window}),
           coords_flatten = integers(context, Op::stack, {2, window, window});
    Tensor differences = integers(context, Op::sub, {2, window_area, window_area});
    const Tensor relative_coords = integers(context, Op::clone, {window_area, window_area, 2});
    differences.reset();
    relative_position_index = builder.buffer({window_area, window_area}, DType::int64);
    relative_coords_h.reset();
    relative_coords_w.reset();
    coords_h.reset();
    coords_w.reset();
    coords_flatten.reset();
  }

  /// [heads, tokens, tokens], in [0, 16]
  void operator()(Tensor& relative_position_bias_table, Tensor& relative_position_bias) const {
    {
      Tensor hidden;
      {
        ModuleCall call(first.weight.context(), sequential);
        hidden = first(call.argument(relative_coords_table));
        {
          ModuleCall its(first.weight.context(), relu);
          hidden = its.result(activation_of_result(Op::relu, Op::threshold_backward, its.argument(hidden), true));
        }
        hidden = call.result(second(hidden));
      }
      relative_position_bias_table = view(hidden, {hidden.size(1) * hidden.size(2), hidden.size(3)});
    }
    relative_position_bias =
        index(relative_position_bias_table, view(relative_position_index, {window_area * window_area}));
    relative_position_bias = view(relative_position_bias, {window_area, window_area, relative_position_bias.size(1)});
    relative_position_bias = contiguous(permute(relative_position_bias, {2, 0, 1}));
    const Tensor gate = sigmoid(relative_position_bias);
    relative_position_bias = mul_scalar(gate);
  }

  Linear first, second;
  Tensor relative_coords_table, relative_position_index;
  std::int64_t window_area;
  ModuleId sequential = 0, relu = 0;
};

struct Swinv2SelfAttention {
  Swinv2SelfAttention(const Builder& builder, const VitConfig& c, std::int64_t window)
      : logit_scale_parameter(make_logit_scale(builder, c.num_attention_heads)),
        position_bias(builder, c.num_attention_heads, window),
        query(builder.child("query", "Linear"), c.hidden_size, c.hidden_size, c.qkv_bias),
        key(builder.child("key", "Linear"), c.hidden_size, c.hidden_size, false),
        value(builder.child("value", "Linear"), c.hidden_size, c.hidden_size, c.qkv_bias),
        head_dim(c.head_dim()),
        dropout_prob(c.attention_probs_dropout_prob),
        module(builder.module) {}

  static Tensor make_logit_scale(const Builder& builder, std::int64_t heads) {
    Tensor ones = empty(*builder.context, Op::ones_like, {heads, 1, 1}, builder.dtype);
    const Tensor tens = empty(*builder.context, Op::mul, {heads, 1, 1}, builder.dtype);
    ones.reset();
    return builder.parameter("logit_scale", {heads, 1, 1});
  }

  /// attention_mask: of the windows of an image, [windows, tokens, tokens]; null: they are not shifted.
  Tensor operator()(const Tensor& argument, const Tensor& attention_mask) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = call.argument(argument);
    const std::int64_t batch_size = hidden_states.size(0), tokens = hidden_states.size(1),
                       heads = logit_scale_parameter.size(0);
    const AttentionInputs states = project(hidden_states, query, key, value, head_dim, false);
    Tensor attention_scores;
    {
      const Tensor query_unit = normalize(states.query), key_unit = normalize(states.key);
      attention_scores = matmul(query_unit, transpose(key_unit, 2, 3));
    }
    Tensor logit_scale = clamp(logit_scale_parameter, false);
    logit_scale = exp(logit_scale);
    attention_scores = mul(attention_scores, logit_scale);
    Tensor relative_position_bias_table, relative_position_bias;
    position_bias(relative_position_bias_table, relative_position_bias);
    attention_scores = add(attention_scores, unsqueeze(relative_position_bias, 0));
    if (attention_mask) {
      const std::int64_t windows = attention_mask.size(0);
      const Tensor mask = unsqueeze(unsqueeze(attention_mask, 1), 0);
      attention_scores = add(view(attention_scores, {batch_size / windows, windows, heads, tokens, tokens}), mask);
      attention_scores = add(attention_scores, mask);
      attention_scores = view(attention_scores, {batch_size, heads, tokens, tokens});
    }
    Tensor attention_probs = softmax(
        attention_scores, attention_scores.context().autocast.enabled ? DType::float32 : attention_scores.dtype());
    attention_probs = dropout(attention_probs, dropout_prob);
    Tensor context_layer = matmul(attention_probs, states.value);
    context_layer = contiguous(permute(context_layer, {0, 2, 1, 3}));
    return call.result(view(context_layer, hidden_states.sizes()));
  }

  Tensor logit_scale_parameter;
  ContinuousPositionBias position_bias;
  Linear query, key, value;
  std::int64_t head_dim;
  double dropout_prob;
  ModuleId module;
};

/// A linear layer with a dropout behind it: Swinv2SelfOutput, Swinv2Output.
struct Swinv2Output {
  Swinv2Output(const Builder& builder, std::int64_t in, std::int64_t out, double dropout)
      : dense(builder.child("dense", "Linear"), in, out, true), dropout_prob(dropout), module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = dense(call.argument(argument));
    return call.result(dropout(hidden_states, dropout_prob));
  }

  Linear dense;
  double dropout_prob;
  ModuleId module;
};

struct Swinv2Attention {
  Swinv2Attention(const Builder& builder, const VitConfig& c, std::int64_t window)
      : self(builder.child("self", "Swinv2SelfAttention"), c, window),
        output(builder.child("output", "Swinv2SelfOutput"), c.hidden_size, c.hidden_size,
               c.attention_probs_dropout_prob),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const Tensor& attention_mask) const {
    ModuleCall call(argument.context(), module);
    const Tensor context_layer = self(call.argument(argument), attention_mask);
    return call.result(output(context_layer));
  }

  Swinv2SelfAttention self;
  Swinv2Output output;
  ModuleId module;
};

struct Swinv2Intermediate {
  Swinv2Intermediate(const Builder& builder, const VitConfig& c)
      : dense(builder.child("dense", "Linear"), c.hidden_size, c.intermediate_size, true),
        act(c.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = dense(call.argument(argument));
    return call.result(activate(act, hidden_states));
  }

  Linear dense;
  Activation act;
  ModuleId module;
};

struct Swinv2Layer {
  Swinv2Layer(const Builder& builder, const VitConfig& c, std::int64_t window, std::int64_t shift,
              double drop_path_rate)
      : attention(builder.child("attention", c.names->attention), c, window),
        layernorm_before(builder.child("layernorm_before", "LayerNorm"), c.hidden_size),
        intermediate((builder.child("drop_path", drop_path_rate > 0 ? "Swinv2DropPath" : "Identity"),
                      builder.child("intermediate", c.names->mlp)),
                     c),
        output(builder.child("output", "Swinv2Output"), c.intermediate_size, c.hidden_size, c.hidden_dropout_prob),
        layernorm_after(builder.child("layernorm_after", "LayerNorm"), c.hidden_size),
        drop_prob(drop_path_rate),
        window_size(window),
        shift_size(shift),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, PatchGrid grid) const {
    ModuleCall call(argument.context(), module);
    const Tensor shortcut = call.argument(argument);
    const std::int64_t batch_size = shortcut.size(0), channels = shortcut.size(2);
    Tensor hidden_states =
        pad(view(shortcut, {batch_size, grid.height, grid.width, channels}), 2, 0);  // maybe_pad: a copy
    const Tensor shifted_hidden_states = cyclic_shift(hidden_states, shift_size);
    Tensor hidden_states_windows = window_partition(shifted_hidden_states, window_size);
    hidden_states_windows =
        view(hidden_states_windows, {hidden_states_windows.size(0), window_size * window_size, channels});
    const Tensor attn_mask = window_mask(hidden_states, grid, window_size, shift_size);
    const Tensor attention_output = attention(hidden_states_windows, attn_mask);
    Tensor attention_windows = view(attention_output, {attention_output.size(0), window_size, window_size, channels});
    const Tensor shifted_windows = window_reverse(attention_windows, window_size, grid);
    attention_windows = cyclic_shift(shifted_windows, shift_size);
    attention_windows = view(attention_windows, {batch_size, grid.patches(), channels});
    hidden_states = layernorm_before(attention_windows);
    {
      const Tensor kept = drop_path(hidden_states, drop_prob);
      hidden_states = add(shortcut, kept);
    }
    Tensor layer_output = intermediate(hidden_states);
    layer_output = output(layer_output);
    Tensor normed = layernorm_after(layer_output);
    normed = drop_path(normed, drop_prob);
    layer_output = add(hidden_states, normed);
    return call.result(layer_output);
  }

  Swinv2Attention attention;
  LayerNorm layernorm_before;
  Swinv2Intermediate intermediate;
  Swinv2Output output;
  LayerNorm layernorm_after;
  double drop_prob;
  std::int64_t window_size, shift_size;
  ModuleId module;
};

struct Swinv2PatchMerging {
  Swinv2PatchMerging(const Builder& builder, std::int64_t dim)
      : reduction(builder.child("reduction", "Linear"), 4 * dim, 2 * dim, false),
        norm(builder.child("norm", "LayerNorm"), 2 * dim),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, PatchGrid grid) const {
    ModuleCall call(argument.context(), module);
    Tensor input_feature = merge_patches(call.argument(argument), grid);
    input_feature = reduction(input_feature);
    return call.result(norm(input_feature));
  }

  Linear reduction;
  LayerNorm norm;
  ModuleId module;
};

struct Swinv2Stage {
  Swinv2Stage(const Builder& builder, const Swinv2Config& c, std::size_t stage)
      : side(c.side(stage)), module(builder.module) {
    VitConfig its = c;
    its.hidden_size = c.dim(stage);
    its.intermediate_size = static_cast<std::int64_t>(c.mlp_ratio * static_cast<double>(its.hidden_size));
    its.num_attention_heads = c.num_heads[stage];
    std::int64_t before = 0, all = 0;
    for (std::size_t i = 0; i < c.depths.size(); ++i) {
      if (i < stage) before += c.depths[i];
      all += c.depths[i];
    }
    blocks.reserve(static_cast<std::size_t>(c.depths[stage]));
    for (std::int32_t i = 0; i < c.depths[stage]; ++i) {
      // _compute_window_shift: one window is not shifted
      const std::int64_t shift = i % 2 == 0 || side <= c.window_size ? 0 : c.window_size / 2;
      blocks.emplace_back(builder.child("blocks", c.names->layer, i), its, c.window(stage), shift,
                          before + i == 0 || all == 1 ? 0 : c.drop_path_rate);
    }
    if (stage + 1 < c.depths.size())
      downsample.emplace(builder.child("downsample", "Swinv2PatchMerging"), its.hidden_size);
  }

  Tensor operator()(const Tensor& argument, Tensor& hidden_states_before_downsampling) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = call.argument(argument);
    for (const Swinv2Layer& layer : blocks) hidden_states = layer(hidden_states, {side, side});
    const Tensor before = hidden_states;
    if (downsample) hidden_states = (*downsample)(before, {side, side});
    hidden_states_before_downsampling = before;
    return call.result(hidden_states);
  }

  std::vector<Swinv2Layer> blocks;
  std::optional<Swinv2PatchMerging> downsample;
  std::int64_t side;
  ModuleId module;
};

class Swinv2 : public PooledImageModel {
 public:
  Swinv2(Context& context, const Swinv2Config& c, const DataConfig& data, const ModelOptions& options)
      : PooledImageModel(context, c, data, options), checkpointing_(options.checkpointing) {
    const Builder model = c.classifies ? root_.child("swinv2", c.names->model) : root_;
    model_ = model.module;
    embeddings_ = SwinEmbeddings(model.child("embeddings", c.names->embeddings), c);
    const Builder encoder = model.child("encoder", "Swinv2Encoder");
    encoder_ = encoder.module;
    layers_.reserve(c.depths.size());
    blocks_ = BlockStack(encoder);
    for (std::size_t i = 0; i < c.depths.size(); ++i) {
      layers_.emplace_back(encoder.child("layers", "Swinv2Stage", static_cast<std::int32_t>(i)), c, i);
      blocks_.add_block(encoder);
    }
    layernorm_ = LayerNorm(model.child("layernorm", "LayerNorm"), c.hidden_size);
    make_classifier();
  }

 private:
  // Swinv2Model.forward
  Tensor model_forward(const Tensor& argument, Tensor& pooled_output) const override {
    ModuleCall call(context_, model_);
    const Tensor embedding_output = embeddings_(call.argument(argument));
    const Tensor last_hidden_state = encode(embedding_output);
    Tensor sequence_output = layernorm_(last_hidden_state);
    // AdaptiveAvgPool1d(1), flatten
    pooled_output = mean_of_images(unsqueeze(transpose(sequence_output, 1, 2), 2));
    pooled_output = call.result(view(pooled_output, {sequence_output.size(0), sequence_output.size(2)}));
    return call.result(sequence_output);
  }

  // Swinv2Encoder.forward
  Tensor encode(const Tensor& argument) const {
    ModuleCall call(context_, encoder_);
    Tensor hidden_states = call.argument(argument), hidden_states_before_downsampling;
    if (checkpointing_.mode != CheckpointMode::none && checkpointing_.input_require_grads)
      context_.refusal =
          Error{"inconsistent", "/training/activation_checkpointing",
                "Swinv2PatchEmbeddings returns a tuple, of which enable_input_require_grads() cannot ask "
                "for gradients: expected none with adapters"};
    if (checkpointing_.mode == CheckpointMode::reentrant)
      context_.refusal = Error{"not-modelled", "/training/activation_checkpointing",
                               "a reentrant checkpoint of Swinv2Stage, which has two results, is not supported yet: "
                               "expected non-reentrant"};
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [this, i, &hidden_states_before_downsampling](const Tensor& hidden) {
        Tensor before;
        Tensor result = layers_[i](hidden, before);
        if (!context_.recomputing) hidden_states_before_downsampling = std::move(before);
        return result;
      };
    };
    hidden_states = blocks_.run(0, layers_.size(), std::move(hidden_states), checkpointing_, block,
                                {.positional = true, .kind = [](std::size_t i) { return static_cast<int>(i); }});
    return call.result(hidden_states);
  }

  SwinEmbeddings embeddings_;
  std::vector<Swinv2Stage> layers_;
  BlockStack blocks_;
  CheckpointingConfig checkpointing_;
  LayerNorm layernorm_;
  ModuleId model_ = 0, encoder_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_swinv2(Context& context, const Swinv2Config& config, const DataConfig& data,
                                    const ModelOptions& options) {
  return std::make_unique<Swinv2>(context, config, data, options);
}

}  // namespace oometer
