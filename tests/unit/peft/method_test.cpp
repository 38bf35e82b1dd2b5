#include "peft/method.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "jobs.h"
#include "trace/same_log.h"

namespace oometer {
namespace {

std::string with_peft(const std::string& peft, const std::string& more = "") {
  return tiny_llama(R"("precision": "bf16", "peft": )" + peft, more);
}

std::string error_of(const std::string& job) {
  const Result<Estimate> result = estimate(job);
  return result ? "" : result.error().pointer + ": " + result.error().message;
}

bool says(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

TEST_CASE("peft's LoraConfig is the job's own lora", "[peft]") {
  const Simulation own = simulation_of(tiny_llama(
      R"("lora": {"rank": 4, "alpha": 8, "dropout": 0.1, "target_modules": ["q_proj", "down_proj"], "use_dora": true})"));
  const Simulation peft = simulation_of(with_peft(
      R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "lora_dropout": 0.1, "task_type": "CAUSAL_LM",
          "target_modules": ["q_proj", "down_proj"], "use_dora": true})"));
  CHECK(own.trainable == peft.trainable);
  CHECK(difference(own.log, peft.log).empty());
  const Simulation ia3 = simulation_of(tiny_llama(R"("ia3": {})"));
  CHECK(difference(ia3.log, simulation_of(with_peft(R"({"peft_type": "IA3"})")).log).empty());
}

TEST_CASE("An adapter that is not active stays beside the one that trains, and does not run", "[peft]") {
  const std::string one = R"({"peft_type": "LORA", "r": 4, "name": )";
  const Simulation alone = simulation_of(with_peft(R"({"peft_type": "LORA", "r": 4})"));
  const Simulation two =
      simulation_of(with_peft("[" + one + R"("past", "active": false}, )" + one + R"("cur", "active": true}])"));
  CHECK(two.trainable == alone.trainable);
  CHECK(two.parameters == alone.parameters + alone.trainable);
  const Simulation both = simulation_of(with_peft("[" + one + R"("past"}, )" + one + R"("cur", "active": true}])"));
  CHECK(both.trainable == 2 * alone.trainable);
}

TEST_CASE("Ranks and layers are as peft's patterns say", "[peft]") {
  const auto trainable = [](const std::string& more) {
    return simulation_of(with_peft(R"({"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"])" + more + "}"))
        .trainable;
  };
  const std::int64_t all = 2 * 4 * (64 + 64);
  CHECK(trainable("") == all);
  CHECK(trainable(R"(, "layers_to_transform": [1])") == all / 2);
  CHECK(trainable(R"(, "layers_to_transform": 1, "layers_pattern": "layers")") == all / 2);
  CHECK(trainable(R"(, "exclude_modules": ["layers.0.self_attn.q_proj"])") == all / 2);
  CHECK(trainable(R"(, "exclude_modules": ".*1.self_attn.q_proj")") == all / 2);
  CHECK(trainable(R"(, "rank_pattern": {"layers.1.self_attn.q_proj": 12})") == 2 * all);
}

TEST_CASE("VeRA trains two vectors a layer; its matrices are shared, and do not", "[peft]") {
  const Simulation s =
      simulation_of(with_peft(R"({"peft_type": "VERA", "r": 8, "target_modules": ["q_proj", "down_proj"]})"));
  CHECK(s.trainable == 2 * (2 * 8 + 64 + 64));
  std::int64_t buffers = 0;
  for (const StorageRecord& storage : s.log.storages)
    if (storage.role == Role::buffer && module_path(s.log, storage.module).find("vera_") != std::string::npos &&
        storage.free_event == kNever)
      buffers += storage.bytes;
  CHECK(buffers == 4 * 8 * (176 + 64));
}

TEST_CASE("Each method trains as many elements as peft's, and its job can be written and read again", "[peft]") {
  // Of q_proj (64 to 64) and down_proj (176 to 64), in two layers.
  const auto check = [](const std::string& config, std::int64_t trainable) {
    const std::string text = with_peft(R"({"target_modules": ["q_proj", "down_proj"], )" + config + "}");
    INFO(text);
    CHECK(simulation_of(text).trainable == trainable);
    const Job job = job_of(text);
    const Job again = job_of(to_json(job));
    CHECK(to_json(again) == to_json(job));
    CHECK(again.training == job.training);
  };
  const std::int64_t widths = 2 * (64 + 64 + 176 + 64), outputs = 2 * (64 + 64);
  check(R"("peft_type": "LOHA", "r": 4)", 2 * 4 * widths);
  check(R"("peft_type": "LOKR", "r": 40)", 2 * (8 * 8 + 8 * 8 + 8 * 11 + 8 * 16));
  check(R"("peft_type": "HIRA", "r": 4)", 4 * widths);
  check(R"("peft_type": "ROAD", "group_size": 16)", outputs);
  check(R"("peft_type": "DELORA", "r": 4)", 4 * widths + 2 * 2);
  check(R"("peft_type": "GRALORA", "r": 4)", 4 * widths);
  check(R"("peft_type": "OFT", "oft_block_size": 16)", 2 * (4 + 11) * 120);
  check(R"("peft_type": "ADALORA", "init_r": 4, "total_step": 9)", 4 * widths + 2 * 2 * (4 + 1));
  check(R"("peft_type": "VBLORA", "r": 2, "num_vectors": 10, "vector_length": 16)", widths / 16 * 2 * 10 + 160);
  check(R"("peft_type": "PVERA", "r": 8)", outputs + 2 * 2 * 16);
  check(R"("peft_type": "BEFT")", outputs);
  check(R"("peft_type": "RANDLORA", "r": 12)", 2 * 2 * (6 * 12 + 6 * 64));
  check(R"("peft_type": "PEANUT", "r": 4, "depth": 2)", 2 * 2 * (2 * 4 * 64 + 4 * 4 * 4));
  // In two layers of each name B is one, and with a stride of 2 A, too.
  check(R"("peft_type": "LILY", "r": 4, "num_B": 3)", 4 * widths - 2 * 4 * 2 * 64 + 2 * 3 * 4 * 64 + 2 * 2 * 3 * 4);
  check(R"("peft_type": "LILY", "r": 4, "num_B": 3, "stride_A": 2)", 4 * (64 + 176) + 2 * 3 * 4 * 64 + 2 * 2 * 3 * 4);
  check(R"("peft_type": "UNILORA", "theta_d_length": 300)", 300);
}

TEST_CASE("Virtual tokens train alone, in float32", "[peft]") {
  CHECK(simulation_of(with_peft(R"({"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 5})")).trainable == 5 * 64);
  CHECK(simulation_of(with_peft(R"({"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 5})")).trainable ==
        5 * 2 * 2 * 32);
  CHECK(simulation_of(with_peft(R"({"peft_type": "P_TUNING", "num_virtual_tokens": 5, "encoder_hidden_size": 8})"))
            .trainable == 5 * 64 + (64 * 8 + 8) + (8 * 8 + 8) + (8 * 64 + 64));
}

TEST_CASE("What peft refuses, and what is not supported yet, is named", "[peft]") {
  const auto refused = [](const std::string& peft) { return error_of(with_peft(peft)); };
  CHECK(says(refused(R"({"r": 4})"), "/training/peft/peft_type"));
  CHECK(says(refused(R"({"peft_type": "POLY"})"), "not supported yet"));
  CHECK(says(refused(R"({"peft_type": "FOURIERFT"})"), "cuFFT"));
  CHECK(says(refused(R"({"peft_type": "OSF", "target_modules": ["q_proj"]})"), "made on the device"));
  CHECK(says(refused(R"({"peft_type": "LILY", "target_modules": "all-linear"})"), "expected a list of names"));
  CHECK(says(refused(R"({"peft_type": "TINYLORA", "target_modules": ["q_proj"]})"), "expected \"load\": \"host\""));
  CHECK(says(refused(R"({"peft_type": "SUPERTUNING", "target_modules": ["q_proj"]})"), "expected \"load\": \"host\""));
  CHECK(says(refused(R"({"peft_type": "LOR"})"), "expected one of"));
  CHECK(says(refused(R"({"peft_type": "VERA", "rank": 4})"), "/training/peft/rank"));
  CHECK(says(refused(R"({"peft_type": "VERA", "target_modules": ["q_prj"]})"), "did you mean \"q_proj\""));
  CHECK(says(refused(R"({"peft_type": "VERA", "bias": "all"})"), "LORA only"));
  CHECK(says(refused(R"({"peft_type": "MISS", "r": 100})"), "must be less than or equal to in_features"));
  CHECK(says(refused(R"({"peft_type": "MISS", "r": 24, "init_weights": "bat"})"), "fully divisible"));
  CHECK(says(refused(R"({"peft_type": "LORA", "target_modules": ".*q_proj", "layers_to_transform": [0]})"),
             "cannot be used when `target_modules` is a str"));
  CHECK(says(refused(R"({"peft_type": "LORA", "init_lora_weights": "eva"})"), "not supported yet"));
  CHECK(says(refused(R"({"peft_type": "LORA", "init_lora_weights": "pissa"})"), "on the host"));
  CHECK(says(refused(R"({"peft_type": "LORA", "trainable_token_indices": [1], "modules_to_save": ["embed_tokens"]})"),
             "but not both"));
  CHECK(says(refused(R"([{"peft_type": "LORA"}, {"peft_type": "VERA", "name": "b"}])"), "of one method"));
  CHECK(says(refused(R"([{"peft_type": "LORA"}, {"peft_type": "LORA"}])"), "a name of its own"));
  CHECK(says(refused(R"([{"peft_type": "LORA", "active": false}])"), "none is active"));
  CHECK(says(refused(R"({"peft_type": "LORA", "trainable_token_indices": {"embeddings": [1]}})"),
             "/training/peft/trainable_token_indices: found \"embeddings\""));
  CHECK(says(refused(R"({"peft_type": "LORA", "target_modules": ["embed_tokens"], "trainable_token_indices": [1]})"),
             "adapters beside them"));
  CHECK(says(refused(R"({"peft_type": "TRAINABLE_TOKENS", "token_indices": [1], "target_modules": ["q_proj"]})"),
             "other layers than embeddings"));
  CHECK(says(refused(R"({"peft_type": "LN_TUNING", "target_modules": ["nor"]})"), "names of norms"));
  CHECK(says(refused("[]"), "at least one adapter"));
  CHECK(says(refused(R"({"peft_type": "ROAD", "group_size": 48})"), "divisible by group_size (48)"));
  CHECK(says(refused(R"({"peft_type": "GRALORA", "gralora_k": 3, "r": 3})"), "divisible by gralora_k"));
  CHECK(says(refused(R"({"peft_type": "OFT", "r": 4})"), "not both simultaneously"));
  CHECK(says(refused(R"({"peft_type": "OFT", "use_cayley_neumann": false})"), "not supported yet"));
  CHECK(says(refused(R"({"peft_type": "ADALORA", "target_modules": ["q_proj"]})"), "total_step"));
  CHECK(says(refused(R"({"peft_type": "VBLORA", "target_modules": ["q_proj"], "vector_length": 48})"),
             "divisible by `vector_length`"));
  CHECK(says(refused(R"({"peft_type": "LOHA", "module_dropout": 0.1})"), "not supported yet"));
  CHECK(says(refused(R"({"peft_type": "PROMPT_TUNING"})"), "number of virtual tokens"));
  CHECK(says(
      error_of(tiny_llama(
          R"("activation_checkpointing": "non-reentrant", "peft": {"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 4})")),
      "does not work with gradient checkpointing"));
  CHECK(says(
      error_of(tiny_llava(R"("stage": "finetune", "peft": {"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 4})")),
      "a decoder with a head"));
  CHECK(says(error_of(tiny_llama(R"("lora": {}, "peft": {"peft_type": "VERA"})")), "leave one of them out"));
  CHECK(says(error_of(with_peft(R"({"peft_type": "VERA"})", R"(, "parallel": {"strategy": "ddp", "data": 2})")),
             "not supported yet"));
  CHECK(says(error_of(tiny_llama(R"("peft": {"peft_type": "VERA"}, "quantization": {"load_in_4bit": true})")),
             "not supported yet"));
}

}  // namespace
}  // namespace oometer
