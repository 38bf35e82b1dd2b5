#include "models/convnext/convnext.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "models/kit/conv2d.h"
#include "nn/activation.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

/// ConvNextLayerNorm of channels_first: over the channels of an image, whose memory has them last from now on.
Tensor norm_channels(const LayerNorm& norm, const Tensor& features) {
  return permute(norm(permute(features, {0, 2, 3, 1})), {0, 3, 1, 2});
}

struct ConvNextGRN {
  ConvNextGRN(const Builder& builder, std::int64_t dim)
      : weight(builder.parameter("weight", {1, 1, 1, dim})),
        bias(builder.parameter("bias", {1, 1, 1, dim})),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = call.argument(argument);
    const Tensor global_features = linalg_vector_norm(hidden_states, std::vector<int>{1, 2}, true);
    const Tensor norm_features = [&] {
      const Tensor divisor = [&] {
        const Tensor average = mean(global_features, -1, true);
        return add_scalar(average);
      }();
      return div(global_features, divisor);
    }();
    Tensor scaled = [&] {
      const Tensor normed = mul(hidden_states, norm_features);
      return mul(weight, normed);
    }();
    scaled = add(scaled, bias);
    return call.result(add(scaled, hidden_states));
  }

  Tensor weight, bias;
  ModuleId module;
};

struct ConvNextLayer {
  ConvNextLayer(const Builder& builder, const ConvNextConfig& c, std::int64_t dim, double drop_path_rate)
      : hidden_act(c.hidden_act), drop_prob(drop_path_rate), module(builder.module) {
    dwconv = AnyConv2d(builder.child("dwconv", "Conv2d"), dim, dim, {.kernel = 7, .padding = 3, .groups = dim});
    layernorm = LayerNorm(builder.child("layernorm", c.classes->layer_norm), dim);
    pwconv1 = Linear(builder.child("pwconv1", "Linear"), dim, 4 * dim, true);
    if (c.is_v2) grn.emplace(builder.child("grn", c.classes->grn), 4 * dim);
    pwconv2 = Linear(builder.child("pwconv2", "Linear"), 4 * dim, dim, true);
    if (!c.is_v2 && c.layer_scale_init_value > 0) {
      builder.children_are_through();
      const Tensor ones = empty(*builder.context, Op::ones_like, {dim}, builder.dtype);
      layer_scale_parameter = builder.parameter("layer_scale_parameter", {dim});
    }
    builder.child("drop_path", drop_prob > 0 ? c.classes->drop_path : "Identity");
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor residual = call.argument(argument);
    Tensor features = dwconv(residual);
    features = permute(features, {0, 2, 3, 1});
    features = layernorm(features);
    features = pwconv1(features);
    features = activate(hidden_act, features);
    if (grn) features = (*grn)(features);
    features = pwconv2(features);
    if (layer_scale_parameter) features = mul(layer_scale_parameter, features);
    features = permute(features, {0, 3, 1, 2});
    const Tensor kept = drop_path(features, drop_prob);
    return call.result(add(residual, kept));
  }

  AnyConv2d dwconv;
  LayerNorm layernorm;
  Linear pwconv1, pwconv2;
  std::optional<ConvNextGRN> grn;
  Tensor layer_scale_parameter;  ///< null: none
  Activation hidden_act;
  double drop_prob;
  ModuleId module;
};

struct ConvNextStage {
  /// `first_layer`: layers of all stages before.
  ConvNextStage(const Builder& builder, const ConvNextConfig& c, std::size_t stage, std::int64_t first_layer)
      : module(builder.module) {
    const std::int64_t out = c.hidden_sizes[stage];
    if (stage > 0 || c.hidden_sizes[0] != out) {
      const std::int64_t in = c.hidden_sizes[stage - 1];
      downsampling_norm.emplace(builder.child("downsampling_layer", c.classes->layer_norm, 0), in);
      downsampling_conv =
          AnyConv2d(builder.child("downsampling_layer", "Conv2d", 1), in, out, {.kernel = 2, .stride = 2});
    }
    layers.reserve(static_cast<std::size_t>(c.depths[stage]));
    for (std::int32_t i = 0; i < c.depths[stage]; ++i)
      layers.emplace_back(builder.child("layers", c.classes->layer, i), c, out,
                          first_layer + i == 0 ? 0 : c.drop_path_rate);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor features = call.argument(argument);
    if (downsampling_norm) {
      features = norm_channels(*downsampling_norm, features);
      features = downsampling_conv(features);
    }
    for (const ConvNextLayer& layer : layers) features = layer(features);
    return call.result(features);
  }

  std::optional<LayerNorm> downsampling_norm;
  AnyConv2d downsampling_conv;
  std::vector<ConvNextLayer> layers;
  ModuleId module;
};

/// ConvNextEmbeddings and ConvNextEncoder.
struct ConvNextBody {
  ConvNextBody(const Builder& model, const ConvNextConfig& c) {
    const Builder embeddings = model.child("embeddings", c.classes->embeddings);
    embeddings_module = embeddings.module;
    patch_embeddings = AnyConv2d(embeddings.child("patch_embeddings", "Conv2d"), c.num_channels, c.hidden_sizes[0],
                                 {.kernel = c.patch_size, .stride = c.patch_size});
    embeddings_norm = LayerNorm(embeddings.child("layernorm", c.classes->layer_norm), c.hidden_sizes[0]);
    const Builder its = model.child("encoder", c.classes->encoder);
    encoder = its.module;
    stages.reserve(c.depths.size());
    std::int64_t before = 0;
    for (std::size_t i = 0; i < c.depths.size(); ++i) {
      stages.emplace_back(its.child("stages", c.classes->stage, static_cast<std::int32_t>(i)), c, i, before);
      before += c.depths[i];
    }
  }

  // ConvNextEmbeddings.forward
  Tensor embeddings_of(const Tensor& argument) const {
    ModuleCall call(argument.context(), embeddings_module);
    const Tensor pixel_values = call.argument(argument);
    check_pixels(pixel_values, patch_embeddings.weight);
    const Tensor embeddings = patch_embeddings(pixel_values);
    return call.result(norm_channels(embeddings_norm, embeddings));
  }

  // ConvNextEncoder.forward; `all`: what output_hidden_states asks for, or null.
  Tensor encode(const Tensor& argument, TensorList* all) const {
    ModuleCall call(argument.context(), encoder);
    Tensor hidden_states = call.argument(argument);
    if (all) all->push_back(hidden_states);
    for (const ConvNextStage& stage : stages) {
      hidden_states = stage(hidden_states);
      if (all) all->push_back(hidden_states);
    }
    return call.result(hidden_states);
  }

  AnyConv2d patch_embeddings;
  LayerNorm embeddings_norm;
  std::vector<ConvNextStage> stages;
  ModuleId embeddings_module = 0, encoder = 0;
};

class ConvNext : public PooledImageModel {
 public:
  ConvNext(Context& context, const ConvNextConfig& c, const DataConfig& data, const ModelOptions& options)
      : PooledImageModel(context, c, data, options) {
    accepts_loss_kwargs = !c.classifies;
    const Builder model = c.classifies ? root_.child(c.classes->base, c.classes->model) : root_;
    model_ = model.module;
    body_.emplace(model, c);
    layernorm_ = LayerNorm(model.child("layernorm", "LayerNorm"), c.hidden_size);
    make_classifier();
  }

 private:
  // ConvNextModel.forward
  Tensor model_forward(const Tensor& argument, Tensor& pooled_output) const override {
    ModuleCall call(context_, model_);
    const Tensor embedding_output = body_->embeddings_of(call.argument(argument));
    Tensor last_hidden_state = body_->encode(embedding_output, nullptr);
    {
      const Tensor averaged = mean(last_hidden_state, {-2, -1}, false);
      pooled_output = call.result(layernorm_(averaged));
    }
    return call.result(last_hidden_state);
  }

  std::optional<ConvNextBody> body_;
  LayerNorm layernorm_;
  ModuleId model_ = 0;
};

class ConvNextBackbone : public ImageBackbone {
 public:
  ConvNextBackbone(const Builder& builder, const ConvNextConfig& c, const std::vector<std::size_t>& features)
      : body_(builder, c), norms_(c.depths.size() + 1), module_(builder.module) {
    const Builder norms = builder.child("hidden_states_norms", "ModuleDict");
    for (const std::size_t i : features)
      norms_[i].emplace(norms.child(kStageNames[i], c.classes->layer_norm),
                        c.hidden_sizes[std::max<std::size_t>(i, 1) - 1]);
  }

  TensorList operator()(const Tensor& argument) const override {
    ModuleCall call(argument.context(), module_);
    TensorList feature_maps, all;
    Tensor embedding_output = body_.embeddings_of(call.argument(argument));
    body_.encode(embedding_output, &all);
    Tensor hidden_state;
    for (std::size_t i = 0; i < norms_.size(); ++i) {
      hidden_state = all[i];
      if (!norms_[i]) continue;
      hidden_state = norm_channels(*norms_[i], hidden_state);
      feature_maps.push_back(call.result(hidden_state));
    }
    embedding_output.reset();
    return feature_maps;
  }

 private:
  ConvNextBody body_;
  std::vector<std::optional<LayerNorm>> norms_;  ///< none: the map is not handed on
  ModuleId module_;
};

}  // namespace

std::unique_ptr<const ImageBackbone> build_convnext_backbone(const Builder& builder, const ConvNextConfig& config,
                                                             const std::vector<std::size_t>& features) {
  return std::make_unique<ConvNextBackbone>(builder, config, features);
}

std::unique_ptr<Model> build_convnext(Context& context, const ConvNextConfig& config, const DataConfig& data,
                                      const ModelOptions& options) {
  return std::make_unique<ConvNext>(context, config, data, options);
}

}  // namespace oometer
