#include "ops/vision.h"
#include "peft/layer.h"
#include "peft/methods.h"

/// Uni-LoRA, after peft 0.21 (tuners/unilora/model.py, layer.py): A and B of all layers are elements of one vector,
/// each at its place and with its scale.
namespace oometer {

namespace {

struct UniLoraConfig final : TunerConfig {
  std::int64_t r = 4, theta_d_length = 256;
  double dropout = 0;

  std::unique_ptr<Tuner> tuner(Context& context, const std::string& kind,
                               std::span<const PeftAdapter> adapters) const override;
};

class UniLoraLinear : public TunerLayer {
 public:
  UniLoraLinear(const UniLoraConfig& config, const LayerPlace& place)
      : TunerLayer(place, "unilora.Linear"), r_(config.r) {
    add_dropout("unilora_dropout.default", config.dropout);
    indices_A_dict_ = inside_.child("unilora_indices_A", "BufferDict");
    indices_B_dict_ = inside_.child("unilora_indices_B", "BufferDict");
    scales_A_dict_ = inside_.child("unilora_scales_A", "BufferDict");
    scales_B_dict_ = inside_.child("unilora_scales_B", "BufferDict");
    theta_d_dict = inside_.child("unilora_theta_d", "ParameterDict");
  }

  // reset_unilora_parameters
  void make_parameters(std::vector<Parameter>&, std::span<const Parameter>) override {
    Context& context = *inside_.context;
    indices_A_ = empty(context, Op::to_copy, {r_, in_features_}, DType::int64);
    indices_B_ = empty(context, Op::to_copy, {out_features_, r_}, DType::int64);
  }
  /// _assign_unilora_indices_and_scales makes others on the host.
  void drop_indices() {
    indices_A_.reset();
    indices_B_.reset();
  }
  // update_scaling
  void make_scales() {
    scales_A_ = scales_A_dict_.buffer({r_, in_features_}, scales_A_dict_.dtype);
    scales_B_ = scales_B_dict_.buffer({out_features_, r_}, scales_B_dict_.dtype);
    indices_A_ = indices_A_dict_.buffer({r_, in_features_}, DType::int64);
    indices_B_ = indices_B_dict_.buffer({out_features_, r_}, DType::int64);
  }
  void cast_scales() const {
    cast_buffer(scales_A_, scales_A_dict_.module);
    cast_buffer(scales_B_, scales_B_dict_.module);
  }

  Builder theta_d_dict;
  const Tensor* theta_d = nullptr;  ///< the model's

 private:
  Tensor scaled(const Tensor& indices, const Tensor& scales) const {
    const Tensor taken = index(*theta_d, 0, indices);
    return mul(taken, scales);
  }

  Tensor forward(const Linear& base_layer, const Tensor& argument) const override {
    Tensor result = base_layer.forward(argument);
    const Tensor A = scaled(indices_A_, scales_A_);
    const Tensor B = scaled(indices_B_, scales_B_);
    const Tensor x = to(argument, theta_d->dtype());
    {
      Tensor added = dropout(x);
      added = linear(added, A, {});
      added = linear(added, B, {});
      result = add(result, added);
    }
    return to(result, argument.dtype());
  }

  std::int64_t r_;
  Builder indices_A_dict_, indices_B_dict_, scales_A_dict_, scales_B_dict_;
  Tensor indices_A_, indices_B_, scales_A_, scales_B_;
};

class UniLoraModel : public TunerModel<UniLoraLinear, UniLoraConfig> {
 public:
  using TunerModel::TunerModel;

 protected:
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied, std::size_t) override {
    for (const std::shared_ptr<UniLoraLinear>& layer : layers_) {
      if (!theta_d_) {  // moved with the first layer
        Builder dict = layer->theta_d_dict;
        dict.parameters = &parameters;
        theta_d_ = dict.parameter("default", {config_.theta_d_length});
      }
      layer->theta_d = &theta_d_;
      layer->make_parameters(parameters, tied);
    }
    for (const std::shared_ptr<UniLoraLinear>& layer : layers_) layer->drop_indices();
    for (const std::shared_ptr<UniLoraLinear>& layer : layers_) layer->make_scales();
  }

  void cast_parameters(std::size_t) override {
    if (!casts_ || !context_.behaviours.peft_casts_adapters) return;
    for (const std::shared_ptr<UniLoraLinear>& layer : layers_) {
      layer->cast_scales();
      cast_half(theta_d_);
    }
  }

 private:
  Tensor theta_d_;
};

std::unique_ptr<Tuner> UniLoraConfig::tuner(Context& context, const std::string& kind,
                                            std::span<const PeftAdapter> adapters) const {
  return std::make_unique<UniLoraModel>(context, kind, *this, adapters.front().autocast_adapter_dtype);
}

}  // namespace

std::shared_ptr<const PeftMethod> read_unilora(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<UniLoraConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  refuse_bias(reader);
  config->r = reader.integer("r", config->r);
  config->theta_d_length = reader.integer("theta_d_length", config->theta_d_length);
  config->dropout = reader.number("unilora_dropout", 0, 0, kDropout);
  reader.ignore({"proj_seed", "init_theta_d_bound", "init_weights", "save_indices"});
  return config;
}

}  // namespace oometer
