#include "peft/layer.h"
#include "peft/methods.h"

/// GLoRA, after peft 0.21 (tuners/glora/layer.py): a weight that is scaled and shifted, beside the weight itself.
namespace oometer {

namespace {

enum class GloraPath : std::uint8_t { lora, vector, constant, none };

class GloraLinear;
struct GloraConfig final : ConfigOf<GloraLinear, GloraConfig> {
  std::int64_t r = 8;
  GloraPath config_A_B = GloraPath::lora;
};

class GloraLinear : public TunerLayer {
 public:
  GloraLinear(const GloraConfig& config, const LayerPlace& place)
      : TunerLayer(place, "glora.GloraLinear"), config_(config) {
    declare(A_, "glora_A.default", "GloraPath");
    declare(A_up_, "glora_A.default", "GloraPath");
    declare(B_, "glora_B.default", "GloraPath");
    declare(B_up_, "glora_B.default", "GloraPath");
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    make_path(parameters, A_, A_up_, A_zeros_);
    make_path(parameters, B_, B_up_, B_zeros_);
    // What a bias would take: GloraEmptyPath has a buffer.
    for (const std::int64_t size : {in_features_, out_features_, out_features_}) inside_.buffer({size}, inside_.dtype);
  }

 private:
  void make_path(std::vector<Parameter>& parameters, AdapterParameter& down, AdapterParameter& up, Tensor& zeros) {
    switch (config_.config_A_B) {
      case GloraPath::lora:
        make(parameters, down, {out_features_, config_.r});
        make(parameters, up, {config_.r, in_features_});
        break;
      case GloraPath::vector:
        make(parameters, down, {out_features_, 1});
        break;
      case GloraPath::constant:
        make(parameters, down, {1});
        break;
      case GloraPath::none:
        zeros = down.dict.buffer({out_features_, in_features_}, inside_.dtype);
    }
  }

  Tensor path_of(const AdapterParameter& down, const AdapterParameter& up, const Tensor& zeros, DType dtype) const {
    switch (config_.config_A_B) {
      case GloraPath::lora: {
        const Tensor product = matmul(down, up);
        return to(product, dtype);
      }
      case GloraPath::vector:
        return to(down, dtype);
      case GloraPath::constant:
        return to(select(down, 0, 0), dtype);
      case GloraPath::none:
        break;
    }
    return zeros;
  }

  Tensor forward(const Linear& base_layer, const Tensor& x) const override {
    if (base_layer.bias && !x.context().refusal)
      x.context().refusal = Error{"not-modelled", "/training/peft/target_modules",
                                  "found " + module_path(x.context().log, module()) +
                                      ", a layer with a bias, which GLoRA is not supported for yet; expected others"};
    const Tensor base_result = base_layer.forward(x);
    Tensor result = base_result;
    const Tensor& weight = base_layer.weight;
    const Tensor A = path_of(A_, A_up_, A_zeros_, weight.dtype());
    const Tensor B = path_of(B_, B_up_, B_zeros_, weight.dtype());
    Tensor weight_eff;
    {
      Tensor sum = mul(weight, A);
      sum = add(weight, sum);
      weight_eff = add(sum, B);
    }
    const Tensor adapted = linear(x, weight_eff, {});
    result = add(result, adapted);
    {
      const Tensor base = mul_scalar(base_result);
      result = sub(result, base);
    }
    return to(result, base_result.dtype());
  }

  const GloraConfig& config_;
  AdapterParameter A_, A_up_, B_, B_up_;
  Tensor A_zeros_, B_zeros_;
};

}  // namespace

std::shared_ptr<const PeftMethod> read_glora(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<GloraConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  refuse_bias(reader);
  config->r = reader.integer("r", config->r);
  config->config_A_B = reader.choice("config_A_B", GloraPath::lora,
                                     {{"lora", GloraPath::lora},
                                      {"vector", GloraPath::vector},
                                      {"constant", GloraPath::constant},
                                      {"none", GloraPath::none}});
  reader.ignore({"config_C", "config_D_E", "init_weights"});
  return config;
}

}  // namespace oometer
