#include <deque>

#include "peft/layer.h"
#include "peft/methods.h"

/// PEANuT, after peft 0.21 (tuners/peanut/layer.py): the change of a weight is what a small network makes of it.
namespace oometer {

namespace {

using PeanutActivation = Tensor (*)(const Tensor&);

class PeanutLinear;
struct PeanutConfig final : ConfigOf<PeanutLinear, PeanutConfig> {
  std::int64_t r = 32, depth = 0;
  PeanutActivation act_fn = relu;
};

class PeanutLinear : public TunerLayer {
 public:
  PeanutLinear(const PeanutConfig& config, const LayerPlace& place)
      : TunerLayer(place, "peanut.Linear"),
        config_(config),
        encoders_(static_cast<std::size_t>(config.depth)),
        decoders_(static_cast<std::size_t>(config.depth)) {
    declare(peanut_A_, "peanut_A.default", "Linear");
    declare(peanut_B_, "peanut_B.default", "Linear");
    for (std::size_t i = 0; i < encoders_.size(); ++i)
      declare(encoders_[i], "peanut_encoders.default", "Linear", static_cast<std::int32_t>(i));
    for (std::size_t i = 0; i < decoders_.size(); ++i)
      declare(decoders_[i], "peanut_decoders.default", "Linear", static_cast<std::int32_t>(i));
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    const std::int64_t r = config_.r;
    make(parameters, peanut_A_, {r, out_features_});
    make(parameters, peanut_B_, {out_features_, r});
    for (AdapterParameter& encoder : encoders_) make(parameters, encoder, {r, r});
    for (AdapterParameter& decoder : decoders_) make(parameters, decoder, {r, r});
  }

 private:
  // _compute_delta_weight
  Tensor delta_weight(const Tensor& base_weight) const {
    const Tensor base_weight_t = to(transpose(base_weight, 0, 1), peanut_A_.tensor.dtype());
    Tensor delta_w;
    {
      const Tensor product = matmul(base_weight_t, transpose(peanut_A_, 0, 1));
      delta_w = config_.act_fn(product);
    }
    TensorList residuals;
    for (const AdapterParameter& encoder : encoders_) {
      residuals.push_back(delta_w);
      const Tensor encoded = linear(delta_w, encoder, {});
      delta_w = config_.act_fn(encoded);
    }
    for (std::size_t i = 0; i < decoders_.size(); ++i) {
      {
        const Tensor decoded = linear(delta_w, decoders_[i], {});
        delta_w = config_.act_fn(decoded);
      }
      delta_w = add(delta_w, residuals[decoders_.size() - 1 - i]);
    }
    delta_w = linear(delta_w, peanut_B_, {});
    const Tensor scaled = mul_scalar(delta_w);
    return transpose(scaled, 0, 1);
  }

  Tensor forward(const Linear& base_layer, const Tensor& x) const override {
    Tensor result = base_layer.forward(x);
    const Tensor delta_w = delta_weight(base_layer.weight);
    const Tensor x_cast = to(x, delta_w.dtype());
    const Tensor delta = matmul(x_cast, transpose(delta_w, 0, 1));
    {
      const Tensor added = to(delta, result.dtype());
      result = add(result, added);
    }
    return result;
  }

  const PeanutConfig& config_;
  AdapterParameter peanut_A_, peanut_B_;
  std::deque<AdapterParameter> encoders_, decoders_;
};

}  // namespace

std::shared_ptr<const PeftMethod> read_peanut(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<PeanutConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  config->r = reader.integer("r", config->r);
  config->depth = reader.integer("depth", 0, non_negative);
  if (config->depth > 64) reader.fail_found("depth", "not-modelled", "more than 64 are not supported yet");
  config->act_fn = reader.choice("act_fn", config->act_fn,
                                 {{"relu", PeanutActivation{relu}},
                                  {"gelu", PeanutActivation{gelu}},
                                  {"gelu_pytorch_tanh", PeanutActivation{gelu}},
                                  {"silu", PeanutActivation{silu}},
                                  {"swish", PeanutActivation{silu}},
                                  {"sigmoid", PeanutActivation{sigmoid}},
                                  {"tanh", PeanutActivation{tanh}}});
  reader.ignore({"scaling", "init_weights"});
  return config;
}

}  // namespace oometer
