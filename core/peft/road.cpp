#include <utility>

#include "ops/vision.h"
#include "peft/layer.h"
#include "peft/methods.h"

/// RoAd, after peft 0.21 (tuners/road/layer.py): pairs of a layer's outputs are turned and scaled.
namespace oometer {

namespace {

enum class RoadVariant : std::uint8_t { road_1, road_2, road_4 };

class RoadLinear;
struct RoadConfig final : ConfigOf<RoadLinear, RoadConfig> {
  RoadVariant variant = RoadVariant::road_1;
  std::int64_t group_size = 64;
};

class RoadLinear : public TunerLayer {
 public:
  RoadLinear(const RoadConfig& config, const LayerPlace& place) : TunerLayer(place, "road.Linear"), config_(config) {
    declare(road_theta_, "road_theta");
    declare(road_alpha_, "road_alpha");
  }

  std::string refusal() const override {
    if (out_features_ % config_.group_size == 0) return {};
    return "The out_features of the base layer must be divisible by group_size (" + std::to_string(config_.group_size) +
           ") when using RoadLayer.";
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    const std::int64_t size = config_.variant == RoadVariant::road_1   ? out_features_ / 2
                              : config_.variant == RoadVariant::road_2 ? out_features_
                                                                       : out_features_ * 2;
    make(parameters, road_theta_, {size});
    make(parameters, road_alpha_, {size});
  }

 private:
  struct Columns {
    Tensor first, second;
  };

  // _prepare_cols
  Columns prepare_cols() const {
    Tensor theta = road_theta_, alpha = road_alpha_;
    if (config_.variant == RoadVariant::road_4) {
      const std::int64_t group = config_.group_size, groups = theta.numel() / (2 * group);
      theta = reshape(theta, {groups, 2, group});
      const auto half = [&](const Tensor& x, std::int64_t i) { return select(x, 1, i); };
      const auto flat = [](const Tensor& x) { return reshape(x, {x.numel()}); };
      const Tensor theta_cos = flat(cos(half(theta, 0)));
      const Tensor theta_sin = flat(sin(half(theta, 1)));
      alpha = reshape(alpha, {groups, 2, group});
      const Tensor alpha_1 = flat(half(alpha, 0));
      const Tensor alpha_2 = flat(half(alpha, 1));
      Tensor first = mul(alpha_1, theta_cos);
      Tensor second = mul(alpha_2, theta_sin);
      return {std::move(first), std::move(second)};
    }
    if (config_.variant == RoadVariant::road_1) {
      const auto doubled = [&](const Tensor& x) {
        const std::int64_t half = config_.group_size / 2;
        const Tensor groups = repeat_interleave(reshape(x, {x.numel() / half, half}), 2, 0);
        return reshape(groups, {groups.numel()});
      };
      theta = doubled(theta);
      alpha = doubled(alpha);
    }
    const Tensor theta_cos = cos(theta);
    const Tensor theta_sin = sin(theta);
    Tensor first = mul(alpha, theta_cos);
    Tensor second = mul(alpha, theta_sin);
    return {std::move(first), std::move(second)};
  }

  // _apply_road
  Tensor apply(const Tensor& x) const {
    const Columns columns = prepare_cols();
    const std::int64_t half = config_.group_size / 2;
    const Tensor x_grouped = reshape(x, {x.numel() / config_.group_size, 2, half});
    const Tensor x1 = select(x_grouped, 1, 0), x2 = select(x_grouped, 1, 1);
    Tensor rotate_half_x;
    {
      TensorList halves;
      halves.push_back(neg(x2));
      halves.push_back(x1);
      rotate_half_x = reshape(stack(halves, 1), x.sizes());
    }
    const Tensor left = mul(x, columns.first);
    const Tensor right = mul(rotate_half_x, columns.second);
    return add(left, right);
  }

  Tensor forward(const Linear& base_layer, const Tensor& x) const override {
    Tensor result = base_layer.forward(x);
    const DType result_dtype = result.dtype();
    result = to(result, road_theta_.tensor.dtype());
    result = apply(result);
    return to(result, result_dtype);
  }

  const RoadConfig& config_;
  AdapterParameter road_theta_, road_alpha_;
};

}  // namespace

std::shared_ptr<const PeftMethod> read_road(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<RoadConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  config->variant = reader.choice(
      "variant", config->variant,
      {{"road_1", RoadVariant::road_1}, {"road_2", RoadVariant::road_2}, {"road_4", RoadVariant::road_4}});
  config->group_size = reader.integer("group_size", config->group_size);
  if (config->group_size % 2 != 0)
    reader.fail_found("group_size", "inconsistent", "The group_size must be divisible by 2 when using RoadLayer.");
  reader.ignore({"init_weights"});
  return config;
}

}  // namespace oometer
