#include "peft/lora.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "jobs.h"
#include "process.h"
#include "trace/same_log.h"

namespace oometer {
namespace {

constexpr std::int64_t kIn = 64, kOut = 48, kRank = 4, kRows = 8;

/// A process with one wrapped Linear, in bf16.
struct Adapted : Process {
  explicit Adapted(LoraConfig given = {}) : config(std::move(given)), model(context, config) {
    config.rank = kRank;
    config.target_modules.names = {"proj"};
    Builder outer = builder();
    outer.wrapping = &model;
    layer = Linear(outer.child("proj", "Linear"), kIn, kOut, true);
    error = model.inject(parameters, {});
  }

  LoraConfig config;
  LoraModel model;
  Linear layer;
  std::optional<Error> error;
};

std::set<std::string> trained(const Process& p) {
  std::set<std::string> names;
  for (const Parameter& parameter : p.parameters)
    if (parameter.tensor->leaf_requires_grad)
      names.insert(module_path(p.log(), parameter.module) + "." + parameter.name);
  return names;
}

TEST_CASE("An adapter's parameters stand beside its base layer's, and train alone", "[peft]") {
  const Adapted p;
  REQUIRE_FALSE(p.error);
  REQUIRE(p.parameters.size() == 4);
  CHECK(trained(p) == std::set<std::string>{"proj.lora_A.default.weight", "proj.lora_B.default.weight"});
  CHECK(module_path(p.log(), p.parameters[0].module) == "proj.base_layer");
  CHECK(p.parameters[2].tensor.sizes() == Shape{kRank, kIn});
  CHECK(p.parameters[3].tensor.sizes() == Shape{kOut, kRank});
  CHECK(p.parameters[2].tensor.dtype() == DType::float32);
  CHECK(p.alive(Role::parameter) == 2 * (kIn * kOut + kOut) + 4 * kRank * (kIn + kOut));
}

TEST_CASE("Adapters keep the weights' dtype where they are told to, or peft is too old to cast", "[peft]") {
  LoraConfig config;
  config.autocast_adapter_dtype = false;
  CHECK(Adapted(config).parameters[2].tensor.dtype() == DType::bfloat16);
  const auto adapter_bytes = [](const char* peft) {
    const Log log = run_log(tiny_llama(R"("lora": {"target_modules": "all-linear"})",
                                       std::string(R"(, "runtime": {"peft": ")") + peft + "\"}"));
    std::int64_t bytes = 0;
    for (const StorageRecord& storage : log.storages)
      if (storage.role == Role::parameter && storage.free_event == kNever &&
          module_path(log, storage.module).find("lora_") != std::string::npos)
        bytes += storage.bytes;
    return bytes;
  };
  CHECK(adapter_bytes("0.21.2") == 2 * adapter_bytes("0.11.1"));
}

TEST_CASE("With dropout an adapter keeps a mask and its own fp32 copy of its input, without one only the copy",
          "[peft]") {
  LoraConfig dropout;
  dropout.dropout = 0.1;
  for (const bool drops : {false, true}) {
    Adapted p(drops ? dropout : LoraConfig());
    const Tensor x = p.input({kRows, kIn}, DType::bfloat16, true);
    p.mark();
    const Tensor y = p.layer(x);
    CHECK(y.dtype() == DType::bfloat16);
    std::vector<std::int64_t> kept{4 * kRows * kRank, 4 * kRows * kIn};  // inputs of B and of A
    if (drops) kept.push_back(kRows * kIn);
    std::sort(kept.begin(), kept.end());
    CHECK(p.saved() == kept);
    CHECK(p.saved(Role::input).empty());  // the frozen layer needs its weight alone
  }
}

TEST_CASE("An adapter in fp32 runs in the order of lora.Linear.forward", "[peft]") {
  LoraConfig config;
  config.dropout = 0.1;
  Adapted p(config);
  const Tensor x = p.input({kRows, kIn}, DType::bfloat16, true);
  p.mark();
  const Tensor y = p.layer(x);
  const std::int64_t out = kRows * kOut, in = kRows * kIn, low = 4 * kRows * kRank;
  CHECK(p.events() == std::vector<std::int64_t>{2 * out, kLtWorkspace, -kLtWorkspace,  // base layer
                                                4 * in,                                // x.to(float32)
                                                in,      4 * in,                       // dropout: mask, result
                                                low,     kWorkspace,   -kWorkspace,    // A
                                                4 * out, kWorkspace,   -kWorkspace,    // B
                                                4 * out, -4 * out,                     // * scaling
                                                4 * out, -4 * out,     -2 * out,       // result +
                                                2 * out, -4 * out,     -4 * in});      // .to(bfloat16)
}

std::string lora_error(const std::string& lora) {
  const Result<Estimate> result = estimate(tiny_llava(R"("stage": "finetune", "lora": )" + lora));
  if (result) return "";
  return result.error().pointer + ": " + result.error().message;
}

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

TEST_CASE("DoRA trains a length for each output, and with dropout keeps the weight in fp32", "[peft]") {
  LoraConfig config;
  config.use_dora = true;
  for (const double probability : {0.0, 0.1}) {
    config.dropout = probability;
    Adapted p(config);
    REQUIRE_FALSE(p.error);
    CHECK(trained(p) == std::set<std::string>{"proj.lora_A.default.weight", "proj.lora_B.default.weight",
                                              "proj.lora_magnitude_vector.default.weight"});
    CHECK(p.parameters[4].tensor.sizes() == Shape{kOut});
    const Tensor x = p.input({kRows, kIn}, DType::bfloat16, true);
    const Tensor y = p.layer(x);
    const std::vector<std::int64_t> kept = p.saved();
    CHECK(std::count(kept.begin(), kept.end(), 4 * kIn * kOut) == (probability > 0 ? 1 : 0));
  }
  CHECK(has(lora_error(R"({"target_modules": ["q_proj"], "use_dora": true, "lora_bias": true})"), "no DoRA with it"));
}

TEST_CASE("(IA)^3 trains a vector a layer: of its output, or in a feed-forward layer of its input", "[peft]") {
  const Simulation s = simulation_of(tiny_llama(R"("ia3": {})"));
  CHECK(s.trainable == 2 * (32 + 32 + 176));  // k_proj and v_proj of two heads of 16, down_proj's input
  CHECK_FALSE(parse_job(tiny_llama(R"("ia3": {}, "lora": {})")));
  CHECK_FALSE(parse_job(tiny_llama(R"("ia3": {"target_modules": ["q_proj"], "feedforward_modules": ["k_proj"]})")));
  const Result<Estimate> wrong = estimate(tiny_llama(R"("ia3": {"target_modules": ["kproj", "down_proj"]})"));
  REQUIRE(wrong);  // one of them is there: peft passes over the other
  CHECK(has(wrong->input.notes.at(0), R"(ia3: no module matches "kproj")"));
}

TEST_CASE("Biases train as `bias` says", "[peft]") {
  const auto trained_biases = [](LoraBias bias) {
    Process p;
    LoraConfig config;
    config.bias = bias;
    config.target_modules.names = {"proj"};
    LoraModel model(p.context, config);
    Builder builder = p.builder();
    builder.wrapping = &model;
    const Linear adapted(builder.child("proj", "Linear"), kIn, kOut, true),
        other(builder.child("fc", "Linear"), kIn, kOut, true);
    REQUIRE_FALSE(model.inject(p.parameters, {}));
    std::set<std::string> names = trained(p);
    names.erase("proj.lora_A.default.weight");
    names.erase("proj.lora_B.default.weight");
    return names;
  };
  CHECK(trained_biases(LoraBias::none).empty());
  CHECK(trained_biases(LoraBias::lora_only) == std::set<std::string>{"proj.base_layer.bias"});
  CHECK(trained_biases(LoraBias::all) == std::set<std::string>{"fc.bias", "proj.base_layer.bias"});
}

TEST_CASE("A module to save trains as a copy, the frozen original stays", "[peft]") {
  const auto parameters = [](const char* lora) {
    const Simulation s = simulation_of(tiny_llama(std::string(R"("optimizer": {"name": "sgd"}, "lora": )") + lora));
    return std::pair(s.parameters, s.trainable);
  };
  const auto [plain, few] = parameters(R"({"target_modules": ["q_proj"]})");
  const auto [saved, more] = parameters(R"({"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]})");
  const auto [same, also] = parameters(R"({"target_modules": ["q_proj"], "also_train": ["lm_head"]})");
  constexpr std::int64_t kHead = 512 * 64;
  CHECK(saved == plain + kHead);
  CHECK(more == few + kHead);
  CHECK(same == plain);
  CHECK(also == more);
  // By the end of its path: norms of every kind are called so.
  const auto [norms, trained_norms] = parameters(R"({"target_modules": ["q_proj"], "modules_to_save": ["norm"]})");
  CHECK(trained_norms == few + 5 * 64);
  CHECK(norms == plain + 5 * 64);
}

TEST_CASE("Targets that peft refuses are errors in plain words", "[peft]") {
  CHECK(lora_error(R"({"target_modules": ["q_proj"]})") == "");
  CHECK(has(lora_error(R"({"target_modules": ["q_prj", "upproj"]})"),
            R"(/training/lora/target_modules: found ["q_prj", "upproj"])"));
  CHECK(has(lora_error(R"({"target_modules": ["q_prj"]})"), R"(did you mean "q_proj")"));
  CHECK(has(lora_error(R"({"target_modules": ["something"]})"), "linear_1"));
  CHECK(has(lora_error(R"({"target_modules": "q_proj"})"), R"(did you mean ["q_proj"])"));
  CHECK(has(lora_error(R"({"target_modules": ["self_attn"]})"), "self_attn (CLIPAttention)"));
  CHECK(lora_error(R"({"target_modules": ["embed_tokens"]})").empty());
  CHECK(has(lora_error(R"({"target_modules": ["patch_embedding"]})"), "not supported yet"));
  CHECK(has(lora_error(R"({"target_modules": "(q_proj"})"), "at character"));
  CHECK(has(lora_error(R"({"target_modules": []})"), "at least one name"));
  CHECK(has(lora_error(R"({})"), "/training/lora/target_modules"));  // peft knows no usual targets of LLaVA's
  CHECK(has(lora_error(R"({"target_modules": ["lm_head"], "modules_to_save": ["lm_head"]})"), "modules_to_save"));
  CHECK(has(lora_error(R"({"target_modules": ["q_proj"], "rank": 0})"), "/training/lora/rank"));
  CHECK(has(lora_error(R"({"target_modules": ["q_proj"], "dropout": 1})"), "/training/lora/dropout"));
  CHECK(has(lora_error(R"({"target_modules": ["q_proj"], "r": 8})"), "/training/lora/r"));
  const Result<Job> projector_alone =
      parse_job(tiny_llava(R"("stage": "pretrain", "lora": {"target_modules": ["q_proj"]})"));
  REQUIRE_FALSE(projector_alone);
  CHECK(projector_alone.error().pointer == "/training/stage");
}

TEST_CASE("peft adapts no output projection of Mamba's mixers", "[peft]") {
  const auto error_of = [](const char* preset, const char* targets) {
    const Result<Job> job = parse_job(R"({"version": 1, "model": {"preset": ")" + std::string(preset) +
                                      R"("}, "training": {"lora": {"rank": 8, "target_modules": )" + targets + "}}}");
    return job ? std::string() : job.error().pointer + ": " + job.error().message;
  };
  for (const char* preset : {"falcon-h1-0.5b", "nemotron-h-56b", "mamba-codestral-7b"}) {
    CHECK(error_of(preset, R"(["in_proj"])").empty());
    for (const char* targets : {R"("all-linear")", R"(["in_proj", "out_proj"])", R"(".*out_proj")"})
      CHECK(has(error_of(preset, targets), "/training/lora/target_modules"));
  }
  CHECK(error_of("falcon-h1-0.5b", R"(["o_proj"])").empty());
}

TEST_CASE("Names that peft passes over are told", "[peft]") {
  const Result<Estimate> result = estimate(tiny_llama(R"("lora": {"target_modules": ["q_proj", "k_prj"]})"));
  REQUIRE(result);
  std::string all;
  for (const std::string& note : result->input.notes) all += note + "\n";
  CHECK(has(all, R"(lora: no module matches "k_prj"; peft ignores it (did you mean "k_proj"?))"));
}

TEST_CASE("LLaVA-1.5 7B with LoRA on seven targets needs more than full fine-tuning, and the report says why",
          "[peft]") {
  const auto run = [](const std::string& lora, const std::string& checkpointing) {
    return *estimate(R"({"model": {"preset": "llava-1.5-7b"}, "gpu": {"name": "a100-80gb"},
        "data": {"micro_batch_size": 8, "sequence_length": 2048}, "training": {"stage": "finetune",
        "activation_checkpointing": ")" +
                     checkpointing + R"(", "lora": )" + lora + "}}");
  };
  const std::string recipe =
      R"json({"rank": 128, "alpha": 256, "dropout": 0.05, "also_train": ["multi_modal_projector"],
      "target_modules": ".*language_model.*\\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"})json";
  const Estimate lora = run(recipe, "none"), full = run("null", "none"), checkpointed = run(recipe, "non-reentrant");
  CHECK(lora.report.peak.allocated > full.report.peak.allocated);
  CHECK(lora.report.peak.allocated / (1 << 30) == 175);  // 188.96e9 bytes, as recorded
  CHECK(checkpointed.report.peak.allocated < full.report.peak.allocated / 4);
  REQUIRE(lora.input.notes.size() == 2);
  CHECK(has(lora.input.notes[1], "224 layers"));
  CHECK(has(lora.input.notes[1], "in fp32 (4 bytes per element) after dropout, and the dropout mask (1 byte"));
  REQUIRE(full.input.notes.size() == 1);
  CHECK(full.input.notes[0] ==
        "The vision tower (vision_tower) is frozen and runs under no_grad: what its layers compute is freed as soon as "
        "it "
        "has been used.");
}

TEST_CASE("A frozen tower through which backward goes keeps activations, and the report says why", "[peft]") {
  const Result<Estimate> result = estimate(R"json({"model": {"preset": "qwen2.5-vl-7b"}, "gpu": {"name": "h100-80gb"},
      "data": {"micro_batch_size": 4}, "training": {"activation_checkpointing": "non-reentrant",
      "lora": {"rank": 8, "target_modules": ".*language_model.*\\.(q_proj|v_proj)"}}})json");
  REQUIRE(result);
  REQUIRE(!result->input.notes.empty());
  CHECK(has(result->input.notes[0], "The vision tower (visual) is frozen and yet keeps "));
  CHECK(has(result->input.notes[0], "enable_input_require_grads() makes what its embeddings give want gradients"));
}

TEST_CASE("all-linear is every Linear but the output embeddings", "[peft]") {
  const Log log = run_log(tiny_llava(R"("stage": "finetune", "lora": {"target_modules": "All-Linear"})"));
  int adapted = 0, left = 0;
  for (const ModuleRecord& module : log.modules) {
    adapted += module.type == std::string_view("lora.Linear");
    left += module.name == std::string_view("lm_head") && module.type == std::string_view("Linear");
  }
  CHECK(adapted == 3 * 6 + 2 + 2 * 7);
  CHECK(left == 1);
}

TEST_CASE("Stacks with adapters are written as they would be executed", "[peft]") {
  for (
      const char* training :
      {R"("lora": {"target_modules": "all-linear", "dropout": 0.1})",
       R"("lora": {"target_modules": ["q_proj", "down_proj"]}, "activation_checkpointing": "non-reentrant")",
       R"("lora": {"target_modules": ["v_proj"], "dropout": 0.1}, "activation_checkpointing": "reentrant")",
       R"("lora": {"target_modules": ["v_proj"], "modules_to_save": ["mlp"], "bias": "all"})",
       R"("lora": {"target_modules": ".*layers\\.[02468]\\..*q_proj"})",
       R"("lora": {"target_modules": ".*layers\\.5\\..*q_proj"}, "precision": "amp-bf16")",
       R"("lora": {"target_modules": ["q_proj", "up_proj"], "use_dora": true, "dropout": 0.1})",
       R"("ia3": {"target_modules": ["v_proj", "down_proj"]}, "activation_checkpointing": "non-reentrant")",
       R"("lora": {"target_modules": ["o_proj"], "also_train": ["layers.7.mlp"]}, "gradient_accumulation_steps": 3)"}) {
    nlohmann::json job = nlohmann::json::parse(tiny_llama(training));
    for (const int layers : {6, 9, 12}) {
      job["model"]["config"]["num_hidden_layers"] = layers;
      INFO(job.dump());
      const Job parsed = job_of(job.dump());
      const Behaviours behaviours = resolve_behaviours(parsed.runtime);
      CHECK(difference(simulate(parsed, behaviours).log, simulate(parsed, behaviours, false).log) == "");
    }
  }
}

}  // namespace
}  // namespace oometer
