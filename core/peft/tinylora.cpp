#include <algorithm>
#include <cmath>

#include "peft/layer.h"
#include "peft/methods.h"

/// TinyLoRA, after peft 0.21 (tuners/tinylora/model.py, layer.py): LoRA between frozen singular vectors of a weight,
/// with a matrix that a few numbers make of fixed random ones; layers may share the numbers.
namespace oometer {

namespace {

struct TinyLoraConfig final : TunerConfig {
  std::int64_t r = 2, u = 64;
  double weight_tying = 0, dropout = 0;

  std::unique_ptr<Tuner> tuner(Context& context, const std::string& kind,
                               std::span<const PeftAdapter> adapters) const override;
};

class TinyLoraLinear : public TunerLayer {
 public:
  TinyLoraLinear(const TinyLoraConfig& config, const LayerPlace& place)
      : TunerLayer(place, "tinylora.Linear"), config_(config), r_(std::min({config.r, in_features_, out_features_})) {
    add_dropout("tinylora_dropout.default", config.dropout);
    A_dict_ = inside_.child("tinylora_A", "BufferDict");
    B_dict_ = inside_.child("tinylora_B", "BufferDict");
    P_dict_ = inside_.child("tinylora_P", "BufferDict");
    v_dict = inside_.child("tinylora_v.default", "ParameterDict");
  }

  void make_parameters(std::vector<Parameter>&, std::span<const Parameter>) override {
    A_ = A_dict_.buffer({r_, in_features_}, A_dict_.dtype);
    B_ = B_dict_.buffer({out_features_, r_}, B_dict_.dtype);
    P_ = P_dict_.buffer({config_.u, r_, r_}, P_dict_.dtype);
  }

  void cast_buffers() const {
    cast_buffer(A_, A_dict_.module);
    cast_buffer(B_, B_dict_.module);
    cast_buffer(P_, P_dict_.module);
  }

  Builder v_dict;
  Tensor v;  ///< its group's

 private:
  // _compute_R
  Tensor compute_R() const {
    const Tensor P = to(P_, v.dtype());
    return einsum("i", "ijk", "jk", v, P);
  }

  Tensor forward(const Linear& base_layer, const Tensor& x) const override {
    Tensor result = base_layer.forward(x);
    const Tensor R = compute_R();
    Tensor x_dropped = dropout(x);
    x_dropped = to(x_dropped, A_.dtype());
    Tensor h = linear(x_dropped, A_, {});
    h = linear(h, R, {});
    const Tensor delta = linear(h, B_, {});
    result = add(result, delta);
    return to(result, x.dtype());
  }

  const TinyLoraConfig& config_;
  std::int64_t r_;
  Builder A_dict_, B_dict_, P_dict_;
  Tensor A_, B_, P_;
};

class TinyLoraModel : public TunerModel<TinyLoraLinear, TinyLoraConfig> {
 public:
  using TunerModel::TunerModel;

 protected:
  // _create_and_replace
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied, std::size_t) override {
    const auto count = std::ssize(layers_);
    const auto rounded = std::nearbyint(static_cast<double>(count) * (1 - config_.weight_tying));
    const std::int64_t groups = std::max<std::int64_t>(1, static_cast<std::int64_t>(rounded));
    const std::int64_t size = std::max<std::int64_t>(1, count / groups);
    for (std::int64_t i = 0; i < count; ++i) {
      TinyLoraLinear& layer = *layers_[static_cast<std::size_t>(i)];
      const auto group = static_cast<std::size_t>(std::min(i / size, groups - 1));
      if (group == v_.size()) {
        Builder dict = layers_.front()->v_dict;
        dict.parameters = &parameters;
        v_.push_back(dict.parameter("v", {config_.u}));
      }
      layer.v = v_[group];
      layer.make_parameters(parameters, tied);
    }
  }

  void cast_parameters(std::size_t) override {
    if (!casts_ || !context_.behaviours.peft_casts_adapters) return;
    for (const std::shared_ptr<TinyLoraLinear>& layer : layers_) {
      layer->cast_buffers();
      for (const Tensor& v : v_) cast_half(v);
    }
  }

 private:
  TensorList v_;
};

std::unique_ptr<Tuner> TinyLoraConfig::tuner(Context& context, const std::string& kind,
                                             std::span<const PeftAdapter> adapters) const {
  return std::make_unique<TinyLoraModel>(context, kind, *this, adapters.front().autocast_adapter_dtype);
}

}  // namespace

std::shared_ptr<const PeftMethod> read_tinylora(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<TinyLoraConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  refuse_bias(reader);
  config->r = reader.integer("r", config->r);
  config->u = reader.integer("u", config->u);
  config->weight_tying = reader.number("weight_tying", 0, 0, 1);
  config->dropout = reader.number("tinylora_dropout", 0, 0, kDropout);
  if (!defaults.loads_on_host)
    reader.fail("target_modules", "not-modelled",
                "found weights that are made on the device, where peft decomposes them for TinyLoRA, which is not "
                "supported yet; expected \"load\": \"host\" in training.loop");
  reader.ignore({"projection_seed", "save_projection", "init_v_bound", "init_weights"});
  return config;
}

}  // namespace oometer
