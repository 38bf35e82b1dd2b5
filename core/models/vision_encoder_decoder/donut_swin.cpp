#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "models/vision_encoder_decoder/parts.h"
#include "nn/activation.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

/// transformers 5.23, models/donut/modeling_donut_swin.py. Names and order of steps are that file's.
namespace oometer {

namespace {

struct Grid {
  std::int64_t height, width;
};

std::int64_t up_to(std::int64_t size, std::int64_t unit) { return (size + unit - 1) / unit * unit; }

/// F.pad with zeros at the ends of two dimensions; of nothing it is a copy all the same.
Tensor padded(const Tensor& x, const Shape& sizes) {
  Record record(Op::constant_pad_nd,
                [](Backward& b) { b.give(0, empty(b.context, Op::constant_pad_nd, b.node.sizes, b.grad().dtype())); },
                {&x});
  if (record) record->sizes = x.sizes();
  return record.output(empty(x.context(), Op::constant_pad_nd, sizes, x.dtype()));
}

/// x[:, :height, :width, :]
Tensor cut(const Tensor& x, Grid grid) {
  Tensor part = x;
  if (part.size(1) != grid.height) part = slice(part, 1, 0, grid.height);
  if (part.size(2) != grid.width) part = slice(part, 2, 0, grid.width);
  return part;
}

Tensor partition(const Tensor& input_feature, std::int64_t window) {
  const std::int64_t batch = input_feature.size(0), rows = input_feature.size(1) / window,
                     columns = input_feature.size(2) / window, channels = input_feature.size(3);
  const Tensor windows = view(input_feature, {batch, rows, window, columns, window, channels});
  return view(contiguous(transpose(windows, 2, 3)), {batch * rows * columns, window, window, channels});
}

Tensor reverse(const Tensor& windows_in, std::int64_t window, Grid grid) {
  const std::int64_t rows = grid.height / window, columns = grid.width / window, channels = windows_in.size(3),
                     batch = windows_in.size(0) / (rows * columns);
  const Tensor windows = view(windows_in, {batch, rows, columns, window, window, channels});
  return view(contiguous(transpose(windows, 2, 3)), {batch, grid.height, grid.width, channels});
}

/// DonutSwinLayer.get_attn_mask: [windows, tokens, tokens].
Tensor attention_mask(const Tensor& hidden_states, Grid grid, std::int64_t window, std::int64_t shift) {
  if (shift == 0) return {};
  Context& context = hidden_states.context();
  const DType dtype = hidden_states.dtype();
  const auto region = [&](std::int64_t side) {
    const auto as_long = [&] {
      const Tensor is_behind = empty(context, Op::ge, {side}, DType::boolean);
      return integers(context, Op::to_copy, {side});
    };
    const Tensor first = as_long(), second = as_long();
    return integers(context, Op::add, {side});
  };
  const Tensor h_idx = integers(context, Op::arange, {grid.height}),
               w_idx = integers(context, Op::arange, {grid.width}), h_region = region(grid.height),
               w_region = region(grid.width);
  const Tensor img_mask = [&] {
    Tensor rows = integers(context, Op::mul, {1, grid.height, 1, 1});
    const Tensor sum = integers(context, Op::add, {1, grid.height, grid.width, 1});
    rows.reset();
    return empty(context, Op::to_copy, {1, grid.height, grid.width, 1}, dtype);
  }();
  const Tensor mask_windows = partition(img_mask, window);
  const Shape sizes{mask_windows.size(0), window * window, window * window};
  Tensor attn_mask = empty(context, Op::sub, sizes, dtype);
  const auto filled = [&](Op op, const Tensor& mask) {
    const Tensor where_not = empty(context, op, sizes, DType::boolean);
    return empty(context, Op::masked_fill, mask.sizes(), mask.dtype());
  };
  const Tensor negative = filled(Op::ne, attn_mask);
  attn_mask = filled(Op::eq, negative);
  return attn_mask;
}

struct DonutSwinSelfAttention {
  DonutSwinSelfAttention(const Builder& builder, const VitConfig& c, std::int64_t window)
      : head_dim(c.head_dim()),
        area(window * window),
        dropout_prob(c.attention_probs_dropout_prob),
        module(builder.module) {
    const std::int64_t distances = 2 * window - 1;
    relative_position_bias_table =
        builder.parameter("relative_position_bias_table", {distances * distances, c.num_attention_heads});
    make_index(builder, window);
    for (auto [projection, name] : {std::pair{&query, "query"}, std::pair{&key, "key"}, std::pair{&value, "value"}})
      *projection = Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, c.qkv_bias);
  }

  void make_index(const Builder& builder, std::int64_t window) {
    Context& context = *builder.context;
    const Tensor coords_h = integers(context, Op::arange, {window}), coords_w = integers(context, Op::arange, {window}),
                 coords = integers(context, Op::stack, {2, window, window});
    Tensor differences = integers(context, Op::sub, {2, area, area});
    const Tensor relative_coords = integers(context, Op::clone, {area, area, 2});
    differences.reset();
    relative_position_index = builder.buffer({area, area}, DType::int64);
  }

  Tensor operator()(const Tensor& argument, const Tensor& mask) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = call.argument(argument);
    const std::int64_t batch = hidden_states.size(0), dim = hidden_states.size(1), width = hidden_states.size(2),
                       heads = width / head_dim;
    const AttentionInputs states = project(hidden_states, query, key, value, head_dim, false);
    Tensor attention_scores = matmul(states.query, transpose(states.key, 2, 3));
    attention_scores = div_scalar(attention_scores);
    Tensor relative_position_bias = index(relative_position_bias_table, view(relative_position_index, {area * area}));
    relative_position_bias = view(relative_position_bias, {area, area, heads});
    relative_position_bias = contiguous(permute(relative_position_bias, {2, 0, 1}));
    attention_scores = add(attention_scores, unsqueeze(relative_position_bias, 0));
    if (mask) {
      const std::int64_t windows = mask.size(0);
      attention_scores = view(attention_scores, {batch / windows, windows, heads, dim, dim});
      attention_scores = add(attention_scores, unsqueeze(unsqueeze(mask, 1), 0));
      attention_scores = view(attention_scores, {batch, heads, dim, dim});
    }
    Tensor attention_probs =
        softmax(attention_scores, argument.context().autocast.enabled ? DType::float32 : attention_scores.dtype());
    attention_probs = dropout(attention_probs, dropout_prob);
    Tensor context_layer = matmul(attention_probs, states.value);
    context_layer = contiguous(permute(context_layer, {0, 2, 1, 3}));
    return call.result(view(context_layer, {batch, dim, width}));
  }

  Tensor relative_position_bias_table, relative_position_index;
  Linear query, key, value;
  std::int64_t head_dim, area;
  double dropout_prob;
  ModuleId module;
};

/// DonutSwinSelfOutput, DonutSwinOutput
struct DonutSwinOutput {
  DonutSwinOutput(const Builder& builder, std::int64_t in, std::int64_t out, double dropout)
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

struct DonutSwinAttention {
  DonutSwinAttention(const Builder& builder, const VitConfig& c, std::int64_t window)
      : self(builder.child("self", "DonutSwinSelfAttention"), c, window),
        output(builder.child("output", "DonutSwinSelfOutput"), c.hidden_size, c.hidden_size,
               c.attention_probs_dropout_prob),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const Tensor& mask) const {
    ModuleCall call(argument.context(), module);
    const Tensor self_outputs = self(call.argument(argument), mask);
    return call.result(output(self_outputs));
  }

  DonutSwinSelfAttention self;
  DonutSwinOutput output;
  ModuleId module;
};

struct DonutSwinIntermediate {
  DonutSwinIntermediate(const Builder& builder, const VitConfig& c)
      : dense(builder.child("dense", "Linear"), c.hidden_size, c.intermediate_size, true),
        act(c.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = dense(call.argument(argument));
    hidden_states = activate(act, hidden_states);
    return call.result(hidden_states);
  }

  Linear dense;
  Activation act;
  ModuleId module;
};

struct DonutSwinLayer {
  DonutSwinLayer(const Builder& builder, const VitConfig& c, std::int64_t window, bool odd, double rate)
      : layernorm_before(builder.child("layernorm_before", "LayerNorm"), c.hidden_size),
        attention(builder.child("attention", c.names->attention), c, window),
        drop_path_builder(builder.child("drop_path", rate > 0 ? "DonutDropPath" : "Identity")),
        layernorm_after(builder.child("layernorm_after", "LayerNorm"), c.hidden_size),
        intermediate(builder.child("intermediate", c.names->mlp), c),
        output(builder.child("output", "DonutSwinOutput"), c.intermediate_size, c.hidden_size, c.hidden_dropout_prob),
        drop_prob(rate),
        window_size(window),
        is_odd(odd),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, Grid grid) const {
    ModuleCall call(argument.context(), module);
    // set_shift_and_window_size: one window is not shifted
    const std::int64_t shift_size = is_odd && std::min(grid.height, grid.width) > window_size ? window_size / 2 : 0;
    const Tensor shortcut = call.argument(argument);
    const std::int64_t batch = shortcut.size(0), channels = shortcut.size(2);
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor layer_output, attention_windows, shifted_windows, attention_output, attn_mask, hidden_states_windows,
        shifted_hidden_states, hidden_states;
    hidden_states = layernorm_before(shortcut);
    const Grid filled{up_to(grid.height, window_size), up_to(grid.width, window_size)};
    hidden_states = padded(view(hidden_states, {batch, grid.height, grid.width, channels}),
                           {batch, filled.height, filled.width, channels});
    shifted_hidden_states = cyclic_shift(hidden_states, shift_size);
    hidden_states_windows = partition(shifted_hidden_states, window_size);
    hidden_states_windows =
        view(hidden_states_windows, {hidden_states_windows.size(0), window_size * window_size, channels});
    attn_mask = attention_mask(hidden_states, filled, window_size, shift_size);
    attention_output = attention(hidden_states_windows, attn_mask);
    attention_windows = view(attention_output, {attention_output.size(0), window_size, window_size, channels});
    shifted_windows = reverse(attention_windows, window_size, filled);
    attention_windows = cyclic_shift(shifted_windows, shift_size);
    if (filled.height > grid.height || filled.width > grid.width)
      attention_windows = contiguous(cut(attention_windows, grid));
    attention_windows = view(attention_windows, {batch, grid.height * grid.width, channels});
    {
      const Tensor kept = drop_path(attention_windows, drop_prob);
      hidden_states = add(shortcut, kept);
    }
    layer_output = layernorm_after(hidden_states);
    layer_output = intermediate(layer_output);
    {
      const Tensor narrowed = output(layer_output);
      layer_output = add(hidden_states, narrowed);
    }
    return call.result(layer_output);
  }

  LayerNorm layernorm_before;
  DonutSwinAttention attention;
  Builder drop_path_builder;
  LayerNorm layernorm_after;
  DonutSwinIntermediate intermediate;
  DonutSwinOutput output;
  double drop_prob;
  std::int64_t window_size;
  bool is_odd;  ///< its windows are shifted
  ModuleId module;
};

struct DonutSwinPatchMerging {
  DonutSwinPatchMerging(const Builder& builder, std::int64_t dim)
      : reduction(builder.child("reduction", "Linear"), 4 * dim, 2 * dim, false),
        norm(builder.child("norm", "LayerNorm"), 4 * dim),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, Grid grid) const {
    ModuleCall call(argument.context(), module);
    const Tensor given = call.argument(argument);
    const std::int64_t batch = given.size(0), channels = given.size(2);
    Tensor input_feature = view(given, {batch, grid.height, grid.width, channels});
    const Grid even{up_to(grid.height, 2), up_to(grid.width, 2)};
    if (even.height > grid.height || even.width > grid.width)
      input_feature = padded(input_feature, {batch, even.height, even.width, channels});
    {
      std::vector<Tensor> parts;
      for (std::int64_t col = 0; col < 2; ++col)
        for (std::int64_t row = 0; row < 2; ++row) parts.push_back(every_second(input_feature, row, col));
      input_feature = cat(parts, -1);
    }
    input_feature = view(input_feature, {batch, even.height * even.width / 4, 4 * channels});
    input_feature = norm(input_feature);
    return call.result(reduction(input_feature));
  }

  /// x[:, row::2, col::2, :]
  static Tensor every_second(const Tensor& x, std::int64_t row, std::int64_t col) {
    Tensor part = x;
    for (const auto& [dim, first] : {std::pair{1, row}, std::pair{2, col}}) {
      part = slice(part, dim, first, x.size(dim) / 2);
      part->strides[dim] *= 2;
    }
    return part;
  }

  Linear reduction;
  LayerNorm norm;
  ModuleId module;
};

struct DonutSwinStage {
  DonutSwinStage(const Builder& builder, const DonutSwinConfig& c, std::size_t stage) : module(builder.module) {
    VitConfig its = c;
    its.hidden_size = c.dim(stage);
    its.intermediate_size = static_cast<std::int64_t>(c.mlp_ratio * static_cast<double>(its.hidden_size));
    its.num_attention_heads = c.num_heads[stage];
    blocks.reserve(static_cast<std::size_t>(c.depths[stage]));
    for (std::int32_t i = 0; i < c.depths[stage]; ++i) {
      blocks.emplace_back(builder.child("blocks", c.names->layer, i), its, c.window_size, i % 2 == 1,
                          stage == 0 && i == 0 ? 0 : c.drop_path_rate);
    }
    if (stage + 1 < c.depths.size())
      downsample.emplace(builder.child("downsample", "DonutSwinPatchMerging"), its.hidden_size);
  }

  /// The hidden states; `before` are the caller's until another stage's come.
  Tensor operator()(const Tensor& argument, Grid grid, Tensor* before) const {
    const ModuleScope scope(argument.context(), module);
    Tensor hidden_states = argument;
    for (const DonutSwinLayer& layer : blocks) hidden_states = layer(hidden_states, grid);
    const Tensor hidden_states_before_downsampling = hidden_states;
    if (downsample) hidden_states = (*downsample)(hidden_states_before_downsampling, grid);
    if (before) *before = hidden_states_before_downsampling;
    return hidden_states;
  }

  std::vector<DonutSwinLayer> blocks;
  std::optional<DonutSwinPatchMerging> downsample;
  ModuleId module;
};

class DonutSwinTower : public VisionTower {
 public:
  DonutSwinTower(const Builder& builder, const DonutSwinConfig& c, const ModelOptions& options)
      : dropout_prob_(c.hidden_dropout_prob), checkpointing_(options.checkpointing), module_(builder.module) {
    const Builder of_embeddings = builder.child("embeddings", c.names->embeddings);
    embeddings_ = of_embeddings.module;
    const Builder patches = of_embeddings.child("patch_embeddings", c.names->patch_embeddings);
    patch_embeddings_ = patches.module;
    projection_ = Conv2d(patches.child("projection", "Conv2d"), c.num_channels, c.embed_dim, c.patch_size, true);
    norm_ = LayerNorm(of_embeddings.child("norm", "LayerNorm"), c.embed_dim);
    const Builder encoder = builder.child("encoder", "DonutSwinEncoder");
    encoder_ = encoder.module;
    blocks_ = BlockStack(encoder);
    layers_.reserve(c.depths.size());
    for (std::size_t i = 0; i < c.depths.size(); ++i) {
      layers_.emplace_back(encoder.child("layers", kDonutSwinStage, static_cast<std::int32_t>(i)), c, i);
      blocks_.add_block(encoder);
    }
    builder.child("pooler", "AdaptiveAvgPool1d");
  }

  std::size_t checkpointable() const override { return layers_.size(); }

  Tensor operator()(const Tensor& given, Tensor& pooler_output) override {
    Context& context = given.context();
    ModuleCall call(context, module_);
    Grid grid{};
    const Tensor embedding_output = embed(call.keyword(given), grid);
    const Tensor sequence_output = encode(embedding_output, grid);
    // AdaptiveAvgPool1d(1), flatten
    pooler_output = mean_of_images(unsqueeze(transpose(sequence_output, 1, 2), 2));
    pooler_output = call.result(view(pooler_output, {sequence_output.size(0), sequence_output.size(2)}));
    return call.result(sequence_output);
  }

 private:
  Tensor embed(const Tensor& given, Grid& grid) const {
    ModuleCall call(given.context(), embeddings_);
    const Tensor pixel_values = call.argument(given);
    check_pixels(pixel_values, projection_.weight);
    Tensor embeddings;
    {
      ModuleCall patches(given.context(), patch_embeddings_);
      const std::int64_t patch = projection_.weight.size(2);
      Tensor pixels = patches.argument(pixel_values);
      Shape sizes = pixels.sizes();
      for (const int dim : {3, 2}) {
        if (sizes[dim] % patch == 0) continue;
        sizes[dim] = up_to(sizes[dim], patch);
        pixels = padded(pixels, sizes);
      }
      const Tensor projected = projection_(pixels);
      grid = {projected.size(2), projected.size(3)};
      const std::int64_t count = checked_product(projected.size(2), projected.size(3));
      embeddings = patches.result(transpose(reshape(projected, {projected.size(0), projected.size(1), count}), 1, 2));
    }
    if (checkpointing_.input_require_grads)
      given.context().refusal =
          Error{"inconsistent", "/training/activation_checkpointing",
                "found checkpointing of a Donut with adapters, which transformers stops at: its patch embeddings "
                "return a tuple, whose gradients cannot be asked for (enable_input_require_grads); expected none"};
    embeddings = norm_(embeddings);
    return call.result(dropout(embeddings, dropout_prob_));
  }

  Tensor encode(const Tensor& given, Grid grid) const {
    ModuleCall call(given.context(), encoder_);
    Tensor hidden_states = call.argument(given), hidden_states_before_downsampling;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const auto before = std::make_shared<Tensor>();
      const auto block = [&](std::size_t index) -> BlockStack::Forward {
        return [&stage = layers_[index], grid, before](const Tensor& hidden) {
          return stage(hidden, grid, hidden.context().recomputing ? nullptr : before.get());
        };
      };
      hidden_states = blocks_.run(i, i + 1, std::move(hidden_states), checkpointing_, block, {.positional = true});
      hidden_states_before_downsampling = std::move(*before);
      if (i + 1 < layers_.size()) grid = {(grid.height + 1) / 2, (grid.width + 1) / 2};
    }
    return call.result(hidden_states);
  }

  Conv2d projection_;
  LayerNorm norm_;
  std::vector<DonutSwinStage> layers_;
  BlockStack blocks_;
  double dropout_prob_;
  CheckpointingConfig checkpointing_;
  ModuleId module_, embeddings_ = 0, patch_embeddings_ = 0, encoder_ = 0;
};

}  // namespace

std::unique_ptr<VisionTower> make_donut_swin_tower(const Builder& builder, const DonutSwinConfig& config,
                                                   const ModelOptions& options) {
  return std::make_unique<DonutSwinTower>(builder, config, options);
}

}  // namespace oometer
