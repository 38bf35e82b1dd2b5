#include "models/got_ocr2/sam.h"

#include <string>
#include <utility>

#include "config/reader.h"
#include "models/kit/conv2d.h"
#include "models/sizes.h"
#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/block_stack.h"
#include "nn/checkpointing.h"
#include "ops/accumulate.h"
#include "ops/cub.h"
#include "ops/ops.h"
#include "ops/upsample.h"
#include "ops/vision.h"
#include "tensor/node.h"

namespace oometer {

namespace {

/// F.interpolate(mode="linear"), of a batch of one.
Tensor interpolate(const Tensor& x_in, std::int64_t size) {
  const Tensor x = autocast_float32(x_in);
  Record record(Op::upsample,
                [](Backward& b) {
                  Tensor grad_input = empty(b.context, Op::upsample_backward, b.node.sizes, b.grad().dtype());
                  { const Tensor in_usual_order = contiguous(b.grad()); }
                  b.give(0, std::move(grad_input));
                },
                {&x});
  if (record) record->sizes = x.sizes();
  return record.output(empty(x.context(), Op::upsample, {x.size(0), x.size(1), size}, x.dtype()));
}

/// x[index] with an index of [count, count] that was made on the host.
Tensor take(const Tensor& x, std::int64_t count) {
  Record record(Op::index,
                [](Backward& b) {
                  const Shape rows{b.node.integers[0] * b.node.integers[0]};
                  const auto indices = [&](Op op) { return empty(b.context, op, rows, DType::int64); };
                  Tensor zeros = empty(b.context, Op::zeros, b.node.sizes, b.grad().dtype());
                  {  // index_put_with_sort_kernel
                    const Tensor copy = indices(Op::to_copy);
                    const Tensor values = contiguous(b.grad());
                    const Tensor sorted = indices(Op::index_put);
                    const Tensor original = indices(Op::index_put);
                    const Tensor range = indices(Op::arange);
                    const Workspace sort(b.context, Op::index_put,
                                         cub_sort_pairs_bytes(rows[0], b.node.sizes[0] - 1, b.context.device.major));
                    accumulate_rows(values, zeros);
                  }
                  b.give(0, std::move(zeros));
                },
                {&x});
  if (record) {
    record->sizes = x.sizes();
    record->integers[0] = count;
  }
  const Tensor copy = empty(x.context(), Op::to_copy, {count, count}, DType::int64);
  return record.output(empty(x.context(), Op::index, {count, count, x.size(1)}, x.dtype()));
}

/// F.pad(x, (0, 0, 0, more columns, 0, more rows)): a copy even where there are none.
Tensor pad_windows(const Tensor& x, std::int64_t rows, std::int64_t columns) {
  Record record(Op::constant_pad_nd,
                [](Backward& b) { b.give(0, empty(b.context, Op::clone, b.node.sizes, b.grad().dtype())); }, {&x});
  if (record) record->sizes = x.sizes();
  return record.output(empty(x.context(), Op::constant_pad_nd,
                             {x.size(0), x.size(1) + rows, x.size(2) + columns, x.size(3)}, x.dtype()));
}

struct VisionAttention {
  VisionAttention(const Builder& builder, const SamConfig& c, std::int64_t window, AttentionKind kind)
      : num_attention_heads(c.num_attention_heads), dropout_p(c.attention_dropout), call{kind}, module(builder.module) {
    const std::int64_t size = window == 0 ? c.side() : window;
    qkv = Linear(builder.child("qkv", "Linear"), c.hidden_size, 3 * c.hidden_size, c.qkv_bias);
    proj = Linear(builder.child("proj", "Linear"), c.hidden_size, c.hidden_size, true);
    builder.children_are_through();
    if (!c.use_rel_pos) return;
    rel_pos_h = builder.parameter("rel_pos_h", {2 * size - 1, c.head_dim()});
    rel_pos_w = builder.parameter("rel_pos_w", {2 * size - 1, c.head_dim()});
  }

  static Tensor get_rel_pos(std::int64_t size, const Tensor& rel_pos) {
    const std::int64_t max_rel_dist = 2 * size - 1;
    Tensor rel_pos_resized = transpose(view(rel_pos, {1, rel_pos.size(0), rel_pos.size(1)}), 1, 2);
    rel_pos_resized = interpolate(rel_pos_resized, max_rel_dist);
    rel_pos_resized = transpose(reshape(rel_pos_resized, {rel_pos.size(1), max_rel_dist}), 0, 1);
    return take(rel_pos_resized, size);
  }

  Tensor get_decomposed_rel_pos(const Tensor& query, std::int64_t height, std::int64_t width) const {
    const Tensor relative_position_height = get_rel_pos(height, rel_pos_h);
    const Tensor relative_position_width = get_rel_pos(width, rel_pos_w);
    const Tensor reshaped_query = reshape(query, {query.size(0), height, width, query.size(2)});
    const Tensor rel_h = einsum("bhwc", "hkc", "bhwk", reshaped_query, relative_position_height);
    const Tensor rel_w = einsum("bhwc", "wkc", "bhwk", reshaped_query, relative_position_width);
    return add(unsqueeze(rel_h, -1), unsqueeze(rel_w, 3));
  }

  // DeepseekOcr2SamVisionSdpaAttention.forward, of queries, keys and values. It drops no weights.
  Tensor with_sdpa(const TensorList& states, const Tensor& hidden_states) const {
    const std::int64_t batch_size = hidden_states.size(0), height = hidden_states.size(1),
                       width = hidden_states.size(2), channels = hidden_states.size(3), tokens = height * width,
                       head_dim = channels / num_attention_heads;
    Tensor attn_bias;
    if (rel_pos_h) {
      attn_bias = get_decomposed_rel_pos(states[0], height, width);
      attn_bias = reshape(attn_bias, {batch_size, num_attention_heads, tokens, tokens});
    }
    const auto by_head = [&](std::size_t i) {
      return view(states[i], {batch_size, num_attention_heads, tokens, head_dim});
    };
    const Tensor query = by_head(0), key = by_head(1), value = by_head(2);
    Tensor attn_output = scaled_dot_product_attention(choose_kernel(call, query, key, value, attn_bias), query, key,
                                                      value, attn_bias, {});
    attn_output = view(attn_output, {batch_size, num_attention_heads, height, width, head_dim});
    attn_output = reshape(permute(attn_output, {0, 2, 3, 1, 4}), {batch_size, height, width, channels});
    return proj(attn_output);
  }

  /// The output, and the weights.
  std::pair<Tensor, Tensor> operator()(const Tensor& given) const {
    ModuleCall self(given.context(), module);
    const Tensor hidden_states = self.keyword(given);
    const std::int64_t batch_size = hidden_states.size(0), height = hidden_states.size(1),
                       width = hidden_states.size(2), channels = hidden_states.size(3),
                       heads = checked_product(batch_size, num_attention_heads), tokens = height * width;
    Tensor attn_output, attn_probs, decomposed_rel_pos, attn_weights;
    Tensor packed = qkv(hidden_states);
    packed = view(packed, {batch_size, tokens, 3, num_attention_heads, channels / num_attention_heads});
    packed = permute(packed, {2, 0, 3, 1, 4});
    TensorList states;
    {
      const Tensor by_head = reshape(packed, {3, heads, tokens, channels / num_attention_heads});
      states = unbind(by_head);
    }
    if (call.kind != AttentionKind::eager) return {self.result(with_sdpa(states, hidden_states)), {}};
    {
      const Tensor scaled = mul_scalar(states[0]);
      attn_weights = matmul(scaled, transpose(states[1], 1, 2));
    }
    if (rel_pos_h) {
      decomposed_rel_pos = get_decomposed_rel_pos(states[0], height, width);
      decomposed_rel_pos = reshape(decomposed_rel_pos, {heads, tokens, tokens});
      attn_weights = add(attn_weights, decomposed_rel_pos);
    }
    {
      const DType type = states[0].dtype();
      const Tensor weights = softmax(attn_weights, DType::float32);
      attn_weights = to(weights, type);
    }
    attn_probs = dropout(attn_weights, dropout_p);
    attn_output = matmul(attn_probs, states[2]);
    attn_output =
        reshape(attn_output, {batch_size, num_attention_heads, height, width, channels / num_attention_heads});
    attn_output = reshape(permute(attn_output, {0, 2, 3, 1, 4}), {batch_size, height, width, channels});
    attn_output = proj(attn_output);
    return {self.result(attn_output), attn_weights};
  }

  Linear qkv, proj;
  Tensor rel_pos_h, rel_pos_w;  ///< null: none
  std::int64_t num_attention_heads;
  double dropout_p;
  AttentionCall call;
  ModuleId module;
};

struct MLPBlock {
  MLPBlock(const Builder& builder, const SamConfig& c)
      : lin1(builder.child("lin1", "Linear"), c.hidden_size, c.mlp_dim, true),
        lin2(builder.child("lin2", "Linear"), c.mlp_dim, c.hidden_size, true),
        act(c.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = lin1(call.argument(argument));
    hidden_states = activate(act, hidden_states);
    return call.result(lin2(hidden_states));
  }

  Linear lin1, lin2;
  Activation act;
  ModuleId module;
};

struct VisionLayer {
  VisionLayer(const Builder& builder, const SamConfig& c, std::int64_t window, AttentionKind kind)
      : layer_norm1(builder.child("layer_norm1", "LayerNorm"), c.hidden_size),
        attn(builder.child("attn", kind == AttentionKind::eager ? c.names->attention : c.names->sdpa_attention), c,
             window, kind),
        layer_norm2(builder.child("layer_norm2", "LayerNorm"), c.hidden_size),
        mlp(builder.child("mlp", c.names->mlp), c),
        window_size(window),
        module(builder.module) {}

  Tensor window_partition(const Tensor& given) const {
    const std::int64_t batch = given.size(0), channel = given.size(3);
    const auto more = [&](std::int64_t side) { return (window_size - side % window_size) % window_size; };
    Tensor hidden_states = pad_windows(given, more(given.size(1)), more(given.size(2)));
    const std::int64_t rows = hidden_states.size(1) / window_size, columns = hidden_states.size(2) / window_size;
    hidden_states = view(hidden_states, {batch, rows, window_size, columns, window_size, channel});
    const Tensor windows = contiguous(permute(hidden_states, {0, 1, 3, 2, 4, 5}));
    return view(windows, {batch * rows * columns, window_size, window_size, channel});
  }

  Tensor window_unpartition(const Tensor& windows, std::int64_t height, std::int64_t width) const {
    const auto count = [&](std::int64_t side) { return (side + window_size - 1) / window_size; };
    const std::int64_t rows = count(height), columns = count(width), channel = windows.size(3),
                       batch = windows.size(0) / (rows * columns);
    Tensor hidden_states = view(windows, {batch, rows, columns, window_size, window_size, channel});
    hidden_states = contiguous(permute(hidden_states, {0, 1, 3, 2, 4, 5}));
    hidden_states = view(hidden_states, {batch, rows * window_size, columns * window_size, channel});
    Tensor whole = hidden_states;
    if (height != whole.size(1)) whole = slice(whole, 1, 0, height);
    if (width != whole.size(2)) whole = slice(whole, 2, 0, width);
    hidden_states = contiguous(whole);
    return hidden_states;
  }

  Tensor operator()(const Tensor& hidden_in) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor layernorm_output, attn_weights;
    Tensor hidden_states = layer_norm1(hidden_in);
    const std::int64_t height = hidden_states.size(1), width = hidden_states.size(2);
    if (window_size > 0) hidden_states = window_partition(hidden_states);
    {
      auto [output, weights] = attn(hidden_states);
      hidden_states = std::move(output);
      attn_weights = std::move(weights);
    }
    if (window_size > 0) hidden_states = window_unpartition(hidden_states, height, width);
    hidden_states = add(hidden_in, hidden_states);
    layernorm_output = layer_norm2(hidden_states);
    {
      const Tensor output = mlp(layernorm_output);
      hidden_states = add(hidden_states, output);
    }
    return hidden_states;
  }

  LayerNorm layer_norm1;
  VisionAttention attn;
  LayerNorm layer_norm2;
  MLPBlock mlp;
  std::int64_t window_size;
  ModuleId module;
};

struct VisionNeck {
  VisionNeck() = default;
  VisionNeck(const Builder& builder, const SamConfig& c)
      : conv1(builder.child("conv1", "Conv2d"), c.hidden_size, c.output_channels, {.bias = false}),
        layer_norm1(builder.child("layer_norm1", c.names->layer_norm), c.output_channels),
        conv2(builder.child("conv2", "Conv2d"), c.output_channels, c.output_channels,
              {.kernel = 3, .padding = 1, .bias = false}),
        layer_norm2(builder.child("layer_norm2", c.names->layer_norm), c.output_channels),
        module(builder.module) {}

  // its LayerNorm, of channels_first
  static Tensor norm(const LayerNorm& layer_norm, const Tensor& given) {
    Tensor features = permute(given, {0, 2, 3, 1});
    features = layer_norm(features);
    return permute(features, {0, 3, 1, 2});
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = permute(call.argument(argument), {0, 3, 1, 2});
    hidden_states = conv1(hidden_states);
    hidden_states = norm(layer_norm1, hidden_states);
    hidden_states = conv2(hidden_states);
    hidden_states = norm(layer_norm2, hidden_states);
    return call.result(hidden_states);
  }

  AnyConv2d conv1;
  LayerNorm layer_norm1;
  AnyConv2d conv2;
  LayerNorm layer_norm2;
  ModuleId module = 0;
};

struct Encoder : SamEncoder {
  Encoder(const Builder& builder, const SamConfig& c, const ModelOptions& options)
      : checkpointing(options.checkpointing), module(builder.module) {
    const Builder patches = builder.child("patch_embed", c.names->patch_embed);
    patch_embed = patches.module;
    projection = Conv2d(patches.child("projection", "Conv2d"), c.num_channels, c.hidden_size, c.patch_size, true);
    builder.children_are_through();
    if (c.use_abs_pos) pos_embed = builder.parameter("pos_embed", {1, c.side(), c.side(), c.hidden_size});
    stack = BlockStack(builder);
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(builder.child("layers", c.names->layer, i), c, c.window_of(i), options.attention);
      stack.add_block(builder);
    }
    neck = VisionNeck(builder.child("neck", c.names->neck), c);
    if (c.names->proj) {
      const Builder down = builder.child("proj", c.names->proj);
      const AnyConv2d::Options halves{.kernel = 3, .stride = 2, .padding = 1, .bias = false};
      proj = down.module;
      conv1 = AnyConv2d(down.child("conv1", "Conv2d"), c.output_channels, c.downsample_channels[0], halves);
      conv2 = AnyConv2d(down.child("conv2", "Conv2d"), c.downsample_channels[0], c.downsample_channels[1], halves);
    }
  }

  Tensor operator()(const Tensor& pixel_values) const override {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    Tensor hidden_states;
    {
      ModuleCall inner(context, patch_embed);
      Tensor embeddings = permute(projection(inner.argument(pixel_values)), {0, 2, 3, 1});
      require_input_grad(checkpointing, embeddings, patch_embed);
      hidden_states = inner.result(embeddings);
    }
    if (pos_embed) hidden_states = add_positions(hidden_states);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i]](const Tensor& hidden) { return layer(hidden); };
    };
    hidden_states = stack.run(0, layers.size(), std::move(hidden_states), checkpointing, block,
                              {.kind = [&](std::size_t i) { return layers[i].window_size == 0 ? 0 : 1; }});
    hidden_states = neck(hidden_states);
    if (proj != 0) {
      ModuleCall inner(context, proj);
      Tensor halved = conv1(inner.argument(hidden_states));
      halved = conv2(halved);
      hidden_states = inner.result(halved);
    }
    return call.result(hidden_states);
  }

  std::size_t blocks() const override { return stack.size(); }

  // interpolate_pos_encoding, where the images are not as large as those that it learned of
  Tensor add_positions(const Tensor& hidden_states) const {
    const std::int64_t height = hidden_states.size(1), width = hidden_states.size(2);
    if (pos_embed.size(1) == height && pos_embed.size(2) == width) return add(hidden_states, pos_embed);
    Tensor positions;
    {
      const Tensor as_float = to(permute(pos_embed, {0, 3, 1, 2}), DType::float32);
      positions = upsample_bicubic2d_aa(as_float, height, width);
    }
    positions = to(positions, pos_embed.dtype());
    return add(hidden_states, permute(positions, {0, 2, 3, 1}));
  }

  Conv2d projection;
  std::vector<VisionLayer> layers;
  BlockStack stack;
  VisionNeck neck;
  AnyConv2d conv1, conv2;  ///< proj's
  Tensor pos_embed;        ///< null: none
  CheckpointingConfig checkpointing;
  ModuleId module = 0, patch_embed = 0, proj = 0;
};

}  // namespace

std::unique_ptr<SamEncoder> make_sam_encoder(const Builder& builder, const SamConfig& config,
                                             const ModelOptions& options) {
  return std::make_unique<Encoder>(builder, config, options);
}

SamConfig read_sam_config(ConfigReader& reader, const SamConfig& defaults) {
  SamConfig c = defaults;
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.output_channels = reader.integer("output_channels", c.output_channels);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.num_channels = reader.integer("num_channels", c.num_channels);
  c.image_size = reader.integer("image_size", c.image_size, {1, 65'536});
  c.patch_size = reader.integer("patch_size", c.patch_size, {1, 65'536});
  c.window_size = reader.integer("window_size", c.window_size, {0, 65'536});
  c.mlp_dim = reader.integer("mlp_dim", c.mlp_dim);
  if (reader.has("global_attn_indexes"))
    c.global_attn_indexes = reader.integers("global_attn_indexes", {0, layer_count.max});
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.qkv_bias = reader.boolean("qkv_bias", true);
  c.use_abs_pos = reader.boolean("use_abs_pos", true);
  c.use_rel_pos = reader.boolean("use_rel_pos", true);
  reader.ignore({"model_type", "layer_norm_eps"});
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  if (c.side() == 0)
    reader.fail_found("patch_size", "inconsistent",
                      "expected at most image_size (" + std::to_string(c.image_size) + "): no patch fits");
  return c;
}

double largest_tensor_of(const SamConfig& c, std::int64_t images, std::int64_t pixels) {
  const std::int64_t patches = pixels / c.patch_size, side = patches + c.window_size;  // padded to whole windows
  return std::max({bytes_of_layer(images, side * side, c.hidden_size, std::max(c.mlp_dim, 3 * c.hidden_size),
                                  c.num_attention_heads),
                   bytes_of({images, c.num_channels, pixels, pixels}),
                   bytes_of({images, patches * patches, 9 * c.output_channels}),
                   bytes_of({c.side(), c.side(), c.hidden_size}),
                   bytes_of({c.hidden_size, c.num_channels, c.patch_size, c.patch_size}),
                   bytes_of({9 * c.output_channels, std::max(2 * c.output_channels, c.hidden_size)})});
}

}  // namespace oometer
