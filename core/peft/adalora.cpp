#include <algorithm>
#include <string_view>

#include "ops/vision.h"
#include "peft/layer.h"
#include "peft/methods.h"

/// AdaLoRA, after peft 0.21 (tuners/adalora/model.py, layer.py): LoRA with singular values between A and B, and a term
/// of the loss that keeps both orthogonal. Its ranks change only where a loop calls update_and_allocate.
namespace oometer {

namespace {

struct AdaloraConfig final : TunerConfig {
  std::int64_t init_r = 12;
  double lora_dropout = 0;
  std::unique_ptr<Tuner> tuner(Context& context, const std::string& kind,
                               std::span<const PeftAdapter> adapters) const override;
};

class SvdLinear : public TunerLayer {
 public:
  SvdLinear(const AdaloraConfig& config, const LayerPlace& place)
      : TunerLayer(place, "adalora.SVDLinear"), config_(config) {
    add_dropout("lora_dropout.default", config.lora_dropout);
    declare(lora_A_, "lora_A");
    declare(lora_B_, "lora_B");
    declare(lora_E_, "lora_E");
    declare(ranknum_, "ranknum");
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    make(parameters, lora_A_, {config_.init_r, in_features_});
    make(parameters, lora_B_, {out_features_, config_.init_r});
    make(parameters, lora_E_, {config_.init_r, 1});
    // Made with requires_grad=False; an entry of a ParameterDict that moves or is cast becomes a new Parameter.
    Context& context = *ranknum_.dict.context;
    make(parameters, ranknum_, {1}, !context.stopped || ranknum_.dict.dtype != DType::float32);
  }

  const Tensor& lora_A() const { return lora_A_.tensor; }
  const Tensor& lora_B() const { return lora_B_.tensor; }

 private:
  Tensor forward(const Linear& base_layer, const Tensor& argument) const override {
    Tensor result = base_layer.forward(argument);
    const Tensor ranknum = add_scalar(ranknum_);
    const Tensor x = to(argument, lora_A_.tensor.dtype());
    Tensor added = dropout(x);
    {
      const Tensor scaled = mul(lora_A_, lora_E_);
      added = matmul(added, transpose(scaled, 0, 1));
    }
    added = matmul(added, transpose(lora_B_, 0, 1));
    added = mul_scalar(added);
    added = div(added, ranknum);
    return add_in_place(result, added);
  }

  const AdaloraConfig& config_;
  AdapterParameter lora_A_, lora_B_, lora_E_, ranknum_;
};

class AdaloraModel : public TunerModel<SvdLinear, AdaloraConfig> {
 public:
  using TunerModel::TunerModel;

  // AdaLoraModel.forward: the orthogonal regularization of all A and B.
  void after_forward(Tensor& loss) override {
    Tensor regu_loss, para_cov, I;
    for (const std::shared_ptr<SvdLinear>& layer : layers_) {
      for (const Tensor* p : {&layer->lora_A(), &layer->lora_B()}) {
        const bool is_A = p == &layer->lora_A();
        const Tensor turned = transpose(*p, 0, 1);
        para_cov = is_A ? matmul(*p, turned) : matmul(turned, *p);
        I = empty_like(Op::eye, para_cov);
        Tensor norm = sub(para_cov, I);
        norm = linalg_vector_norm(norm, {0, 1}, false);
        regu_loss = regu_loss ? add_in_place(regu_loss, norm) : add_scalar(norm);
      }
    }
    if (!regu_loss) return;
    regu_loss = div_scalar(regu_loss);
    const Tensor weighted = mul_scalar(regu_loss);
    loss = add_in_place(loss, weighted);
  }
};

std::unique_ptr<Tuner> AdaloraConfig::tuner(Context& context, const std::string& kind,
                                            std::span<const PeftAdapter> adapters) const {
  return std::make_unique<AdaloraModel>(context, kind, *this, adapters.front().autocast_adapter_dtype);
}

}  // namespace

std::shared_ptr<const PeftMethod> read_adalora(ConfigReader& reader, const PeftDefaults&) {
  const auto config = std::make_shared<AdaloraConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, {});
  refuse_bias(reader);
  config->init_r = reader.integer("init_r", config->init_r);
  config->lora_dropout = reader.number("lora_dropout", 0, 0, kDropout);
  if (reader.integer("total_step", 0, non_negative) <= 0)
    reader.fail("total_step", "missing", "AdaLoRA does not work when `total_step` is None, supply a value > 0.");
  if (reader.boolean("use_dora", false)) reader.fail_found("use_dora", "inconsistent", "ADALORA does not support DoRA");
  for (const char* key : {"rank_pattern", "megatron_config", "trainable_token_indices", "velora_config",
                          "alora_invocation_tokens", "layer_replication", "target_parameters", "use_qalora"})
    reader.refuse(key, "it is not supported yet: leave it out");
  reader.ignore({"r", "target_r", "tinit", "tfinal", "deltaT", "beta1", "beta2", "orth_reg_weight", "lora_alpha",
                 "alpha_pattern", "use_rslora", "init_lora_weights", "lora_bias", "loftq_config", "runtime_config",
                 "megatron_core", "qalora_group_size"});
  return config;
}

}  // namespace oometer
