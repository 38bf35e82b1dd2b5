#include "nn/module.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/checkpointing.h"
#include "process.h"

namespace oometer {
namespace {

TEST_CASE("A module's weights are allocated under its path, in order", "[nn]") {
  Process p;
  const Builder layer = p.builder().child("layers", "Layer", 3);
  const Linear fc(layer.child("fc", "Linear"), 8, 4, true);
  REQUIRE(p.parameters.size() == 2);
  CHECK(std::string(p.parameters[0].name) == "weight");
  CHECK(std::string(p.parameters[1].name) == "bias");
  CHECK(p.allocations() == Bytes{64, 8});
  CHECK(module_path(p.log(), p.log().events[0].module) == "layers.3.fc");
  CHECK(p.alive(Role::parameter) == 72);
}

TEST_CASE("Weight decay leaves biases and norms out", "[nn]") {
  Process p;
  const Linear fc(p.builder(), 8, 4, true);
  const LayerNorm norm(p.builder(), 8);
  const Embedding embedding(p.builder(), 16, 8);
  std::vector<bool> decays;
  for (const Parameter& parameter : p.parameters) decays.push_back(parameter.decays);
  CHECK(decays == std::vector<bool>{true, false, false, false, true});
}

TEST_CASE("A child keeps its parent's modality unless it has its own", "[nn]") {
  Process p;
  const Builder tower = p.builder().child("tower", "Tower", Modality::vision);
  const Builder layer = tower.child("layers", "Layer", 0);
  CHECK(p.log().modules[layer.module].modality == Modality::vision);
}

TEST_CASE("A module's forward runs under its name", "[nn]") {
  Process p;
  const Builder child = p.builder().child("fc", "Linear");
  const Linear fc(child, 8, 4, false);
  const Tensor x = p.input({2, 8});
  const std::size_t begin = p.log().events.size();
  const Tensor y = fc(x);
  for (std::size_t i = begin; i < p.log().events.size(); ++i) CHECK(p.log().events[i].module == child.module);
  CHECK(p.context.module == p.root);
}

TEST_CASE("Activations made of several operators keep what those keep", "[nn]") {
  Process p;
  const Tensor x = p.input({256}, DType::bfloat16, true);
  // quick_gelu: sigmoid's result, which the product keeps too; the input.
  const Tensor y = activate(Activation::quick_gelu, x);
  CHECK(p.saved() == Bytes{512});
  CHECK(p.context.record(x)->saved);
}

TEST_CASE("Attention is PyTorch's choice on the device: flash, then efficient", "[nn]") {
  struct Row {
    Device device;
    DType dtype;
    std::string expected;
  };
  const Row row = GENERATE(
      Row{kA100, DType::bfloat16, "flash_attention"}, Row{kA100, DType::float32, "efficient_attention"},
      Row{Device{7, 5, 40}, DType::float16, "efficient_attention"}, Row{kH100, DType::bfloat16, "flash_attention"});
  Process p(recorded_behaviours(), row.device);
  const Tensor q = p.input({1, 4, 128, 64}, row.dtype, true);
  const std::size_t begin = p.log().events.size();
  attention_forward({AttentionKind::sdpa, true, 0}, q, q, q, {});
  CHECK(p.log().ops[p.log().events[begin].op] == row.expected);
}

TEST_CASE("Eager attention repeats grouped keys and values and returns its weights", "[nn]") {
  Process p;
  const Tensor q = p.input({1, 8, 64, 32}), kv = p.input({1, 2, 64, 32}), mask = p.input({1, 1, 64, 64});
  p.mark();
  const AttentionOutputs outputs = attention_forward({AttentionKind::eager, false, 0}, q, kv, kv, mask);
  CHECK(outputs.weights.sizes() == Shape{1, 8, 64, 64});
  CHECK(outputs.output.sizes() == Shape{1, 64, 8, 32});
  const Bytes allocations = p.allocations();
  CHECK(Bytes(allocations.begin(), allocations.begin() + 2) == Bytes{8 * 64 * 32 * 2, 8 * 64 * 32 * 2});
}

}  // namespace
}  // namespace oometer
