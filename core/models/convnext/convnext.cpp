#include "models/convnext/convnext.h"

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

class ConvNext : public PooledImageModel {
 public:
  ConvNext(Context& context, const ConvNextConfig& c, const DataConfig& data, const ModelOptions& options)
      : PooledImageModel(context, c, data, options) {
    accepts_loss_kwargs = !c.classifies;
    const Builder model = c.classifies ? root_.child(c.classes->base, c.classes->model) : root_;
    model_ = model.module;
    const Builder embeddings = model.child("embeddings", c.classes->embeddings);
    embeddings_module_ = embeddings.module;
    patch_embeddings_ = AnyConv2d(embeddings.child("patch_embeddings", "Conv2d"), c.num_channels, c.hidden_sizes[0],
                                  {.kernel = c.patch_size, .stride = c.patch_size});
    embeddings_norm_ = LayerNorm(embeddings.child("layernorm", c.classes->layer_norm), c.hidden_sizes[0]);
    const Builder encoder = model.child("encoder", c.classes->encoder);
    encoder_ = encoder.module;
    stages_.reserve(c.depths.size());
    std::int64_t before = 0;
    for (std::size_t i = 0; i < c.depths.size(); ++i) {
      stages_.emplace_back(encoder.child("stages", c.classes->stage, static_cast<std::int32_t>(i)), c, i, before);
      before += c.depths[i];
    }
    layernorm_ = LayerNorm(model.child("layernorm", "LayerNorm"), c.hidden_size);
    make_classifier();
  }

 private:
  // ConvNextModel.forward
  Tensor model_forward(const Tensor& argument, Tensor& pooled_output) const override {
    ModuleCall call(context_, model_);
    const Tensor embedding_output = embeddings_of(call.argument(argument));
    Tensor last_hidden_state = encode(embedding_output);
    {
      const Tensor averaged = mean(last_hidden_state, {-2, -1}, false);
      pooled_output = call.result(layernorm_(averaged));
    }
    return call.result(last_hidden_state);
  }

  // ConvNextEmbeddings.forward
  Tensor embeddings_of(const Tensor& argument) const {
    ModuleCall call(context_, embeddings_module_);
    const Tensor pixel_values = call.argument(argument);
    check_pixels(pixel_values, patch_embeddings_.weight);
    const Tensor embeddings = patch_embeddings_(pixel_values);
    return call.result(norm_channels(embeddings_norm_, embeddings));
  }

  // ConvNextEncoder.forward
  Tensor encode(const Tensor& argument) const {
    ModuleCall call(context_, encoder_);
    Tensor hidden_states = call.argument(argument);
    for (const ConvNextStage& stage : stages_) hidden_states = stage(hidden_states);
    return call.result(hidden_states);
  }

  AnyConv2d patch_embeddings_;
  LayerNorm embeddings_norm_;
  std::vector<ConvNextStage> stages_;
  LayerNorm layernorm_;
  ModuleId model_ = 0, embeddings_module_ = 0, encoder_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_convnext(Context& context, const ConvNextConfig& config, const DataConfig& data,
                                      const ModelOptions& options) {
  return std::make_unique<ConvNext>(context, config, data, options);
}

}  // namespace oometer
