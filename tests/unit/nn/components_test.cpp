#include "nn/components.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "jobs.h"
#include "process.h"
#include "trace/same_log.h"

namespace oometer {
namespace {

constexpr std::int64_t kMlpElements = 3 * 64 * 176, kHeadElements = 512 * 64,
                       kProjectorElements = 32 * 64 + 64 + 64 * 64 + 64;

std::int64_t total() { return simulation_of(tiny_llava()).parameters; }

std::int64_t trainable(const std::string& components) {
  return simulation_of(tiny_llava(R"("stage": "custom", )" + components)).trainable;
}

TEST_CASE("freeze names components at any depth", "[nn]") {
  CHECK(trainable(R"("freeze": ["lm_head"])") == total() - kHeadElements);
  CHECK(trainable(R"("freeze": ["mlp.gate_proj"])") == total() - 2 * 64 * 176);  // of both layers; the tower has none
  CHECK(trainable(R"("freeze": ["language_model.layers.0.mlp"])") == total() - kMlpElements);
  CHECK(trainable(R"("freeze": ["model.language_model.layers.0.mlp"])") == total() - kMlpElements);
  CHECK(trainable(R"("freeze": ["lm_head", "multi_modal_projector"])") == total() - kHeadElements - kProjectorElements);
}

TEST_CASE("A name is a whole component, not the end of one", "[nn]") {
  CHECK(trainable(R"("train_only": ["multi_modal_projector"])") == kProjectorElements);
  CHECK(trainable(R"("train_only": ["linear_1"])") == 32 * 64 + 64);
  CHECK(trainable(R"("freeze": ["language_model.layers.1"])") > trainable(R"("freeze": ["layers.1"])"));
}

TEST_CASE("train_only freezes the rest, freeze wins over it", "[nn]") {
  CHECK(trainable(R"("train_only": ["multi_modal_projector", "lm_head"], "freeze": ["lm_head"])") ==
        kProjectorElements);
}

TEST_CASE("A single parameter can be named", "[nn]") {
  CHECK(trainable(R"("train_only": ["linear_1.bias"])") == 64);
  CHECK(trainable(R"("train_only": ["class_embedding"])") == 32);
}

TEST_CASE("What is frozen has no gradient and no state", "[nn]") {
  const Log log = run_log(tiny_llava(R"("stage": "pretrain", "optimizer": {"implementation": "foreach"})"));
  CHECK(alive_at(log, Role::gradient, PhaseName::optimizer, 1) == 2 * kProjectorElements);
  CHECK(alive_at(log, Role::optimizer_state, PhaseName::forward, 2) == 2 * 2 * kProjectorElements);
}

TEST_CASE("Without a gradient's path to it a frozen tower keeps nothing", "[nn]") {
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

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string refusal(const std::string& training) {
  const Result<Estimate> result = estimate(tiny_llava(training));
  return result ? "" : result.error().code + " " + result.error().pointer + ": " + result.error().message;
}

TEST_CASE("A name that means nothing in the model is an error with the nearest names", "[nn]") {
  CHECK(refusal(R"("stage": "custom", "freeze": ["vison_tower"])") ==
        "unknown-value /training/freeze/0: found \"vison_tower\", expected a module or a parameter of "
        "LlavaForConditionalGeneration, for example vision_tower");
  CHECK(refusal(R"("stage": "custom", "freeze": ["lm_head", "no_such_thing"])") ==
        "unknown-value /training/freeze/1: found \"no_such_thing\", expected a module or a parameter of "
        "LlavaForConditionalGeneration, for example language_model, lm_head, model, multi_modal_projector, "
        "vision_tower");
  CHECK(says(refusal(R"("stage": "custom", "train_only": ["language_model.layer"])"),
             R"(/training/train_only/0: found "language_model.layer")"));
  CHECK(says(refusal(R"("stage": "custom", "train_only": ["language_model.layer"])"), "language_model.layers"));
  CHECK(says(refusal(R"("stage": "custom", "freeze": ["linear_1.bais"])"), "for example linear_1.bias"));
  CHECK(says(refusal(R"("stage": "custom", "no_grad": ["tower"])"), "/training/no_grad/0: found \"tower\""));
  CHECK(says(refusal(R"("stage": "custom", "no_grad": ["linear_1.bias"])"), "expected a module of Llava"));
  CHECK(says(refusal(R"("stage": "finetune", "lora": {"target_modules": ["linear_1"], "also_train": ["projector"]})"),
             R"(/training/lora/also_train/0: found "projector")"));
  CHECK(says(refusal(R"("stage": "finetune", "lora": {"target_modules": ["linear_1"], "modules_to_save": ["score"]})"),
             R"(/training/lora/modules_to_save/0: found "score")"));
  CHECK(says(
      refusal(
          R"("stage": "finetune", "ia3": {"target_modules": ["k_proj", "down_proj"], "feedforward_modules": ["down_proj"],
                    "modules_to_save": ["lm_hed"]})"),
      "/training/ia3/modules_to_save/0: found \"lm_hed\", expected a module of LlavaForConditionalGeneration, "
      "for example lm_head"));
}

/// Bytes that backward finds kept by what runs in modules whose path ends so.
std::int64_t kept(const std::string& training, std::string_view module) {
  const Log log = run_log(tiny_llava(R"("stage": "custom")" + training));
  const auto begin = std::find_if(log.phases.begin(), log.phases.end(), [](const PhaseMark& mark) {
                       return mark.name == PhaseName::backward && mark.iteration == 1;
                     })->first_event;
  std::int64_t bytes = 0;
  for (const StorageRecord& s : log.storages)
    if (s.role == Role::tensor && s.alloc_event < begin && s.free_event >= begin &&
        module_path(log, s.module).find(module) != std::string::npos)
      bytes += s.bytes;
  return bytes;
}

TEST_CASE("no_grad keeps nothing of any module that it names, nor of what only that one leads to", "[nn]") {
  CHECK(kept("", "linear_1") > 0);
  CHECK(kept(R"(, "no_grad": ["multi_modal_projector"])", "linear_1") == 0);
  CHECK(kept("", "vision_tower.encoder") > 0);
  CHECK(kept(R"(, "no_grad": ["multi_modal_projector"])", "vision_tower.encoder") == 0);
  CHECK(kept("", "language_model.layers.1.mlp") > 0);
  CHECK(kept(R"(, "no_grad": ["language_model.layers.1.mlp"])", "language_model.layers.1.mlp") == 0);
  CHECK(kept(R"(, "no_grad": ["language_model.layers.1.mlp"])", "language_model.layers.0.mlp") ==
        kept("", "language_model.layers.0.mlp"));
  CHECK(kept(R"(, "no_grad": ["language_model.layers"])", "language_model.layers.0.mlp") ==
        0);  // a list: each of its items
}

TEST_CASE("A block without gradients among equal ones is not taken for one of them", "[nn]") {
  const auto job = [](const char* no_grad) {
    return std::string(R"({"version": 1, "model": {"config": {"model_type": "llama", "hidden_size": 64,
      "intermediate_size": 176, "num_hidden_layers": 12, "num_attention_heads": 4, "vocab_size": 512}},
      "data": {"micro_batch_size": 1, "sequence_length": 16}, "training": {"stage": "custom", "no_grad": [)") +
           no_grad + R"(]}, "gpu": {"name": "a100-80gb"}})";
  };
  const Job one = job_of(job(R"("layers.5.mlp")"));
  CHECK(difference(simulate(one, resolve_behaviours(one.runtime)).log,
                   simulate(one, resolve_behaviours(one.runtime), false).log) == "");
}

TEST_CASE("A block under no_grad in a reentrant checkpoint is an error, as in PyTorch", "[nn]") {
  constexpr const char* kNoGrad = R"("stage": "custom", "no_grad": ["language_model.layers.1"])";
  CHECK(refusal(kNoGrad) == "");
  CHECK(refusal(std::string(kNoGrad) + R"(, "activation_checkpointing": "non-reentrant")") == "");
  CHECK(says(refusal(std::string(kNoGrad) + R"(, "activation_checkpointing": "reentrant")"),
             "none of output has requires_grad=True"));
}

TEST_CASE("Names mean modules of one model of several", "[nn]") {
  Process p;
  const auto build = [&](ModuleId root, std::vector<Parameter>& parameters) {
    const Builder builder{&p.context, &parameters, &p.buffers, root, Modality::none, kBf16};
    return std::pair(Linear(builder.child("head", "Linear"), 4, 4, false),
                     Linear(builder.child("body", "Linear"), 4, 4, false));
  };
  std::vector<Parameter> of_second;
  const auto [head, body] = build(p.root, p.parameters);
  const ModuleId second = p.context.add_root("Test", Modality::none);
  const auto [second_head, second_body] = build(second, of_second);
  REQUIRE_FALSE(
      apply_components(p.context, second, of_second, {.freeze = {"head"}, .train_only = {}, .no_grad = {"body"}}));
  CHECK(head.weight->leaf_requires_grad);
  CHECK_FALSE(second_head.weight->leaf_requires_grad);
  CHECK_FALSE(p.context.is_without_grad(body.module));
  CHECK(p.context.is_without_grad(second_body.module));
}

}  // namespace
}  // namespace oometer
