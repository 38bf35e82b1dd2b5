#include "peft/layer.h"
#include "peft/methods.h"

/// BEFT, after peft 0.21 (tuners/beft/layer.py): a bias trains beside that of the layer.
namespace oometer {

namespace {

class BeftLinear;
struct BeftConfig final : ConfigOf<BeftLinear, BeftConfig> {};

class BeftLinear : public TunerLayer {
 public:
  BeftLinear(const BeftConfig&, const LayerPlace& place) : TunerLayer(place, "beft.Linear") {
    declare(beft_bias_, "beft_bias");
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    make(parameters, beft_bias_, {1, out_features_});
  }

 private:
  Tensor forward(const Linear& base_layer, const Tensor& x) const override {
    const Tensor beft_bias = view(beft_bias_, {out_features_});
    Tensor result = base_layer.forward(x);
    const DType orig_dtype = result.dtype();
    const Tensor biased = add(result, beft_bias);
    result = to(biased, orig_dtype);
    return result;
  }

  AdapterParameter beft_bias_;
};

}  // namespace

std::shared_ptr<const PeftMethod> read_beft(ConfigReader& reader, const PeftDefaults&) {
  const auto config = std::make_shared<BeftConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, {});
  reader.ignore({"init_weights"});
  return config;
}

}  // namespace oometer
