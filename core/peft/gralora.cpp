#include "ops/vision.h"
#include "peft/layer.h"
#include "peft/methods.h"

/// GraLoRA, after peft 0.21 (tuners/gralora/layer.py): a low rank for each block of a weight.
namespace oometer {

namespace {

class GraloraLinear;
struct GraloraConfig final : ConfigOf<GraloraLinear, GraloraConfig> {
  std::int64_t r = 32, hybrid_r = 0, gralora_k = 2;
  double gralora_dropout = 0;
};

class GraloraLinear : public TunerLayer {
 public:
  GraloraLinear(const GraloraConfig& config, const LayerPlace& place)
      : TunerLayer(place, "gralora.Linear"), config_(config) {
    add_dropout("gralora_dropout.default", config.gralora_dropout);
    declare(gralora_A_, "gralora_A");
    declare(gralora_B_, "gralora_B");
    declare(gralora_A_general_, "gralora_A_general.default", "Linear");
    declare(gralora_B_general_, "gralora_B_general.default", "Linear");
  }

  std::string refusal() const override {
    const std::int64_t k = config_.gralora_k;
    if (in_features_ % k != 0)
      return "in_features should be divisible by gralora_k, but got " + std::to_string(in_features_) + " and " +
             std::to_string(k);
    if (out_features_ % k != 0)
      return "out_features should be divisible by gralora_k, but got " + std::to_string(out_features_) + " and " +
             std::to_string(k);
    return {};
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    const std::int64_t k = config_.gralora_k, r = config_.r;
    make(parameters, gralora_A_, {k, in_features_ / k, r});
    make(parameters, gralora_B_, {k, r, out_features_ / k});
    if (config_.hybrid_r == 0) return;
    make(parameters, gralora_A_general_, {config_.hybrid_r, in_features_});
    make(parameters, gralora_B_general_, {out_features_, config_.hybrid_r});
  }

 private:
  Tensor forward(const Linear& base_layer, const Tensor& x) const override {
    Tensor result = base_layer.forward(x);
    const DType result_dtype = result.dtype(), dtype = gralora_A_.tensor.dtype();
    const std::int64_t N = config_.gralora_k, rank = config_.r / N, B = x.size(0), L = x.size(1);
    Tensor output;
    {
      Tensor states = to(x, dtype);
      states = dropout(states);
      states = view(states, {B, L, N, in_features_ / N});
      states = einsum("blni", "nir", "blnr", states, gralora_A_);
      states = view(states, {B, L, N, N, rank});
      states = reshape(permute(states, {0, 1, 3, 2, 4}), {B, L, N, N * rank});
      output = einsum("bljr", "jro", "bljo", states, gralora_B_);
    }
    output = reshape(output, {B, L, out_features_});
    {
      Tensor added = to(output, result_dtype);
      added = mul_scalar(added);
      result = add_in_place(result, added);
    }
    if (config_.hybrid_r > 0) {
      Tensor hybrid_output = to(x, dtype);
      hybrid_output = dropout(hybrid_output);
      hybrid_output = linear(hybrid_output, gralora_A_general_, {});
      hybrid_output = linear(hybrid_output, gralora_B_general_, {});
      Tensor added = to(hybrid_output, result_dtype);
      added = mul_scalar(added);
      result = add_in_place(result, added);
    }
    return to(result, x.dtype());
  }

  const GraloraConfig& config_;
  AdapterParameter gralora_A_, gralora_B_, gralora_A_general_, gralora_B_general_;
};

}  // namespace

std::shared_ptr<const PeftMethod> read_gralora(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<GraloraConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  refuse_bias(reader);
  config->r = reader.integer("r", config->r);
  config->hybrid_r = reader.integer("hybrid_r", 0, non_negative);
  config->gralora_k = reader.integer("gralora_k", config->gralora_k);
  config->gralora_dropout = reader.number("gralora_dropout", 0, 0, kDropout);
  if (config->r % config->gralora_k != 0)
    reader.fail_found("r", "inconsistent",
                      "r should be divisible by gralora_k, but got " + std::to_string(config->r) + " and " +
                          std::to_string(config->gralora_k));
  reader.ignore({"alpha", "init_weights"});
  return config;
}

}  // namespace oometer
