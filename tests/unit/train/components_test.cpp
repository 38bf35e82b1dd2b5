#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "jobs.h"

namespace oometer {
namespace {

constexpr std::int64_t kMlp = 3 * 64 * 176, kHead = 512 * 64, kProjector = 32 * 64 + 64 + 64 * 64 + 64;

std::int64_t total() { return simulation_of(tiny_llava()).parameters; }

std::int64_t trainable(const std::string& components) {
  return simulation_of(tiny_llava(R"("stage": "custom", )" + components)).trainable;
}

TEST_CASE("freeze names components at any depth", "[train]") {
  CHECK(trainable(R"("freeze": ["lm_head"])") == total() - kHead);
  CHECK(trainable(R"("freeze": ["mlp.gate_proj"])") == total() - 2 * 64 * 176);  // of both layers; the tower has none
  CHECK(trainable(R"("freeze": ["language_model.layers.0.mlp"])") == total() - kMlp);
  CHECK(trainable(R"("freeze": ["model.language_model.layers.0.mlp"])") == total() - kMlp);
  CHECK(trainable(R"("freeze": ["lm_head", "multi_modal_projector"])") == total() - kHead - kProjector);
}

TEST_CASE("A name is a whole component, not the end of one", "[train]") {
  CHECK(trainable(R"("train_only": ["multi_modal_projector"])") == kProjector);
  CHECK(trainable(R"("train_only": ["linear_1"])") == 32 * 64 + 64);
  CHECK(trainable(R"("freeze": ["language_model.layers.1"])") > trainable(R"("freeze": ["layers.1"])"));
}

TEST_CASE("train_only freezes the rest, freeze wins over it", "[train]") {
  CHECK(trainable(R"("train_only": ["multi_modal_projector", "lm_head"], "freeze": ["lm_head"])") == kProjector);
}

TEST_CASE("A single parameter can be named", "[train]") {
  CHECK(trainable(R"("train_only": ["linear_1.bias"])") == 64);
  CHECK(trainable(R"("train_only": ["class_embedding"])") == 32);
}

TEST_CASE("What is frozen has no gradient and no state", "[train]") {
  const Log log = run_log(tiny_llava(R"("stage": "pretrain", "optimizer": {"implementation": "foreach"})"));
  CHECK(alive_at(log, Role::gradient, PhaseName::optimizer, 1) == 2 * kProjector);
  CHECK(alive_at(log, Role::optimizer_state, PhaseName::forward, 2) == 2 * 2 * kProjector);
}

TEST_CASE("Without a gradient's path to it a frozen tower keeps nothing", "[train]") {
  const auto kept = [](const std::string& stage) {
    const Log log = run_log(tiny_llava(R"("stage": ")" + stage + "\""));
    std::int64_t bytes = 0;
    std::uint32_t begin = 0;
    for (const PhaseMark& mark : log.phases)
      if (mark.name == PhaseName::backward && mark.iteration == 1) begin = mark.first_event;
    for (const StorageRecord& s : log.storages)
      if (s.role == Role::tensor && s.saved && s.alloc_event < begin && s.free_event >= begin &&
          module_path(log, s.module).find("vision_tower.encoder") != std::string::npos)
        bytes += s.bytes;
    return bytes;
  };
  CHECK(kept("full") > 0);
  // The projector keeps the features it was given; they are made outside the tower or are its last layer's.
  CHECK(kept("finetune") < kept("full") / 4);
}

}  // namespace
}  // namespace oometer
