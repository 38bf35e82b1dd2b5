#include "ops/vision.h"
#include "peft/layer.h"
#include "peft/methods.h"

/// DeLoRA, after peft 0.21 (tuners/delora/layer.py): a low-rank change whose length is bounded and trained.
namespace oometer {

namespace {

class DeloraLinear;
struct DeloraConfig final : ConfigOf<DeloraLinear, DeloraConfig> {
  std::int64_t r = 8;
  double module_dropout = 0;
  NumberByModule rank_pattern;
};

class DeloraLinear : public TunerLayer {
 public:
  DeloraLinear(const DeloraConfig& config, const LayerPlace& place)
      : TunerLayer(place, "delora.Linear"), r_(ModulePattern(config.rank_pattern).of(path(), config.r)) {
    add_dropout("delora_dropout.default", config.module_dropout);
    declare(delora_A_, "delora_A");
    declare(delora_B_, "delora_B");
    declare(delora_lambda_, "delora_lambda");
    delora_w_norm_dict_ = inside_.child("delora_w_norm", "BufferDict");
  }

  // The norm is found first, of the weight where it lies.
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied) override {
    const Tensor weight = base_weight(parameters, tied);
    delora_w_norm_ = delora_w_norm_dict_.buffer({in_features_}, weight.dtype());
    make(parameters, delora_A_, {r_, in_features_});
    make(parameters, delora_B_, {out_features_, r_});
    make(parameters, delora_lambda_, {1});
  }

  void cast_parameters(LastCast& param) const override {
    TunerLayer::cast_parameters(param);
    cast_buffer(delora_w_norm_, delora_w_norm_dict_.module);
  }

 private:
  Tensor forward(const Linear& base_layer, const Tensor& x) const override {
    const Tensor base_out = base_layer.forward(x);
    Tensor add_out = empty_like(Op::zeros_like, base_out);
    const Tensor x_d = dropout(x);
    Tensor h = mul(x_d, delora_w_norm_);
    h = linear(h, delora_A_, {});
    Tensor An = linalg_vector_norm(delora_A_, {1}, false);
    An = clamp(An, false);
    Tensor Bn = linalg_vector_norm(delora_B_, {0}, false);
    Bn = clamp(Bn, false);
    Tensor scaling;
    {
      const Tensor lambda = div_scalar(delora_lambda_);
      const Tensor lengths = mul(An, Bn);
      scaling = div(lambda, lengths);
    }
    h = mul(h, scaling);
    h = linear(h, delora_B_, {});
    add_out = add_in_place(add_out, h);
    Tensor result;
    {
      const Tensor added = to(add_out, base_out.dtype());
      result = add(base_out, added);
    }
    return to(result, x.dtype());
  }

  std::int64_t r_;
  AdapterParameter delora_A_, delora_B_, delora_lambda_;
  Builder delora_w_norm_dict_;
  Tensor delora_w_norm_;
};

}  // namespace

std::shared_ptr<const PeftMethod> read_delora(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<DeloraConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  refuse_bias(reader);
  config->r = reader.integer("r", config->r);
  config->module_dropout = reader.number("module_dropout", 0, 0, kDropout);
  config->rank_pattern = read_pattern(reader, "rank_pattern");
  reader.ignore({"delora_lambda", "lambda_pattern", "init_weights"});
  return config;
}

}  // namespace oometer
