#include <algorithm>

#include "peft/layer.h"
#include "peft/methods.h"

/// VeRA, after peft 0.21 (tuners/vera/model.py, layer.py): all layers share two frozen random matrices; each trains two
/// vectors. PVeRA (tuners/pvera) draws what lies between them, with a mean and a variance.
namespace oometer {

namespace {

struct VeraConfig final : TunerConfig {
  std::int64_t r = 256;
  double vera_dropout = 0;
  bool draws = false;  ///< PVeRA

  std::int64_t rows() const { return draws ? 2 * r : r; }  ///< of A
  std::unique_ptr<Tuner> tuner(Context& context, const std::string& kind,
                               std::span<const PeftAdapter> adapters) const override;
};

class VeraLinear : public TunerLayer {
 public:
  VeraLinear(const VeraConfig& config, const LayerPlace& place)
      : TunerLayer(place, config.draws ? "pvera.Linear" : "vera.Linear"), config_(config) {
    const auto named = [&](const char* vera, const char* pvera) { return config.draws ? pvera : vera; };
    add_dropout(named("vera_dropout.default", "pvera_dropout.default"), config.vera_dropout);
    declare(lambda_b_, named("vera_lambda_b", "pvera_lambda_b"));
    declare(lambda_d_, named("vera_lambda_d", "pvera_lambda_d"));
    vera_A_dict = inside_.child(named("vera_A", "pvera_A"), "BufferDict");
    vera_B_dict = inside_.child(named("vera_B", "pvera_B"), "BufferDict");
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    make(parameters, lambda_b_, {out_features_});
    make(parameters, lambda_d_, {config_.rows()});
  }

  std::int64_t in_features() const { return in_features_; }
  std::int64_t out_features() const { return out_features_; }

  Builder vera_A_dict, vera_B_dict;
  const Tensor *vera_A = nullptr, *vera_B = nullptr;  ///< the model's

 private:
  // _reparametrize
  static Tensor reparametrize(const Tensor& mu, const Tensor& logvar) {
    Tensor std = mul_scalar(logvar);
    std = exp(std);
    const Tensor eps = empty_like(Op::empty, std);
    const Tensor noise = mul(eps, std);
    return add(mu, noise);
  }

  Tensor forward(const Linear& base_layer, const Tensor& argument) const override {
    Tensor x = argument;
    Tensor result = base_layer.forward(x);
    const DType orig_dtype = result.dtype();
    const Tensor sliced_A = slice(*vera_A, 1, 0, in_features_);
    const Tensor sliced_B = slice(*vera_B, 0, 0, out_features_);
    x = to(x, lambda_d_.tensor.dtype());
    Tensor mu, logvar;
    {
      Tensor added = dropout(x);
      added = linear(added, sliced_A, {});
      added = mul(lambda_d_, added);
      if (config_.draws) {  // bound until forward returns
        const TensorList halves = split(added, {config_.r, config_.r}, added.ndim() - 1);
        mu = halves[0];
        logvar = halves[1];
        added = reparametrize(mu, logvar);
      }
      added = linear(added, sliced_B, {});
      added = mul(lambda_b_, added);
      result = add(result, added);
    }
    result = to(result, orig_dtype);
    return to(result, argument.dtype());
  }

  const VeraConfig& config_;
  AdapterParameter lambda_b_, lambda_d_;
};

class VeraModel : public TunerModel<VeraLinear, VeraConfig> {
 public:
  using TunerModel::TunerModel;

 protected:
  // _init_vera_A_vera_B: as large as the largest layer needs; made on the host, and moved with the first layer.
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied, std::size_t) override {
    std::int64_t in_features = 0, out_features = 0;
    for (const std::shared_ptr<VeraLinear>& layer : layers_) {
      in_features = std::max(in_features, layer->in_features());
      out_features = std::max(out_features, layer->out_features());
    }
    for (const std::shared_ptr<VeraLinear>& layer : layers_) {
      layer->make_parameters(parameters, tied);
      if (!vera_A_) {
        vera_A_ = layer->vera_A_dict.buffer({config_.rows(), in_features}, layer->vera_A_dict.dtype);
        vera_B_ = layer->vera_B_dict.buffer({out_features, config_.r}, layer->vera_B_dict.dtype);
      }
      layer->vera_A = &vera_A_;
      layer->vera_B = &vera_B_;
    }
  }

  void cast_parameters(std::size_t adapter) override {
    if (layers_.empty() || !casts_ || !context_.behaviours.peft_casts_adapters) return;
    LastCast param;
    layers_.front()->cast_parameters(param);
    cast_buffer(vera_A_, layers_.front()->vera_A_dict.module);
    cast_buffer(vera_B_, layers_.front()->vera_B_dict.module);
    TunerModel::cast_parameters(adapter);
  }

 private:
  Tensor vera_A_, vera_B_;
};

std::unique_ptr<Tuner> VeraConfig::tuner(Context& context, const std::string& kind,
                                         std::span<const PeftAdapter> adapters) const {
  return std::make_unique<VeraModel>(context, kind, *this, adapters.front().autocast_adapter_dtype);
}

}  // namespace

std::shared_ptr<const PeftMethod> read_vera(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<VeraConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  refuse_bias(reader);
  config->r = reader.integer("r", config->r);
  config->vera_dropout = reader.number("vera_dropout", 0, 0, kDropout);
  reader.ignore({"projection_prng_key", "save_projection", "d_initial", "init_weights"});
  return config;
}

std::shared_ptr<const PeftMethod> read_pvera(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<VeraConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  refuse_bias(reader);
  config->draws = true;
  config->r = reader.integer("r", config->r);
  config->vera_dropout = reader.number("pvera_dropout", 0, 0, kDropout);
  reader.refuse("generator_seed", "noise that is drawn on the host is not supported yet: leave it out");
  reader.ignore({"projection_prng_key", "save_projection", "d_initial", "init_weights", "sample_at_inference"});
  return config;
}

}  // namespace oometer
