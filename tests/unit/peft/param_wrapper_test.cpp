#include "peft/param_wrapper.h"

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/kit/experts.h"
#include "ops/ops.h"
#include "process.h"

namespace oometer {
namespace {

constexpr std::int64_t kExperts = 5, kHidden = 32, kWidth = 24, kLow = 4;

LoraConfig adapters_of(std::vector<std::string> targets) {
  LoraConfig config;
  config.rank = kLow;
  config.target_parameters = std::move(targets);
  return config;
}

/// A process with experts in bf16, some of whose parameters have adapters.
struct WithExperts : Process {
  explicit WithExperts(std::vector<std::string> targets, bool is_transposed = false)
      : config(adapters_of(std::move(targets))), model(context, config) {
    Builder outer = builder();
    outer.wrapping = &model;
    outer.child("other", "Other").parameter("weight", {3, 3});
    ExpertsParts parts;
    parts.is_transposed = is_transposed;
    experts = Experts(outer.child("experts", "TinyExperts"), kExperts, kHidden, kWidth, Activation::silu, parts);
    error = model.inject(parameters, {});
  }
  std::set<std::string> trained() const {
    std::set<std::string> names;
    for (const Parameter& parameter : parameters)
      if (parameter.tensor->leaf_requires_grad) names.insert(module_path(log(), parameter.module));
    return names;
  }
  const Parameter& at(const std::string& module, const std::string& name) const {
    for (const Parameter& parameter : parameters)
      if (module_path(log(), parameter.module) == module && parameter.name == name) return parameter;
    FAIL(module + " has no " + name);
    return parameters.front();
  }

  LoraConfig config;
  LoraModel model;
  Experts experts;
  std::optional<Error> error;
};

TEST_CASE("Each adapted parameter of experts has a wrapper, the last one's outermost", "[peft]") {
  const WithExperts p({"experts.gate_up_proj", "down_proj"});
  REQUIRE_FALSE(p.error);
  CHECK(p.trained() == std::set<std::string>{"experts.base_layer.lora_A.default", "experts.base_layer.lora_B.default",
                                             "experts.lora_A.default", "experts.lora_B.default"});
  CHECK(p.at("experts.base_layer.base_layer", "down_proj").tensor.sizes() == Shape{kExperts, kHidden, kWidth});
  const auto sizes = [&](const char* module) { return p.at(module, "weight").tensor.sizes(); };
  CHECK(sizes("experts.base_layer.lora_A.default") == Shape{kLow * kExperts, kHidden});
  CHECK(sizes("experts.base_layer.lora_B.default") == Shape{2 * kWidth, kLow * kExperts});
  CHECK(sizes("experts.lora_A.default") == Shape{kLow * kExperts, kWidth});
  CHECK(sizes("experts.lora_B.default") == Shape{kHidden, kLow * kExperts});
}

TEST_CASE("Experts whose weights are [experts, in, out] have adapters of the same sizes", "[peft]") {
  const WithExperts p({"gate_up_proj"}, true);
  REQUIRE_FALSE(p.error);
  CHECK(p.at("experts.base_layer", "gate_up_proj").tensor.sizes() == Shape{kExperts, kHidden, 2 * kWidth});
  CHECK(p.at("experts.lora_A.default", "weight").tensor.sizes() == Shape{kLow * kExperts, kHidden});
  CHECK(p.at("experts.lora_B.default", "weight").tensor.sizes() == Shape{2 * kWidth, kLow * kExperts});
}

TEST_CASE("Adapted weights are there from when they are asked for until the module returns", "[peft]") {
  WithExperts p({"gate_up_proj", "down_proj"});
  REQUIRE_FALSE(p.error);
  const NoGrad no_grad(p.context);
  const NamedParameter projections[] = {{"gate_up_proj", p.experts.gate_up_proj}, {"down_proj", p.experts.down_proj}};
  const auto alive = [&] { return p.alive(Role::tensor); };
  const std::int64_t before = alive();
  {
    const ParameterValues values(p.experts.wrapper, projections);
    const std::int64_t factors = alive() - before;  // bf16 copies of float32 adapters
    CHECK(factors == 2 * kLow * kExperts * (kHidden + 2 * kWidth + kWidth + kHidden));
    for (int again = 0; again < 2; ++again) values("gate_up_proj", p.experts.gate_up_proj);
    CHECK(alive() - before == factors + 2 * p.experts.gate_up_proj.numel());
    CHECK(values("down_proj", p.experts.down_proj).sizes() == p.experts.down_proj.sizes());
    CHECK(alive() - before == factors + 2 * (p.experts.gate_up_proj.numel() + p.experts.down_proj.numel()));
  }
  CHECK(alive() == before);
}

TEST_CASE("A parameter that cannot have an adapter here is named", "[peft]") {
  const WithExperts p({"other.weight"});
  REQUIRE(p.error);
  CHECK(p.error->code == "not-modelled");
}

TEST_CASE("Without targets among them experts stay as they are", "[peft]") {
  const WithExperts p({"proj.weight"});
  CHECK_FALSE(p.experts.wrapper);
  REQUIRE(p.error);  // nothing was targeted
  CHECK(p.error->code == "inconsistent");
}

}  // namespace
}  // namespace oometer
