#include "models/gemma3n/mobilenetv5.h"

#include <algorithm>
#include <utility>

#include "models/kit/conv2d.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// Names and order of steps are timm's: models/mobilenetv5.py, models/_efficientnet_blocks.py, layers/.
namespace oometer {

namespace {

/// create_conv2d(padding="same"): what is strided is padded apart (Conv2dSame).
struct SameConv2d {
  SameConv2d() = default;
  SameConv2d(const Builder& parent, const char* name, std::int64_t in, std::int64_t out, const AnyConv2d::Options& o)
      : pads(o.stride > 1), conv(parent.child(name, pads ? "Conv2dSame" : "Conv2d"), in, out, padded(o)) {}

  Tensor operator()(const Tensor& x) const {
    if (!pads) return conv(x);
    ModuleCall call(x.context(), conv.module);
    const Tensor argument = call.argument(x);
    Shape sizes = argument.sizes();  // pad_same
    for (int i = 2; i < 4; ++i) {
      const std::int64_t stride = conv.options.stride[0], outputs = (sizes[i] + stride - 1) / stride;
      sizes[i] = std::max(sizes[i], (outputs - 1) * stride + conv.weight.size(i));
    }
    const Tensor larger = pool(Op::constant_pad_nd, Op::constant_pad_nd, argument, sizes, false);
    return call.result(convolution(larger, conv.weight, conv.bias, conv.options));
  }

  static AnyConv2d::Options padded(AnyConv2d::Options o) {
    o.padding = o.stride > 1 ? 0 : o.kernel / 2;
    return o;
  }

  bool pads = false;
  AnyConv2d conv;
};

/// RmsNormAct2d, and RmsNorm2d without an activation.
struct RmsNorm2d : MobileNetV5Block {
  RmsNorm2d(const Builder& builder, std::int64_t channels, bool applies_act)
      : weight(builder.parameter("weight", {channels})), acts(applies_act), module(builder.module) {}

  Tensor operator()(const Tensor& argument) const override {
    ModuleCall call(argument.context(), module);
    const Tensor normed = rms_norm2d(call.argument(argument));
    return call.result(acts ? gelu(normed) : normed);
  }

  Tensor rms_norm2d(const Tensor& argument) const {
    Tensor v = pow(argument, 2), x;
    v = mean(v, 1, true);
    {
      const Tensor scale = [&] {
        const Tensor above = add_scalar(v);
        return rsqrt(above);
      }();
      x = mul(argument, scale);
    }
    return mul(x, view(weight, {1, weight.size(0), 1, 1}));
  }

  Tensor weight;
  bool acts;
  ModuleId module;
};

/// ConvNormAct
struct ConvNormAct : MobileNetV5Block {
  ConvNormAct(const Builder& builder, std::int64_t in, std::int64_t out, const AnyConv2d::Options& options,
              bool applies_act = true)
      : conv(builder, "conv", in, out, options),
        bn(builder.child("bn", "RmsNormAct2d"), out, applies_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const override {
    ModuleCall call(argument.context(), module);
    const Tensor x = conv(call.argument(argument));
    return call.result(bn(x));
  }

  SameConv2d conv;
  RmsNorm2d bn;
  ModuleId module;
};

AnyConv2d::Options options_of(std::int64_t kernel, std::int64_t stride = 1, std::int64_t groups = 1,
                              bool bias = false) {
  return {.kernel = kernel, .stride = stride, .groups = groups, .bias = bias};
}

struct LayerScale2d {
  LayerScale2d(const Builder& builder, std::int64_t dim)
      : gamma(builder.parameter("gamma", {dim})), module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    return call.result(mul(call.argument(argument), view(gamma, {1, gamma.size(0), 1, 1})));
  }

  Tensor gamma;
  ModuleId module;
};

struct EdgeResidual : MobileNetV5Block {
  EdgeResidual(const Builder& builder, std::int64_t in, std::int64_t out, std::int64_t stride, std::int64_t exp_ratio)
      : conv_exp(builder, "conv_exp", in, in * exp_ratio, options_of(3, stride)),
        bn1(builder.child("bn1", "RmsNormAct2d"), in * exp_ratio, true),
        conv_pwl(builder, "conv_pwl", in * exp_ratio, out, options_of(1)),
        bn2(builder.child("bn2", "RmsNormAct2d"), out, false),
        has_skip(in == out && stride == 1),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const override {
    ModuleCall call(argument.context(), module);
    const Tensor shortcut = call.argument(argument);
    Tensor x = conv_exp(shortcut);
    x = bn1(x);
    x = conv_pwl(x);
    x = bn2(x);
    if (has_skip) x = add(x, shortcut);
    return call.result(x);
  }

  SameConv2d conv_exp;
  RmsNorm2d bn1;
  SameConv2d conv_pwl;
  RmsNorm2d bn2;
  bool has_skip;
  ModuleId module;
};

struct InvertedOptions {
  std::int64_t start = 0, mid = 0, stride = 1, exp_ratio = 1;  ///< sizes of kernels; 0: no such convolution
  bool scales = true, skips = true;
};

struct UniversalInvertedResidual : MobileNetV5Block {
  UniversalInvertedResidual(const Builder& builder, std::int64_t in, std::int64_t out, const InvertedOptions& o)
      : has_skip(in == out && o.stride == 1 && o.skips), module(builder.module) {
    const auto make = [&](const char* name, std::int64_t from, std::int64_t to, const AnyConv2d::Options& options,
                          bool applies_act) {
      steps.push_back(
          std::make_unique<ConvNormAct>(builder.child(name, "ConvNormAct"), from, to, options, applies_act));
    };
    const std::int64_t mid = in * o.exp_ratio;
    if (o.start != 0) make("dw_start", in, in, options_of(o.start, o.mid == 0 ? o.stride : 1, in), false);
    make("pw_exp", in, mid, options_of(1), true);
    if (o.mid != 0) make("dw_mid", mid, mid, options_of(o.mid, o.stride, mid), true);
    make("pw_proj", mid, out, options_of(1), false);
    if (o.scales) layer_scale = std::make_unique<LayerScale2d>(builder.child("layer_scale", "LayerScale2d"), out);
  }

  Tensor operator()(const Tensor& argument) const override {
    ModuleCall call(argument.context(), module);
    const Tensor shortcut = call.argument(argument);
    Tensor x = shortcut;
    for (const auto& step : steps) x = (*step)(x);
    if (layer_scale) x = (*layer_scale)(x);
    if (has_skip) x = add(x, shortcut);
    return call.result(x);
  }

  std::vector<std::unique_ptr<ConvNormAct>> steps;
  std::unique_ptr<LayerScale2d> layer_scale;
  bool has_skip;
  ModuleId module;
};

struct AttentionOptions2d {
  std::int64_t num_heads = 1, key_dim = 1, kv_stride = 1;
  AttentionKind kind = AttentionKind::sdpa;
};

/// A path to or from attention: a Sequential, which makes a smaller picture first where keys and values have fewer.
struct MultiQueryStates {
  MultiQueryStates(const Builder& builder, std::int64_t dim, const AttentionOptions2d& o) : module(builder.module) {
    if (o.kv_stride > 1) {
      down_conv = SameConv2d(builder, "down_conv", dim, dim, options_of(3, o.kv_stride, dim));
      norm = std::make_unique<RmsNorm2d>(builder.child("norm", "RmsNorm2d"), dim, false);
    }
    proj = SameConv2d(builder, "proj", dim, o.key_dim, options_of(1));
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor input = call.argument(argument);
    if (norm) {
      input = down_conv(input);
      input = (*norm)(input);
    }
    return call.result(proj(input));
  }

  SameConv2d down_conv;
  std::unique_ptr<RmsNorm2d> norm;  ///< null: neither
  SameConv2d proj;
  ModuleId module;
};

struct MultiQueryAttention2d {
  MultiQueryAttention2d(const Builder& builder, std::int64_t dim, const AttentionOptions2d& o)
      : num_heads(o.num_heads),
        key_dim(o.key_dim),
        kind(o.kind),
        query(builder.child("query", "Sequential"), dim, {1, num_heads * key_dim, 1, kind}),
        key(builder.child("key", "Sequential"), dim, o),
        value(builder.child("value", "Sequential"), dim, o),
        output(builder.child("output", "Sequential"), num_heads * key_dim, {1, dim, 1, kind}),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor x = call.argument(argument);
    const std::int64_t n = x.size(0), height = x.size(2), width = x.size(3);
    Tensor q = query(x);
    q = reshape(q, {n, num_heads, key_dim, height * width});
    q = contiguous(transpose(q, 2, 3));
    Tensor k = key(x);
    k = reshape_input(k);
    Tensor v = value(x);
    v = reshape_input(v);
    const AttentionKernel kernel = choose_kernel({.kind = kind}, q, k, v, {}, false);
    Tensor o = scaled_dot_product_attention(kernel, q, k, v, {}, {});
    o = [&] {
      const Tensor t = reshape(transpose(o, 1, 2), {n, height, width, num_heads * key_dim});
      return contiguous(permute(t, {0, 3, 1, 2}));
    }();
    return call.result(output(o));
  }

  static Tensor reshape_input(const Tensor& t) {
    const Tensor rows = reshape(t, {t.size(0), t.size(1), t.size(2) * t.size(3)});
    return contiguous(unsqueeze(transpose(rows, 1, 2), 1));
  }

  std::int64_t num_heads, key_dim;
  AttentionKind kind;  ///< which kernels scaled_dot_product_attention may run: it is called whatever is asked for
  MultiQueryStates query, key, value, output;
  ModuleId module;
};

struct MobileAttention : MobileNetV5Block {
  MobileAttention(const Builder& builder, std::int64_t dim, const AttentionOptions2d& o)
      : norm(builder.child("norm", "RmsNormAct2d"), dim, false),
        attn(builder.child("attn", "MultiQueryAttention2d"), dim, o),
        layer_scale(builder.child("layer_scale", "LayerScale2d"), dim),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const override {
    ModuleCall call(argument.context(), module);
    const Tensor shortcut = call.argument(argument);
    Tensor x = norm(shortcut);
    x = attn(x);
    x = layer_scale(x);
    return call.result(add(x, shortcut));
  }

  RmsNorm2d norm;
  MultiQueryAttention2d attn;
  LayerScale2d layer_scale;
  ModuleId module;
};

/// A stage of _gen_mobilenet_v5's arch_def, block by block.
struct StageBuilder {
  Builder builder;
  const char* name;
  std::int64_t in, out;
  std::vector<std::unique_ptr<MobileNetV5Block>>& blocks;

  Builder next(const char* type) const { return builder.child(name, type, static_cast<std::int32_t>(blocks.size())); }
  void edge(std::int64_t stride) {
    blocks.push_back(std::make_unique<EdgeResidual>(next("EdgeResidual"), in, out, stride, 4));
    in = out;
  }
  void inverted(const InvertedOptions& o) {
    blocks.push_back(std::make_unique<UniversalInvertedResidual>(next("UniversalInvertedResidual"), in, out, o));
    in = out;
  }
  /// Attention, and a block of two convolutions behind it.
  void attend(const AttentionOptions2d& o, int times) {
    for (int i = 0; i < times; ++i) {
      blocks.push_back(std::make_unique<MobileAttention>(next("MobileAttention"), out, o));
      inverted({.exp_ratio = 2});
    }
  }
};

}  // namespace

MobileNetV5Encoder::MobileNetV5Encoder(const Builder& builder, AttentionKind kind) {
  auto conv_stem =
      std::make_unique<ConvNormAct>(builder.child("conv_stem", "ConvNormAct"), 3, 64, options_of(3, 2, 1, true));
  first_weight_ = conv_stem->conv.conv.weight;
  conv_stem_ = std::move(conv_stem);
  stages_.resize(4);
  StageBuilder stage0{builder, "blocks.0", 64, 128, stages_[0]};
  for (const std::int64_t stride : {2, 1, 1}) stage0.edge(stride);
  StageBuilder stage1{builder, "blocks.1", 128, 256, stages_[1]};
  stage1.inverted({.start = 3, .mid = 5, .stride = 2, .exp_ratio = 6});
  for (const std::int64_t start : {5, 3, 5, 3}) stage1.inverted({.start = start, .exp_ratio = 4});
  StageBuilder stage2{builder, "blocks.2", 256, 640, stages_[2]};
  stage2.inverted({.start = 5, .mid = 5, .stride = 2, .exp_ratio = 6});
  for (int i = 0; i < 7; ++i) stage2.inverted({.start = 5, .exp_ratio = 4});
  stage2.inverted({});
  stage2.attend({.num_heads = 12, .key_dim = 64, .kv_stride = 2, .kind = kind}, 14);
  StageBuilder stage3{builder, "blocks.3", 640, 1280, stages_[3]};
  stage3.inverted({.start = 5, .mid = 5, .stride = 2, .exp_ratio = 6});
  stage3.attend({.num_heads = 16, .key_dim = 96, .kind = kind}, 19);
  const Builder msfa = builder.child("msfa", "MobileNetV5MultiScaleFusionAdapter");
  msfa_ = msfa.module;
  ffn_ = std::make_unique<UniversalInvertedResidual>(msfa.child("ffn", "UniversalInvertedResidual"), 640 + 1280,
                                                     kMobileNetV5Features,
                                                     InvertedOptions{.exp_ratio = 2, .scales = false, .skips = false});
  norm_ = std::make_unique<RmsNorm2d>(msfa.child("norm", "RmsNorm2d"), kMobileNetV5Features, false);
}

Tensor MobileNetV5Encoder::operator()(const Tensor& pixel_values) const {
  TensorList intermediates;
  Tensor x = (*conv_stem_)(pixel_values);
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    Tensor input = x;  // nn.Sequential's name; forward_features holds what it was called with
    for (const auto& block : stages_[i]) input = (*block)(input);
    x = std::move(input);
    if (i >= 2) intermediates.push_back(x);  // msfa_indices
  }
  ModuleCall call(pixel_values.context(), msfa_);
  const Shape high = intermediates[0].sizes();
  Tensor img = intermediates[1];
  {
    const Tensor argument = autocast_float32(img);
    const Shape sizes{img.size(0), img.size(1), high[2], high[3]};
    img = pool(Op::upsample, Op::upsample_backward, argument, sizes, false);
  }
  const Tensor channel_cat_imgs = cat({intermediates[0], img}, 1);
  const TensorList resized_inputs{intermediates[0], img};
  img = (*ffn_)(channel_cat_imgs);
  img = avg_pool(img, {img.size(0), img.size(1), kMobileNetV5OutputSize, kMobileNetV5OutputSize});
  return call.result((*norm_)(img));
}

}  // namespace oometer
