#include "cuda/replay.h"

#include <catch2/catch_test_macros.hpp>

#include "histories.h"

using namespace oometer;

TEST_CASE("Peaks are PyTorch's to the byte") {
  for (const char* name : {"pytorch_tiny_llava_finetune.txt", "pytorch_llava7b_ft_s2048_m8.txt", "random_0.txt",
                           "random_1.txt", "random_2.txt", "random_3.txt", "random_4.txt", "random_5.txt"}) {
    const History history = read_history(name);
    REQUIRE(history.peaks.size() == 2);
    for (const auto& [mode, iterations] : history.peaks) {
      INFO(name << " " << mode);
      AllocatorOptions options;
      options.expandable_segments = mode == "expandable";
      const Replay result = replay(history.log, options);
      for (const auto& [iteration, peak] : iterations) {
        const MemoryStats& ours = result.phases[static_cast<std::size_t>(iteration)];
        CHECK(ours.allocated == peak[1]);
        CHECK(ours.reserved == peak[2]);
      }
    }
  }
}

TEST_CASE("The peak is that of the iterations, with what came before them") {
  Log log;
  log_phase(log, PhaseName::init, 0);
  log_alloc(log, 50 * kMiB);
  log_alloc(log, 30 * kMiB);
  log_free(log, 0);
  log_phase(log, PhaseName::forward, 1);
  log_alloc(log, 1000);
  log_phase(log, PhaseName::backward, 1);
  log_alloc(log, 2000);
  log_free(log, 2);
  log_phase(log, PhaseName::forward, 2);

  const Replay result = replay(log, {});
  CHECK(result.phases[0].allocated == 80 * kMiB);
  CHECK(result.phases[1].allocated == 30 * kMiB + 1024);
  CHECK(result.phases[2].allocated == 30 * kMiB + 1024 + 2048);
  CHECK(result.phases[3].allocated == 30 * kMiB + 2048);  // nothing happens: what is in use
  CHECK(result.peak.allocated == 30 * kMiB + 1024 + 2048);
  CHECK(result.peak.reserved == 82 * kMiB);
  CHECK(result.peak_reserved == 82 * kMiB);
  CHECK(result.peak_event == 4);
  CHECK(result.block_bytes == std::vector<std::int64_t>{50 * kMiB, 30 * kMiB, 1024, 2048});
  REQUIRE(result.reserved.size() == 3);
  CHECK(result.reserved[1].event == 1);
  CHECK(result.reserved[1].bytes == 80 * kMiB);
}

TEST_CASE("A log without marks or events") {
  CHECK(replay(Log{}, {}).peak_event == kNever);
  Log log;
  log_alloc(log, 0);  // never reaches the allocator
  log_free(log, 0);
  log_alloc(log, 1);
  const Replay result = replay(log, {});
  CHECK(result.peak.allocated == 512);
  CHECK(result.peak_event == 2);
}

TEST_CASE("Within a limit above what is reserved nothing changes; below it memory runs out") {
  const History history = read_history("pytorch_tiny_llava_finetune.txt");
  const Replay unlimited = replay(history.log, {});
  AllocatorOptions options;
  options.usable_bytes = unlimited.peak_reserved;
  const Replay same = replay(history.log, options);
  CHECK(same.retries == 0);
  CHECK_FALSE(same.out_of_memory);
  CHECK(same.peak.reserved == unlimited.peak.reserved);

  options.usable_bytes = unlimited.peak.allocated - 1;
  const Replay out = replay(history.log, options);
  REQUIRE(out.out_of_memory);
  CHECK(out.out_of_memory->device_free == options.usable_bytes - out.out_of_memory->in_use.reserved);
  CHECK(out.out_of_memory->segment > out.out_of_memory->device_free);
  CHECK(history.log.events[out.out_of_memory->event].kind == EventKind::alloc);
  CHECK(out.phases.size() == history.log.phases.size());

  // Between the two, segments go back and are asked for again.
  options.usable_bytes = unlimited.peak_reserved - 2 * kMiB;
  const Replay tight = replay(history.log, options);
  CHECK(tight.retries > 0);
  CHECK(tight.peak.reserved <= options.usable_bytes);
}

TEST_CASE("Memory runs out, or is found after all, where PyTorch's does") {
  // The same run of torch 2.15.0 on devices of these sizes: num_alloc_retries; which alloc failed (0: none), with how
  // much left on the device; else the second iteration's peak reserved.
  struct Run {
    std::int64_t gib;
    bool expandable_segments;
    int retries;
    std::uint32_t failed_event;
    std::int64_t device_free;
    std::int64_t reserved;
  };
  constexpr Run kRuns[] = {
      {141, false, 1, 16349, 1723858944, 0}, {138, false, 2, 16346, 606076928, 0}, {136, false, 2, 16317, 138412032, 0},
      {120, false, 1, 15884, 113246208, 0},  {141, true, 0, 0, 0, 148593704960},   {138, true, 1, 0, 0, 146496552960},
      {136, true, 2, 16360, 1883242496, 0},  {120, true, 2, 16042, 117440512, 0},
  };
  const History history = read_history("pytorch_llava7b_ft_s2048_m8.txt");
  for (const Run& run : kRuns) {
    INFO(run.gib << " GiB, expandable " << run.expandable_segments);
    const Replay result = replay(history.log, {run.gib << 30, run.expandable_segments});
    CHECK(result.retries == run.retries);
    REQUIRE(result.out_of_memory.has_value() == (run.failed_event != 0));
    if (result.out_of_memory) {
      CHECK(result.out_of_memory->event == run.failed_event);
      CHECK(result.out_of_memory->device_free == run.device_free);
    } else {
      CHECK(result.phases[2].reserved == run.reserved);
    }
  }
}

TEST_CASE("A limit that was watched is answered as one that was played") {
  int seen = 0;
  for (const char* name : {"pytorch_tiny_llava_finetune.txt", "pytorch_llava7b_ft_s2048_m8.txt", "random_0.txt"}) {
    const History history = read_history(name);
    const std::int64_t peak = replay(history.log, {}).peak_reserved;
    for (std::int64_t percent = 1; percent <= 101; percent += 2) {
      const std::int64_t limit = peak / 100 * percent;
      INFO(name << " " << percent << " %");
      const Replay watching = replay(history.log, {}, limit);
      CHECK(watching.peak_reserved == peak);
      const Replay played = replay(history.log, {limit});
      const Outcome outcome = replay_within(history.log, {limit}, watching);
      seen += watching.within_watched.has_value();
      CHECK(outcome.retries == played.retries);
      REQUIRE(outcome.out_of_memory.has_value() == played.out_of_memory.has_value());
      if (!outcome.out_of_memory) {
        CHECK(outcome.peak_reserved == played.peak_reserved);
        continue;
      }
      CHECK(outcome.out_of_memory->event == played.out_of_memory->event);
      CHECK(outcome.out_of_memory->requested == played.out_of_memory->requested);
      CHECK(outcome.out_of_memory->segment == played.out_of_memory->segment);
      CHECK(outcome.out_of_memory->device_free == played.out_of_memory->device_free);
      CHECK(outcome.out_of_memory->in_use.allocated == played.out_of_memory->in_use.allocated);
      CHECK(outcome.out_of_memory->in_use.reserved == played.out_of_memory->in_use.reserved);
    }
  }
  CHECK(seen > 20);
}
