#include "models/mask2former/mask2former.h"

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "models/detr/detr.h"
#include "models/kit/conv2d.h"
#include "models/kit/deformable_attention.h"
#include "nn/activation.h"
#include "ops/integers.h"
#include "ops/ops.h"
#include "ops/upsample.h"
#include "ops/vision.h"

namespace oometer {

namespace {

constexpr std::int64_t kGroups = 32;

/// nn.Sequential of nn.Conv2d and nn.GroupNorm, and nn.ReLU.
struct ConvNorm {
  ConvNorm(const Builder& builder, std::int64_t in, std::int64_t out, const AnyConv2d::Options& options, bool activates)
      : conv(builder.child("", "Conv2d", 0), in, out, options), module(builder.module) {
    const Builder norm = builder.child("", "GroupNorm", 1);
    norm_module = norm.module;
    weight = norm.parameter("weight", {out});
    bias = norm.parameter("bias", {out});
    if (activates) activation = builder.child("", "ReLU", 2).module;
  }

  Tensor operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    Tensor input = conv(call.argument(argument));
    {
      ModuleCall norm(context, norm_module);
      input = norm.result(group_norm(norm.argument(input), kGroups, weight, bias));
    }
    if (activation) {
      ModuleCall its(context, *activation);
      input = its.result(relu(its.argument(input)));
    }
    return call.result(input);
  }

  AnyConv2d conv;
  Tensor weight, bias;
  std::optional<ModuleId> activation;
  ModuleId module, norm_module = 0;
};

/// Mask2FormerSinePositionEmbedding: lru_cache keeps the last one that any of them made.
struct PositionCache {
  Shape sizes;
  DType dtype = DType::float32;
  Tensor pos;

  /// build_sine_position_embedding without a mask, normalized, of maps like this one.
  Tensor of(const Tensor& map, std::int64_t num_position_features, ModuleId module) {
    Context& context = map.context();
    const ModuleScope scope(context, module);
    if (pos && sizes == map.sizes() && dtype == map.dtype()) return pos;
    Tensor made = make(context, map.sizes(), map.dtype(), num_position_features);
    sizes = map.sizes();
    dtype = map.dtype();
    pos = made;
    return made;
  }

  static Tensor make(Context& context, const Shape& map, DType given, std::int64_t features) {
    const NoGrad no_grad(context);
    const std::int64_t batch = map[0], height = map[2], width = map[3];
    const DType dtype = given;
    const auto made = [&](Op op, const Shape& its) { return empty(context, op, its, dtype); };
    Tensor y_embed = made(Op::arange, {height});
    Tensor x_embed = made(Op::arange, {width});
    const auto normalize = [&](Tensor& embed, const Shape& last) {
      Tensor quotient = [&] {
        const Tensor largest = made(Op::add, last);
        return made(Op::div, {batch, height, width});
      }();
      embed = made(Op::mul, {batch, height, width});
    };
    normalize(y_embed, {batch, 1, width});
    normalize(x_embed, {batch, height, 1});
    const Shape own{features};
    Tensor dim_t = [&] {
      const Tensor range = integers(context, Op::arange, own);
      return made(Op::to_copy, own);
    }();
    {
      Tensor exponent = made(Op::div, own);
      Tensor twice = mul_scalar(exponent);
      exponent.reset();
      exponent = div_scalar(twice);
      twice.reset();
      // pow is among what autocast runs in float32.
      const Tensor power = empty(context, Op::pow, own, context.autocast.enabled ? DType::float32 : dtype);
      { const Tensor base = empty(context, Op::fill, {}, DType::float64); }
      exponent.reset();
      dim_t = power;
    }
    const DType wide = dim_t.dtype() == DType::float32 ? DType::float32 : dtype;
    const Shape all{batch, height, width, features}, half{batch, height, width, features / 2};
    Tensor pos_x = empty(context, Op::div, all, wide);
    Tensor pos_y = empty(context, Op::div, all, wide);
    for (Tensor* part : {&pos_x, &pos_y}) {
      Tensor sine = empty(context, Op::sin, half, wide);
      Tensor cosine = empty(context, Op::cos, half, wide);
      const Tensor stacked = empty(context, Op::stack, all, wide);
      cosine.reset();
      sine.reset();
      *part = stacked;
    }
    Tensor result = cat({pos_y, pos_x}, 3);
    let_go({&y_embed, &x_embed, &dim_t, &pos_x, &pos_y});
    return permute(result, {0, 3, 1, 2});
  }
};

/// flatten(2)
Tensor flattened(const Tensor& x) { return reshape(x, {x.size(0), x.size(1), checked_product(x.size(2), x.size(3))}); }

struct PixelDecoderEncoderLayer {
  PixelDecoderEncoderLayer(const Builder& builder, const Mask2FormerConfig& c)
      : self_attn(builder.child("self_attn", "Mask2FormerPixelDecoderEncoderMultiscaleDeformableAttention"),
                  {.d_model = c.feature_size,
                   .heads = c.heads,
                   .levels = Mask2FormerConfig::kLevels,
                   .points = 4,
                   .masks_padding = true}),
        self_attn_layer_norm(builder.child("self_attn_layer_norm", "LayerNorm"), c.feature_size),
        fc1(builder.child("fc1", "Linear"), c.feature_size, c.encoder_feedforward_dim, true),
        fc2(builder.child("fc2", "Linear"), c.encoder_feedforward_dim, c.feature_size, true),
        final_layer_norm(builder.child("final_layer_norm", "LayerNorm"), c.feature_size),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const Tensor& attention_mask, const Tensor& position_embeddings,
                    const Tensor& reference_points, FeatureLevels levels) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_in = call.argument(argument);
    Tensor residual = hidden_in, attn_weights;
    levels.flattened = hidden_in;
    Tensor hidden_states =
        self_attn(hidden_in, position_embeddings, levels, reference_points, attn_weights, attention_mask);
    hidden_states = add(residual, hidden_states);
    hidden_states = self_attn_layer_norm(hidden_states);
    residual = hidden_states;
    {
      const Tensor wide = fc1(hidden_states);
      hidden_states = relu(wide);
    }
    hidden_states = fc2(hidden_states);
    hidden_states = add(residual, hidden_states);
    hidden_states = final_layer_norm(hidden_states);
    if (argument.context().training) check_finite(hidden_states);
    return call.result(hidden_states);
  }

  DeformableAttention self_attn;
  LayerNorm self_attn_layer_norm;
  Linear fc1, fc2;
  LayerNorm final_layer_norm;
  ModuleId module;
};

struct PixelDecoder {
  PixelDecoder(const Builder& builder, const Mask2FormerConfig& c)
      : feature_size(c.feature_size),
        fpn_levels(static_cast<std::size_t>(c.fpn_levels)),
        position_embedding(builder.child("position_embedding", "Mask2FormerSinePositionEmbedding").module),
        module(builder.module) {
    for (std::int32_t i = 0; i < Mask2FormerConfig::kLevels; ++i)
      input_projections.emplace_back(builder.child("input_projections", "Sequential", i),
                                     c.channels(c.features.size() - 1 - static_cast<std::size_t>(i)), c.feature_size,
                                     AnyConv2d::Options{}, false);
    const Builder its = builder.child("encoder", "Mask2FormerPixelDecoderEncoderOnly");
    encoder = its.module;
    layers.reserve(static_cast<std::size_t>(c.encoder_layers));
    for (std::int32_t i = 0; i < c.encoder_layers; ++i)
      layers.emplace_back(its.child("layers", "Mask2FormerPixelDecoderEncoderLayer", i), c);
    mask_projection = AnyConv2d(builder.child("mask_projection", "Conv2d"), c.feature_size, c.mask_feature_size, {});
    static constexpr std::array kAdapters = {"adapter_1", "adapter_2", "adapter_3", "adapter_4"};
    static constexpr std::array kLayers = {"layer_1", "layer_2", "layer_3", "layer_4"};
    for (std::size_t i = 0; i < fpn_levels; ++i) {
      lateral_convs.emplace_back(builder.child(kAdapters[i], "Sequential"), c.channels(i), c.feature_size,
                                 AnyConv2d::Options{.bias = false}, false);
      output_convs.emplace_back(builder.child(kLayers[i], "Sequential"), c.feature_size, c.feature_size,
                                AnyConv2d::Options{.kernel = 3, .padding = 1, .bias = false}, true);
    }
  }

  /// mask_features; `multi_scale_features`, the coarsest first.
  Tensor operator()(const TensorList& features, PositionCache& positions, TensorList& multi_scale_features) const {
    Context& context = features[0].context();
    ModuleCall call(context, module);
    TensorList inputs_embeds, position_embeddings, masks;
    for (std::size_t level = 0; level < input_projections.size(); ++level) {
      const Tensor& x = features[features.size() - 1 - level];
      inputs_embeds.push_back(input_projections[level](x));
      position_embeddings.push_back(positions.of(x, feature_size / 2, position_embedding));
    }
    FeatureLevels levels;
    for (const Tensor& x : inputs_embeds) {
      masks.push_back(empty(context, Op::zeros, {x.size(0), x.size(2), x.size(3)}, DType::boolean));
      levels.sizes.push_back({x.size(2), x.size(3)});
    }
    std::vector<Tensor> parts;
    for (const Tensor& embed : inputs_embeds) parts.push_back(transpose(flattened(embed), 1, 2));
    const Tensor input_embeds_flat = cat(parts, 1);
    parts.clear();
    levels.spatial_shapes = integers(context, Op::to_copy, {Mask2FormerConfig::kLevels, std::int64_t{2}});
    for (std::size_t i = 0; i < masks.size(); ++i)
      parts.push_back(reshape(masks[i], {masks[i].size(0), levels.sizes[i].places()}));
    const Tensor masks_flat = cat(parts, 1);
    parts.clear();
    for (Tensor& embed : position_embeddings) embed = transpose(flattened(embed), 1, 2);
    for (std::size_t i = 0; i < position_embeddings.size(); ++i) {
      const Tensor own = view(select(level_embed, 0, static_cast<std::int64_t>(i)), {1, 1, feature_size});
      parts.push_back(add(position_embeddings[i], own));
    }
    const Tensor level_pos_embed_flat = cat(parts, 1);
    parts.clear();
    levels.level_start_index = level_starts(levels.spatial_shapes);
    const Tensor valid_ratios = [&] {
      TensorList ratios;
      for (const Tensor& mask : masks) ratios.push_back(valid_ratio(mask, input_embeds_flat.dtype()));
      return stack(ratios, 1);
    }();
    TensorList all_hidden_states;
    const Tensor last_hidden_state =
        encode(input_embeds_flat, masks_flat, level_pos_embed_flat, levels, valid_ratios, all_hidden_states);
    std::vector<std::int64_t> places;
    for (const FeatureLevels::Size& size : levels.sizes) places.push_back(size.places());
    const TensorList encoder_output = split(last_hidden_state, places, 1);
    TensorList outputs;
    for (std::size_t i = 0; i < encoder_output.size(); ++i)
      outputs.push_back(view(transpose(encoder_output[i], 1, 2),
                             {last_hidden_state.size(0), feature_size, levels.sizes[i].height, levels.sizes[i].width}));
    Tensor current_fpn, out;
    for (std::size_t idx = fpn_levels; idx-- > 0;) {  // from low to high resolution
      current_fpn = lateral_convs[idx](features[idx]);
      {
        const Tensor& coarser = outputs[outputs.size() - 1];
        const Tensor upsampled = upsample_bilinear2d(coarser, current_fpn.size(2), current_fpn.size(3));
        // Its kernel takes a copy of images with others between them.
        if (outputs.size() == levels.sizes.size() && coarser.size(0) > 1)
          const Workspace copy(context, Op::clone, checked_product(coarser.numel(), element_size(upsampled.dtype())));
        out = add(current_fpn, upsampled);
      }
      out = output_convs[idx](out);
      outputs.push_back(out);
    }
    for (std::size_t i = 0; i < input_projections.size(); ++i) multi_scale_features.push_back(outputs[i]);
    return call.result(mask_projection(outputs[outputs.size() - 1]));
  }

  // get_valid_ratio
  static Tensor valid_ratio(const Tensor& mask, DType dtype) {
    Context& context = mask.context();
    const auto count = [&](const Tensor& line) {
      const Tensor is_image = pointwise(Op::bitwise_not, {&line}, DType::boolean);
      return sum(is_image, std::vector<int>{1}, false);
    };
    const Tensor valid_height = count(select(mask, 2, 0));
    const Tensor valid_width = count(select(mask, 1, 0));
    const auto ratio = [&] {
      const Tensor number = empty(context, Op::to_copy, {mask.size(0)}, dtype);
      return div_scalar(number);
    };
    const Tensor valid_ratio_height = ratio();
    const Tensor valid_ratio_width = ratio();
    return stack({valid_ratio_width, valid_ratio_height}, 1);
  }

  // Mask2FormerPixelDecoderEncoderOnly.forward
  Tensor encode(const Tensor& argument, const Tensor& attention_mask, const Tensor& position_embeddings,
                const FeatureLevels& levels, const Tensor& valid_ratios, TensorList& all_hidden_states) const {
    ModuleCall call(argument.context(), encoder);
    Tensor hidden_states = call.keyword(argument);
    const Tensor reference_points = get_reference_points(levels, valid_ratios);
    for (const PixelDecoderEncoderLayer& layer : layers) {
      all_hidden_states.push_back(hidden_states);
      hidden_states = layer(hidden_states, attention_mask, position_embeddings, reference_points, levels);
    }
    all_hidden_states.push_back(hidden_states);
    return call.result(hidden_states);
  }

  std::int64_t feature_size;
  std::size_t fpn_levels;
  ModuleId position_embedding;
  Tensor level_embed;
  std::vector<ConvNorm> input_projections, lateral_convs, output_convs;
  std::vector<PixelDecoderEncoderLayer> layers;
  AnyConv2d mask_projection;
  ModuleId module, encoder = 0;
};

/// What layers of the decoder read beside the queries, of a level.
struct DecoderLevel {
  Tensor features, positions;
  std::int64_t height, width;
};

struct Mask2FormerAttention {
  Mask2FormerAttention(const Builder& builder, std::int64_t dim, std::int64_t its_heads)
      : k_proj(builder.child("k_proj", "Linear"), dim, dim, true),
        v_proj(builder.child("v_proj", "Linear"), dim, dim, true),
        q_proj(builder.child("q_proj", "Linear"), dim, dim, true),
        out_proj(builder.child("out_proj", "Linear"), dim, dim, true),
        heads(its_heads),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const Tensor& positions, Tensor& attn_weights_reshaped) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor original = permute(call.keyword(argument), {1, 0, 2}),
                 position_embeddings = permute(positions, {1, 0, 2});
    const std::int64_t batch = original.size(0), length = original.size(1), dim = original.size(2);
    const Tensor hidden_states = add(original, position_embeddings);
    const auto shape = [&](const Tensor& x) {
      return contiguous(transpose(view(x, {batch, length, heads, dim / heads}), 1, 2));
    };
    Tensor query_states = [&] {
      const Tensor projected = q_proj(hidden_states);
      return mul_scalar(projected);
    }();
    Tensor key_states = shape(k_proj(hidden_states));
    Tensor value_states = shape(v_proj(original));
    const Shape proj_shape{batch * heads, length, dim / heads};
    query_states = shape(query_states);
    query_states = view(query_states, proj_shape);
    key_states = view(key_states, proj_shape);
    value_states = view(value_states, proj_shape);
    Tensor attn_weights = bmm(autocast_lower(query_states), autocast_lower(transpose(key_states, 1, 2)));
    attn_weights = softmax(attn_weights, context.autocast.enabled ? DType::float32 : attn_weights.dtype());
    attn_weights_reshaped = attn_weights;
    Tensor attn_output = bmm(autocast_lower(attn_weights), autocast_lower(value_states));
    attn_output = view(attn_output, {batch, heads, length, dim / heads});
    attn_output = reshape(transpose(attn_output, 1, 2), {batch, length, dim});
    attn_output = permute(out_proj(attn_output), {1, 0, 2});
    return call.result(attn_output);
  }

  Linear k_proj, v_proj, q_proj, out_proj;
  std::int64_t heads;
  ModuleId module;
};

/// nn.MultiheadAttention, its batch second, that masks what each query does not read.
struct CrossAttention {
  CrossAttention(const Builder& builder, std::int64_t dim, std::int64_t its_heads)
      : in_proj_weight(builder.parameter("in_proj_weight", {3 * dim, dim})),
        in_proj_bias(builder.parameter("in_proj_bias", {3 * dim})),
        out_proj(builder.child("out_proj", "NonDynamicallyQuantizableLinear"), dim, dim, true),
        heads(its_heads),
        module(builder.module) {}

  // torch.nn.functional.multi_head_attention_forward with need_weights
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& is_masked,
                    Tensor& averaged) const {
    Context& context = query.context();
    const ModuleCall self(context, module);
    const std::int64_t length = query.size(0), batch = query.size(1), dim = query.size(2), head_dim = dim / heads,
                       rows = checked_product(batch, heads);
    // _canonical_mask
    const Tensor attn_mask = empty(context, Op::zeros_like, is_masked.sizes(), query.dtype());
    Tensor q, k, v;
    {  // _in_projection_packed
      const TensorList weights = split(in_proj_weight, {dim, dim, dim}, 0),
                       biases = split(in_proj_bias, {dim, dim, dim}, 0);
      q = linear(query, weights[0], biases[0]);
      k = linear(key, weights[1], biases[1]);
      v = linear(value, weights[2], biases[2]);
    }
    const auto by_head = [&](const Tensor& x) { return transpose(view(x, {x.size(0), rows, head_dim}), 0, 1); };
    q = by_head(q);
    k = by_head(k);
    v = by_head(v);
    Tensor q_scaled = mul_scalar(q);
    Tensor weights = baddbmm(attn_mask, q_scaled, transpose(k, 1, 2), false);
    q_scaled.reset();  // del q_scaled, k
    k.reset();
    weights = softmax(weights, context.autocast.enabled ? DType::float32 : weights.dtype());
    Tensor attn_output = bmm(autocast_lower(weights), autocast_lower(v));
    v.reset();
    attn_output = view(contiguous(transpose(attn_output, 0, 1)), {length * batch, dim});
    if (context.modules) context.modules->read(out_proj.weight);
    attn_output = linear(attn_output, out_proj.weight, out_proj.bias);
    averaged = mean(view(weights, {batch, heads, length, key.size(0)}), 1, false);
    return view(attn_output, {length, batch, dim});
  }

  Tensor in_proj_weight, in_proj_bias;
  Linear out_proj;
  std::int64_t heads;
  ModuleId module;
};

struct DecoderLayer {
  DecoderLayer(const Builder& builder, const Mask2FormerConfig& c)
      : pre_norm(c.pre_norm),
        self_attn(builder.child("self_attn", "Mask2FormerAttention"), c.hidden_dim, c.heads),
        activation_fn(c.activation_function),
        self_attn_layer_norm(builder.child("self_attn_layer_norm", "LayerNorm"), c.hidden_dim),
        cross_attn(builder.child("cross_attn", "MultiheadAttention"), c.hidden_dim, c.heads),
        cross_attn_layer_norm(builder.child("cross_attn_layer_norm", "LayerNorm"), c.hidden_dim),
        fc1(builder.child("fc1", "Linear"), c.hidden_dim, c.dim_feedforward, true),
        fc2(builder.child("fc2", "Linear"), c.dim_feedforward, c.hidden_dim, true),
        final_layer_norm(builder.child("final_layer_norm", "LayerNorm"), c.hidden_dim),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const DecoderLevel& level, const Tensor& query_positions,
                    const Tensor& attention_mask) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = call.argument(argument), residual = hidden_states;
    Tensor cross_attn_weights, self_attn_weights;
    const auto normed = [&](const LayerNorm& norm, bool before) {
      if (before == pre_norm) hidden_states = norm(hidden_states);
    };
    const auto added = [&](const LayerNorm& norm) {
      hidden_states = add(residual, hidden_states);
      normed(norm, false);
      residual = hidden_states;
    };
    normed(cross_attn_layer_norm, true);
    {
      const Tensor query = add(hidden_states, query_positions);
      const Tensor key = add(level.features, level.positions);
      hidden_states = cross_attn(query, key, level.features, attention_mask, cross_attn_weights);
    }
    added(cross_attn_layer_norm);
    normed(self_attn_layer_norm, true);
    hidden_states = self_attn(hidden_states, query_positions, self_attn_weights);
    added(self_attn_layer_norm);
    normed(final_layer_norm, true);
    {
      const Tensor wide = fc1(hidden_states);
      hidden_states = activate(activation_fn, wide);
    }
    hidden_states = fc2(hidden_states);
    added(final_layer_norm);
    return call.result(hidden_states);
  }

  bool pre_norm;
  Mask2FormerAttention self_attn;
  Activation activation_fn;
  LayerNorm self_attn_layer_norm;
  CrossAttention cross_attn;
  LayerNorm cross_attn_layer_norm;
  Linear fc1, fc2;
  LayerNorm final_layer_norm;
  ModuleId module;
};

struct MaskPredictor {
  MaskPredictor(const Builder& builder, const Mask2FormerConfig& c) : heads(c.heads), module(builder.module) {
    const Builder head = builder.child("mask_embedder", "Mask2FormerMLPPredictionHead");
    embedder = head.module;
    for (std::int32_t i = 0; i < 3; ++i) {
      const Builder block = head.child("", "Mask2FormerPredictionBlock", i);
      blocks.push_back(block.module);
      layers.emplace_back(block.child("", "Linear", 0), c.hidden_dim, i == 2 ? c.mask_feature_size : c.hidden_dim,
                          true);
      activations.push_back(block.child("", i == 2 ? "Identity" : "ReLU", 1).module);
    }
  }

  /// outputs_mask; and what the next layer does not read.
  Tensor operator()(const Tensor& argument, const Tensor& pixel_embeddings, const DecoderLevel& level,
                    Tensor& attention_mask) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor outputs = call.argument(argument);
    const Tensor mask_embeddings = embed(transpose(outputs, 0, 1));
    const Tensor outputs_mask = einsum("bqc", "bchw", "bqhw", mask_embeddings, pixel_embeddings);
    Tensor mask = upsample_bilinear2d(outputs_mask, level.height, level.width);
    {
      const Tensor probabilities = sigmoid(mask);
      mask = repeat(unsqueeze(flattened(probabilities), 1), {1, heads, 1, 1});
    }
    const Shape sizes{mask.size(0) * heads, mask.size(2), mask.size(3)};
    const Tensor all = view(mask, sizes);
    mask = pointwise(Op::lt, {&all}, DType::boolean);
    attention_mask = call.result(mask);
    return call.result(outputs_mask);
  }

  Tensor embed(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, embedder);
    Tensor hidden_state = call.argument(argument);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      ModuleCall block(context, blocks[i]);
      Tensor inner = layers[i](block.argument(hidden_state));
      if (i + 1 < layers.size()) {
        ModuleCall its(context, activations[i]);
        inner = its.result(relu(its.argument(inner)));
      }
      hidden_state = block.result(inner);
    }
    return call.result(hidden_state);
  }

  std::int64_t heads;
  std::vector<Linear> layers;
  std::vector<ModuleId> blocks, activations;
  ModuleId module, embedder = 0;
};

class Mask2Former : public ImageModel {
 public:
  Mask2Former(Context& context, const Mask2FormerConfig& c, const DataConfig& data, const ModelOptions& options)
      : ImageModel(context, c, data, options), own_(c) {
    const Builder model = root_.child("model", "Mask2FormerModel");
    model_ = model.module;
    const Builder pixels = model.child("pixel_level_module", "Mask2FormerPixelLevelModule");
    pixel_level_module_ = pixels.module;
    backbone_ = build_swin_backbone(pixels.child("encoder", "SwinBackbone"), c.swin, c.features, options);
    const Builder decoder_builder = pixels.child("decoder", "Mask2FormerPixelDecoder");
    pixel_decoder_.emplace(decoder_builder, c);
    const Builder transformer = model.child("transformer_module", "Mask2FormerTransformerModule");
    transformer_module_ = transformer.module;
    position_embedder_ = transformer.child("position_embedder", "Mask2FormerSinePositionEmbedding").module;
    queries_embedder_ = Embedding(transformer.child("queries_embedder", "Embedding"), c.num_queries, c.hidden_dim);
    queries_features_ = Embedding(transformer.child("queries_features", "Embedding"), c.num_queries, c.hidden_dim);
    const bool projects = c.feature_size != c.hidden_dim || c.enforce_input_projection;
    for (std::int32_t i = 0; i < Mask2FormerConfig::kLevels; ++i) {
      const Builder its = transformer.child("input_projections", projects ? "Conv2d" : "Sequential", i);
      if (projects) input_projections_.emplace_back(its, c.feature_size, c.hidden_dim, AnyConv2d::Options{});
    }
    const Builder decoder = transformer.child("decoder", "Mask2FormerMaskedAttentionDecoder");
    decoder_ = decoder.module;
    layers_.reserve(static_cast<std::size_t>(c.decoder_layers - 1));
    for (std::int32_t i = 0; i + 1 < c.decoder_layers; ++i)
      layers_.emplace_back(decoder.child("layers", "Mask2FormerMaskedAttentionDecoderLayer", i), c);
    layernorm_ = LayerNorm(decoder.child("layernorm", "LayerNorm"), c.hidden_dim);
    mask_predictor_.emplace(decoder.child("mask_predictor", "Mask2FormerMaskPredictor"), c);
    level_embed_ = Embedding(transformer.child("level_embed", "Embedding"), Mask2FormerConfig::kLevels, c.hidden_dim);
    class_predictor_ =
        Linear(root_.child("class_predictor", "Linear", Modality::none), c.hidden_dim, c.num_labels + 1, true);
    const Builder criterion = root_.child("criterion", "Mask2FormerLoss", Modality::none);
    criterion_ = criterion.module;
    empty_weight_ = criterion.buffer({c.num_labels + 1}, criterion.dtype);
    // torch.Tensor makes it on the host, from where it comes last.
    pixel_decoder_->level_embed =
        decoder_builder.parameter("level_embed", {Mask2FormerConfig::kLevels, c.feature_size});
  }

  ModelInputs make_inputs(bool with_labels) override {
    ModelInputs batch = ImageModel::make_inputs(with_labels);
    if (!with_labels) return batch;
    TensorList masks;
    for (std::int64_t i = 0; i < data_.images(); ++i)
      masks.push_back(empty(context_, Op::input, {data_.target_length, data_.image_height, data_.image_width},
                            DType::float32, Role::input));
    for (std::int64_t i = 0; i < data_.images(); ++i) {
      batch.others.push_back(empty(context_, Op::input, {data_.target_length}, DType::int64, Role::input));
      batch.others.push_back(masks[static_cast<std::size_t>(i)]);
    }
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    Hidden hidden;
    model_forward(inputs.pixel_values, hidden);
    ModelOutputs outputs;
    List<MaskPredictions> layers;
    Tensor class_prediction;
    for (std::size_t i = 0; i < hidden.intermediate.size(); ++i) {
      class_prediction = class_predictor_(transpose(hidden.intermediate[i], 0, 1));
      layers.push_back({hidden.masks_queries_logits[i], class_prediction});
    }
    if (!inputs.others.empty()) {
      ModuleCall call(context_, criterion_);
      DetectionLoss loss = mask2former_loss(own_, layers, inputs.others, empty_weight_);
      outputs.loss = std::move(loss.loss);
    }
    outputs.others.push_back(layers.back().class_queries_logits);
    outputs.others.push_back(layers.back().masks_queries_logits);
    outputs.others.push_back(std::move(hidden.encoder_last_hidden_state));
    outputs.others.push_back(std::move(hidden.mask_features));
    outputs.others.push_back(std::move(hidden.last_hidden_state));
    return outputs;
  }

 private:
  struct Hidden {
    Tensor encoder_last_hidden_state, mask_features, last_hidden_state;
    TensorList backbone_features, multi_scale_features, states, intermediate, masks_queries_logits;
  };

  // Mask2FormerModel.forward, with output_hidden_states
  void model_forward(const Tensor& argument, Hidden& result) {
    ModuleCall call(context_, model_);
    const Tensor pixel_values = call.keyword(argument);
    const Tensor pixel_mask = empty(context_, Op::ones_like,
                                    {pixel_values.size(0), pixel_values.size(2), pixel_values.size(3)}, DType::float32);
    {
      ModuleCall level(context_, pixel_level_module_);
      result.backbone_features = (*backbone_)(level.keyword(pixel_values));
      result.mask_features = (*pixel_decoder_)(result.backbone_features, positions_, result.multi_scale_features);
      result.mask_features = level.result(result.mask_features);
    }
    result.encoder_last_hidden_state = result.backbone_features[result.backbone_features.size() - 1];
    transform(result);
    result.last_hidden_state = call.result(result.last_hidden_state);
  }

  // Mask2FormerTransformerModule.forward
  void transform(Hidden& result) {
    ModuleCall call(context_, transformer_module_);
    List<DecoderLevel> levels;
    for (std::size_t i = 0; i < result.multi_scale_features.size(); ++i) {
      const Tensor& map = result.multi_scale_features[i];
      DecoderLevel level{{}, {}, map.size(2), map.size(3)};
      level.positions = permute(flattened(positions_.of(map, own_.hidden_dim / 2, position_embedder_)), {2, 0, 1});
      {
        const Tensor projected = input_projections_.empty() ? map : input_projections_[i](map);
        const Tensor own = unsqueeze(unsqueeze(select(level_embed_.weight, 0, static_cast<std::int64_t>(i)), 0), 2);
        level.features = permute(add(flattened(projected), own), {2, 0, 1});
      }
      levels.push_back(std::move(level));
    }
    const std::int64_t batch = result.mask_features.size(0);
    const auto spread = [&](const Embedding& embedding) {
      return repeat(unsqueeze(embedding.weight, 1), {1, batch, 1});
    };
    const Tensor query_embeddings = spread(queries_embedder_);
    const Tensor query_features = spread(queries_features_);
    decode(query_features, levels, query_embeddings, result);
    result.last_hidden_state = call.result(result.last_hidden_state);
  }

  // Mask2FormerMaskedAttentionDecoder.forward
  void decode(const Tensor& inputs_embeds, const List<DecoderLevel>& levels, const Tensor& query_embeddings,
              Hidden& result) const {
    ModuleCall call(context_, decoder_);
    Tensor hidden_states = call.keyword(inputs_embeds);
    Tensor intermediate_hidden_states, predicted_mask, attention_mask, where, layer_output;
    const auto predict = [&](const Tensor& hidden, std::size_t level) {
      intermediate_hidden_states = layernorm_(hidden);
      Tensor mask;
      predicted_mask = (*mask_predictor_)(intermediate_hidden_states, result.mask_features, levels[level], mask);
      attention_mask = std::move(mask);
      result.masks_queries_logits.push_back(predicted_mask);
      result.intermediate.push_back(intermediate_hidden_states);
    };
    predict(hidden_states, 0);
    for (std::size_t idx = 0; idx < layers_.size(); ++idx) {
      result.states.push_back(hidden_states);
      where = [&] {
        const Tensor count = sum(attention_mask, std::vector<int>{-1}, false);
        return pointwise(Op::ne, {&count}, DType::boolean);
      }();
      {
        const Tensor rows = unsqueeze(where, 2);
        attention_mask = pointwise(Op::mul, {&attention_mask, &rows}, DType::boolean);
      }
      layer_output = layers_[idx](hidden_states, levels[idx % levels.size()], query_embeddings, attention_mask);
      predict(layer_output, (idx + 1) % levels.size());
      hidden_states = layer_output;
    }
    result.states.push_back(hidden_states);
    result.last_hidden_state = call.result(transpose(hidden_states, 0, 1));
  }

  Mask2FormerConfig own_;
  std::unique_ptr<const ImageBackbone> backbone_;
  std::optional<PixelDecoder> pixel_decoder_;
  Embedding queries_embedder_, queries_features_, level_embed_;
  std::vector<AnyConv2d> input_projections_;
  std::vector<DecoderLayer> layers_;
  LayerNorm layernorm_;
  std::optional<MaskPredictor> mask_predictor_;
  Linear class_predictor_;
  Tensor empty_weight_;
  PositionCache positions_;
  ModuleId model_ = 0, pixel_level_module_ = 0, transformer_module_ = 0, position_embedder_ = 0, decoder_ = 0,
           criterion_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_mask2former(Context& context, const Mask2FormerConfig& config, const DataConfig& data,
                                         const ModelOptions& options) {
  return std::make_unique<Mask2Former>(context, config, data, options);
}

}  // namespace oometer
