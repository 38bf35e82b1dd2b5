#include <algorithm>

#include "ops/vision.h"
#include "peft/layer.h"
#include "peft/methods.h"

/// DEFT, after peft 0.21 (tuners/deft/layer.py): what lies in a low-rank space is taken out of a layer's output, and
/// something trained is put in its place.
namespace oometer {

namespace {

class DeftLinear;
struct DeftConfig final : ConfigOf<DeftLinear, DeftConfig> {
  std::int64_t r = 8;
  double deft_dropout = 0;
  bool para = false, init_weights = true;
};

class DeftLinear : public TunerLayer {
 public:
  DeftLinear(const DeftConfig& config, const LayerPlace& place)
      : TunerLayer(place, "deft.DeftLinear"), config_(config), r_(std::min(config.r, out_features_)) {
    declare(deft_P_, "deft_P");
    declare(deft_R_, "deft_R");
    add_dropout("deft_dropout.default", config.deft_dropout);
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied) override {
    if (!config_.para && config_.init_weights) reset_parameters(base_weight(parameters, tied));
    make(parameters, deft_P_, {out_features_, r_});
    if (!config_.para) make(parameters, deft_R_, {r_, in_features_});
  }

 private:
  // reset_deft_parameters: on the base layer's device
  void reset_parameters(const Tensor& base_weight) const {
    Context& context = base_weight.context();
    const NoGrad no_grad(context);
    const Tensor P = empty(context, Op::to_copy, {out_features_, r_}, DType::float32);
    const Tensor right = empty_like(Op::relu, P);
    const Tensor W = to(base_weight, DType::float32);
    Tensor R_init = matmul(transpose(right, 0, 1), W);
    R_init = div_scalar(R_init);
  }

  Tensor forward(const Linear& base_layer, const Tensor& argument) const override {
    constexpr DType compute_dtype = DType::float32;
    const Tensor base_out = base_layer.forward(argument);
    Tensor result = to(base_out, compute_dtype);
    Tensor base_product = result;
    if (base_layer.bias) {
      const Tensor bias = to(base_layer.bias, compute_dtype);
      base_product = sub(result, bias);
    }
    const Tensor x = to(argument, compute_dtype);
    const Tensor Q_P = to(deft_P_, DType::float32);
    const Tensor right = relu(Q_P);
    Tensor correction;
    {
      const Tensor inside = matmul(base_product, right);
      correction = matmul(inside, transpose(Q_P, 0, 1));
    }
    result = sub(result, correction);
    if (!config_.para) {
      Tensor R = to(deft_R_, compute_dtype);
      R = mul_scalar(R);
      const Tensor x_drop = dropout(x);
      Tensor added = linear(x_drop, R, {});
      added = matmul(added, transpose(Q_P, 0, 1));
      result = add(result, added);
      added.reset();
      return to(result, argument.dtype());
    }
    return to(result, argument.dtype());
  }

  const DeftConfig& config_;
  std::int64_t r_;
  AdapterParameter deft_P_, deft_R_;
};

}  // namespace

std::shared_ptr<const PeftMethod> read_deft(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<DeftConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  refuse_bias(reader);
  config->r = reader.integer("r", config->r);
  config->deft_dropout = reader.number("deft_dropout", 0, 0, kDropout);
  config->para = reader.boolean("para", false);
  config->init_weights = reader.boolean("init_weights", true);
  if (reader.text("decomposition_method", "relu") != "relu")
    reader.fail_found("decomposition_method", "not-modelled",
                      "the decomposition QR is not supported yet; expected "
                      "\"relu\"");
  reader.ignore({"init_scale", "alpha"});
  return config;
}

}  // namespace oometer
