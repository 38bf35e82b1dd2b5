#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "peft/layer.h"
#include "peft/methods.h"
#include "tensor/node.h"

/// OSF, after peft 0.21 (tuners/osf/layer.py): the small singular vectors of a weight train, beside what they were.
namespace oometer {

namespace {

struct OsfConfig final : TunerConfig {
  std::int64_t effective_rank = 0;  ///< what is kept as it is
  double fraction = 0.5;            ///< the same, of the weight's smaller side, where the other is 0

  std::unique_ptr<Tuner> tuner(Context& context, const std::string& kind,
                               std::span<const PeftAdapter> adapters) const override;
};

/// _attach_hooks: `project` makes a parameter's gradient orthogonal to what is kept.
Tensor hooked(const Tensor& parameter, const std::function<Tensor(const Tensor& grad)>& project) {
  Record record(Op::none, nullptr, {&parameter});
  if (!record) return parameter;
  record->custom =
      std::make_unique<std::function<void(Backward&)>>([project](Backward& b) { b.give(0, project(b.grad())); });
  return record.output(detach(parameter));
}

class OsfLinear : public TunerLayer {
 public:
  OsfLinear(const OsfConfig& config, const LayerPlace& place) : TunerLayer(place, "osf.Linear") {
    const std::int64_t all = std::min(in_features_, out_features_);
    high_ = config.effective_rank > 0 ? std::min(config.effective_rank, all)
                                      : static_cast<std::int64_t>(static_cast<double>(all) * config.fraction);
    low_ = all - high_;
    for (AdapterParameter* parameter : {&S_low_, &U_low_, &V_low_})  // sorted by name: nn.ParameterDict.update
      declare(*parameter, "osf_svd_params.default", "ParameterDict of ModuleDict");
    U_init_dict_ = inside_.child("_osf_U_low_init", "BufferDict");
    S_init_dict_ = inside_.child("_osf_S_low_init", "BufferDict");
    V_init_dict_ = inside_.child("_osf_V_low_init", "BufferDict");
    U_high_dict_ = inside_.child("_osf_U_high", "BufferDict");
    V_high_dict_ = inside_.child("_osf_V_high", "BufferDict");
  }

  std::string refusal() const override {
    if (high_ <= 0) return "`effective_rank` should be a positive integer value but the value passed is 0";
    if (low_ == 0) return "effective_rank leaves nothing to train, which is not supported yet; expected a smaller one";
    return {};
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    const DType dtype = inside_.dtype;
    U_init_ = U_init_dict_.buffer({out_features_, low_}, dtype);
    S_init_ = S_init_dict_.buffer({low_}, dtype);
    V_init_ = V_init_dict_.buffer({low_, in_features_}, dtype);
    if (out_features_ > in_features_) U_high_ = U_high_dict_.buffer({out_features_, high_}, dtype);
    if (in_features_ > out_features_) V_high_ = V_high_dict_.buffer({high_, in_features_}, dtype);
    make(parameters, S_low_, {low_});
    make(parameters, U_low_, {out_features_, low_});
    make(parameters, V_low_, {low_, in_features_});
  }

  void cast_parameters(LastCast& param) const override {
    TunerLayer::cast_parameters(param);
    // A cast entry of a ModuleDict is a new nn.Parameter, without the old one's hooks.
    has_hooks_ = !is_half(inside_.dtype);
    cast_buffer(U_init_, U_init_dict_.module);
    cast_buffer(S_init_, S_init_dict_.module);
    cast_buffer(V_init_, V_init_dict_.module);
    if (U_high_) cast_buffer(U_high_, U_high_dict_.module);
    if (V_high_) cast_buffer(V_high_, V_high_dict_.module);
  }

 private:
  Tensor U_low() const {
    if (!has_hooks_) return U_low_;
    return hooked(U_low_, [this](const Tensor& grad) {
      if (!U_high_) {
        const Tensor inner = matmul(transpose(U_init_, 0, 1), grad);
        return matmul(U_init_, inner);
      }
      Tensor proj = matmul(transpose(U_high_, 0, 1), grad);
      proj = matmul(U_high_, proj);
      return sub(grad, proj);
    });
  }
  Tensor V_low() const {
    if (!has_hooks_) return V_low_;
    return hooked(V_low_, [this](const Tensor& grad) {
      if (!V_high_) {
        const Tensor inner = matmul(grad, transpose(V_init_, 0, 1));
        return matmul(inner, V_init_);
      }
      Tensor proj = matmul(grad, transpose(V_high_, 0, 1));
      proj = matmul(proj, V_high_);
      return sub(grad, proj);
    });
  }

  Tensor forward(const Linear& base_layer, const Tensor& x) const override {
    Tensor result = base_layer.forward(x);
    Tensor A;
    {
      const Tensor U = U_low();
      const Tensor now = mul(U, unsqueeze(S_low_, 0));
      Tensor initial = mul(U_init_, unsqueeze(S_init_, 0));
      initial = neg(initial);
      A = cat({now, initial}, 1);
    }
    Tensor B;
    {
      const Tensor V = V_low();
      B = cat({V, V_init_}, 0);
    }
    const Tensor x_cast = to(x, A.dtype());
    const Tensor h = linear(x_cast, B, {});
    const Tensor delta_out = linear(h, A, {});
    {
      const Tensor added = to(delta_out, x.dtype());
      result = add(result, added);
    }
    return result;
  }

  std::int64_t high_ = 0, low_ = 0;
  AdapterParameter S_low_, U_low_, V_low_;
  Builder U_init_dict_, S_init_dict_, V_init_dict_, U_high_dict_, V_high_dict_;
  Tensor U_init_, S_init_, V_init_, U_high_, V_high_;
  mutable bool has_hooks_ = true;
};

std::unique_ptr<Tuner> OsfConfig::tuner(Context& context, const std::string& kind,
                                        std::span<const PeftAdapter> adapters) const {
  return std::make_unique<TunerModel<OsfLinear, OsfConfig>>(context, kind, *this,
                                                            adapters.front().autocast_adapter_dtype);
}

}  // namespace

std::shared_ptr<const PeftMethod> read_osf(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<OsfConfig>();
  if (!reader.has("target_modules"))
    reader.fail("target_modules", "missing",
                "OSF's usual targets are not supported yet; expected a list of names, a regular expression or "
                "\"all-linear\"");
  read_targets(reader, config->target_modules, config->modules_to_save, {"q_proj"});
  if (reader.has("effective_rank")) {
    const nlohmann::json& rank = *reader.find("effective_rank");
    if (rank.is_number_float() && rank > 0 && rank <= 1)
      config->fraction = reader.number("effective_rank", 0.5, 0, 1);
    else
      config->effective_rank = reader.integer("effective_rank", 0);
  }
  reader.refuse("rank_pattern", "other ranks for some of the layers are not supported yet: leave it out");
  if (!defaults.loads_on_host)
    reader.fail("target_modules", "not-modelled",
                "found weights that are made on the device, where peft decomposes them for OSF, which is not "
                "supported yet; expected \"load\": \"host\" in training.loop");
  reader.ignore({"init_weights", "target_svd_config"});
  return config;
}

}  // namespace oometer
