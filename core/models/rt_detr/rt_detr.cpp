#include "models/rt_detr/rt_detr.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "nn/activation.h"
#include "ops/detection.h"
#include "ops/experts.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/upsample.h"
#include "ops/vision.h"

namespace oometer {

namespace {

/// RTDetrConvNormLayer. Its modules have their places before they are made: lists of such layers come one after another
/// in the class, and are filled by turns.
struct ConvNorm {
  struct Place {
    Place(const Builder& builder, bool activates)
        : conv(builder.child("conv", "Conv2d")), norm(builder.child("norm", "BatchNorm2d")), module(builder.module) {
      norm.in_norm = true;  // by its name
      activation = builder.child("activation", activates ? "Activation" : "Identity").module;
    }
    Builder conv, norm;
    ModuleId module, activation;
  };
  struct Sizes {
    std::int64_t in, out, kernel = 1, stride = 1;
  };

  ConvNorm() = default;
  ConvNorm(const Place& place, const Sizes& sizes, std::optional<Activation> its)
      : conv(place.conv, sizes.in, sizes.out,
             {.kernel = sizes.kernel, .stride = sizes.stride, .padding = (sizes.kernel - 1) / 2, .bias = false}),
        norm(place.norm, sizes.out),
        activation(its),
        module(place.module) {}
  ConvNorm(const Builder& builder, const Sizes& sizes, std::optional<Activation> its)
      : ConvNorm(Place(builder, its.has_value()), sizes, its) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_state = conv(call.argument(argument));
    hidden_state = norm(hidden_state);
    if (activation) hidden_state = activate(*activation, hidden_state);
    return call.result(hidden_state);
  }

  AnyConv2d conv;
  BatchNorm2d norm;
  std::optional<Activation> activation;
  ModuleId module = 0;
};

/// RTDetrCSPRepLayer, with its RTDetrRepVggBlocks.
struct CSPRepLayer {
  CSPRepLayer(const Builder& builder, const RTDetrConfig& c) : activation(c.hidden_act), module(builder.module) {
    const std::int64_t in = 2 * c.encoder_hidden_dim, hidden = c.hidden_channels;
    const auto layer = [&](const Builder& parent, const char* name, const ConvNorm::Sizes& sizes, bool activates) {
      return ConvNorm(parent.child(name, c.classes->conv_norm), sizes,
                      activates ? std::optional(c.hidden_act) : std::nullopt);
    };
    conv1 = layer(builder, "conv1", {in, hidden}, true);
    conv2 = layer(builder, "conv2", {in, hidden}, true);
    const Builder its = builder.child("bottlenecks", "Sequential");
    sequential = its.module;
    for (std::int32_t i = 0; i < 3; ++i) {
      const Builder block = its.child("", c.classes->rep_vgg, i);
      Bottleneck one;
      one.module = block.module;
      one.conv1 = layer(block, "conv1", {hidden, hidden, 3}, false);
      one.conv2 = layer(block, "conv2", {hidden, hidden}, false);
      block.child("activation", "Activation");
      bottlenecks.push_back(std::move(one));
    }
    widens = hidden != c.encoder_hidden_dim;
    if (widens) conv3 = layer(builder, "conv3", {hidden, c.encoder_hidden_dim}, true);
  }

  Tensor operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor hidden_state = call.argument(argument);
    Tensor hidden_state_1 = conv1(hidden_state);
    {
      ModuleCall sequence(context, sequential);
      Tensor x = sequence.argument(hidden_state_1);
      hidden_state_1.reset();
      for (const Bottleneck& block : bottlenecks) x = block(activation, x);
      hidden_state_1 = sequence.result(x);
    }
    const Tensor hidden_state_2 = conv2(hidden_state);
    const Tensor both = add(hidden_state_1, hidden_state_2);
    return call.result(widens ? conv3(both) : both);
  }

  struct Bottleneck {
    Tensor operator()(Activation its, const Tensor& argument) const {
      ModuleCall call(argument.context(), module);
      const Tensor x = call.argument(argument);
      const Tensor y = [&] {
        const Tensor wide = conv1(x);
        const Tensor narrow = conv2(x);
        return add(wide, narrow);
      }();
      return call.result(activate(its, y));
    }
    ConvNorm conv1, conv2;
    ModuleId module = 0;
  };

  Activation activation;
  ConvNorm conv1, conv2, conv3;
  std::vector<Bottleneck> bottlenecks;
  bool widens = false;
  ModuleId module, sequential = 0;
};

/// RTDetrEncoderLayer
struct EncoderLayer {
  EncoderLayer(const Builder& builder, const RTDetrConfig& c, const ModelOptions& options)
      : self_attn(builder.child("self_attn", c.classes->self_attention), c.encoder_hidden_dim,
                  c.encoder_attention_heads, {.kind = options.attention, .dropout = c.dropout}),
        self_attn_layer_norm(builder.child("self_attn_layer_norm", "LayerNorm"), c.encoder_hidden_dim),
        mlp(builder.child("mlp", c.classes->mlp), c.encoder_hidden_dim, c.encoder_ffn_dim,
            c.encoder_activation_function, c.activation_dropout, c.dropout),
        final_layer_norm(builder.child("final_layer_norm", "LayerNorm"), c.encoder_hidden_dim),
        normalize_before(c.normalize_before),
        dropout_prob(c.dropout),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const Tensor& positions) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in, hidden_states = hidden_in;
    if (normalize_before) hidden_states = self_attn_layer_norm(hidden_states);
    AttentionOutputs attended = self_attn(hidden_states, positions);
    hidden_states = std::move(attended.output);  // the weights stay in `_`
    hidden_states = dropout(hidden_states, dropout_prob);
    hidden_states = add(residual, hidden_states);
    hidden_states = normalize_before ? final_layer_norm(hidden_states) : self_attn_layer_norm(hidden_states);
    residual = hidden_states;
    hidden_states = mlp(hidden_states);
    hidden_states = add(residual, hidden_states);
    if (!normalize_before) hidden_states = final_layer_norm(hidden_states);
    if (hidden_states.context().training) check_finite(hidden_states);
    return hidden_states;
  }

  DetrAttention self_attn;
  LayerNorm self_attn_layer_norm;
  DetrMLP mlp;
  LayerNorm final_layer_norm;
  bool normalize_before;
  double dropout_prob;
  ModuleId module;
};

/// RTDetrSinePositionEmbedding, whose results lru_cache keeps for all of them.
class SinePositions {
 public:
  Tensor operator()(Context& context, ModuleId module, std::int64_t height, std::int64_t width, std::int64_t embed_dim,
                    DType dtype) {
    const ModuleScope scope(context, module);
    for (const Kept& kept : kept_)
      if (kept.height == height && kept.width == width && kept.positions.dtype() == dtype)
        return unsqueeze(kept.positions, 0);
    kept_.push_back({height, width, build(context, height, width, embed_dim, dtype)});
    return unsqueeze(kept_.back().positions, 0);
  }

 private:
  struct Kept {
    std::int64_t height, width;
    Tensor positions;
  };

  // build_2d_sinusoidal_position_embedding
  static Tensor build(Context& context, std::int64_t height, std::int64_t width, std::int64_t embed_dim, DType dtype) {
    const auto numbers = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::float64); };
    const std::int64_t quarter = embed_dim / 4, places = checked_product(height, width);
    Tensor omega;
    {
      const Tensor range = numbers(Op::arange, {quarter});
      omega = numbers(Op::div, {quarter});
    }
    {
      const Tensor power = numbers(Op::pow, {quarter});
      { const Tensor base = numbers(Op::fill, {}); }
      const Tensor inverse = numbers(Op::reciprocal, {quarter});
      omega = numbers(Op::mul, {quarter});
    }
    const Tensor grid_h = numbers(Op::arange, {height});
    const Tensor grid_w = numbers(Op::arange, {width});
    const auto outer = [&] {
      const Tensor flat = numbers(Op::clone, {places});
      return numbers(Op::mul, {places, quarter});
    };
    const Tensor emb_h = outer();
    const Tensor emb_w = outer();
    Tensor pos_embed;
    {
      TensorList waves;
      for (const Op op : {Op::sin, Op::cos, Op::sin, Op::cos}) waves.push_back(numbers(op, {places, quarter}));
      pos_embed = numbers(Op::cat, {places, embed_dim});
    }
    return to(pos_embed, dtype);
  }

  List<Kept> kept_;
};

/// RTDetrAIFILayer
struct AIFILayer {
  AIFILayer(const Builder& builder, const RTDetrConfig& c, const ModelOptions& options)
      : position_embedding(builder.child("position_embedding", c.classes->position_embedding).module),
        module(builder.module) {
    layers.reserve(static_cast<std::size_t>(c.encoder_layers));
    for (std::int32_t i = 0; i < c.encoder_layers; ++i)
      layers.emplace_back(builder.child("layers", c.classes->encoder_layer, i), c, options);
  }

  Tensor operator()(const Tensor& argument, SinePositions& positions) const {
    ModuleCall call(argument.context(), module);
    const Tensor feature_map = call.argument(argument);
    const std::int64_t batch = feature_map.size(0), dim = feature_map.size(1), height = feature_map.size(2),
                       width = feature_map.size(3);
    Tensor hidden_states = transpose(reshape(feature_map, {batch, dim, checked_product(height, width)}), 1, 2);
    const Tensor pos_embed =
        positions(feature_map.context(), position_embedding, height, width, dim, hidden_states.dtype());
    for (const EncoderLayer& layer : layers) hidden_states = layer(hidden_states, pos_embed);
    hidden_states = contiguous(reshape(transpose(hidden_states, 1, 2), {batch, dim, height, width}));
    return call.result(hidden_states);
  }

  std::vector<EncoderLayer> layers;
  ModuleId position_embedding, module;
};

/// RTDetrHybridEncoder
struct HybridEncoder {
  HybridEncoder(const Builder& builder, const RTDetrConfig& c, const ModelOptions& options)
      : encode_proj_layers(c.encode_proj_layers), module(builder.module) {
    const auto count = static_cast<std::int32_t>(c.features.size()) - 1;
    aifi.reserve(encode_proj_layers.size());
    for (std::size_t i = 0; i < encode_proj_layers.size(); ++i)
      aifi.emplace_back(builder.child("aifi", c.classes->aifi, static_cast<std::int32_t>(i)), c, options);
    const std::int64_t dim = c.encoder_hidden_dim;
    const auto fill = [&](const char* convs, const char* blocks, const ConvNorm::Sizes& sizes,
                          std::vector<ConvNorm>& layers, std::vector<CSPRepLayer>& fused) {
      std::vector<ConvNorm::Place> places;
      for (std::int32_t i = 0; i < count; ++i) places.emplace_back(builder.child(convs, c.classes->conv_norm, i), true);
      fused.reserve(places.size());
      for (std::int32_t i = 0; i < count; ++i) {
        layers.emplace_back(places[static_cast<std::size_t>(i)], sizes, c.hidden_act);
        fused.emplace_back(builder.child(blocks, c.classes->csp, i), c);
      }
    };
    fill("lateral_convs", "fpn_blocks", {dim, dim}, lateral_convs, fpn_blocks);
    fill("downsample_convs", "pan_blocks", {dim, dim, 3, 2}, downsample_convs, pan_blocks);
  }

  /// The maps given are replaced, as the list in Python is.
  TensorList operator()(TensorList& feature_maps) {
    Context& context = feature_maps[0].context();
    ModuleCall call(context, module);
    for (std::size_t i = 0; i < aifi.size(); ++i) {
      Tensor& map = feature_maps[static_cast<std::size_t>(encode_proj_layers[i])];
      map = aifi[i](map, positions);
    }
    const std::size_t stages = lateral_convs.size();
    TensorList fpn_feature_maps{feature_maps.back()};
    Tensor backbone_feature_map, top, fused;
    for (std::size_t i = 0; i < stages; ++i) {
      backbone_feature_map = feature_maps[stages - i - 1];
      top = fpn_feature_maps.back();
      top = lateral_convs[i](top);
      fpn_feature_maps.back() = top;
      if (2 * top.size(2) != backbone_feature_map.size(2) || 2 * top.size(3) != backbone_feature_map.size(3)) {
        context.refusal = Error{"inconsistent", "/data/image_size",
                                "the class doubles its smaller feature maps, which then have to be as large as the "
                                "others: expected multiples of 32"};
        return {};
      }
      top = upsample_nearest2d(top, backbone_feature_map.size(2), backbone_feature_map.size(3));
      fused = cat({top, backbone_feature_map}, 1);
      fpn_feature_maps.push_back(fpn_blocks[i](fused));
    }
    std::reverse(fpn_feature_maps.begin(), fpn_feature_maps.end());
    TensorList pan_feature_maps{fpn_feature_maps[0]};
    Tensor top_pan, fpn_feature_map, downsampled;
    for (std::size_t i = 0; i < stages; ++i) {
      top_pan = pan_feature_maps.back();
      fpn_feature_map = fpn_feature_maps[i + 1];
      downsampled = downsample_convs[i](top_pan);
      fused = cat({downsampled, fpn_feature_map}, 1);
      pan_feature_maps.push_back(pan_blocks[i](fused));
    }
    pan_feature_maps.back() = call.result(pan_feature_maps.back());
    return pan_feature_maps;
  }

  std::vector<std::int64_t> encode_proj_layers;
  SinePositions positions;
  std::vector<AIFILayer> aifi;
  std::vector<ConvNorm> lateral_convs, downsample_convs;
  std::vector<CSPRepLayer> fpn_blocks, pan_blocks;
  ModuleId module;
};

/// RTDetrDecoderLayer
struct DecoderLayer {
  DecoderLayer(const Builder& builder, const RTDetrConfig& c, const ModelOptions& options)
      : self_attn(builder.child("self_attn", c.classes->self_attention), c.d_model, c.decoder_attention_heads,
                  {.kind = options.attention, .dropout = c.attention_dropout}),
        self_attn_layer_norm(builder.child("self_attn_layer_norm", "LayerNorm"), c.d_model),
        encoder_attn(builder.child("encoder_attn", c.classes->cross_attention),
                     {.d_model = c.d_model,
                      .heads = c.decoder_attention_heads,
                      .levels = c.levels(),
                      .points = c.decoder_n_points,
                      .scales_points = c.classes->scales_points}),
        encoder_attn_layer_norm(builder.child("encoder_attn_layer_norm", "LayerNorm"), c.d_model),
        mlp(builder.child("mlp", c.classes->mlp), c.d_model, c.decoder_ffn_dim, c.decoder_activation_function,
            c.activation_dropout, c.dropout),
        final_layer_norm(builder.child("final_layer_norm", "LayerNorm"), c.d_model),
        dropout_prob(c.dropout),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const Tensor& query_positions, const FeatureLevels& encoder,
                    const Tensor& reference_points, const Tensor& attention_mask) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in;
    AttentionOutputs attended = self_attn(hidden_in, query_positions, {}, {}, attention_mask);
    Tensor hidden_states = std::move(attended.output);  // the weights stay in `_` until it is bound again
    const auto add_residual = [&] {
      hidden_states = dropout(hidden_states, dropout_prob);
      hidden_states = add(residual, hidden_states);
    };
    add_residual();
    hidden_states = self_attn_layer_norm(hidden_states);
    residual = hidden_states;
    Tensor weights;
    hidden_states = encoder_attn(hidden_states, query_positions, encoder, reference_points, weights);
    attended.weights = std::move(weights);
    add_residual();
    hidden_states = encoder_attn_layer_norm(hidden_states);
    residual = hidden_states;
    hidden_states = mlp(hidden_states);
    hidden_states = add(residual, hidden_states);
    return final_layer_norm(hidden_states);
  }

  DetrAttention self_attn;
  LayerNorm self_attn_layer_norm;
  DeformableAttention encoder_attn;
  LayerNorm encoder_attn_layer_norm;
  DetrMLP mlp;
  LayerNorm final_layer_norm;
  double dropout_prob;
  ModuleId module;
};

/// nn.Sequential of a convolution and its norm.
struct Projection {
  Projection(const Builder& builder, std::int64_t in, std::int64_t out)
      : conv(builder.child("", "Conv2d", 0), in, out, {.kernel = 1, .bias = false}),
        norm(builder.child("", "BatchNorm2d", 1), out),
        module(builder.module) {}
  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor projected = conv(call.argument(argument));
    return call.result(norm(projected));
  }

  AnyConv2d conv;
  BatchNorm2d norm;
  ModuleId module;
};

class RTDetr : public ImageModel {
 public:
  RTDetr(Context& context, const RTDetrConfig& c, const DataConfig& data, const ModelOptions& options)
      : ImageModel(context, c, data, options), own_(c), builder_(root_.child("model", c.classes->model)) {
    const Builder conv_encoder = builder_.child("backbone", c.classes->conv_encoder);
    conv_encoder_ = conv_encoder.module;
    backbone_.emplace(conv_encoder.child("model", "RTDetrResNetBackbone"), c.backbone,
                      c.freeze_backbone_batch_norms ? c.classes->frozen_norm : nullptr);
    if (c.freeze_backbone_batch_norms) backbone_->freeze_norms();
    const auto each = [&](const char* name, std::int32_t i) { return builder_.child(name, "Sequential", i); };
    for (std::size_t i = 0; i < c.features.size(); ++i)
      encoder_input_proj_.emplace_back(each("encoder_input_proj", static_cast<std::int32_t>(i)),
                                       c.backbone.hidden_sizes[c.features[i] - 1], c.encoder_hidden_dim);
    encoder_.emplace(builder_.child("encoder", c.classes->encoder), c, options);
    if (c.num_denoising > 0)
      denoising_class_embed_ =
          Embedding(builder_.child("denoising_class_embed", "Embedding"), c.num_labels + 1, c.d_model);
    const Builder enc_output = builder_.child("enc_output", "Sequential");
    enc_output_ = enc_output.module;
    enc_linear_ = Linear(enc_output.child("", "Linear", 0), c.d_model, c.d_model, true);
    enc_norm_ = LayerNorm(enc_output.child("", "LayerNorm", 1), c.d_model);
    enc_score_head_ = Linear(builder_.child("enc_score_head", "Linear"), c.d_model, c.num_labels, true);
    enc_bbox_head_ = DetectionHead(builder_.child("enc_bbox_head", c.classes->head), c.d_model, c.d_model, 4, 3);
    for (std::size_t i = 0; i < c.features.size(); ++i)
      decoder_input_proj_.emplace_back(each("decoder_input_proj", static_cast<std::int32_t>(i)), c.encoder_hidden_dim,
                                       c.d_model);
    const Builder decoder = builder_.child("decoder", c.classes->decoder);
    decoder_ = decoder.module;
    layers_.reserve(static_cast<std::size_t>(c.decoder_layers));
    for (std::int32_t i = 0; i < c.decoder_layers; ++i)
      layers_.emplace_back(decoder.child("layers", c.classes->decoder_layer, i), c, options);
    query_pos_head_ = DetectionHead(decoder.child("query_pos_head", c.classes->head), 4, 2 * c.d_model, c.d_model, 2);
    Heads first;
    std::vector<Parameter> dropped;
    if (c.classes->ties_heads) {
      Builder at_root = root_;
      at_root.parameters = &dropped;
      make_heads(at_root, first);
    }
    make_heads(decoder, heads_);
    dropped.clear();
    if (c.classes->ties_heads) tie_heads(first);
  }

  ModelInputs make_inputs(bool with_labels) override {
    ModelInputs batch = ImageModel::make_inputs(with_labels);
    if (with_labels) batch.others = make_detection_labels(context_, data_);
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    ModelOutputs outputs;
    Hidden hidden;
    model_forward(inputs, hidden);
    if (context_.refusal) return outputs;
    const std::int64_t last = own_.decoder_layers - 1;
    Tensor logits = select(hidden.predictions.outputs_class, 1, last),
           pred_boxes = select(hidden.predictions.outputs_coord, 1, last);
    if (!inputs.others.empty()) {
      DetectionLoss loss = rt_detr_loss(own_, hidden.predictions, inputs.others, hidden.denoising);
      outputs.loss = std::move(loss.loss);
      for (Tensor& one : loss.loss_dict) outputs.others.push_back(std::move(one));
    }
    outputs.others.push_back(std::move(logits));
    outputs.others.push_back(std::move(pred_boxes));
    outputs.others.push_back(std::move(hidden.last));
    outputs.others.push_back(std::move(hidden.intermediate));
    outputs.others.push_back(std::move(hidden.predictions.outputs_class));
    outputs.others.push_back(std::move(hidden.predictions.outputs_coord));
    for (Tensor& map : hidden.encoder_last) outputs.others.push_back(std::move(map));
    for (Tensor* one :
         {&hidden.init_reference_points, &hidden.predictions.enc_topk_logits, &hidden.predictions.enc_topk_bboxes,
          &hidden.enc_outputs_class, &hidden.enc_outputs_coord_logits, &hidden.denoising.positive})
      if (*one) outputs.others.push_back(std::move(*one));
    return outputs;
  }

 private:
  struct Hidden {
    RTDetrPredictions predictions;
    Tensor last, intermediate, init_reference_points, enc_outputs_class, enc_outputs_coord_logits;
    TensorList encoder_last;
    Denoising denoising;  ///< of which the class returns the indices alone
  };

  struct Heads {
    std::vector<Linear> class_embed;
    std::vector<DetectionHead> bbox_embed;
  };

  void make_heads(const Builder& builder, Heads& heads) const {
    for (std::int32_t i = 0; i < own_.decoder_layers; ++i)
      heads.class_embed.emplace_back(builder.child("class_embed", "Linear", i), own_.d_model, own_.num_labels, true);
    for (std::int32_t i = 0; i < own_.decoder_layers; ++i)
      heads.bbox_embed.emplace_back(builder.child("bbox_embed", own_.classes->head, i), own_.d_model, own_.d_model, 4,
                                    3);
  }

  /// tie_weights (transformers 5.23, modeling_utils.py), of heads that the decoder has a copy of: those take the
  /// copies' parameters, whose biases are padded anew each time that one is tied.
  void tie_heads(Heads& first) const {
    const auto tie = [&](Linear& own_one, const Linear& source) {
      for (Tensor* its : {&own_one.bias, &own_one.weight}) {
        its->reset();
        const NoGrad no_grad(context_);
        replace_data(source.bias, empty_like(Op::clone, source.bias));
        context_.set_role(source.bias, Role::parameter, source.module);
      }
    };
    const auto tie_boxes = [&](std::size_t i) {
      for (std::size_t k = 0; k < first.bbox_embed[i].layers.size(); ++k)
        tie(first.bbox_embed[i].layers[k], heads_.bbox_embed[i].layers[k]);
    };
    const std::size_t count = first.class_embed.size();
    for (std::size_t i = 1; i < count; ++i) tie_boxes(i);
    for (std::size_t i = 1; i < count; ++i) tie(first.class_embed[i], heads_.class_embed[i]);
    tie(first.class_embed[0], heads_.class_embed[0]);
    tie_boxes(0);
  }

  // RTDetrConvEncoder.forward
  List<DetrFeatures> backbone(const Tensor& pixel_values_in, const Tensor& pixel_mask) const {
    ModuleCall call(context_, conv_encoder_);
    const Tensor pixel_values = call.argument(pixel_values_in);
    TensorList features;
    {
      const TensorList hidden_states = (*backbone_)(pixel_values);
      for (const std::size_t stage : own_.features) features.push_back(hidden_states[stage]);
    }
    List<DetrFeatures> out;
    for (const Tensor& feature_map : features) {
      const Shape sizes{1, feature_map.size(0), feature_map.size(2), feature_map.size(3)};
      Tensor mask = empty(context_, Op::upsample, sizes, pixel_mask.dtype());
      mask = to(mask, DType::boolean);
      out.push_back({feature_map, view(mask, {sizes[1], sizes[2], sizes[3]})});
    }
    out.back().feature_map = call.result(out.back().feature_map);
    return out;
  }

  // get_contrastive_denoising_training_group, of as many objects in each image.
  Denoising denoise(const TensorList& labels) const {
    const std::int64_t batch = static_cast<std::int64_t>(labels.size()) / 2, objects = labels[0].size(0);
    Denoising result;
    result.groups = own_.denoising_groups(objects);
    if (result.groups == 0) return result;
    result.queries = own_.denoising_queries(objects);
    const std::int64_t width = result.queries;
    const auto made = [&](Op op, const Shape& sizes, DType dtype = DType::float32) {
      return empty(context_, op, sizes, dtype);
    };
    Tensor input_query_class = made(Op::fill, {batch, objects}, DType::int32),
           input_query_bbox = made(Op::zeros, {batch, objects, 4}),
           pad_gt_mask = made(Op::zeros, {batch, objects}, DType::boolean);
    input_query_class = made(Op::repeat, {batch, width}, DType::int32);
    input_query_bbox = made(Op::repeat, {batch, width, 4});
    pad_gt_mask = made(Op::repeat, {batch, width}, DType::boolean);
    Tensor negative_gt_mask = made(Op::zeros, {batch, 2 * objects, 1});
    negative_gt_mask = made(Op::repeat, {batch, width, 1});
    Tensor positive_gt_mask = made(Op::sub, {batch, width, 1});
    positive_gt_mask = made(Op::mul, {batch, width});
    const Tensor found = nonzero(positive_gt_mask, batch * objects * result.groups);
    result.positive = select(found, 1, 1);
    Tensor mask, new_label;
    if (own_.label_noise_ratio > 0) {
      {
        const Tensor random = made(Op::randn, {batch, width});
        mask = made(Op::lt, {batch, width}, DType::boolean);
      }
      new_label = made(Op::randn, {batch, width}, DType::int32);
      const Tensor changed = made(Op::bitwise_and, {batch, width}, DType::boolean);
      input_query_class = made(Op::where, {batch, width}, DType::int32);
    }
    Tensor known_bbox, diff, rand_sign, rand_part;
    if (own_.box_noise_scale > 0) add_noise(input_query_bbox, known_bbox, diff, rand_sign, rand_part);
    result.input_query_bbox = std::move(input_query_bbox);
    result.input_query_class = denoising_class_embed_(input_query_class);
    const std::int64_t target = result.queries + own_.num_queries;
    result.attn_mask = made(Op::fill, {target, target});
    return result;
  }

  void add_noise(Tensor& boxes, Tensor& known_bbox, Tensor& diff, Tensor& rand_sign, Tensor& rand_part) const {
    const Shape all = boxes.sizes(), each{all[0], all[1]};
    const auto made = [&](Op op, const Shape& sizes) { return empty(context_, op, sizes, DType::float32); };
    known_bbox = center_to_corners_format(boxes);
    {
      Tensor half = made(Op::mul, {all[0], all[1], 2});
      const Tensor twice = made(Op::repeat, all);
      half.reset();
      diff = made(Op::mul, all);
    }
    rand_sign = made(Op::randn, all);
    rand_sign = mul_scalar(rand_sign);
    rand_sign = add_scalar(rand_sign);  // - 1
    rand_part = made(Op::randn, all);
    {
      Tensor further = add_scalar(rand_part);
      further = made(Op::mul, all);
      Tensor rest = made(Op::sub, {all[0], all[1], 1});
      const Tensor nearer = made(Op::mul, all);
      rest.reset();
      rand_part = add(further, nearer);
    }
    { const Tensor moved = mul(rand_part, diff); }
    boxes = [&] {  // corners_to_center_format
      TensorList parts;
      for (int i = 0; i < 2; ++i) {
        const Tensor sum = made(Op::add, each);
        parts.push_back(made(Op::div, each));
      }
      for (int i = 0; i < 2; ++i) parts.push_back(made(Op::sub, each));
      return stack(parts, 2);
    }();
    boxes = inverse_sigmoid(boxes);
  }

  // _cached_generate_anchors
  void generate_anchors(const FeatureLevels& levels, DType dtype) {
    const bool is_kept = anchors_ && kept_dtype_ == dtype &&
                         std::equal(levels.sizes.begin(), levels.sizes.end(), kept_.begin(), kept_.end(),
                                    [](const FeatureLevels::Size& a, const FeatureLevels::Size& b) {
                                      return a.height == b.height && a.width == b.width;
                                    });
    if (is_kept) return;
    kept_ = levels.sizes;
    kept_dtype_ = dtype;
    const auto made = [&](Op op, const Shape& sizes, DType its) { return empty(context_, op, sizes, its); };
    TensorList parts;
    std::int64_t all = 0;
    Tensor rows, columns, grid_y, grid_x, grid_xy, wh;
    for (const auto& [height, width] : levels.sizes) {
      const auto range = [&](std::int64_t count) {
        const Tensor counted = integers(context_, Op::arange, {count});
        return to(counted, dtype);
      };
      rows = range(height);
      columns = range(width);
      grid_y = rows;
      grid_x = columns;
      const Shape pairs{1, height, width, 2};
      grid_xy = made(Op::stack, pairs, dtype);
      grid_xy = made(Op::add, pairs, dtype);
      {
        Tensor ones = made(Op::ones_like, pairs, dtype);
        const Tensor scaled = made(Op::mul, pairs, dtype);
        ones.reset();
        wh = made(Op::mul, pairs, dtype);
      }
      parts.push_back(made(Op::cat, {1, height * width, 4}, dtype));
      all += height * width;
    }
    const Shape boxes{1, all, 4};
    Tensor anchors = made(Op::cat, boxes, dtype);
    parts.clear();
    {
      Tensor valid;
      {
        const Tensor above = made(Op::gt, boxes, DType::boolean);
        const Tensor below = made(Op::lt, boxes, DType::boolean);
        valid = made(Op::mul, boxes, DType::boolean);
      }
      valid_mask_ = oometer::all(Op::all, valid, {2}, true);
    }
    {
      Tensor rest = made(Op::sub, boxes, dtype);
      Tensor ratio = made(Op::div, boxes, dtype);
      rest.reset();
      anchors = log(ratio);
    }
    const Tensor largest = made(Op::fill, {}, dtype);
    const Tensor of_their_type = to(largest, anchors.dtype());
    anchors_ = made(Op::where, boxes, anchors.dtype());
  }

  // RTDetrModel.forward
  void model_forward(const ModelInputs& inputs, Hidden& result) {
    ModuleCall call(context_, builder_.module);
    const Tensor pixel_values = call.argument(inputs.pixel_values);
    const std::int64_t batch = pixel_values.size(0);
    const Tensor pixel_mask =
        empty(context_, Op::fill, {batch, pixel_values.size(2), pixel_values.size(3)}, DType::float32);
    const List<DetrFeatures> features = backbone(pixel_values, pixel_mask);
    TensorList proj_feats;
    for (std::size_t i = 0; i < features.size(); ++i)
      proj_feats.push_back(encoder_input_proj_[i](features[i].feature_map));
    result.encoder_last = (*encoder_)(proj_feats);
    if (context_.refusal) return;
    TensorList sources;
    for (std::size_t i = 0; i < result.encoder_last.size(); ++i)
      sources.push_back(decoder_input_proj_[i](result.encoder_last[i]));
    const FeatureLevels levels = flatten_levels(sources);
    Denoising denoising;
    if (context_.training && !inputs.others.empty()) denoising = denoise(inputs.others);
    result.denoising.positive = denoising.positive;
    result.denoising.groups = denoising.groups;
    result.denoising.queries = denoising.queries;
    const Tensor& source_flatten = levels.flattened;
    generate_anchors(levels, source_flatten.dtype());
    const Tensor memory = [&] {
      const Tensor valid = to(valid_mask_, source_flatten.dtype());
      return mul(valid, source_flatten);
    }();
    const Tensor output_memory = [&] {
      ModuleCall sequence(context_, enc_output_);
      const Tensor hidden = enc_linear_(sequence.argument(memory));
      return sequence.result(enc_norm_(hidden));
    }();
    result.enc_outputs_class = enc_score_head_(output_memory);
    {
      const Tensor corners = enc_bbox_head_(output_memory);
      result.enc_outputs_coord_logits = add(corners, anchors_);
    }
    TopK top;  // of which the values are `_`
    {
      Tensor scores;
      {
        const TensorList largest = max(result.enc_outputs_class, 2, false);
        scores = largest[0];
      }
      check_topk(scores);
      top = topk(scores, own_.num_queries);
    }
    const auto gathered = [&](const Tensor& x) {
      const Tensor places = repeat(unsqueeze(top.indices, 2), {1, 1, x.size(2)});
      return gather(x, places);
    };
    Tensor reference_points_unact = gathered(result.enc_outputs_coord_logits);
    result.predictions.enc_topk_bboxes = sigmoid(reference_points_unact);
    if (denoising.groups > 0) reference_points_unact = cat({denoising.input_query_bbox, reference_points_unact}, 1);
    result.predictions.enc_topk_logits = gathered(result.enc_outputs_class);
    Tensor target = gathered(output_memory);
    target = detach(target);
    if (denoising.groups > 0) target = cat({denoising.input_query_class, target}, 1);
    result.init_reference_points = detach(reference_points_unact);
    decode(target, levels, denoising.attn_mask, result);
    result.last = call.result(result.last);
  }

  /// should_use_multiblock (ATen/native/cuda/TensorTopK.cu): topk of long rows has memory of its own.
  void check_topk(const Tensor& scores) const {
    const std::int64_t rows = scores.size(0), length = scores.size(1);
    const bool is_long = rows <= 20     ? length >= 20000
                         : rows <= 40   ? length >= 10000
                         : rows <= 80   ? length >= 8000
                         : rows < 200   ? length >= 5000
                         : rows < 800   ? length >= 3000
                         : rows <= 4000 ? length >= 800
                                        : length >= 400;
    if (is_long || own_.num_queries > 4096)
      context_.refusal = Error{"not-modelled", "/data/image_size",
                               "so many places of so many images are not supported yet with " +
                                   std::string(own_.class_name) + ": expected fewer or smaller images"};
  }

  // RTDetrDecoder.forward
  void decode(const Tensor& inputs_embeds, const FeatureLevels& encoder, const Tensor& attention_mask,
              Hidden& result) const {
    ModuleCall call(context_, decoder_);
    Tensor hidden_states = call.keyword(inputs_embeds);
    TensorList intermediate, intermediate_reference_points, intermediate_logits;
    Tensor reference_points = sigmoid(result.init_reference_points), positions, predicted_corners, logits;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      positions = query_pos_head_(reference_points);
      hidden_states = layers_[i](hidden_states, positions, encoder, unsqueeze(reference_points, 2), attention_mask);
      predicted_corners = heads_.bbox_embed[i](hidden_states);
      const Tensor new_reference_points = [&] {
        Tensor before = inverse_sigmoid(reference_points);
        const Tensor moved = add(predicted_corners, before);
        before.reset();
        return sigmoid(moved);
      }();
      reference_points = detach(new_reference_points);
      intermediate.push_back(hidden_states);
      intermediate_reference_points.push_back(new_reference_points);
      logits = heads_.class_embed[i](hidden_states);
      intermediate_logits.push_back(logits);
    }
    const auto stacked = [](TensorList& parts) {
      const Tensor all = stack(parts, 1);
      parts.clear();
      return all;
    };
    result.intermediate = stacked(intermediate);
    result.predictions.outputs_coord = stacked(intermediate_reference_points);
    result.predictions.outputs_class = stacked(intermediate_logits);
    result.last = call.result(hidden_states);
  }

  RTDetrConfig own_;
  Builder builder_;
  std::optional<RTDetrResNet> backbone_;
  std::vector<Projection> encoder_input_proj_, decoder_input_proj_;
  std::optional<HybridEncoder> encoder_;
  Embedding denoising_class_embed_;
  Linear enc_linear_, enc_score_head_;
  LayerNorm enc_norm_;
  DetectionHead enc_bbox_head_, query_pos_head_;
  std::vector<DecoderLayer> layers_;
  Heads heads_;
  ModuleId conv_encoder_ = 0, enc_output_ = 0, decoder_ = 0;
  std::vector<FeatureLevels::Size> kept_;
  DType kept_dtype_ = DType::float32;
  Tensor anchors_, valid_mask_;
};

}  // namespace

std::unique_ptr<Model> build_rt_detr(Context& context, const RTDetrConfig& config, const DataConfig& data,
                                     const ModelOptions& options) {
  return std::make_unique<RTDetr>(context, config, data, options);
}

}  // namespace oometer
