#include "job/optimizers.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "job/parse.h"

namespace oometer {
namespace {

Result<Job> parsed(const std::string& optimizer, const std::string& more = "") {
  return parse_job(R"({"model": {"preset": "llama-3-8b"}, "training": {"optimizer": )" + optimizer + more + "}}");
}

Result<Job> trained(const std::string& args) {
  return parse_job(
      R"({"model": {"preset": "llama-3-8b"}, "training": {"loop": {"name": "transformers.Trainer", "args": {)" + args +
      "}}}}");
}

OptimizerConfig config_of(const Result<Job>& job) {
  REQUIRE(job);
  return job->training.optimizer;
}

Error error_of(const Result<Job>& job) { return job ? Error{"none", "", ""} : job.error(); }

TEST_CASE("A class by its path has its own defaults: foreach, one group", "[job][optimizers]") {
  const OptimizerConfig nadam =
      config_of(parsed(R"({"name": "torch.optim.NAdam", "args": {"lr": 0.1, "weight_decay": 0.5}})"));
  CHECK(nadam.name == OptimizerName::nadam);
  CHECK(nadam.implementation == OptimizerImplementation::foreach_);
  CHECK(nadam.param_groups == 1);
  CHECK(nadam.args.weight_decay == 0.5);
  CHECK(config_of(parsed(R"("torch.optim.AdamW")")).implementation == OptimizerImplementation::foreach_);
  CHECK(config_of(parsed(R"("adamw")")) == OptimizerConfig{});
}

TEST_CASE("foreach and fused are torch's: one of them given turns the other off", "[job][optimizers]") {
  const auto implementation = [](const std::string& args) {
    return config_of(parsed(R"({"name": "torch.optim.AdamW", "args": {)" + args + "}}")).implementation;
  };
  CHECK(implementation(R"("foreach": false)") == OptimizerImplementation::for_loop);
  CHECK(implementation(R"("fused": false)") == OptimizerImplementation::for_loop);
  CHECK(implementation(R"("fused": true)") == OptimizerImplementation::fused);
  CHECK(implementation(R"("fused": null)") == OptimizerImplementation::foreach_);
}

TEST_CASE("Classes of torchao, FlashOptim and Transformer Engine have their own defaults", "[job][optimizers]") {
  CHECK(config_of(parsed(R"("torchao.optim.AdamW4bit")")).args.block_size == 128);
  CHECK(config_of(trained(R"("optim": "adamw_torch_4bit")")).args.block_size == 256);
  CHECK(config_of(parsed(R"("torchao.prototype.low_bit_optim.AdamW8bit")")).name == OptimizerName::torchao_adamw_8bit);
  CHECK(config_of(parsed(R"({"name": "flashoptim.FlashAdam", "args": {"master_weight_bits": null}})"))
            .args.master_weight_bits == 0);
  const OptimizerConfig fused_adam =
      config_of(parsed(R"({"name": "transformer_engine.pytorch.optimizers.fused_adam.FusedAdam",
                 "args": {"master_weights": true, "exp_avg_dtype": "torch.bfloat16", "exp_avg_sq_dtype": "torch.bfloat16"}})"));
  CHECK(fused_adam.name == OptimizerName::te_fused_adam);
  CHECK(fused_adam.args.master_weights);
  CHECK(fused_adam.args.exp_avg_dtype == "bfloat16");
}

TEST_CASE("transformers' names and their optim_args", "[job][optimizers]") {
  const OptimizerConfig rmsprop = config_of(
      trained(R"("optim": "rmsprop", "optim_args": "momentum = 0.9,centered=Yes,foo=1", "weight_decay": 0.1)"));
  CHECK(rmsprop.name == OptimizerName::rmsprop);
  CHECK(rmsprop.momentum == 0.9);
  CHECK(rmsprop.args.centered);
  CHECK(rmsprop.args.weight_decay == 0.1);
  CHECK(rmsprop.param_groups == 2);
  CHECK(config_of(trained(R"("optim": "adamw_torch", "weight_decay": 0.1)")).args == OptimizerArgs{});
  CHECK(config_of(trained(R"("optim": "paged_lion_8bit")")).paged);
  CHECK_FALSE(config_of(trained(R"("optim": "adafactor")")).args.scale_parameter);
  CHECK(config_of(parsed(R"("transformers.optimization.Adafactor")")).args.scale_parameter);
}

TEST_CASE("Muon has the matrices, another the rest; written and read again they are the same", "[job][optimizers]") {
  const Result<Job> job = parsed(R"({"name": "torch.optim.Muon", "rest": "torch.optim.AdamW"})");
  const OptimizerConfig muon = config_of(job);
  CHECK(muon.args.nesterov);
  REQUIRE(muon.rest.size() == 1);
  CHECK(muon.rest[0].name == OptimizerName::adamw);
  CHECK(muon.rest[0].implementation == OptimizerImplementation::foreach_);
  CHECK(config_of(parse_job(to_json(*job))) == muon);
}

TEST_CASE("APOLLO projects the layers that optim_target_modules names", "[job][optimizers]") {
  const Result<Job> job =
      trained(R"("optim": "apollo_adamw", "optim_args": "rank=256", "optim_target_modules": ["self_attn", "mlp"])");
  const OptimizerConfig apollo = config_of(job);
  CHECK(apollo.args.rank == 256);
  CHECK(apollo.args.target_modules == std::vector<std::string>{"self_attn", "mlp"});
  CHECK(apollo.param_groups == 1);
  CHECK(config_of(parse_job(to_json(*job))) == apollo);
}

TEST_CASE("A layerwise optimizer of transformers is one in backward", "[job][optimizers]") {
  const Result<Job> job = trained(
      R"("optim": "galore_adamw_layerwise", "optim_args": "rank=64,proj_type=left", "optim_target_modules": ["mlp"])");
  const OptimizerConfig galore = config_of(job);
  CHECK(galore.name == OptimizerName::galore_adamw);
  CHECK(galore.in_backward);
  CHECK(galore.args.proj_type == "left");
  CHECK(config_of(parse_job(to_json(*job))) == galore);
  CHECK(job->unmodelled.front().may_need_more());  // cuSOLVER's workspace
  CHECK(config_of(parsed(R"({"name": "torch.optim.AdamW", "in_backward": true})")).in_backward);
}

TEST_CASE("What an optimizer has wrong is named", "[job][optimizers]") {
  const auto check = [](const Result<Job>& job, const char* code, const char* pointer, const char* words) {
    const Error error = error_of(job);
    INFO(error.message);
    CHECK(error.code == code);
    CHECK(error.pointer == pointer);
    CHECK(error.message.find(words) != std::string::npos);
  };
  constexpr const char* kArgs = "/training/optimizer/args";
  check(parsed(R"("torch.optim.Nadam")"), "not-modelled", "/training/optimizer/name", "torch.optim.NAdam");
  check(parsed(R"("torch.optim.SparseAdam")"), "inconsistent", "/training/optimizer/name", "does not support dense");
  check(parsed(R"({"name": "torch.optim.NAdam", "args": {"amsgrad": true}})"), "unknown-key",
        "/training/optimizer/args/amsgrad", "unknown key");
  check(parsed(R"({"name": "torch.optim.NAdam", "args": {"weight_deacy": 1}})"), "unknown-key",
        "/training/optimizer/args/weight_deacy", "weight_decay");
  check(parsed(R"({"name": "torch.optim.NAdam", "args": 3})"), "wrong-type", kArgs, "expected an object");
  check(parsed(R"({"name": "torch.optim.AdamW", "args": {"capturable": true}})"), "not-modelled",
        "/training/optimizer/args/capturable", "not supported yet");
  check(parsed(R"({"name": "torch.optim.AdamW", "args": {"fused": true, "foreach": true}})"), "inconsistent",
        "/training/optimizer/args/fused", "cannot be `True` together");
  check(parsed(R"({"name": "torch.optim.RAdam", "args": {"foreach": false}})"), "not-modelled",
        "/training/optimizer/args/foreach", "for-loop");
  check(parsed(R"({"name": "torch.optim.NAdam", "implementation": "fused"})"), "inconsistent",
        "/training/optimizer/implementation", "foreach for-loop");
  check(parsed(R"({"name": "torch.optim.NAdam"})", R"(}, "parallel": {"strategy": "fsdp2", "data": 2)"), "not-modelled",
        "/parallel/strategy", "torch.optim.NAdam");
  check(trained(R"("optim": "apollo_adamw")"), "inconsistent", "/training/optimizer/name", "optim_target_modules");
  check(trained(R"("optim": "apollo_adamw", "optim_args": "proj=qr", "optim_target_modules": ["mlp"])"),
        "unknown-value", "/training/optimizer/args/proj", "Invalid projector type");
  check(trained(R"("optim": "galore_adamw", "optim_args": "proj_type=full", "optim_target_modules": ["mlp"])"),
        "not-modelled", "/training/optimizer/args/proj_type", "both sides");
  check(trained(R"("optim": "galore_adamw_8bit_layerwise")"), "not-modelled", "/training/loop/args/optim", "AdamW8bit");
  check(parsed(R"({"name": "torchao.optim.AdamW8bit", "args": {"amsgrad": true}})"), "not-modelled",
        "/training/optimizer/args/amsgrad", "not supported yet");
  check(parsed(R"({"name": "flashoptim.FlashAdamW", "args": {"master_weight_bits": 16}})"), "out-of-range",
        "/training/optimizer/args/master_weight_bits", "expected 24, 32 or null");
  check(parsed(
            R"({"name": "transformer_engine.pytorch.optimizers.FusedAdam", "args": {"exp_avg_dtype": "torch.uint8"}})"),
        "not-modelled", "/training/optimizer/args/exp_avg_dtype", "expected float32 or bfloat16");
  check(parsed(R"({"name": "transformer_engine.pytorch.optimizers.FusedAdam",
                   "args": {"exp_avg_dtype": "torch.bfloat16"}})"),
        "not-modelled", "/training/optimizer/args/exp_avg_sq_dtype", "moments of two types");
  check(parsed(R"({"name": "lomo"})", R"(, "precision": "amp-fp16", "loop": "transformers.Trainer")"), "inconsistent",
        "/training/optimizer/name", "GradScaler");
  check(trained(
            R"("optim": "galore_adamw_layerwise", "optim_target_modules": ["mlp"], "gradient_accumulation_steps": 2)"),
        "inconsistent", "/training/gradient_accumulation_steps", "gradient accumulation");
  check(parsed(R"({"name": "lomo"})", R"(, "lora": {"target_modules": "all-linear"}, "loop": "transformers.Trainer")"),
        "not-modelled", "/training/optimizer/name", "without adapters");
  check(parsed(R"("schedulefree.RAdamScheduleFree")"), "not-modelled", "/training/optimizer/name", "fifth step");
  check(trained(R"("optim": "apollo_adamw_mini")"), "unknown-value", "/training/loop/args/optim", "scale_type=tensor");
  check(parsed(R"("bitsandbytes.optim.AdamW8bit")"), "not-modelled", "/training/optimizer/name", "adamw_8bit");
  check(parsed(R"("torch.optim.Adagard")"), "not-modelled", "/training/optimizer/name", "\"torch.optim.Adagrad\"");
  check(parsed(R"("pytorch_optimizer.SOAP")"), "not-modelled", "/training/optimizer/name", "eigenvectors");
  check(parsed(R"("pytorch_optimizer.Tiger")"), "not-modelled", "/training/optimizer/name", "others are not supported");
  check(trained(R"("optim": "adagard")"), "not-modelled", "/training/loop/args/optim", "did you mean \"adagrad\"");
  check(trained(R"("optim": "rmsprop", "optim_args": "momentum")"), "invalid", "/training/loop/args/optim_args",
        "expected pairs");
  check(trained(R"("optim": "rmsprop", "optim_args": "momentum=x")"), "invalid", "/training/loop/args/optim_args",
        "expected a number");
}

}  // namespace
}  // namespace oometer
