#pragma once

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "job/estimate.h"
#include "job/parse.h"
#include "job/simulate.h"

/// Jobs for tests: given as JSON, run to their log or report.
namespace oometer {

inline Job job_of(const std::string& text) {
  INFO(text);
  const Result<Job> job = parse_job(text);
  if (!job) FAIL(job.error().pointer << ": " << job.error().message);
  return *job;
}

/// The texts of presets/jobs.
inline std::vector<std::string> example_jobs() {
  std::vector<std::string> jobs;
  for (const auto& entry : std::filesystem::directory_iterator(OOMETER_SOURCE_DIR "/presets/jobs")) {
    std::ifstream file(entry.path());
    jobs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return jobs;
}

/// Members of the object `training`.
inline const std::string kInBf16 = R"("precision": "bf16")", kInFp32 = R"("precision": "fp32")";

/// A Llama of two blocks. `training`: the members of the job's object of that name; `more`: of the job.
inline std::string tiny_llama(const std::string& training = kInBf16, const std::string& more = "",
                              const std::string& data = R"("micro_batch_size": 2, "sequence_length": 64)") {
  return R"({"model": {"config": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 176, "vocab_size": 512,
             "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}},
             "data": {)" +
         data + R"(}, "training": {)" + training + "}" + more + "}";
}

/// A LLaVA of a tower of three blocks and a Llama of two.
inline std::string tiny_llava(const std::string& training = kInBf16, const std::string& more = "",
                              const std::string& data = R"("micro_batch_size": 2, "sequence_length": 64)") {
  return R"({"model": {"config": {"model_type": "llava",
             "vision_config": {"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 64,
               "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 56, "patch_size": 14},
             "text_config": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 176, "vocab_size": 512,
               "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}}},
             "data": {)" +
         data + R"(}, "training": {)" + training + "}" + more + "}";
}

inline Simulation simulation_of(const std::string& text) {
  const Job job = job_of(text);
  return simulate(job, resolve_behaviours(job.runtime));
}

inline Log run_log(const std::string& text) { return simulation_of(text).log; }

/// Bytes of a role that are alive when a phase begins.
inline std::int64_t alive_at(const Log& log, Role role, PhaseName phase, int iteration) {
  for (const PhaseMark& mark : log.phases) {
    if (mark.name != phase || mark.iteration != iteration) continue;
    std::int64_t bytes = 0;
    for (const StorageRecord& storage : log.storages)
      if (storage.role == role && storage.alloc_event < mark.first_event && storage.free_event >= mark.first_event)
        bytes += storage.bytes;
    return bytes;
  }
  FAIL("no such phase");
  return 0;
}

/// No storage is freed before it was allocated, none is either twice.
inline void check_frees(const Log& log) {
  std::vector<int> lives(log.storages.size(), 0);
  for (const Event& event : log.events) {
    if (event.kind == EventKind::alloc) CHECK(++lives[event.storage] == 1);
    if (event.kind == EventKind::free) CHECK(--lives[event.storage] == 0);
  }
}

}  // namespace oometer
