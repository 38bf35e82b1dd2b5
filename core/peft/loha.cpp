#include "peft/layer.h"
#include "peft/methods.h"
#include "tensor/node.h"

/// LoHa, after peft 0.21 (tuners/loha/layer.py): the change of a weight is the elementwise product of two low-rank
/// ones.
namespace oometer {

namespace {

class LohaLinear;
struct LohaConfig final : ConfigOf<LohaLinear, LohaConfig> {
  std::int64_t r = 8;
  NumberByModule rank_pattern;
};

void hada_weight_backward(Backward& b) {
  const Tensor &w1a = b.saved(0), &w1b = b.saved(1), &w2a = b.saved(2), &w2b = b.saved(3);
  const Tensor grad_out = mul_scalar(b.grad());
  Tensor temp = matmul(w2a, w2b);
  temp = mul(grad_out, temp);
  Tensor grad_w1a = matmul(temp, transpose(w1b, 0, 1));
  Tensor grad_w1b = matmul(transpose(w1a, 0, 1), temp);
  {
    const Tensor product = matmul(w1a, w1b);
    temp = mul(grad_out, product);
  }
  Tensor grad_w2a = matmul(temp, transpose(w2b, 0, 1));
  Tensor grad_w2b = matmul(transpose(w2a, 0, 1), temp);
  temp.reset();
  b.give(0, std::move(grad_w1a));
  b.give(1, std::move(grad_w1b));
  b.give(2, std::move(grad_w2a));
  b.give(3, std::move(grad_w2b));
}

/// HadaWeight, a Python autograd.Function: it saves when it is done, and computes both products anew in backward.
Tensor hada_weight(const Tensor& w1a, const Tensor& w1b, const Tensor& w2a, const Tensor& w2b) {
  Record record(Op::none, hada_weight_backward, {&w1a, &w1b, &w2a, &w2b});
  Tensor diff_weight;
  {
    const NoGrad no_grad(w1a.context());
    {
      const Tensor first = matmul(w1a, w1b);
      const Tensor second = matmul(w2a, w2b);
      diff_weight = mul(first, second);
    }
    diff_weight = mul_scalar(diff_weight);
  }
  for (const Tensor* saved : {&w1a, &w1b, &w2a, &w2b}) record.save(*saved);
  return record.output(std::move(diff_weight));
}

class LohaLinear : public TunerLayer {
 public:
  LohaLinear(const LohaConfig& config, const LayerPlace& place)
      : TunerLayer(place, "loha.Linear"), r_(ModulePattern(config.rank_pattern).of(path(), config.r)) {
    declare(hada_w1_a_, "hada_w1_a");
    declare(hada_w1_b_, "hada_w1_b");
    declare(hada_w2_a_, "hada_w2_a");
    declare(hada_w2_b_, "hada_w2_b");
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    make(parameters, hada_w1_a_, {out_features_, r_});
    make(parameters, hada_w1_b_, {r_, in_features_});
    make(parameters, hada_w2_a_, {out_features_, r_});
    make(parameters, hada_w2_b_, {r_, in_features_});
  }

 private:
  // _get_delta_activations
  Tensor delta_activations(const Tensor& argument) const {
    const Tensor delta_weight = hada_weight(hada_w1_a_, hada_w1_b_, hada_w2_a_, hada_w2_b_);
    const Tensor input = to(argument, delta_weight.dtype());
    return linear(input, delta_weight, {});
  }

  Tensor forward(const Linear& base_layer, const Tensor& x) const override {
    Tensor result = base_layer.forward(x);
    {
      const Tensor added = delta_activations(x);
      result = add(result, added);
    }
    return to(result, x.dtype());
  }

  std::int64_t r_;
  AdapterParameter hada_w1_a_, hada_w1_b_, hada_w2_a_, hada_w2_b_;
};

}  // namespace

std::shared_ptr<const PeftMethod> read_loha(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<LohaConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  config->r = reader.integer("r", config->r);
  config->rank_pattern = read_lycoris_pattern(reader);
  reader.ignore({"alpha", "use_effective_conv2d", "init_weights"});
  return config;
}

}  // namespace oometer
