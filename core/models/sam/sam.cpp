#include "models/sam/sam.h"

#include <optional>
#include <utility>

#include "models/kit/conv2d.h"
#include "models/vit/vit.h"
#include "nn/activation.h"
#include "nn/attention.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

namespace oometer {

namespace {

constexpr std::int64_t kCorners = 2;  ///< tokens of a box

/// SamLayerNorm of channels_first
Tensor norm_channels(const LayerNorm& norm, const Tensor& given) {
  Tensor features = permute(given, {0, 2, 3, 1});
  features = norm(features);
  return permute(features, {0, 3, 1, 2});
}

/// x.repeat_interleave(1, 0), which is a copy, too.
Tensor repeat_once(const Tensor& x) { return x.is_contiguous() ? clone(x) : contiguous(x); }

struct SamAttention {
  SamAttention(const Builder& builder, const SamModelConfig& c, std::int64_t downsample_rate, AttentionKind kind)
      : internal_dim(c.hidden_size / downsample_rate),
        head_dim(internal_dim / c.num_attention_heads),
        call{.kind = kind},
        module(builder.module) {
    q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, internal_dim, true);
    k_proj = Linear(builder.child("k_proj", "Linear"), c.hidden_size, internal_dim, true);
    v_proj = Linear(builder.child("v_proj", "Linear"), c.hidden_size, internal_dim, true);
    out_proj = Linear(builder.child("out_proj", "Linear"), internal_dim, c.hidden_size, true);
  }

  /// [images, points, tokens, channels] to [images * points, heads, tokens, channels of a head]
  Tensor separate_heads(const Tensor& x) const {
    const Tensor by_head = reshape(x, {x.size(0) * x.size(1), x.size(2), internal_dim / head_dim, head_dim});
    return transpose(by_head, 1, 2);
  }

  AttentionOutputs operator()(const Tensor& query_in, const Tensor& key_in, const Tensor& value_in) const {
    ModuleCall self(query_in.context(), module);
    Tensor query = q_proj(self.keyword(query_in));
    Tensor key = k_proj(self.keyword(key_in));
    Tensor value = v_proj(self.keyword(value_in));
    const std::int64_t images = query.size(0), points = query.size(1);
    query = separate_heads(query);
    key = separate_heads(key);
    value = separate_heads(value);
    AttentionOutputs attention = attention_forward(call, query, key, value, {});
    attention.output = reshape(attention.output, {images, points, query.size(2), internal_dim});
    attention.output = self.result(out_proj(attention.output));
    return attention;
  }

  Linear q_proj, k_proj, v_proj, out_proj;
  std::int64_t internal_dim, head_dim;
  AttentionCall call;
  ModuleId module;
};

struct SamTwoWayAttentionBlock {
  SamTwoWayAttentionBlock(const Builder& builder, const SamModelConfig& c, bool skip_first_layer_pe, AttentionKind kind)
      : self_attn(builder.child("self_attn", "SamAttention"), c, 1, kind),
        layer_norm1(builder.child("layer_norm1", "LayerNorm"), c.hidden_size),
        cross_attn_token_to_image(builder.child("cross_attn_token_to_image", "SamAttention"), c, 2, kind),
        layer_norm2(builder.child("layer_norm2", "LayerNorm"), c.hidden_size),
        mlp_builder(builder.child("mlp", "SamMLPBlock")),
        lin1(mlp_builder.child("lin1", "Linear"), c.hidden_size, c.mlp_dim, true),
        lin2(mlp_builder.child("lin2", "Linear"), c.mlp_dim, c.hidden_size, true),
        layer_norm3(builder.child("layer_norm3", "LayerNorm"), c.hidden_size),
        layer_norm4(builder.child("layer_norm4", "LayerNorm"), c.hidden_size),
        cross_attn_image_to_token(builder.child("cross_attn_image_to_token", "SamAttention"), c, 2, kind),
        hidden_act(c.hidden_act),
        skips_positions(skip_first_layer_pe),
        module(builder.module) {}

  Tensor mlp(const Tensor& argument) const {
    ModuleCall call(argument.context(), mlp_builder.module);
    Tensor hidden_states = lin1(call.argument(argument));
    hidden_states = activate(hidden_act, hidden_states);
    return call.result(lin2(hidden_states));
  }

  /// Rebinds both; what it gives beside is the last attention's output, and its weights.
  AttentionOutputs operator()(Tensor& queries_of, Tensor& keys_of, const Tensor& query_point_embedding_in,
                              const Tensor& key_point_embedding_in) const {
    ModuleCall call(queries_of.context(), module);
    Tensor queries = call.keyword(queries_of), keys = call.keyword(keys_of);
    const Tensor query_point_embedding = call.keyword(query_point_embedding_in),
                 key_point_embedding = call.keyword(key_point_embedding_in);
    Tensor query, key;
    AttentionOutputs attention;
    if (skips_positions) {
      attention = self_attn(queries, queries, queries);
      queries = std::move(attention.output);
    } else {
      query = add(queries, query_point_embedding);
      attention = self_attn(query, query, queries);
      queries = add(queries, attention.output);
    }
    queries = layer_norm1(queries);
    query = add(queries, query_point_embedding);
    key = add(keys, key_point_embedding);
    {
      AttentionOutputs next = cross_attn_token_to_image(query, key, keys);
      attention = std::move(next);
    }
    queries = add(queries, attention.output);
    queries = layer_norm2(queries);
    const Tensor mlp_out = mlp(queries);
    queries = add(queries, mlp_out);
    queries = layer_norm3(queries);
    query = add(queries, query_point_embedding);
    key = add(keys, key_point_embedding);
    {
      AttentionOutputs next = cross_attn_image_to_token(key, query, queries);
      attention = std::move(next);
    }
    keys = add(keys, attention.output);
    keys = layer_norm4(keys);
    queries_of = call.result(queries);
    keys_of = call.result(keys);
    return {call.result(attention.output), {}};
  }

  SamAttention self_attn;
  LayerNorm layer_norm1;
  SamAttention cross_attn_token_to_image;
  LayerNorm layer_norm2;
  Builder mlp_builder;
  Linear lin1, lin2;
  LayerNorm layer_norm3, layer_norm4;
  SamAttention cross_attn_image_to_token;
  Activation hidden_act;
  bool skips_positions;
  ModuleId module;
};

struct SamTwoWayTransformer {
  SamTwoWayTransformer(const Builder& builder, const SamModelConfig& c, AttentionKind kind)
      : final_attn_token_to_image(
            (make_layers(builder, c, kind), builder.child("final_attn_token_to_image", "SamAttention")), c,
            c.attention_downsample_rate, kind),
        layer_norm_final_attn(builder.child("layer_norm_final_attn", "LayerNorm"), c.hidden_size),
        module(builder.module) {}

  void make_layers(const Builder& builder, const SamModelConfig& c, AttentionKind kind) {
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i)
      layers.emplace_back(builder.child("layers", "SamTwoWayAttentionBlock", i), c, i == 0, kind);
  }

  /// The queries; `image_embeddings_of` becomes the keys.
  Tensor operator()(const Tensor& point_embeddings_in, Tensor& image_embeddings_of, const Tensor& positions_in) const {
    ModuleCall call(point_embeddings_in.context(), module);
    const Tensor point_embeddings = call.keyword(point_embeddings_in);
    const auto tokens_of = [](const Tensor& images) {
      const Tensor flat = reshape(images, {images.size(0), images.size(1), images.size(2) * images.size(3)});
      return unsqueeze(transpose(flat, 1, 2), 1);
    };
    const Tensor image_embeddings = tokens_of(call.keyword(image_embeddings_of)),
                 positions = tokens_of(call.keyword(positions_in));
    Tensor queries = point_embeddings, keys = image_embeddings;
    AttentionOutputs last;
    for (const SamTwoWayAttentionBlock& layer : layers) {
      AttentionOutputs its = layer(queries, keys, point_embeddings, positions);
      last = std::move(its);
    }
    const Tensor query = add(queries, point_embeddings), key = add(keys, positions);
    const AttentionOutputs attended = final_attn_token_to_image(query, key, keys);
    queries = add(queries, attended.output);
    queries = layer_norm_final_attn(queries);
    image_embeddings_of = call.result(keys);
    return call.result(queries);
  }

  std::vector<SamTwoWayAttentionBlock> layers;
  SamAttention final_attn_token_to_image;
  LayerNorm layer_norm_final_attn;
  ModuleId module;
};

struct SamFeedForward {
  SamFeedForward(const Builder& builder, std::int64_t input_dim, std::int64_t hidden_dim, std::int64_t output_dim,
                 std::int64_t num_layers)
      : proj_in(builder.child("proj_in", "Linear"), input_dim, hidden_dim, true),
        proj_out(builder.child("proj_out", "Linear"), hidden_dim, output_dim, true),
        module(builder.module) {
    for (std::int32_t i = 0; i < num_layers - 2; ++i)
      layers.emplace_back(builder.child("layers", "Linear", i), hidden_dim, hidden_dim, true);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = proj_in(call.argument(argument));
    hidden_states = relu(hidden_states);
    for (const Linear& layer : layers) {
      const Tensor inner = layer(hidden_states);
      hidden_states = relu(inner);
    }
    return call.result(proj_out(hidden_states));
  }

  Linear proj_in, proj_out;
  std::vector<Linear> layers;
  ModuleId module;
};

/// nn.ConvTranspose2d(in, out, kernel_size=2, stride=2)
AnyConv2d upscaling(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels) {
  AnyConv2d conv;
  conv.module = builder.module;
  conv.options = {.stride = {2, 2},
                  .padding = {0, 0},
                  .dilation = {1, 1},
                  .output_padding = {0, 0},
                  .groups = 1,
                  .transposed = true};
  conv.weight = builder.parameter("weight", {in_channels, out_channels, 2, 2});
  conv.bias = builder.parameter("bias", {out_channels});
  return conv;
}

struct SamMaskDecoder {
  SamMaskDecoder(const Builder& builder, const SamModelConfig& c, AttentionKind kind)
      : iou_token(builder.child("iou_token", "Embedding"), 1, c.hidden_size),
        mask_tokens(builder.child("mask_tokens", "Embedding"), c.mask_tokens(), c.hidden_size),
        transformer(builder.child("transformer", "SamTwoWayTransformer"), c, kind),
        module(builder.module) {
    const std::int64_t hidden = c.hidden_size;
    upscale_conv1 = upscaling(builder.child("upscale_conv1", "ConvTranspose2d"), hidden, hidden / 4);
    upscale_conv2 = upscaling(builder.child("upscale_conv2", "ConvTranspose2d"), hidden / 4, hidden / 8);
    upscale_layer_norm = LayerNorm(builder.child("upscale_layer_norm", "SamLayerNorm"), hidden / 4);
    for (std::int32_t i = 0; i < c.mask_tokens(); ++i)
      output_hypernetworks_mlps.emplace_back(builder.child("output_hypernetworks_mlps", "SamFeedForward", i), hidden,
                                             hidden, hidden / 8, 3);
    iou_prediction_head.emplace(builder.child("iou_prediction_head", "SamFeedForward"), hidden, c.iou_head_hidden_dim,
                                c.mask_tokens(), c.iou_head_depth);
  }

  /// The masks, then what is thought of them.
  TensorList operator()(const Tensor& image_embeddings_in, const Tensor& positions_in,
                        const Tensor& sparse_prompt_embeddings, const Tensor& dense_prompt_embeddings) const {
    ModuleCall call(image_embeddings_in.context(), module);
    const std::int64_t batch_size = image_embeddings_in.size(0), channels = image_embeddings_in.size(1),
                       rows = image_embeddings_in.size(2), columns = image_embeddings_in.size(3),
                       mask_count = mask_tokens.weight.size(0);
    Tensor image_embeddings = call.keyword(image_embeddings_in), positions = call.keyword(positions_in);
    Tensor output_tokens = cat({iou_token.weight, mask_tokens.weight}, 0);
    output_tokens = repeat(output_tokens, {batch_size, 1, 1, 1});
    const Tensor tokens = cat({output_tokens, call.keyword(sparse_prompt_embeddings)}, 2);
    const Tensor point_embeddings = to(tokens, iou_token.weight.dtype());
    image_embeddings = add(image_embeddings, call.keyword(dense_prompt_embeddings));
    image_embeddings = repeat_once(image_embeddings);
    positions = repeat_once(positions);
    const Tensor point_embedding = transformer(point_embeddings, image_embeddings, positions);
    const Tensor iou_token_out = select(point_embedding, 2, 0),
                 mask_tokens_out = slice(point_embedding, 2, 1, mask_count);
    image_embeddings = reshape(transpose(image_embeddings, 2, 3), {batch_size, channels, rows, columns});
    Tensor upscaled_embedding = upscale_conv1(image_embeddings);
    {
      const Tensor normed = norm_channels(upscale_layer_norm, upscaled_embedding);
      upscaled_embedding = gelu(normed);
    }
    {
      const Tensor larger = upscale_conv2(upscaled_embedding);
      upscaled_embedding = gelu(larger);
    }
    TensorList hyper_in_list;
    for (std::int64_t i = 0; i < mask_count; ++i)
      hyper_in_list.push_back(output_hypernetworks_mlps[static_cast<std::size_t>(i)](select(mask_tokens_out, 2, i)));
    const Tensor hyper_in = stack(hyper_in_list, 2);
    const std::int64_t height = upscaled_embedding.size(2), width = upscaled_embedding.size(3);
    upscaled_embedding = reshape(upscaled_embedding, {batch_size, 1, upscaled_embedding.size(1), height * width});
    Tensor masks = matmul(hyper_in, upscaled_embedding);
    masks = reshape(masks, {batch_size, 1, mask_count, height, width});
    Tensor iou_pred = (*iou_prediction_head)(iou_token_out);
    masks = slice(masks, 2, 0, 1);
    iou_pred = slice(iou_pred, 2, 0, 1);
    return {call.result(masks), call.result(iou_pred)};
  }

  Embedding iou_token, mask_tokens;
  SamTwoWayTransformer transformer;
  AnyConv2d upscale_conv1, upscale_conv2;
  LayerNorm upscale_layer_norm;
  std::vector<SamFeedForward> output_hypernetworks_mlps;
  std::optional<SamFeedForward> iou_prediction_head;
  ModuleId module;
};

/// SamPositionalEmbedding. `divides`: there is an input_shape.
Tensor embed_positions(const Tensor& weight, const Tensor& input_coords, bool divides) {
  Tensor coordinates = clone(input_coords);
  if (divides)
    for (int axis = 0; axis < 2; ++axis) const Tensor quotient = div_scalar(select(coordinates, 3, axis));
  {
    const Tensor doubled = mul_scalar(coordinates);
    coordinates = add_scalar(doubled);
  }
  coordinates = to(coordinates, weight.dtype());
  coordinates = matmul(coordinates, weight);
  coordinates = mul_scalar(coordinates);
  const Tensor sines = sin(coordinates), cosines = cos(coordinates);
  return cat({sines, cosines}, -1);
}

/// embedding[:, :, corner, :] += weight, in place: a view's history becomes its base's (CopySlices, of the sum and of
/// what is put back), whose backward copies the gradient of all corners.
Tensor add_to_corner(const Tensor& embedding, const Tensor& weight) {
  Record record(Op::add,
                [](Backward& b) {
                  Tensor result = clone(b.grad());
                  if (b.wants(1)) b.give(1, empty(b.context, Op::sum, b.node.sizes, b.grad().dtype()));
                  if (b.wants(0)) b.give(0, std::move(result));
                },
                {&embedding, &weight});
  if (record) record->sizes = weight.sizes();
  return in_place(record, Op::add, embedding, weight);
}

class Sam : public Model {
 public:
  Sam(Context& context, const SamModelConfig& c, const DataConfig& data, const ModelOptions& options)
      : context_(context), config_(c), data_(data), dtype_(options.dtype) {
    loss_type = LossType::none;
    const Builder top{&context,         &parameters,   &buffers,         context.add_root("SamModel", Modality::vision),
                      Modality::vision, options.dtype, options.wrapping, options.quantizer};
    const auto make_positions = [&](const Builder& builder) {
      const Tensor numbers = empty(context, Op::empty, {2, c.num_pos_feats}, options.dtype);
      return builder.parameter("positional_embedding", {2, c.num_pos_feats});
    };
    const Builder shared = top.child("shared_image_embedding", "SamPositionalEmbedding");
    shared_image_embedding_ = shared.module;
    positional_embedding_ = make_positions(shared);
    vision_encoder_ = make_sam_encoder(top.child("vision_encoder", "SamVisionEncoder"), c.vision, options);
    const Builder prompts = top.child("prompt_encoder", "SamPromptEncoder");
    prompt_encoder_ = prompts.module;
    const Builder its_positions = prompts.child("shared_embedding", "SamPositionalEmbedding");
    const Tensor replaced = make_positions(its_positions);
    parameters.pop_back();
    tied.push_back({positional_embedding_, its_positions.module, "positional_embedding"});
    make_mask_embed(prompts.child("mask_embed", "SamMaskEmbedding"));
    no_mask_embed_ = Embedding(prompts.child("no_mask_embed", "Embedding"), 1, c.hidden_size);
    for (std::int32_t i = 0; i < c.num_point_embeddings; ++i)
      point_embed_.emplace_back(prompts.child("point_embed", "Embedding", i), 1, c.hidden_size);
    not_a_point_embed_ = Embedding(prompts.child("not_a_point_embed", "Embedding"), 1, c.hidden_size);
    mask_decoder_.emplace(top.child("mask_decoder", "SamMaskDecoder"), c, options.attention);
  }

  void set_data(const DataConfig& data) override { data_ = data; }

  ModelInputs make_inputs(bool) override {
    const SamConfig& v = config_.vision;
    ModelInputs batch;
    batch.pixel_values = empty(context_, Op::input, {data_.images(), v.num_channels, v.image_size, v.image_size},
                               data_.pixel_dtype.value_or(dtype_), Role::input);
    batch.others.push_back(empty(context_, Op::input, {data_.images(), 1, 4}, DType::float64, Role::input));
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    Tensor positions = image_wide_positions();
    positions = repeat(positions, {inputs.pixel_values.size(0), 1, 1, 1});
    const Tensor image_embeddings = (*vision_encoder_)(inputs.pixel_values);
    Tensor dense_embeddings;
    const Tensor sparse_embeddings = embed_prompts(inputs.others.front(), dense_embeddings);
    TensorList masks = (*mask_decoder_)(image_embeddings, positions, sparse_embeddings, dense_embeddings);
    ModelOutputs outputs;
    outputs.others = std::move(masks);
    return outputs;
  }

 private:
  // Of masks as prompts, which nobody gives here.
  void make_mask_embed(const Builder& builder) {
    const std::int64_t few = config_.mask_input_channels / 4, many = config_.mask_input_channels;
    AnyConv2d(builder.child("conv1", "Conv2d"), 1, few, {.kernel = 2, .stride = 2});
    AnyConv2d(builder.child("conv2", "Conv2d"), few, many, {.kernel = 2, .stride = 2});
    AnyConv2d(builder.child("conv3", "Conv2d"), many, config_.hidden_size, {});
    LayerNorm(builder.child("layer_norm1", "SamLayerNorm"), few);
    LayerNorm(builder.child("layer_norm2", "SamLayerNorm"), 4 * few);
  }

  // get_image_wide_positional_embeddings
  Tensor image_wide_positions() const {
    const std::int64_t size = config_.vision.side();
    const DType dtype = positional_embedding_.dtype();
    const Shape sizes{size, size};
    const Tensor grid = empty(context_, Op::ones_like, sizes, dtype);
    const auto axis = [&](int dim) {
      const Tensor sum = cumsum(grid, dim, dtype);
      return add_scalar(sum);
    };
    Tensor y_embed = axis(0), x_embed = axis(1);
    y_embed = div_scalar(y_embed);
    x_embed = div_scalar(x_embed);
    Tensor positions;
    {
      const Tensor places = stack({x_embed, y_embed}, 2);
      ModuleCall call(context_, shared_image_embedding_);
      positions = call.result(embed_positions(positional_embedding_, call.argument(places), false));
    }
    return unsqueeze(permute(positions, {2, 0, 1}), 0);
  }

  // SamPromptEncoder.forward, of boxes
  Tensor embed_prompts(const Tensor& input_boxes, Tensor& dense_embeddings) const {
    ModuleCall call(context_, prompt_encoder_);
    const std::int64_t images = input_boxes.size(0), side = config_.vision.side();
    Tensor corner_embedding;
    {
      const Tensor boxes = add_scalar(call.keyword(input_boxes));
      corner_embedding = embed_positions(positional_embedding_, view(boxes, {images, 1, kCorners, 2}), true);
    }
    for (const std::size_t corner : {2U, 3U})
      corner_embedding = add_to_corner(corner_embedding, point_embed_[corner].weight);
    const Tensor cell = view(no_mask_embed_.weight, {1, config_.hidden_size, 1, 1});
    dense_embeddings = call.result(expand(cell, {images, config_.hidden_size, side, side}));
    return call.result(corner_embedding);
  }

  Context& context_;
  SamModelConfig config_;
  DataConfig data_;
  DType dtype_;
  Tensor positional_embedding_;
  std::unique_ptr<SamEncoder> vision_encoder_;
  Embedding no_mask_embed_, not_a_point_embed_;
  std::vector<Embedding> point_embed_;
  std::optional<SamMaskDecoder> mask_decoder_;
  ModuleId shared_image_embedding_ = 0, prompt_encoder_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_sam(Context& context, const SamModelConfig& config, const DataConfig& data,
                                 const ModelOptions& options) {
  return std::make_unique<Sam>(context, config, data, options);
}

}  // namespace oometer
