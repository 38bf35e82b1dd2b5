#include "ops/vision.h"
#include "peft/layer.h"
#include "peft/methods.h"

/// HRA, after peft 0.21 (tuners/hra/layer.py): a weight times a chain of Householder reflections.
namespace oometer {

namespace {

class HraLinear;
struct HraConfig final : ConfigOf<HraLinear, HraConfig> {
  std::int64_t r = 8;
};

class HraLinear : public TunerLayer {
 public:
  HraLinear(const HraConfig& config, const LayerPlace& place) : TunerLayer(place, "hra.HRALinear"), r_(config.r) {
    declare(hra_u_, "hra_u");
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    make(parameters, hra_u_, {in_features_, r_});
  }

 private:
  // get_delta_weight
  Tensor delta_weight() const {
    Tensor opt_u = hra_u_;
    {
      const Tensor norm = linalg_vector_norm(opt_u, {0}, false);
      opt_u = div(opt_u, norm);
    }
    Tensor weight = empty(opt_u.context(), Op::eye, {in_features_, in_features_}, opt_u.dtype());
    Tensor ui;
    for (std::int64_t i = 0; i < r_; ++i) {
      ui = unsqueeze(select(opt_u, 1, i), 1);
      Tensor reflected = mul_scalar(weight);
      Tensor column = matmul(reflected, ui);
      reflected.reset();
      const Tensor outer = matmul(column, transpose(ui, 0, 1));
      column.reset();
      weight = sub(weight, outer);
    }
    return weight;
  }

  Tensor forward(const Linear& base_layer, const Tensor& argument) const override {
    Tensor new_weight = empty(argument.context(), Op::eye, {in_features_, in_features_}, DType::float32);
    const Tensor delta = delta_weight();
    {
      const Tensor left = to(new_weight, delta.dtype());
      new_weight = matmul(left, delta);
    }
    const Tensor orig_weight = to(base_layer.weight, new_weight.dtype());
    new_weight = matmul(orig_weight, new_weight);
    const Tensor bias = base_layer.bias ? to(base_layer.bias, new_weight.dtype()) : Tensor();
    const Tensor x = to(argument, new_weight.dtype());
    const Tensor result = linear(x, new_weight, bias);
    return to(result, argument.dtype());
  }

  std::int64_t r_;
  AdapterParameter hra_u_;
};

}  // namespace

std::shared_ptr<const PeftMethod> read_hra(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<HraConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  refuse_bias(reader);
  config->r = reader.integer("r", config->r);
  reader.refuse("apply_GS", "Gram-Schmidt is not supported yet: leave it out");
  reader.ignore({"init_weights"});
  return config;
}

}  // namespace oometer
