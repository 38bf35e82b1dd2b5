#include <algorithm>

#include "ops/vision.h"
#include "peft/layer.h"
#include "peft/methods.h"

/// Lily, after peft 0.21 (tuners/lily/model.py, layer.py): neighbouring layers of one name share A, all of them B, of
/// which a router mixes the parts.
namespace oometer {

namespace {

struct LilyConfig final : TunerConfig {
  std::int64_t r = 32, stride_A = 1, num_B = 2;

  std::unique_ptr<Tuner> tuner(Context& context, const std::string& kind,
                               std::span<const PeftAdapter> adapters) const override;
};

class LilyLinear : public TunerLayer {
 public:
  LilyLinear(const LilyConfig& config, const LayerPlace& place) : TunerLayer(place, "lily.Linear"), config_(config) {
    declare(lily_A, "lily_A.default", "Linear");
    declare(lily_B, "lily_B.default", "Linear");
    declare(lily_router_, "lily_router.default", "Linear");
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    make(parameters, lily_A, {config_.r, in_features_});
    make(parameters, lily_B, {config_.num_B * config_.r, out_features_});
    make(parameters, lily_router_, {config_.num_B, config_.r});
  }

  /// Layers with the same share A and B: the last of the targets' names that it ends with, and its weight's shape.
  std::string group() const {
    std::string suffix;
    for (const std::string& name : config_.target_modules.names)
      if (path().ends_with(name) && name.size() > suffix.size()) suffix = name;
    return suffix + " " + std::to_string(out_features_) + "x" + std::to_string(in_features_);
  }

  AdapterParameter lily_A, lily_B;

 private:
  Tensor forward(const Linear& base_layer, const Tensor& argument) const override {
    Tensor result = base_layer.forward(argument);
    const DType torch_result_dtype = result.dtype();
    const Tensor B = reshape(lily_B, {config_.num_B, config_.r, out_features_});
    const Tensor x = to(argument, lily_A.tensor.dtype());
    const Tensor hidden = linear(x, lily_A, {});
    const Tensor router_logits = linear(hidden, lily_router_, {});
    Tensor router_probability;
    {
      const Tensor cast = autocast_float32(router_logits);
      router_probability = softmax(cast, cast.dtype());
    }
    const std::int64_t rows = router_probability.numel() / config_.num_B;
    const Tensor expert_probabilities = mean(reshape(router_probability, {rows, config_.num_B}), 0, false);
    const Tensor combined_B = einsum("e", "eio", "io", expert_probabilities, B);
    const Tensor delta = matmul(hidden, combined_B);
    {
      Tensor added = mul_scalar(delta);
      added = to(added, torch_result_dtype);
      result = add(result, added);
    }
    return result;
  }

  const LilyConfig& config_;
  AdapterParameter lily_router_;
};

class LilyModel : public TunerModel<LilyLinear, LilyConfig> {
 public:
  using TunerModel::TunerModel;

 protected:
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                       std::size_t adapter) override {
    TunerModel::make_parameters(parameters, tied, adapter);
    // _post_injection_hook: each layer has its own until then.
    std::vector<std::pair<std::string, std::vector<LilyLinear*>>> groups;
    for (const std::shared_ptr<LilyLinear>& layer : layers_) {
      const std::string name = layer->group();
      const auto found =
          std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == name; });
      if (found == groups.end())
        groups.emplace_back(name, std::vector{layer.get()});
      else
        found->second.push_back(layer.get());
    }
    const auto share = [&](AdapterParameter& own, const AdapterParameter& shared) {
      const auto is_own = [&](const Parameter& parameter) { return parameter.module == own.dict.module; };
      parameters.erase(std::find_if(parameters.begin(), parameters.end(), is_own));
      own.tensor = shared.tensor;
    };
    for (const auto& [name, layers] : groups) {
      for (std::size_t i = 1; i < layers.size(); ++i) {
        share(layers[i]->lily_B, layers.front()->lily_B);
        const std::size_t stride = static_cast<std::size_t>(config_.stride_A);
        if (const std::size_t leader = i / stride * stride; leader != i)
          share(layers[i]->lily_A, layers[leader]->lily_A);
      }
    }
  }
};

std::unique_ptr<Tuner> LilyConfig::tuner(Context& context, const std::string& kind,
                                         std::span<const PeftAdapter> adapters) const {
  return std::make_unique<LilyModel>(context, kind, *this, adapters.front().autocast_adapter_dtype);
}

}  // namespace

std::shared_ptr<const PeftMethod> read_lily(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<LilyConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  if (config->target_modules.all_linear)
    reader.fail_found("target_modules", "not-modelled",
                      "Lily's layers share by the names of target_modules, which peft shortens by rules of its own "
                      "here; not supported yet: expected a list of names");
  config->r = reader.integer("r", config->r);
  config->stride_A = reader.integer("stride_A", config->stride_A);
  config->num_B = reader.integer("num_B", config->num_B);
  reader.ignore({"scaling", "init_weights"});
  return config;
}

}  // namespace oometer
