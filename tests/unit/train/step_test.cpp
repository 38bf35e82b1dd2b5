#include "train/step.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "jobs.h"

namespace oometer {
namespace {

std::vector<std::string> phases(const Log& log) {
  std::vector<std::string> names;
  for (const PhaseMark& mark : log.phases)
    names.push_back(std::string(phase_name(mark.name)) + std::to_string(int{mark.iteration}));
  return names;
}

int allocations_by(const Log& log, const std::string& op) {
  int count = 0;
  for (const Event& event : log.events)
    if (event.kind == EventKind::alloc && log.ops[event.op] == op) ++count;
  return count;
}

TEST_CASE("A run is init and two iterations of three phases", "[train]") {
  CHECK(phases(run_log(tiny_llama())) == std::vector<std::string>{"init0", "forward1", "backward1", "optimizer1",
                                                                  "forward2", "backward2", "optimizer2"});
}

TEST_CASE("Accumulation runs three micro-steps for any more of them, the gradients stay between", "[train]") {
  const Log two = run_log(tiny_llama(R"("gradient_accumulation_steps": 2)"));
  const Log three = run_log(tiny_llama(R"("gradient_accumulation_steps": 3)"));
  const Log many = run_log(tiny_llama(R"("gradient_accumulation_steps": 64)"));
  CHECK(phases(two).size() == 1 + 2 * 5);
  CHECK(phases(three).size() == 1 + 2 * 7);
  CHECK(three.events.size() == many.events.size());
  std::int64_t gradients = 0;
  const std::uint32_t second = two.phases[3].first_event;
  CHECK(two.phases[3].name == PhaseName::forward);
  for (const StorageRecord& s : two.storages)
    if (s.role == Role::gradient && s.alloc_event < second && s.free_event >= second) gradients += s.bytes;
  CHECK(gradients == 2 * simulation_of(tiny_llama()).trainable);
}

TEST_CASE("An average of the weights is a copy of the model, made before the first step", "[train]") {
  const Log averaged = run_log(tiny_llama(R"("ema": true)")), plain = run_log(tiny_llama());
  const auto kept = [](const Log& log) {
    std::int64_t bytes = 0;
    for (const StorageRecord& s : log.storages)
      if ((s.role == Role::parameter || s.role == Role::buffer) && s.alloc_event < log.phases[1].first_event &&
          s.free_event == kNever)
        bytes += s.bytes;
    return bytes;
  };
  CHECK(kept(averaged) == 2 * kept(plain));
}

TEST_CASE("Outputs that the loop keeps live until the step is over, and no longer", "[train]") {
  const auto logits_alive = [](const Log& log, std::size_t phase) {
    for (const StorageRecord& s : log.storages)
      if (s.module != 0 && s.role == Role::tensor && s.alloc_event >= log.phases[phase - 2].first_event &&
          s.alloc_event < log.phases[phase - 1].first_event && !s.saved && s.free_event > log.phases[phase].first_event)
        return true;
    return false;
  };
  const Log kept = run_log(tiny_llama(R"("keep_outputs": true)")), dropped = run_log(tiny_llama());
  for (const std::size_t optimizer : {std::size_t{3}, std::size_t{6}}) {
    REQUIRE(kept.phases[optimizer].name == PhaseName::optimizer);
    CHECK(logits_alive(kept, optimizer));
    CHECK_FALSE(logits_alive(dropped, optimizer));
  }
  CHECK(kept.events.size() == dropped.events.size());
}

TEST_CASE("A loss that the loop computes itself is kept with the outputs", "[train]") {
  const auto loss_in_step = [](const char* keeps) {
    const Log log = run_log(std::string(R"({"model": {"config": {"model_type": "clip_vision_model", "hidden_size": 64,
      "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 56, "patch_size": 14}},
      "training": {"precision": "bf16", "loss": "pooler_output", "keep_outputs": )") +
                            keeps + "}}");
    const PhaseMark& optimizer = log.phases[3];
    std::int64_t bytes = 0;
    for (const StorageRecord& s : log.storages)
      if (s.ndim == 0 && s.role == Role::tensor && s.alloc_event < log.phases[2].first_event &&
          s.free_event > optimizer.first_event)
        bytes += s.bytes;
    return bytes;
  };
  CHECK(loss_in_step("true") == 4);
  CHECK(loss_in_step("false") == 0);
}

TEST_CASE("A loss that nothing trained has a part in is refused as PyTorch does", "[train]") {
  const auto refusal = [](const char* freeze, int images) {
    return simulation_of(
               tiny_llava(R"("precision": "bf16", "stage": "custom", "freeze": [)" + std::string(freeze) + "]", "",
                          R"("sequence_length": 64, "images_per_sample": )" + std::to_string(images)))
        .refusal;
  };
  REQUIRE(refusal(R"("language_model", "lm_head")", 0));
  CHECK(refusal(R"("language_model", "lm_head")", 0)->pointer == "/training");
  CHECK_FALSE(refusal(R"("language_model", "lm_head")", 1));
  CHECK_FALSE(refusal(R"("vision_tower")", 0));
}

TEST_CASE("A run does not go on where its forward is refused", "[train]") {
  // Each layer's backward would go through the norm of the relative positions again.
  const Simulation run = simulation_of(
      R"({"model": {"preset": "deberta-v3-base"}, "data": {"sequence_length": 64},
          "training": {"activation_checkpointing": "reentrant"}})");
  REQUIRE(run.refusal);
  CHECK(run.refusal->pointer == "/training/activation_checkpointing");
  const Simulation muon =
      simulation_of(tiny_llama(R"("precision": "bf16", "optimizer": {"name": "torch.optim.Muon"})"));
  REQUIRE(muon.refusal);
  CHECK(muon.refusal->pointer == "/training/optimizer");
}

TEST_CASE("Weights, gradients and moments take what the precision says", "[train]") {
  struct Row {
    const char* precision;
    std::int64_t weight;
  };
  const Row row = GENERATE(Row{"fp32", 4}, Row{"bf16", 2}, Row{"fp16", 2}, Row{"amp-bf16", 4}, Row{"amp-fp16", 4});
  const std::string training =
      std::string(R"("optimizer": {"implementation": "foreach"}, "precision": ")") + row.precision + '"';
  const Simulation s = simulation_of(tiny_llama(training));
  CAPTURE(row.precision);
  CHECK(alive_at(s.log, Role::parameter, PhaseName::forward, 1) == row.weight * s.parameters);
  CHECK(alive_at(s.log, Role::gradient, PhaseName::optimizer, 1) == row.weight * s.parameters);
  const std::int64_t scaler = std::string(row.precision) == "amp-fp16" ? 8 : 0;  // scale and growth tracker
  CHECK(alive_at(s.log, Role::optimizer_state, PhaseName::forward, 2) == 2 * row.weight * s.parameters + scaler);
}

TEST_CASE("No gradient outlives its step", "[train]") {
  const Log log = run_log(tiny_llama());
  CHECK(alive_at(log, Role::gradient, PhaseName::forward, 2) == 0);
}

TEST_CASE("The gradient scaler is for fp16 under autocast alone", "[train]") {
  CHECK(allocations_by(run_log(tiny_llama(R"("precision": "amp-fp16")")), "scale") == 2);
  CHECK(allocations_by(run_log(tiny_llama(R"("precision": "amp-bf16")")), "scale") == 0);
  CHECK(allocations_by(run_log(tiny_llama(R"("precision": "fp16")")), "scale") == 0);
}

TEST_CASE("Gradients are clipped if a norm is given", "[train]") {
  CHECK(allocations_by(run_log(tiny_llama()), "foreach_norm") == 0);
  CHECK(allocations_by(run_log(tiny_llama(R"("max_grad_norm": 1.0)")), "foreach_norm") > 0);
}

TEST_CASE("Checkpointing keeps less and runs blocks again", "[train]") {
  const auto kept = [](const std::string& mode) {
    return alive_at(run_log(tiny_llama(R"("activation_checkpointing": ")" + mode + '"')), Role::tensor,
                    PhaseName::backward, 1);
  };
  CHECK(kept("non-reentrant") < kept("none"));
  CHECK(kept("reentrant") <= kept("non-reentrant"));
  const auto recomputed = [](const std::string& mode) {
    std::int64_t bytes = 0;
    for (const StorageRecord& s : run_log(tiny_llama(R"("activation_checkpointing": ")" + mode + '"')).storages)
      if (s.recomputed) bytes += s.bytes;
    return bytes;
  };
  CHECK(recomputed("none") == 0);
  CHECK(recomputed("non-reentrant") > 0);
  CHECK(recomputed("reentrant") > recomputed("non-reentrant"));
}

TEST_CASE("A run that is refused in its forward ends there", "[train]") {
  // Its backward would go through the norm of the relative positions a second time.
  const Simulation simulation = simulation_of(
      R"({"model": {"preset": "deberta-v3-base"}, "training": {"activation_checkpointing": "reentrant"}})");
  REQUIRE(simulation.refusal);
  CHECK(simulation.refusal->pointer == "/training/activation_checkpointing");
}

}  // namespace
}  // namespace oometer
