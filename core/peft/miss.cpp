#include <nlohmann/json.hpp>

#include "ops/vision.h"
#include "peft/layer.h"
#include "peft/methods.h"

/// MiSS, once Bone, after peft 0.21 (tuners/miss/layer.py): sums of the input's parts times one matrix.
namespace oometer {

namespace {

enum class MissInit : std::uint8_t { miss, bat, mini };

class MissLinear;
struct MissConfig final : ConfigOf<MissLinear, MissConfig> {
  std::int64_t r = 64, mini_r = 1;
  double miss_dropout = 0;
  MissInit init_weights = MissInit::miss;
};

class MissLinear : public TunerLayer {
 public:
  MissLinear(const MissConfig& config, const LayerPlace& place) : TunerLayer(place, "miss.Linear"), config_(config) {
    add_dropout("miss_dropout.default", config.miss_dropout);
    declare(miss_block_, "miss_block");
  }

  std::string refusal() const override {
    const std::int64_t r = config_.r;
    if (r > in_features_)
      return "`r` (" + std::to_string(r) + ") must be less than or equal to in_features (" +
             std::to_string(in_features_) + ")";
    if (config_.init_weights == MissInit::bat && (in_features_ % r != 0 || out_features_ % r != 0))
      return "The weight matrix must be fully divisible into [r, r] blocks.";
    if (config_.init_weights == MissInit::mini && out_features_ % config_.mini_r != 0)
      return "out_features has to be divisible by mini_r";
    return {};
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    const std::int64_t r = config_.r;
    const MissInit init = config_.init_weights;
    make(parameters, miss_block_,
         init == MissInit::bat    ? Shape{out_features_ / r, r, r}
         : init == MissInit::mini ? Shape{r, config_.mini_r}
                                  : Shape{r, out_features_});
  }

 private:
  /// get_delta_weight
  Tensor delta_weight(const Tensor& given) const {
    const Tensor& miss_B = miss_block_;
    const Tensor orig_weight = to(given, miss_B.dtype());
    const std::int64_t r = config_.r, rows = orig_weight.size(0), columns = orig_weight.size(1);
    const Tensor W = permute(reshape(orig_weight, {rows / r, r, columns / r, r}), {2, 0, 1, 3});
    Tensor result = matmul(W, miss_B);
    result = add(result, miss_B);
    return reshape(permute(result, {1, 2, 0, 3}), orig_weight.sizes());
  }

  Tensor bat(const Linear& base_layer, const Tensor& argument) const {
    Tensor orig_weight = clone(base_layer.weight);
    const Tensor delta = delta_weight(orig_weight);
    orig_weight = add(orig_weight, delta);
    const Tensor x = to(argument, orig_weight.dtype());
    const Tensor bias = base_layer.bias ? to(base_layer.bias, orig_weight.dtype()) : Tensor();
    const Tensor result = linear(x, orig_weight, bias);
    return to(result, argument.dtype());
  }

  Tensor forward(const Linear& base_layer, const Tensor& argument) const override {
    if (config_.init_weights == MissInit::bat) return bat(base_layer, argument);
    Tensor x = argument;
    Tensor result = base_layer.forward(x);
    Tensor miss = miss_block_;
    const std::int64_t r = config_.r;
    if (config_.init_weights == MissInit::mini) miss = repeat(miss, {1, out_features_ / config_.mini_r});
    Shape sizes = x.sizes();
    if (sizes[-1] % r != 0) {
      sizes[-1] += r - sizes[-1] % r;
      x = pool(Op::constant_pad_nd, Op::constant_pad_nd, x, sizes, false);
    }
    x = to(x, miss.dtype());
    {
      sizes.push_back(r);
      sizes[-2] = x.size(-1) / r;
      Tensor added = dropout(x);
      added = sum(reshape(added, sizes), {-2}, false);
      added = matmul(added, miss);
      result = add(result, added);
    }
    return to(result, argument.dtype());
  }

  const MissConfig& config_;
  AdapterParameter miss_block_;
};

}  // namespace

std::shared_ptr<const PeftMethod> read_miss(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<MissConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  refuse_bias(reader);
  config->r = reader.integer("r", config->r);
  config->mini_r = reader.integer("mini_r", config->mini_r);
  config->miss_dropout = reader.number("miss_dropout", 0, 0, kDropout);
  const nlohmann::json* const init = reader.find("init_weights");
  if (init && !init->is_boolean())
    config->init_weights =
        reader.choice("init_weights", MissInit::miss, {{"bat", MissInit::bat}, {"mini", MissInit::mini}});
  return config;
}

}  // namespace oometer
