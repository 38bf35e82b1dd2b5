#include "peft/layer.h"
#include "peft/methods.h"

/// HiRA, after peft 0.21 (tuners/hira/layer.py): the change of a weight is itself times a low-rank matrix.
namespace oometer {

namespace {

class HiraLinear;
struct HiraConfig final : ConfigOf<HiraLinear, HiraConfig> {
  std::int64_t r = 32;
  double hira_dropout = 0;
};

class HiraLinear : public TunerLayer {
 public:
  HiraLinear(const HiraConfig& config, const LayerPlace& place) : TunerLayer(place, "hira.Linear"), r_(config.r) {
    add_dropout("hira_dropout.default", config.hira_dropout);
    declare(hira_A_, "hira_A");
    declare(hira_B_, "hira_B");
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    make(parameters, hira_A_, {r_, in_features_});
    make(parameters, hira_B_, {out_features_, r_});
  }

 private:
  Tensor forward(const Linear& base_layer, const Tensor& argument) const override {
    Tensor x = argument;
    Tensor result = base_layer.forward(x);
    const DType result_dtype = result.dtype();
    const Tensor prod_AB = matmul(transpose(hira_A_, 0, 1), transpose(hira_B_, 0, 1));
    x = to(x, hira_A_.tensor.dtype());
    const Tensor dropout_sub = dropout(x);
    Tensor hira_result = mul(base_layer.weight, transpose(prod_AB, 0, 1));
    hira_result = linear(dropout_sub, hira_result, {});
    result = add(result, hira_result);
    return to(result, result_dtype);
  }

  std::int64_t r_;
  AdapterParameter hira_A_, hira_B_;
};

}  // namespace

std::shared_ptr<const PeftMethod> read_hira(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<HiraConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  config->r = reader.integer("r", config->r);
  config->hira_dropout = reader.number("hira_dropout", 0, 0, kDropout);
  // dispatch_default gives a new layer the config's own r, whatever rank_pattern says.
  reader.ignore({"rank_pattern", "init_weights"});
  return config;
}

}  // namespace oometer
