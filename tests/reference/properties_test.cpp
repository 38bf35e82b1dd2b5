#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <set>
#include <string_view>

#include "cases.h"
#include "jobs.h"

/// What holds of every job, whatever its numbers.
namespace oometer {
namespace {

/// The jobs of presets/, and tiny ones with every option that changes the order of things.
std::vector<Job> jobs() {
  std::vector<Job> result;
  for (const std::string& job : example_jobs()) result.push_back(job_of(job));
  CHECK(result.size() >= 7);
  for (
      const char* training :
      {R"("precision": "bf16")", R"("precision": "fp32", "attention": "eager")",
       R"("precision": "amp-bf16", "activation_checkpointing": "non-reentrant")",
       R"("precision": "amp-fp16", "activation_checkpointing": "reentrant", "max_grad_norm": 1.0)",
       R"("optimizer": {"implementation": "for-loop"}, "attention": "sdpa-math")",
       R"("optimizer": {"name": "sgd", "momentum": 0.9, "implementation": "foreach"}, "gradient_accumulation_steps": 4)"}) {
    result.push_back(job_of(tiny_llama(training)));
    result.push_back(job_of(tiny_llava(training)));
    result.push_back(job_of(tiny_llava(std::string(training) + R"(, "stage": "pretrain")")));
  }
  return result;
}

bool same(const Log& a, const Log& b) {
  const auto equal = [](const auto& x, const auto& y) {
    return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin());
  };
  const auto events = [](const Event& x, const Event& y) {
    return x.storage == y.storage && x.module == y.module && x.op == y.op && x.kind == y.kind && x.stream == y.stream;
  };
  const auto storages = [](const StorageRecord& x, const StorageRecord& y) {
    return x.bytes == y.bytes && x.alloc_event == y.alloc_event && x.free_event == y.free_event &&
           x.module == y.module && x.role == y.role && x.saved == y.saved && x.recomputed == y.recomputed;
  };
  return equal(a.dims, b.dims) &&
         std::equal(a.events.begin(), a.events.end(), b.events.begin(), b.events.end(), events) &&
         std::equal(a.storages.begin(), a.storages.end(), b.storages.begin(), b.storages.end(), storages);
}

TEST_CASE("Each storage is allocated once and freed at most once, and nothing of a step stays", "[property]") {
  for (const Job& job : jobs()) {
    INFO(to_json(job));
    const Log log = simulate(job, resolve_behaviours(job.runtime)).log;
    std::vector<int> state(log.storages.size(), 0);
    bool ordered = true;
    for (std::uint32_t e = 0; e < log.events.size(); ++e) {
      const Event& event = log.events[e];
      if (event.kind == EventKind::alloc)
        ordered = ordered && state[event.storage]++ == 0 && log.storages[event.storage].alloc_event == e;
      else if (event.kind == EventKind::free)
        ordered = ordered && state[event.storage]++ == 1 && log.storages[event.storage].free_event == e;
      else if (event.kind == EventKind::record_stream)
        ordered = ordered && state[event.storage] == 1;
    }
    CHECK(ordered);
    for (std::size_t i = 0; i < state.size(); ++i) {
      if (state[i] == 2) continue;
      const StorageRecord& storage = log.storages[i];
      CAPTURE(module_path(log, storage.module), log.ops[log.events[storage.alloc_event].op], storage.bytes);
      const bool persists = storage.role == Role::parameter || storage.role == Role::buffer ||
                            storage.role == Role::input || storage.role == Role::optimizer_state;
      // Before torch 2.15 cuBLAS keeps its workspaces; DeepSpeed keeps scalars: its last norm, an overflow flag.
      const bool kept_by_library = storage.role == Role::workspace && job.runtime.torch < Version{2, 15, 0};
      const bool scalar_of_deepspeed = job.parallel.strategy == Strategy::deepspeed && storage.bytes <= 8;
      // ZeRO-3 keeps its buffers for reduced gradients (stage3.py: ipg_buckets, grad_partitions_flat_buffer).
      const bool buffer_of_zero3 = job.parallel.strategy == Strategy::deepspeed &&
                                   job.parallel.deepspeed.zero_stage == 3 && storage.module == kModel;
      CHECK((persists || kept_by_library || scalar_of_deepspeed || buffer_of_zero3));
    }
  }
}

TEST_CASE("What is alive after the first iteration is alive after the second", "[property]") {
  for (const Job& job : jobs()) {
    INFO(to_json(job));
    const Log log = simulate(job, resolve_behaviours(job.runtime)).log;
    std::uint32_t second = kNever;
    for (const PhaseMark& mark : log.phases)
      if (mark.iteration == 2) second = std::min(second, mark.first_event);
    std::int64_t after_first = 0, after_second = 0;
    for (const StorageRecord& s : log.storages) {
      if (s.alloc_event < second && s.free_event >= second) after_first += s.bytes;
      if (s.free_event == kNever) after_second += s.bytes;
    }
    CHECK(after_first == after_second);
  }
}

TEST_CASE("Breakdown and modules sum to the peak to the byte", "[property]") {
  for (const Job& job : jobs()) {
    INFO(to_json(job));
    const Result<Estimate> estimate = oometer::estimate(job);
    REQUIRE(estimate);
    const Report& report = estimate->report;
    CHECK(report.breakdown.sum() == report.peak.allocated);
    CHECK(report.modules[0] == report.breakdown);
    CHECK(report.parameter_count[0] == estimate->simulation.parameters);
    CHECK(report.peak.reserved >= report.peak.allocated);
    CHECK(report.total == report.peak.reserved + report.outside_allocator);
  }
}

TEST_CASE("A job written as JSON and read again is the same job with the same run", "[property]") {
  for (const Job& job : jobs()) {
    const std::string text = to_json(job);
    INFO(text);
    const Job again = job_of(text);
    CHECK(again == job);
    CHECK(to_json(again) == text);
    CHECK(same(simulate(job, resolve_behaviours(job.runtime)).log,
               simulate(again, resolve_behaviours(again.runtime)).log));
  }
}

TEST_CASE("A run does not depend on what ran before it", "[property]") {
  const Job a = job_of(tiny_llama()), b = job_of(tiny_llava(R"("precision": "amp-bf16")"));
  const Behaviours behaviours = resolve_behaviours(a.runtime);
  const Log first = simulate(a, behaviours).log, other = simulate(b, behaviours).log;
  CHECK(same(first, simulate(a, behaviours).log));
  CHECK(same(other, simulate(b, behaviours).log));
  CHECK_FALSE(same(first, other));
}

std::int64_t peak_of(const std::string& text) {
  const Job job = job_of(text);
  const std::vector<std::int64_t> peaks = requested_peaks(run(job).simulation.log);
  return *std::max_element(peaks.begin() + 1, peaks.end());  // init apart
}

TEST_CASE("More samples never need less", "[property]") {
  const std::string training = GENERATE(as<std::string>(), R"("precision": "bf16")", R"("attention": "eager")",
                                        R"("attention": "sdpa-math")", R"("activation_checkpointing": "non-reentrant")",
                                        R"("precision": "amp-bf16", "activation_checkpointing": "reentrant")");
  std::int64_t before = 0;
  for (int samples = 1; samples <= 12; ++samples) {
    const std::string data = "\"micro_batch_size\": " + std::to_string(samples) + ", \"sequence_length\": 64";
    const std::int64_t peak = peak_of(tiny_llava(training, "", data));
    CAPTURE(training, samples);
    CHECK(peak >= before);
    before = peak;
  }
}

TEST_CASE("Longer sequences never need less", "[property]") {
  const std::string training = GENERATE(as<std::string>(), R"("precision": "bf16")", R"("attention": "eager")",
                                        R"("activation_checkpointing": "non-reentrant")");
  std::int64_t before = 0;
  // Flash attention's split over keys comes and goes with the length, so steps are large.
  for (int length = 256; length <= 4096; length *= 2) {
    const std::string data = "\"micro_batch_size\": 2, \"sequence_length\": " + std::to_string(length);
    const std::int64_t peak = peak_of(tiny_llama(training, "", data));
    CAPTURE(training, length);
    CHECK(peak >= before);
    before = peak;
  }
}

TEST_CASE("Training less never needs more", "[property]") {
  const auto peak = [](const std::string& stage) { return peak_of(tiny_llava("\"stage\": \"" + stage + '"')); };
  CHECK(peak("pretrain") <= peak("finetune"));
  CHECK(peak("finetune") <= peak("full"));
}

/// The first case of each family that trains the weights themselves, in one process.
std::vector<Job> plain_jobs_of_families() {
  std::vector<Job> jobs;
  for (const std::filesystem::path& file : files_of_families("training")) {
    const std::vector<ReferenceCase> cases = read_cases(file, Groups::as_the_job_says);
    const auto plain = std::find_if(cases.begin(), cases.end(), [](const ReferenceCase& c) {
      const TrainingConfig& training = c.job.training;
      return c.job.parallel.strategy == Strategy::none && !training.lora && !training.ia3 && !training.quantization &&
             training.checkpointing.mode == CheckpointMode::none;
    });
    if (plain == cases.end()) continue;
    jobs.push_back(plain->job);
    jobs.back().training.stage = Stage::custom;
    jobs.back().training.components = {};
  }
  return jobs;
}

/// Modules whose parameters get gradients.
std::set<ModuleId> modules_with_gradients(const Log& log) {
  std::set<ModuleId> modules;
  for (const StorageRecord& storage : log.storages)
    if (storage.role == Role::gradient) modules.insert(storage.module);
  return modules;
}

TEST_CASE("Nothing gets a gradient from within a module under no_grad, whichever it is", "[property]") {
  const std::vector<Job> jobs = plain_jobs_of_families();
  CHECK(jobs.size() >= 8);
  for (Job job : jobs) {
    const Log plain = simulate(job, resolve_behaviours(job.runtime)).log;
    const std::set<ModuleId> trained = modules_with_gradients(plain);
    std::set<std::string> kinds;  // of equal blocks the first one stands for all
    for (ModuleId holder = 1; holder < plain.modules.size(); ++holder) {
      std::string kind = std::string(plain.modules[holder].type) + " " + module_path(plain, holder);
      std::erase_if(kind, [](char c) { return c >= '0' && c <= '9'; });
      if (!kinds.insert(std::move(kind)).second) continue;
      if (plain.modules[holder].type == std::string_view("OPTModel")) continue;  // OPTForCausalLM calls its decoder
      if (plain.modules[holder].type == std::string_view("Conv1d")) continue;    // mixers take its weight themselves
      if (plain.modules[holder].type == std::string_view("NonDynamicallyQuantizableLinear")) continue;  // so do heads
      if (plain.modules[holder].type == std::string_view("Gemma3nTextAltUp")) continue;    // its methods are called
      if (plain.modules[holder].type == std::string_view("MobileNetV5Encoder")) continue;  // so is forward_features
      const std::string_view type = plain.modules[holder].type;
      if (type.starts_with("MiniCPM") && type.ends_with("VisionEncoder")) continue;  // its layers are called
      if (type.ends_with("DecoderWrapper")) continue;  // VisionEncoderDecoderModel calls its decoder
      if (type == "ModuleDict") continue;              // nothing but a place for others
      if (type == "Sequential" && plain.modules[holder].name == std::string_view("layers"))
        continue;  // ResNetStage calls its layers
      if (type == "BartModel" && plain.modules[holder].name == std::string_view("language_model"))
        continue;  // Florence-2 calls its encoder and its decoder
      if (plain.modules[holder].name == std::string_view("correction_coefs")) continue;  // it takes its weight itself
      if (plain.modules[holder].name == std::string_view("dt_proj")) continue;           // so do Mamba's mixers
      std::vector<ModuleId> within;
      for (const ModuleId module : trained) {
        ModuleId above = module;
        while (above > holder) above = plain.modules[above].parent;
        // Embeddings are called by who holds the language model, and may be tied to its head.
        const bool is_embedding = std::string_view(plain.modules[module].type).ends_with("Embedding");
        // Zamba2's transformer blocks are several layers', and so are Deformable DETR's heads.
        const std::string path = module_path(plain, module);
        const bool is_shared = path.find(".shared_transformer.") != std::string::npos ||
                               path.starts_with("class_embed.") || path.starts_with("bbox_embed.");
        if (above == holder && !is_embedding && !is_shared) within.push_back(module);
      }
      if (within.empty()) continue;
      job.training.components.no_grad = {module_path(plain, holder)};
      const Simulation simulation = simulate(job, resolve_behaviours(job.runtime));
      if (simulation.refusal) {
        CHECK(simulation.refusal->message.find("does not require grad") != std::string::npos);
        continue;
      }
      const std::set<ModuleId> still_trained = modules_with_gradients(simulation.log);
      for (const ModuleId module : within) {
        CAPTURE(job.model.name, module_path(plain, holder), module_path(plain, module));
        CHECK(still_trained.count(module) == 0);
      }
    }
  }
}

}  // namespace
}  // namespace oometer
