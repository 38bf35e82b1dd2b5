#include <catch2/catch_test_macros.hpp>
#include <string>

#include "jobs.h"

namespace oometer {
namespace {

std::string with_ds_optimizer(const std::string& optimizer, const std::string& more = "",
                              const std::string& zero = R"("stage": 2)") {
  return tiny_llama(kInBf16, R"(, "parallel": {"strategy": "deepspeed", "data": 2, "ds_config": {"optimizer": )" +
                                 optimizer + more + R"(, "zero_optimization": {)" + zero + "}}}");
}

Error error_of(const std::string& job) {
  const Result<Job> result = parse_job(job);
  return result ? Error{"none", "", ""} : result.error();
}

TEST_CASE("A ds_config's optimizer is DeepSpeed's class of that name", "[job][optimizers]") {
  const auto optimizer = [](const std::string& given, const std::string& more = "") {
    return job_of(with_ds_optimizer(given, more)).training.optimizer;
  };
  const OptimizerConfig lion = optimizer(R"({"type": "Lion", "params": {"lr": "auto", "betas": "auto"}})");
  CHECK(lion.name == OptimizerName::deepspeed_lion);
  CHECK(lion.param_groups == 1);
  CHECK(optimizer(R"({"type": "adagrad", "params": {"weight_decay": 0.1}})").args.weight_decay == 0.1);
  const std::string untested = R"(, "zero_allow_untested_optimizer": true)";
  CHECK(optimizer(R"({"type": "LAMB"})", untested).name == OptimizerName::deepspeed_lamb);
  const OptimizerConfig sgd = optimizer(R"({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}})", untested);
  CHECK(sgd.name == OptimizerName::sgd);
  CHECK(sgd.momentum == 0.9);
  CHECK(sgd.implementation == OptimizerImplementation::foreach_);
}

TEST_CASE("What DeepSpeed refuses of its optimizers is refused in its words", "[job][optimizers]") {
  const auto check = [](const std::string& job, const std::string& code, const std::string& key,
                        const std::string& part) {
    const Error error = error_of(job);
    INFO(error.pointer << ": " << error.message);
    CHECK(error.code == code);
    CHECK(error.pointer == "/parallel/ds_config/optimizer/" + key);
    CHECK(error.message.find(part) != std::string::npos);
  };
  const std::string untested = R"(, "zero_allow_untested_optimizer": true)";
  const std::string offload = R"("stage": 2, "offload_optimizer": {"device": "cpu"})";
  check(with_ds_optimizer(R"({"type": "OneBitAdam"})"), "inconsistent", "type", "with ZeRO");
  check(with_ds_optimizer(R"({"type": "MuAdamW"})"), "inconsistent", "type", "mup.set_base_shapes");
  check(with_ds_optimizer(R"({"type": "Muon"})"), "not-modelled", "type", "Newton-Schulz");
  check(with_ds_optimizer(R"({"type": "Lamb"})"), "inconsistent", "type", "zero_allow_untested_optimizer");
  check(with_ds_optimizer(R"({"type": "Sophia"})"), "not-modelled", "type", "Adagrad");
  check(with_ds_optimizer(R"({"type": "Lamb"})", untested, offload), "inconsistent", "type", "on the GPU alone");
  check(with_ds_optimizer(R"({"type": "Lion", "params": {"momentum": 0.9}})"), "unknown-key", "params/momentum", "");
}

TEST_CASE("Adagrad's states are there twice under ZeRO, Lion's once", "[job][optimizers]") {
  const auto bytes = [](const std::string& type, const std::string& zero) {
    const Simulation simulation = simulation_of(with_ds_optimizer(R"({"type": ")" + type + R"("})", "", zero));
    std::int64_t total = 0;
    for (const StorageRecord& storage : simulation.log.storages)
      if (storage.role == Role::optimizer_state && storage.free_event == kNever) total += storage.bytes;
    return total;
  };
  const std::string one = R"("stage": 1, "reduce_bucket_size": 100000)";
  const std::int64_t lion = bytes("Lion", one), adam = bytes("AdamW", one), adagrad = bytes("Adagrad", one);
  CHECK(adam > lion);
  CHECK(adagrad > lion);
}

}  // namespace
}  // namespace oometer
