#include "models/swin/swin.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ops/images.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

namespace oometer {

SwinEmbeddings::SwinEmbeddings(const Builder& builder, const SwinConfig& c)
    : dropout_prob(c.hidden_dropout_prob), module(builder.module) {
  const Builder patches = builder.child("patch_embeddings", c.names->patch_embeddings);
  patch_embeddings = patches.module;
  projection = Conv2d(patches.child("projection", "Conv2d"), c.num_channels, c.embed_dim, c.patch_size, true);
  if (c.use_absolute_embeddings)
    position_embeddings = builder.parameter("position_embeddings", {1, c.side(0) * c.side(0), c.embed_dim});
  norm = LayerNorm(builder.child("norm", "LayerNorm"), c.embed_dim);
}

Tensor SwinEmbeddings::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor embeddings = embed_patches(call.argument(argument));
  embeddings = norm(embeddings);
  if (position_embeddings) embeddings = add(embeddings, position_embeddings);
  return call.result(dropout(embeddings, dropout_prob));
}

Tensor SwinEmbeddings::embed_patches(const Tensor& argument) const {
  ModuleCall call(argument.context(), patch_embeddings);
  const Tensor pixel_values = call.argument(argument);
  check_pixels(pixel_values, projection.weight);
  const Tensor projected = projection(pixel_values);
  const std::int64_t patches = checked_product(projected.size(2), projected.size(3));
  return call.result(transpose(reshape(projected, {projected.size(0), projected.size(1), patches}), 1, 2));
}

namespace {

/// x[:, row::2, col::2, :]
Tensor every_second(const Tensor& x, std::int64_t row, std::int64_t col) {
  Tensor part = x;
  for (const auto& [dim, first] : {std::pair{1, row}, std::pair{2, col}}) {
    part = slice(part, dim, first, x.size(dim) / 2);
    part->strides[dim] *= 2;
  }
  return part;
}

}  // namespace

Tensor merge_patches(const Tensor& hidden_states, PatchGrid grid) {
  const std::int64_t batch = hidden_states.size(0), channels = hidden_states.size(2);
  const PatchGrid merged = grid.merged();
  Tensor input_feature = view(hidden_states, {batch, grid.height, grid.width, channels});
  if (grid.height % 2 + grid.width % 2 > 0)
    input_feature = pad_to(input_feature, {batch, 2 * merged.height, 2 * merged.width, channels});
  std::vector<Tensor> parts;
  for (std::int64_t col = 0; col < 2; ++col)
    for (std::int64_t row = 0; row < 2; ++row) parts.push_back(every_second(input_feature, row, col));
  input_feature = cat(parts, -1);
  parts.clear();
  return view(input_feature, {batch, merged.patches(), 4 * channels});
}

Tensor window_partition(const Tensor& input_feature, std::int64_t window) {
  const std::int64_t batch = input_feature.size(0), rows = input_feature.size(1) / window,
                     columns = input_feature.size(2) / window, channels = input_feature.size(3);
  const Tensor cut = view(input_feature, {batch, rows, window, columns, window, channels});
  return view(contiguous(transpose(cut, 2, 3)), {batch * rows * columns, window, window, channels});
}

Tensor window_reverse(const Tensor& windows_in, std::int64_t window, PatchGrid grid) {
  const std::int64_t rows = grid.height / window, columns = grid.width / window, channels = windows_in.size(3),
                     batch = windows_in.size(0) / (rows * columns);
  const Tensor windows = view(windows_in, {batch, rows, columns, window, window, channels});
  return view(contiguous(transpose(windows, 2, 3)), {batch, grid.height, grid.width, channels});
}

namespace {

/// roll_common (TensorTransformations.h): a dimension after the other.
Tensor roll_twice(const Tensor& x) {
  const Tensor first_dim_rolled = empty(x.context(), Op::roll, x.sizes(), x.dtype());
  return empty(x.context(), Op::roll, x.sizes(), x.dtype());
}

}  // namespace

Tensor cyclic_shift(const Tensor& x, std::int64_t shift) {
  if (shift == 0) return x;
  Record record(Op::roll, [](Backward& b) { b.give(0, roll_twice(b.grad())); }, {&x});
  return record.output(roll_twice(x));
}

Tensor window_mask(const Tensor& hidden_states, PatchGrid grid, std::int64_t window, std::int64_t shift) {
  if (shift == 0) return {};
  Context& context = hidden_states.context();
  const DType dtype = hidden_states.dtype();
  const std::int64_t height = grid.height, width = grid.width;
  const auto whole = [&](Op op, const Shape& sizes) { return integers(context, op, sizes); };
  const auto as_long = [&](std::int64_t side) {
    const Tensor is_behind = empty(context, Op::ge, {side}, DType::boolean);
    return whole(Op::to_copy, {side});
  };
  const auto region = [&](std::int64_t side) {
    const Tensor first = as_long(side), second = as_long(side);
    return whole(Op::add, {side});
  };
  const Tensor h_idx = whole(Op::arange, {height}), w_idx = whole(Op::arange, {width}), h_region = region(height),
               w_region = region(width);
  const Tensor img_mask = [&] {
    Tensor rows = whole(Op::mul, {1, height, 1, 1});
    const Tensor sum = whole(Op::add, {1, height, width, 1});
    rows.reset();
    return empty(context, Op::to_copy, {1, height, width, 1}, dtype);
  }();
  Tensor mask_windows = window_partition(img_mask, window);
  const std::int64_t windows = mask_windows.size(0), window_area = window * window;
  const Shape sizes{windows, window_area, window_area};
  Tensor attn_mask = empty(context, Op::sub, sizes, dtype);
  const auto filled = [&](Op op, const Tensor& mask) {
    const Tensor where_not = empty(context, op, sizes, DType::boolean);
    return empty(context, Op::masked_fill, mask.sizes(), mask.dtype());
  };
  const Tensor negative = filled(Op::ne, attn_mask);
  attn_mask = filled(Op::eq, negative);
  return attn_mask;
}

namespace {

struct SwinPatchMerging {
  SwinPatchMerging(const Builder& builder, std::int64_t dim)
      : reduction(builder.child("reduction", "Linear"), 4 * dim, 2 * dim, false),
        norm(builder.child("norm", "LayerNorm"), 4 * dim),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, PatchGrid grid) const {
    ModuleCall call(argument.context(), module);
    Tensor input_feature = merge_patches(call.argument(argument), grid);
    input_feature = norm(input_feature);
    return call.result(reduction(input_feature));
  }

  Linear reduction;
  LayerNorm norm;
  ModuleId module;
};

struct SwinRelativePositionBias {
  SwinRelativePositionBias(const Builder& builder, std::int64_t heads, std::int64_t window_size)
      : window_area(window_size * window_size), module(builder.module) {
    const std::int64_t distances = 2 * window_size - 1;
    relative_position_bias_table = builder.parameter("relative_position_bias_table", {distances * distances, heads});
    Context& context = *builder.context;
    const Tensor coords_h = integers(context, Op::arange, {window_size}),
                 coords_w = integers(context, Op::arange, {window_size}),
                 coords = integers(context, Op::stack, {2, window_size, window_size});
    Tensor differences = integers(context, Op::sub, {2, window_area, window_area});
    const Tensor relative_coords = integers(context, Op::clone, {window_area, window_area, 2});
    differences.reset();
    relative_position_index = builder.buffer({window_area * window_area}, DType::int64);
  }

  /// [1, heads, tokens, tokens] of a window
  Tensor operator()() const {
    ModuleCall call(relative_position_bias_table.context(), module);
    Tensor bias = index(relative_position_bias_table, relative_position_index);
    bias = view(bias, {window_area, window_area, relative_position_bias_table.size(1)});
    return call.result(unsqueeze(contiguous(permute(bias, {2, 0, 1})), 0));
  }

  Tensor relative_position_bias_table, relative_position_index;
  std::int64_t window_area;
  ModuleId module;
};

struct SwinAttention {
  SwinAttention(const Builder& builder, const VitConfig& c, std::int64_t window_size, const ModelOptions& options)
      : q_proj(builder.child("q_proj", "Linear"), c.hidden_size, c.hidden_size, c.qkv_bias),
        k_proj(builder.child("k_proj", "Linear"), c.hidden_size, c.hidden_size, c.qkv_bias),
        v_proj(builder.child("v_proj", "Linear"), c.hidden_size, c.hidden_size, c.qkv_bias),
        o_proj(builder.child("o_proj", "Linear"), c.hidden_size, c.hidden_size, true),
        relative_position_bias(builder.child("relative_position_bias", "SwinRelativePositionBias"),
                               c.num_attention_heads, window_size),
        head_dim(c.head_dim()),
        call{.kind = options.attention, .dropout = c.attention_probs_dropout_prob},
        module(builder.module) {}

  /// attention_mask: of the windows of an image, [windows, tokens, tokens]; null: they are not shifted.
  AttentionOutputs operator()(const Tensor& argument, const Tensor& attention_mask) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    const AttentionInputs states = project(hidden_states, q_proj, k_proj, v_proj, head_dim, false);
    const Tensor bias = relative_position_bias();
    Tensor windows_mask, combined_mask = bias;
    if (attention_mask) {
      const std::int64_t windows = attention_mask.size(0), batch = hidden_states.size(0) / windows,
                         tokens = hidden_states.size(1);
      windows_mask = expand(unsqueeze(unsqueeze(attention_mask, 1), 0), {batch, windows, 1, tokens, tokens});
      windows_mask = reshape(windows_mask, {batch * windows, 1, tokens, tokens});
      combined_mask = add(bias, windows_mask);
    }
    AttentionOutputs attention = attention_forward(call, states.query, states.key, states.value, combined_mask);
    attention.output = reshape(attention.output, hidden_states.sizes());
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  SwinRelativePositionBias relative_position_bias;
  std::int64_t head_dim;
  AttentionCall call;
  ModuleId module;
};

/// `attention_windows[:, :height, :width, :].contiguous()`
Tensor cut_to(const Tensor& attention_windows, PatchGrid grid) {
  Tensor cut = attention_windows;
  if (cut.size(1) != grid.height) cut = slice(cut, 1, 0, grid.height);
  if (cut.size(2) != grid.width) cut = slice(cut, 2, 0, grid.width);
  return contiguous(cut);
}

struct SwinLayer {
  SwinLayer(const Builder& builder, const VitConfig& c, std::int64_t window, std::int64_t shift, double drop_path_rate,
            const ModelOptions& options)
      : attention(builder.child("attention", c.names->attention), c, window, options),
        layernorm_before(builder.child("layernorm_before", "LayerNorm"), c.hidden_size),
        layernorm_after(builder.child("layernorm_after", "LayerNorm"), c.hidden_size),
        mlp(builder.child("mlp", c.names->mlp), c),
        dropout_prob(c.hidden_dropout_prob),
        drop_prob(drop_path_rate),
        window_size(window),
        shift_size(shift),
        module((builder.child("drop_path", drop_path_rate > 0 ? "SwinDropPath" : "Identity"), builder.module)) {}

  /// The hidden states; `attn_weights`, of eager attention, are the caller's until another layer's come.
  Tensor operator()(const Tensor& argument, PatchGrid grid, Tensor& attn_weights) const {
    ModuleCall call(argument.context(), module);
    const Tensor shortcut = call.argument(argument);
    const std::int64_t batch = shortcut.size(0), channels = shortcut.size(2), window_area = window_size * window_size;
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor residual, attention_windows, attn_mask, hidden_states_windows, hidden_states;
    AttentionOutputs attended;
    hidden_states = layernorm_before(shortcut);
    const PatchGrid padded = grid.in_windows(window_size);
    // maybe_pad: a copy even where there is nothing to pad
    hidden_states = pad_to(view(hidden_states, {batch, grid.height, grid.width, channels}),
                           {batch, padded.height, padded.width, channels});
    hidden_states_windows = window_partition(cyclic_shift(hidden_states, shift_size), window_size);
    hidden_states_windows = view(hidden_states_windows, {hidden_states_windows.size(0), window_area, channels});
    attn_mask = window_mask(hidden_states, padded, window_size, shift_size);
    attended = attention(hidden_states_windows, attn_mask);
    attended.output = dropout(attended.output, dropout_prob);
    attention_windows = view(attended.output, {attended.output.size(0), window_size, window_size, channels});
    attention_windows = cyclic_shift(window_reverse(attention_windows, window_size, padded), shift_size);
    if (padded != grid) attention_windows = cut_to(attention_windows, grid);
    attention_windows = view(attention_windows, {batch, grid.patches(), channels});
    {
      const Tensor kept = drop_path(attention_windows, drop_prob);
      hidden_states = add(shortcut, kept);
    }
    residual = hidden_states;
    hidden_states = layernorm_after(hidden_states);
    hidden_states = mlp(hidden_states);
    {
      const Tensor dropped = dropout(hidden_states, dropout_prob);
      hidden_states = add(dropped, residual);
    }
    attn_weights = attended.weights;
    return call.result(hidden_states);
  }

  SwinAttention attention;
  LayerNorm layernorm_before, layernorm_after;
  VitMLP mlp;
  double dropout_prob, drop_prob;
  std::int64_t window_size, shift_size;
  ModuleId module;
};

/// view(batch, height, width, channels).permute(0, 3, 1, 2).contiguous()
Tensor as_images(const Tensor& tokens, PatchGrid grid) {
  const Tensor cut = view(tokens, {tokens.size(0), grid.height, grid.width, tokens.size(2)});
  return contiguous(permute(cut, {0, 3, 1, 2}));
}

struct SwinStage {
  /// `is_backbone`: always_partition, output_hidden_states_before_downsampling
  SwinStage(const Builder& builder, const SwinConfig& c, std::size_t stage, bool backbone, const ModelOptions& options)
      : is_backbone(backbone), module(builder.module) {
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
      // set_shift_and_window_size: one window is not shifted
      const bool shifts = i % 2 == 1 && (is_backbone || c.side(stage) > c.window_size);
      blocks.emplace_back(builder.child("blocks", c.names->layer, i), its, c.window_size,
                          shifts ? c.window_size / 2 : 0, before + i == 0 || all == 1 ? 0 : c.drop_path_rate, options);
    }
    if (stage + 1 < c.depths.size())
      downsample.emplace(builder.child("downsample", "SwinPatchMerging"), its.hidden_size);
  }

  /// The hidden states; `reshaped` and `attn_weights` are the caller's until another stage's come.
  Tensor operator()(const Tensor& argument, PatchGrid grid, Tensor& reshaped, Tensor& attn_weights) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = call.argument(argument), last_attn_weights;
    for (const SwinLayer& layer : blocks) hidden_states = layer(hidden_states, grid, last_attn_weights);
    const Tensor hidden_states_before_downsampling = hidden_states;
    if (downsample) hidden_states = (*downsample)(hidden_states_before_downsampling, grid);
    reshaped = is_backbone ? as_images(hidden_states_before_downsampling, grid)
                           : as_images(hidden_states, downsample ? grid.merged() : grid);
    attn_weights = last_attn_weights;
    return call.result(hidden_states);
  }

  std::vector<SwinLayer> blocks;
  std::optional<SwinPatchMerging> downsample;
  bool is_backbone;
  ModuleId module;
};

/// Of the embeddings, and of each stage: SwinEncoderOutput.
struct SwinStates {
  TensorList hidden_states, reshaped_hidden_states;

  void add(const Tensor& hidden_state, const Tensor& reshaped) {
    hidden_states.push_back(hidden_state);
    reshaped_hidden_states.push_back(reshaped);
  }
};

/// SwinModel without a pooler.
struct SwinBody {
  SwinBody(const Builder& model, const SwinConfig& c, bool is_backbone, const ModelOptions& options)
      : patch_size(c.patch_size), embeddings(model.child("embeddings", c.names->embeddings), c) {
    const Builder its = model.child("encoder", "SwinEncoder");
    encoder = its.module;
    layers.reserve(c.depths.size());
    for (std::size_t i = 0; i < c.depths.size(); ++i)
      layers.emplace_back(its.child("layers", "SwinStage", static_cast<std::int32_t>(i)), c, i, is_backbone, options);
    layernorm = LayerNorm(model.child("layernorm", "LayerNorm"), c.hidden_size);
  }

  /// What goes into the layernorm. `all`: what output_hidden_states asks for, or null.
  Tensor operator()(const Tensor& pixel_values, SwinStates* all) const {
    const Tensor embedding_output = embeddings(pixel_values);
    return encode(embedding_output, {pixel_values.size(2) / patch_size, pixel_values.size(3) / patch_size}, all);
  }

  // SwinEncoder.forward
  Tensor encode(const Tensor& argument, PatchGrid grid, SwinStates* all) const {
    ModuleCall call(argument.context(), encoder);
    Tensor hidden_states = call.argument(argument), reshaped_hidden_state, attn_weights;
    if (all) all->add(hidden_states, as_images(hidden_states, grid));
    for (const SwinStage& stage : layers) {
      Tensor reshaped, weights;
      hidden_states = stage(hidden_states, grid, reshaped, weights);
      reshaped_hidden_state = std::move(reshaped);
      attn_weights = std::move(weights);
      if (all) all->add(hidden_states, reshaped_hidden_state);
      if (stage.downsample) grid = grid.merged();
    }
    return call.result(hidden_states);
  }

  std::int64_t patch_size;
  SwinEmbeddings embeddings;
  std::vector<SwinStage> layers;
  LayerNorm layernorm;
  ModuleId encoder = 0;
};

class Swin : public PooledImageModel {
 public:
  Swin(Context& context, const SwinConfig& c, const DataConfig& data, const ModelOptions& options)
      : PooledImageModel(context, c, data, options) {
    const Builder model = c.classifies ? root_.child("swin", c.names->model) : root_;
    model_ = model.module;
    body_.emplace(model, c, false, options);
    make_classifier();
  }

 private:
  // SwinModel.forward
  Tensor model_forward(const Tensor& argument, Tensor& pooled_output) const override {
    ModuleCall call(context_, model_);
    const Tensor last_hidden_state = (*body_)(call.argument(argument), nullptr);
    Tensor sequence_output = body_->layernorm(last_hidden_state);
    // AdaptiveAvgPool1d(1), flatten
    pooled_output = mean_of_images(unsqueeze(transpose(sequence_output, 1, 2), 2));
    pooled_output = call.result(view(pooled_output, {sequence_output.size(0), sequence_output.size(2)}));
    return call.result(sequence_output);
  }

  std::optional<SwinBody> body_;
  ModuleId model_ = 0;
};

class SwinBackbone : public ImageBackbone {
 public:
  SwinBackbone(const Builder& builder, const SwinConfig& c, const std::vector<std::size_t>& features,
               const ModelOptions& options)
      : model_(builder.child("swin", c.names->model)),
        body_(model_, c, true, options),
        module_(builder.module),
        norms_(c.depths.size() + 1) {
    const Builder norms = builder.child("hidden_states_norms", "ModuleDict");
    for (const std::size_t i : features)
      norms_[i].emplace(norms.child(kStageNames[i], "LayerNorm"), c.dim(std::max<std::size_t>(i, 1) - 1));
  }

  TensorList operator()(const Tensor& argument) const override {
    ModuleCall call(argument.context(), module_);
    const Tensor pixel_values = call.argument(argument);
    check_pixels(pixel_values, body_.embeddings.projection.weight);
    SwinStates outputs;
    Tensor last_hidden_state = [&] {
      ModuleCall model(argument.context(), model_.module);
      const Tensor sequence_output = body_(model.argument(pixel_values), &outputs);
      return model.result(body_.layernorm(sequence_output));
    }();
    TensorList feature_maps;
    Tensor hidden_state;
    for (std::size_t i = 0; i < norms_.size(); ++i) {
      hidden_state = outputs.reshaped_hidden_states[i];
      if (!norms_[i]) continue;
      const std::int64_t batch = hidden_state.size(0), channels = hidden_state.size(1), height = hidden_state.size(2),
                         width = hidden_state.size(3);
      hidden_state = contiguous(permute(hidden_state, {0, 2, 3, 1}));
      hidden_state = view(hidden_state, {batch, height * width, channels});
      hidden_state = (*norms_[i])(hidden_state);
      hidden_state = view(hidden_state, {batch, height, width, channels});
      hidden_state = contiguous(permute(hidden_state, {0, 3, 1, 2}));
      feature_maps.push_back(call.result(hidden_state));
    }
    last_hidden_state.reset();
    outputs.hidden_states.clear();
    return feature_maps;
  }

 private:
  Builder model_;
  SwinBody body_;
  ModuleId module_;
  std::vector<std::optional<LayerNorm>> norms_;  ///< none: the map is not handed on
};

}  // namespace

std::unique_ptr<const ImageBackbone> build_swin_backbone(const Builder& builder, const SwinConfig& config,
                                                         const std::vector<std::size_t>& features,
                                                         const ModelOptions& options) {
  return std::make_unique<SwinBackbone>(builder, config, features, options);
}

std::unique_ptr<Model> build_swin(Context& context, const SwinConfig& config, const DataConfig& data,
                                  const ModelOptions& options) {
  return std::make_unique<Swin>(context, config, data, options);
}

}  // namespace oometer
