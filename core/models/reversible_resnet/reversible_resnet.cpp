#include "models/reversible_resnet/reversible_resnet.h"

#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "autograd/engine.h"
#include "models/kit/audio_input.h"
#include "models/kit/batch_norm2d.h"
#include "models/kit/conv2d.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

namespace oometer {

std::int64_t ReversibleResNetConfig::rows() const {
  std::int64_t rows = feat_dim;
  for (std::size_t i = 1; i < num_blocks.size(); ++i) rows = (rows + 1) / 2;
  return rows;
}

std::int64_t ReversibleResNetConfig::frames(double seconds) { return std::llround(100 * seconds); }

namespace {

AnyConv2d conv(const Builder& builder, std::int64_t in_planes, std::int64_t planes, std::int64_t kernel,
               std::int64_t stride = 1) {
  return {builder, in_planes, planes, {.kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = false}};
}

struct BasicBlock {
  BasicBlock(const Builder& builder, std::int64_t in_planes, std::int64_t planes, std::int64_t stride)
      : conv1(conv(builder.child("conv1", "Conv2d"), in_planes, planes, 3, stride)),
        bn1(builder.child("bn1", "BatchNorm2d"), planes),
        conv2(conv(builder.child("conv2", "Conv2d"), planes, planes, 3)),
        bn2(builder.child("bn2", "BatchNorm2d"), planes),
        module(builder.module) {
    const Builder its = builder.child("shortcut", "Sequential");
    shortcut_module = its.module;
    shortcut_conv = conv(its.child("", "Conv2d", 0), in_planes, planes, 1, stride);
    shortcut_norm = BatchNorm2d(its.child("", "BatchNorm2d", 1), planes);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor x = call.argument(argument);
    Tensor out = conv1(x);
    out = bn1(out);
    out = relu(out);
    out = conv2(out);
    out = bn2(out);
    {
      const Tensor residual = shortcut(x);
      out = add_in_place(out, residual);
    }
    return call.result(relu(out));
  }

  Tensor shortcut(const Tensor& argument) const {
    ModuleCall call(argument.context(), shortcut_module);
    const Tensor projected = shortcut_conv(call.argument(argument));
    return call.result(shortcut_norm(projected));
  }

  AnyConv2d conv1;
  BatchNorm2d bn1;
  AnyConv2d conv2;
  BatchNorm2d bn2;
  AnyConv2d shortcut_conv;
  BatchNorm2d shortcut_norm;
  ModuleId module, shortcut_module = 0;
};

/// What F and G are.
struct Residual {
  Residual(const Builder& builder, std::int64_t planes)
      : conv1(conv(builder.child("", "Conv2d", 0), planes, planes, 3)),
        bn1(builder.child("", "BatchNorm2d", 1), planes),
        act(builder.child("", "ReLU", 2).module),
        conv2(conv(builder.child("", "Conv2d", 3), planes, planes, 3)),
        bn2(builder.child("", "BatchNorm2d", 4), planes),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor input = conv1(call.argument(argument));
    input = bn1(input);
    {
      ModuleCall activation(argument.context(), act);
      input = activation.result(relu(activation.argument(input)));
    }
    input = conv2(input);
    return call.result(bn2(input));
  }

  AnyConv2d conv1;
  BatchNorm2d bn1;
  ModuleId act;
  AnyConv2d conv2;
  BatchNorm2d bn2;
  ModuleId module;
};

struct ReversibleBlock {
  ReversibleBlock(const Builder& builder, std::int64_t planes)
      : f_block(builder.child("f_block", "Sequential"), planes / 2),
        g_block(builder.child("g_block", "Sequential"), planes / 2),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor x = call.argument(argument);
    const std::int64_t half = x.size(1) / 2;
    const Tensor x1 = slice(x, 1, 0, half), x2 = slice(x, 1, half, half);
    Tensor y1, y2;
    {
      const NoGrad no_grad(context);
      {
        const Tensor changed = f_block(x2);
        y1 = add(x1, changed);
      }
      const Tensor changed = g_block(y1);
      y2 = add(x2, changed);
    }
    return call.result(cat({y1, y2}, 1));
  }

  /// The block's outputs and their gradients become its inputs and theirs.
  void backward_pass(Tensor& y, Tensor& dy) const {
    Context& context = y.context();
    const std::int64_t half = y.size(1) / 2;
    Tensor y1 = slice(y, 1, 0, half), y2 = slice(y, 1, half, half);
    Tensor dy1 = slice(dy, 1, 0, half), dy2 = slice(dy, 1, half, half);
    const auto run = [&](const Residual& residual, Tensor& x) {
      const Scoped<bool> grad(context.grad_mode, true);
      const Scoped<bool> flag(context.recomputing, true);
      const ModuleScope scope(context, module);
      x->leaf_requires_grad = true;
      return residual(x);
    };
    Tensor gy1 = run(g_block, y1);
    autograd::backward(gy1, dy2);
    if (!y1->grad) return stop(context);
    Tensor x2 = sub(y2, gy1);
    y2.reset();
    gy1.reset();
    const Tensor dx1 = add(dy1, y1->grad);
    dy1.reset();
    y1->grad.reset();
    Tensor fx2 = run(f_block, x2);
    autograd::backward(fx2, dx1);
    if (!x2->grad) return stop(context);
    const Tensor x1 = sub(y1, fx2);
    y1.reset();
    fx2.reset();
    const Tensor dx2 = add(dy2, x2->grad);
    dy2.reset();
    x2->grad.reset();
    Tensor x;
    {
      const Tensor detached = detach(x2);
      x = cat({x1, detached}, 1);
    }
    dy = cat({dx1, dx2}, 1);
    y = std::move(x);
  }

  /// F or G is under no_grad, so that its result has no graph.
  static void stop(Context& context) {
    context.refusal = Error{"inconsistent", "/training/no_grad",
                            "a reversible block's backward runs its functions again, and PyTorch stops (\"element 0 of "
                            "tensors does not require grad and does not have a grad_fn\"): leave them out"};
  }

  Residual f_block, g_block;
  ModuleId module;
};

struct ReversibleSequence {
  ReversibleSequence(const Builder& builder, std::int64_t count, std::int64_t planes) : module(builder.module) {
    blocks.reserve(static_cast<std::size_t>(count));
    for (std::int32_t i = 0; i < count; ++i) blocks.emplace_back(builder.child("", "ReversibleBlock", i), planes);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor x = call.argument(argument);
    if (blocks.empty()) return call.result(x);
    return call.result(reversible(x));
  }

  // ReversibleFunction, an autograd.Function
  Tensor reversible(const Tensor& argument) const {
    Context& context = argument.context();
    Record record(Op::none, nullptr, {&argument});
    Tensor x = argument;
    {
      const NoGrad no_grad(context);
      for (const ReversibleBlock& block : blocks) x = block(x);
    }
    if (!record) return x;
    record.save(detach(x));  // ctx.y
    record->custom =
        std::make_unique<std::function<void(Backward&)>>([this, autocast = context.autocast.enabled](Backward& b) {
          const AutocastRegion region(b.context, autocast);
          const NoGrad no_grad(b.context);
          Tensor y = std::move(b.node.saved[0]), dy = b.grad();
          for (std::size_t i = blocks.size(); i-- > 0;) blocks[i].backward_pass(y, dy);
          b.give(0, std::move(dy));
        });
    return record.output(std::move(x));
  }

  std::vector<ReversibleBlock> blocks;
  ModuleId module;
};

struct Stage {
  Stage(const Builder& builder, const ReversibleResNetConfig& c, std::size_t stage) : module(builder.module) {
    const bool is_first = stage == 0;
    if (!is_first) first.emplace(builder.child("", "BasicBlock", 0), c.planes(stage - 1), c.planes(stage), 2);
    rest.emplace(builder.child("", "ReversibleSequence", is_first ? 0 : 1), c.num_blocks[stage] - (is_first ? 0 : 1),
                 c.planes(stage));
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor input = call.argument(argument);
    if (first) input = (*first)(input);
    return call.result((*rest)(input));
  }

  std::optional<BasicBlock> first;
  std::optional<ReversibleSequence> rest;
  ModuleId module;
};

class ReversibleResNetForSpeakerClassification : public EncoderModel {
 public:
  ReversibleResNetForSpeakerClassification(Context& context, const ReversibleResNetConfig& c, const DataConfig& data,
                                           const ModelOptions& options)
      : EncoderModel(context, c, data, options),
        feat_dim_(c.feat_dim),
        dtype_(options.dtype),
        conv1_(conv(root_.child("conv1", "Conv2d"), 1, c.m_channels, 3)),
        bn1_(root_.child("bn1", "BatchNorm2d"), c.m_channels) {
    static constexpr const char* kLayers[] = {"layer1", "layer2", "layer3", "layer4", "layer5", "layer6"};
    layers_.reserve(c.num_blocks.size());
    for (std::size_t i = 0; i < c.num_blocks.size(); ++i)
      layers_.emplace_back(root_.child(kLayers[i], "Sequential"), c, i);
    seg_1_ =
        Linear(root_.child("seg_1", "Linear"), 2 * c.rows() * c.planes(c.num_blocks.size() - 1), c.embed_dim, true);
    projection_ = Linear(root_.child("projection", "Linear"), c.embed_dim, c.num_labels, true);
  }

  ModelInputs make_inputs(bool with_labels) override {
    ModelInputs batch;
    const std::int64_t frames = ReversibleResNetConfig::frames(data_.audio_seconds);
    batch.input_features = empty(context_, Op::input, {data_.micro_batch_size, frames, feat_dim_},
                                 data_.pixel_dtype.value_or(dtype_), Role::input);
    if (with_labels) batch.labels = empty(context_, Op::input, {data_.micro_batch_size}, DType::int64, Role::input);
    batch.rows = &data_.rows;
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    check_audio_input(context_, inputs.input_features, conv1_.weight);
    const Tensor x = unsqueeze(transpose(inputs.input_features, 1, 2), 1);
    Tensor out = conv1_(x);
    out = bn1_(out);
    out = relu(out);
    for (const Stage& layer : layers_) out = layer(out);
    const auto flat = [](const Tensor& pooled) {
      return view(pooled, {pooled.size(0), pooled.size(1) * pooled.size(2)});
    };
    const Tensor pooling_mean = flat(mean(out, 3, false));
    Tensor pooling_std = var(out, {3}, false);
    pooling_std = add_scalar(pooling_std);
    pooling_std = sqrt(pooling_std);
    pooling_std = flat(pooling_std);
    const Tensor stats = cat({pooling_mean, pooling_std}, 1);
    const Tensor embed_a = seg_1_(stats);
    return outputs_of(projection_(embed_a), inputs);
  }

 private:
  std::int64_t feat_dim_;
  DType dtype_;
  AnyConv2d conv1_;
  BatchNorm2d bn1_;
  std::vector<Stage> layers_;
  Linear seg_1_, projection_;
};

}  // namespace

std::unique_ptr<Model> build_reversible_resnet(Context& context, const ReversibleResNetConfig& config,
                                               const DataConfig& data, const ModelOptions& options) {
  return std::make_unique<ReversibleResNetForSpeakerClassification>(context, config, data, options);
}

}  // namespace oometer
