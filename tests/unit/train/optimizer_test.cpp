#include "train/optimizer.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "process.h"

namespace oometer {
namespace {

/// Two weights of 1,000 and 3,000 fp32 elements with gradients, and an optimizer of them.
struct Training {
  Process p;
  std::vector<Parameter> parameters;
  std::unique_ptr<Optimizer> optimizer;

  explicit Training(const OptimizerConfig& config) : optimizer(make_optimizer(p.context, config)) {
    for (std::int64_t size : {1000, 3000}) {
      const Builder b = p.builder(DType::float32);
      b.parameter("weight", {size});
    }
    parameters = p.parameters;
    optimizer->add_group(parameters);
    give_gradients();
  }

  void give_gradients() {
    for (Parameter& parameter : parameters)
      parameter.tensor->grad = empty(p.context, Op::mm, parameter.tensor.sizes(), DType::float32, Role::gradient);
  }

  Bytes step() {
    p.mark();
    optimizer->step();
    return p.events();
  }
};

constexpr std::int64_t kA = 4000, kB = 12000;

TEST_CASE("AdamW's moments are born in the first step", "[train]") {
  Training t({OptimizerName::adamw, OptimizerImplementation::foreach_, 0, 1, false, {}, {}});
  // moments by parameter; then the roots of all second moments at once, in a list, which Python empties from its end
  CHECK(t.step() == Bytes{kA, kA, kB, kB, kA, kB, -kB, -kA});
  CHECK(t.step() == Bytes{kA, kB, -kB, -kA});
  CHECK(t.p.alive(Role::optimizer_state) == 2 * (kA + kB));
}

TEST_CASE("The fused kernel keeps its step counters on the device and needs nothing else", "[train]") {
  Training t({OptimizerName::adamw, OptimizerImplementation::fused, 0, 1, false, {}, {}});
  CHECK(t.step() == Bytes{4, kA, kA, 4, kB, kB});
  CHECK(t.step().empty());
}

TEST_CASE("The for-loop needs two tensors of one parameter at a time, the last one's stay until the next", "[train]") {
  Training t({OptimizerName::adam, OptimizerImplementation::for_loop, 0, 1, false, {}, {}});
  t.step();
  CHECK(t.step() == Bytes{kA, kA, -kA, kB, kB, -kB, -kA, -kB});
}

TEST_CASE("SGD has a state only with momentum", "[train]") {
  Training plain({OptimizerName::sgd, OptimizerImplementation::foreach_, 0, 1, false, {}, {}});
  CHECK(plain.step().empty());
  Training momentum({OptimizerName::sgd, OptimizerImplementation::foreach_, 0.9, 1, false, {}, {}});
  CHECK(momentum.step() == Bytes{kA, kB});
  CHECK(momentum.step().empty());
}

TEST_CASE("Adagrad's states are there before the first step, its counters on the device once it is prepared",
          "[train]") {
  OptimizerConfig config;
  config.name = OptimizerName::adagrad;
  config.implementation = OptimizerImplementation::foreach_;
  config.args.weight_decay = 0.1;
  Training t(config);
  CHECK(t.p.alive(Role::optimizer_state) == kA + kB);
  // decayed gradients, which then hold the numerators, and the roots
  CHECK(t.step() == Bytes{kA, kB, kA, kB, -kB, -kA, -kB, -kA});
  t.optimizer->prepare();
  CHECK(t.p.alive(Role::optimizer_state) == kA + kB + 2 * 4);
}

TEST_CASE("SGD's weight decay copies the gradients, and the first copies stay no longer than the momentum", "[train]") {
  OptimizerConfig config{OptimizerName::sgd, OptimizerImplementation::foreach_, 0.9, 1, false, {}, {}};
  config.args.weight_decay = 0.1;
  Training t(config);
  CHECK(t.step() == Bytes{kA, kB, kA, kB, -kB, -kA});
  CHECK(t.step() == Bytes{kA, kB, -kB, -kA});
}

TEST_CASE("A parameter without a gradient gets no state and no temporary", "[train]") {
  Training t({OptimizerName::adamw, OptimizerImplementation::foreach_, 0, 1, false, {}, {}});
  t.parameters[1].tensor->grad.reset();
  CHECK(t.step() == Bytes{kA, kA, kA, -kA});
}

TEST_CASE("Groups are stepped one after another: the temporaries are one group's", "[train]") {
  Process p;
  const Tensor a = p.parameter({1000}, DType::float32), b = p.parameter({3000}, DType::float32);
  const auto optimizer = make_optimizer(p.context, {});
  optimizer->add_group({p.parameters[0]});
  optimizer->add_group({p.parameters[1]});
  CHECK(optimizer->group_count() == 2);
}

TEST_CASE("zero_grad lets the gradients go", "[train]") {
  Training t({});
  CHECK(t.p.alive(Role::gradient) == kA + kB);
  t.optimizer->zero_grad();
  CHECK(t.p.alive(Role::gradient) == 0);
}

TEST_CASE("Two groups: with and without weight decay; empty ones are left out", "[train]") {
  Process p;
  const Linear fc(p.builder(), 8, 8, true);
  const LayerNorm norm(p.builder(), 8);
  auto groups = parameter_groups(p.parameters, 2);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].size() == 1);
  CHECK(groups[1].size() == 3);
  CHECK(parameter_groups(p.parameters, 1).size() == 1);
  fc.weight->leaf_requires_grad = false;
  groups = parameter_groups(p.parameters, 2);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].size() == 3);
}

TEST_CASE("Clipping allocates partial norms, a norm a gradient, and a few scalars", "[train]") {
  Training t({});
  t.parameters[1].tensor->grad = empty(t.p.context, Op::mm, {200'000}, DType::float32, Role::gradient);
  t.p.mark();
  clip_grad_norm(t.p.context, t.parameters);
  const Bytes events = t.p.events();
  // chunk offsets, partial results (1 + 4 chunks of 65536), two norms; then the stack and its norm
  REQUIRE(events.size() >= 8);
  CHECK(Bytes(events.begin(), events.begin() + 4) == Bytes{8 * 3, 4 * 5, 4, 4});
  std::int64_t balance = 0;
  for (const std::int64_t bytes : events) balance += bytes;
  CHECK(balance == 0);
}

TEST_CASE("bitsandbytes' 8-bit moments are bytes with a number a block, from 4,096 elements on", "[train]") {
  Process p;
  Builder builder = p.builder();
  builder.parameter("weight", {300, 100});
  builder.parameter("weight", {64});
  builder.child("embed_tokens", "Embedding").parameter("weight", {100, 64});
  OptimizerConfig config;
  config.implementation = OptimizerImplementation::bnb_8bit;
  const auto optimizer = make_optimizer(p.context, config);
  optimizer->add_group(p.parameters);
  const auto step = [&] {
    for (Parameter& parameter : p.parameters)
      parameter.tensor->grad = empty(p.context, Op::mm, parameter.tensor.sizes(), DType::bfloat16, Role::gradient);
    p.mark();
    optimizer->step();
    return p.events();
  };
  // Two maps of 256 numbers; two bytes an element, 118 blocks of 256; a small weight's and an embedding's fp32 moments.
  CHECK(step() == Bytes{1024, 1024, 30000, 30000, 472, 472, 256, 256, 25600, 25600});
  CHECK(step().empty());
  CHECK(optimizer->host_bytes() == 0);
}

TEST_CASE("bitsandbytes pages moments of 100,000 elements or more, and not their blocks' numbers", "[train]") {
  Process p;
  p.parameter({400, 250});
  p.parameter({333, 300});
  OptimizerConfig config;
  config.implementation = GENERATE(OptimizerImplementation::bnb_8bit, OptimizerImplementation::bnb_32bit);
  config.paged = true;
  const auto optimizer = make_optimizer(p.context, config);
  for (Parameter& parameter : p.parameters)
    parameter.tensor->grad = empty(p.context, Op::mm, parameter.tensor.sizes(), DType::bfloat16, Role::gradient);
  optimizer->add_group(p.parameters);
  p.mark();
  optimizer->step();
  const bool bytes = config.implementation == OptimizerImplementation::bnb_8bit;
  CHECK(optimizer->host_bytes() == 2 * 100'000 * (bytes ? 1 : 4));
  CHECK(p.allocations() == (bytes ? Bytes{1024, 1024, 1564, 1564, 99900, 99900, 1564, 1564} : Bytes{399600, 399600}));
}

}  // namespace
}  // namespace oometer
