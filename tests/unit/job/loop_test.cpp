#include <catch2/catch_test_macros.hpp>
#include <string>

#include "job/estimate.h"
#include "job/parse.h"

namespace oometer {
namespace {

std::string looped(const std::string& loop, const std::string& more = "") {
  return R"({"version": 1, "model": {"preset": "llama-3-8b"}, "training": {"loop": )" + loop + more + "}}";
}

Error error_in(const std::string& job) {
  const Result<Job> result = parse_job(job);
  return result ? Error{"none", "", ""} : result.error();
}

TEST_CASE("A trainer has its own defaults", "[job]") {
  const Result<Job> job = parse_job(looped(R"("transformers.Trainer")"));
  REQUIRE(job);
  CHECK(job->data.micro_batch_size == 8);
  CHECK(job->training.max_grad_norm == 1.0);
  CHECK(job->training.loop.loads_on_host);
  CHECK(job->training.precision == Precision::bf16);
  CHECK(parse_job(looped(R"("step")"))->data.micro_batch_size == 1);
}

TEST_CASE("A trainer's arguments say what plain keys say", "[job]") {
  const Result<Job> job = parse_job(looped(
      R"({"name": "transformers.Trainer", "load": "device", "args": {"per_device_train_batch_size": 2, "bf16": true,
          "gradient_checkpointing": true, "gradient_accumulation_steps": 4, "optim": "adamw_torch", "max_grad_norm": 0,
          "learning_rate": 2e-5, "label_smoothing_factor": 0.1}})",
      R"(, "precision": "fp32")"));
  REQUIRE(job);
  CHECK(job->data.micro_batch_size == 2);
  CHECK(job->training.precision == Precision::amp_bf16);
  CHECK(job->training.checkpointing.mode == CheckpointMode::non_reentrant);
  CHECK(job->training.gradient_accumulation_steps == 4);
  CHECK(job->training.optimizer.implementation == OptimizerImplementation::foreach_);
  CHECK(job->training.max_grad_norm == 0.0);
  CHECK(job->training.loop.label_smoothing_factor == 0.1);
  CHECK_FALSE(job->training.loop.loads_on_host);
}

TEST_CASE("Weights and autocast have types of their own", "[job]") {
  const auto precision = [](const std::string& said) {
    const Result<Job> job = parse_job(looped(R"("step")", R"(, "precision": )" + said));
    REQUIRE(job);
    return job->training.precision;
  };
  CHECK(precision(R"({"weights": "bf16", "autocast": "bf16"})") == Precision::bf16_in_autocast);
  CHECK(precision(R"({"weights": "fp32", "autocast": "fp16"})") == Precision::amp_fp16);
  CHECK(precision(R"({"weights": "fp16", "autocast": null})") == Precision::fp16);
  CHECK(error_in(looped(R"("step")", R"(, "precision": {"weights": "bf16", "autocast": "fp16"})")).code ==
        "not-modelled");
  CHECK(error_in(looped(R"("step")", R"(, "precision": {"autocast": "fp32"})")).code == "inconsistent");
}

TEST_CASE("What a trainer's arguments have wrong is said in its own terms", "[job]") {
  const auto trainer = [](const std::string& args, const std::string& more = "") {
    return error_in(looped(R"({"name": "transformers.Trainer", "args": )" + args + "}", more));
  };
  Error error = trainer(R"({"max_grad_norm": 2})", R"(, "max_grad_norm": 1)");
  CHECK(error.pointer == "/training/loop/args/max_grad_norm");
  CHECK(error.message == "found 2; the job's /training/max_grad_norm is 1: leave one of them out");
  error = trainer(R"({"bf16": true})", R"(, "precision": "amp-fp16")");
  CHECK(error.pointer == "/training/loop/args/bf16");
  error = trainer(R"({"fp16": true, "bf16": true})");
  CHECK(error.pointer == "/training/loop/args/fp16");
  error = trainer(R"({"max_length": 1024})");
  CHECK(error.pointer == "/training/loop/args/max_length");
  CHECK(error.message.starts_with("found the unknown key \"max_length\""));
  error = trainer(R"({"optim": "galore_adamw"})");
  CHECK(error.code == "not-modelled");
  error = trainer(R"({"torch_compile": true})");
  CHECK(error.message == "found true; not supported yet: leave it out");
  error = trainer("[]");
  CHECK(error.code == "wrong-type");
  CHECK(error_in(looped(R"("trl.GRPOTrainer")")).pointer == "/training/loop");
  CHECK(error_in(R"({"version": 1, "model": {"preset": "qwen2-vl-2b"}, "training": {"loop": "transformers.Trainer"}})")
            .code == "not-modelled");
  error = error_in(
      looped(R"({"name": "transformers.Trainer", "compute_metrics": true, "args": {"eval_strategy": "steps"}})"));
  CHECK(error.pointer == "/training/loop/compute_metrics");
}

TEST_CASE("A report has each step, and a trainer's evaluation and checkpoints among its phases", "[job]") {
  const std::string report =
      estimate_json(looped(R"({"name": "transformers.Trainer", "args": {"eval_strategy": "epoch"}})"));
  CHECK(report.find(R"("steps":[{"allocated":)") != std::string::npos);
  CHECK(report.find(R"("name":"evaluation")") != std::string::npos);
  CHECK(report.find(R"("name":"saving")") != std::string::npos);
}

}  // namespace
}  // namespace oometer
