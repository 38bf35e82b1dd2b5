#include "report/report.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "logs.h"
#include "report/json.h"
#include "report/spread.h"

using namespace oometer;

namespace {

struct Case {
  Log log;
  Replay replay;
  ReportInput input;
  Report report;
};

Case make_case(unsigned seed) {
  Case c;
  c.log = random_log(seed);
  c.replay = replay(c.log, {});
  c.input.gpu.id = "test";
  c.input.gpu.usable_bytes = std::int64_t{80} << 30;
  c.input.outside.context = 500 * kMiB;
  c.input.outside.low = 400 * kMiB;
  c.input.outside.high = 700 * kMiB;
  c.report = build_report(c.log, c.replay, c.replay, c.input);
  return c;
}

/// The report of a log on a device of that size.
Report report_within(const Log& log, std::int64_t usable_bytes) {
  ReportInput input;
  input.gpu.usable_bytes = usable_bytes;
  AllocatorOptions options;
  options.usable_bytes = allocator_limit(input.gpu, input.outside);
  const Replay unlimited = replay(log, {});
  return build_report(log, unlimited, replay_within(log, options, unlimited), input);
}

Factor factor_of(const Case& c, StorageId id) { return c.report.factors[id]; }

}  // namespace

TEST_CASE("Everything sums to the peak to the byte") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Case c = make_case(seed);
    REQUIRE(c.report.peak.allocated > 0);
    CHECK(c.report.breakdown.sum() == c.report.peak.allocated);

    // By hand: what is alive after the peak's event.
    Factors alive{};
    for (StorageId id = 0; id < c.log.storages.size(); ++id) {
      const StorageRecord& record = c.log.storages[id];
      if (record.bytes == 0 || record.alloc_event > c.replay.peak_event || record.free_event <= c.replay.peak_event) {
        continue;
      }
      alive[factor_of(c, id)] += record.bytes;
      alive[Factor::allocator_rounding] += c.replay.block_bytes[id] - record.bytes;
    }
    CHECK(alive == c.report.breakdown);

    // A module holds at least what those below it hold together.
    std::vector<Factors> below(c.log.modules.size());
    for (std::size_t i = 1; i < c.log.modules.size(); ++i) below[c.log.modules[i].parent] += c.report.modules[i];
    for (std::size_t i = 0; i < c.log.modules.size(); ++i) {
      for (std::size_t f = 0; f < kFactors; ++f) CHECK(below[i].data()[f] <= c.report.modules[i].data()[f]);
    }
    CHECK(c.report.modules[0] == c.report.breakdown);
  }
}

TEST_CASE("The timeline loses no peak and each of its rows is a state of the log") {
  for (unsigned seed = 0; seed < 10; ++seed) {
    const Case c = make_case(seed);
    for (const std::size_t points : {1U, 7U, 50U, 2000U}) {
      ReportOptions options;
      options.timeline_points = points;
      const Report report = build_report(c.log, c.replay, c.replay, c.input, options);
      REQUIRE(report.timeline.size() <= points);
      std::int64_t highest = 0;
      for (const TimelineRow& row : report.timeline) {
        Factors factors{};
        std::int64_t reserved = 0;
        for (StorageId id = 0; id < c.log.storages.size(); ++id) {
          const StorageRecord& record = c.log.storages[id];
          if (c.replay.block_bytes[id] == 0 || record.alloc_event > row.event || record.free_event <= row.event)
            continue;
          factors[c.report.factors[id]] += record.bytes;
          factors[Factor::allocator_rounding] += c.replay.block_bytes[id] - record.bytes;
        }
        for (const Replay::Reserved& change : c.replay.reserved) {
          if (change.event <= row.event) reserved = change.bytes;
        }
        CHECK(row.factors == factors);
        CHECK(row.allocated == factors.sum());
        CHECK(row.reserved == reserved);
        highest = std::max(highest, row.allocated);
      }
      CHECK(highest == std::max(c.report.peak.allocated, c.report.phases[0].allocated));
    }
  }
}

TEST_CASE("Tensors that outlive their forward are activations, others temporaries") {
  Log log;
  log.modules.push_back({});
  log.ops = {"mul"};
  log_phase(log, PhaseName::init, 0);
  log_alloc(log, 512);  // 0: alive to the end, but not of a forward
  log_phase(log, PhaseName::forward, 1);
  log_alloc(log, 512);  // 1: gone within the forward
  log_alloc(log, 512);  // 2: gone in the backward
  log_alloc(log, 512);  // 3: saved, but gone
  log.storages[3].saved = true;
  log_alloc(log, 512);  // 4: a workspace
  log.storages[4].role = Role::workspace;
  log_free(log, 1);
  log_free(log, 3);
  log_phase(log, PhaseName::backward, 1);
  log_free(log, 2);
  log_alloc(log, 512);  // 5: of the backward
  log_alloc(log, 512);  // 6: recomputed and saved
  log.storages[6].saved = log.storages[6].recomputed = true;

  const Replay result = replay(log, {});
  const Report report = build_report(log, result, result, {});
  const std::vector<Factor> expected = {Factor::temporaries, Factor::temporaries, Factor::activations,
                                        Factor::activations, Factor::temporaries, Factor::temporaries,
                                        Factor::activations};
  CHECK(report.factors == expected);
  CHECK(report.peak_at.iteration == 1);
  CHECK(report.peak_at.phase == PhaseName::forward);
  CHECK(role_text(log, 2, report.factors[2]) == "output of mul");
  CHECK(role_text(log, 3, report.factors[3]) == "saved output of mul");
  CHECK(role_text(log, 4, report.factors[4]) == "workspace of mul");
  CHECK(role_text(log, 5, report.factors[5]) == "temporary of mul");
  CHECK(role_text(log, 6, report.factors[6]) == "recomputed output of mul");
}

TEST_CASE("The largest tensors are those alive at the peak, largest first") {
  const Case c = make_case(3);
  std::vector<StorageId> alive;
  for (StorageId id = 0; id < c.log.storages.size(); ++id) {
    const StorageRecord& record = c.log.storages[id];
    if (record.bytes > 0 && record.alloc_event <= c.replay.peak_event && c.replay.peak_event < record.free_event) {
      alive.push_back(id);
    }
  }
  std::stable_sort(alive.begin(), alive.end(),
                   [&](StorageId a, StorageId b) { return c.log.storages[a].bytes > c.log.storages[b].bytes; });
  alive.resize(20);
  CHECK(c.report.largest == alive);
}

TEST_CASE("The interval is as wide as like runs were off, and one's own measurement moves it") {
  Case c = make_case(3);
  const auto width = [&](Evidence evidence) {
    c.input.evidence = evidence;
    const Report report = build_report(c.log, c.replay, c.replay, c.input);
    CHECK(report.low <= report.total);
    CHECK(report.total <= report.high);
    return report.high - report.low;
  };
  CHECK(width(Evidence::one_gpu) < width(Evidence::one_gpu_4bit));
  CHECK(width(Evidence::one_gpu_4bit) <= width(Evidence::none));
  CHECK(width(Evidence::none) <= width(Evidence::source_only));

  c.input.evidence = Evidence::one_gpu;
  c.input.calibration.reserved = 1.25;
  const Report moved = build_report(c.log, c.replay, c.replay, c.input);
  CHECK(moved.peak.reserved == c.report.peak.reserved);
  CHECK(moved.total == c.report.peak.reserved / 4 * 5 + moved.outside_allocator);
  const std::int64_t reserved = moved.total - moved.outside_allocator;
  CHECK(moved.total - moved.low == reserved / 10000 * kSpreadOneGpu.below + 100 * kMiB);
  CHECK(moved.basis.find("your own measurement") != std::string::npos);
  Gpu gpu;
  gpu.usable_bytes = 1000;
  CHECK(allocator_limit(gpu, {}, c.input.calibration) == 800);
}

TEST_CASE("The verdict is the limited replay's, the interval makes it tight") {
  const Log log = random_log(5);
  const std::int64_t reserved = replay(log, {}).peak_reserved;

  const Report fits = report_within(log, 2 * reserved);
  CHECK(fits.verdict == Verdict::fits);
  CHECK(fits.headroom == reserved);
  CHECK(fits.low <= fits.total);
  CHECK(fits.total <= fits.high);

  const Report tight = report_within(log, reserved);
  CHECK(tight.fits);
  CHECK(tight.verdict == Verdict::tight);
  CHECK(tight.headroom == 0);

  const Report out = report_within(log, fits.peak.allocated / 2);
  CHECK(out.verdict == Verdict::does_not_fit);
  CHECK(out.headroom == fits.peak.allocated / 2 - reserved);
  REQUIRE(out.out_of_memory);
  CHECK(log.events[out.out_of_memory->event].module == out.out_of_memory_at.module);
  CHECK(out.peak.allocated == fits.peak.allocated);  // the peak is that of a device without a limit
}

TEST_CASE("What lies outside the allocator comes off a device, not off a limit on the allocator") {
  Case c = make_case(1);
  CHECK(allocator_limit(c.input.gpu, c.input.outside) == c.input.gpu.usable_bytes - 500 * kMiB);
  CHECK(c.report.total == c.report.peak.reserved + 500 * kMiB);
  c.input.gpu.allocator_limit = true;
  CHECK(allocator_limit(c.input.gpu, c.input.outside) == c.input.gpu.usable_bytes);
  CHECK(build_report(c.log, c.replay, c.replay, c.input).total == c.report.peak.reserved);
}

TEST_CASE("An empty log has a report") {
  const Replay result = replay(Log{}, {});
  const Report report = build_report(Log{}, result, result, {});
  CHECK(report.total == 0);
  CHECK(nlohmann::json::parse(to_json(report, Log{}, {})).at("breakdown").at("parameters") == 0);
}

TEST_CASE("The JSON says what the report says, the same each time") {
  Case c = make_case(2);
  c.input.parameters = 7;
  c.input.trainable = 5;
  c.input.assumptions = {"quotes \" and \\, a tab\t and ünïcödé"};
  c.input.rank = 1;
  c.input.ranks = {{0, {2, 3}, 0, true}, {1, {4, 5}, 6, false}};
  const std::string text = to_json(c.report, c.log, c.input);
  CHECK(text == to_json(c.report, c.log, c.input));

  const auto json = nlohmann::ordered_json::parse(text);
  CHECK(json.at("peak").at("allocated") == c.report.peak.allocated);
  CHECK(json.at("verdict") == "fits");
  CHECK(json.at("out_of_memory").is_null());
  CHECK(json.at("assumptions").at(0) == c.input.assumptions[0]);
  CHECK(json.at("ranks").at(0).dump() ==
        R"({"rank":0,"allocated":2,"reserved":3,"host_bytes":0,"fits":true,"reported":false})");
  CHECK(json.at("ranks").at(1).at("reported"));
  CHECK(json.at("model").at("trainable") == 5);
  CHECK(json.at("events") == c.log.events.size());
  CHECK(json.at("phases").size() == c.log.phases.size());
  CHECK(json.at("largest").at(0).at("bytes") == c.log.storages[c.report.largest[0]].bytes);
  CHECK(json.at("timeline").at("rows").size() == c.report.timeline.size());
  CHECK(json.at("timeline").at("columns").size() == json.at("timeline").at("rows").at(0).size());
  for (std::size_t i = 0; i < c.report.timeline.size(); ++i) {
    const Event& event = c.log.events[c.report.timeline[i].event];
    const auto& row = json.at("timeline").at("rows").at(i);
    CHECK(json.at("timeline").at("ops").at(row.at(row.size() - 2).get<std::size_t>()) == c.log.ops[event.op]);
    CHECK(json.at("timeline").at("modules").at(row.back().get<std::size_t>()) == module_path(c.log, event.module));
  }
  std::int64_t sum = 0;
  for (const auto& [factor, bytes] : json.at("breakdown").items()) {
    sum += bytes.get<std::int64_t>();
    CHECK(json.at("modules").at(0).at(factor) == bytes);
  }
  CHECK(sum == c.report.peak.allocated);
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  CHECK(keys == std::vector<std::string>{"verdict",    "fits",          "headroom",    "peak",       "interval",
                                         "gpu",        "out_of_memory", "peak_at",     "breakdown",  "modules",
                                         "phases",     "timeline",      "largest",     "model",      "work",
                                         "host_bytes", "ranks",         "assumptions", "unmodelled", "notes",
                                         "events",     "version"});

  // Layers are not opened, unless asked for.
  const auto& layer = json.at("modules").at(0).at("children").at(1).at("children").at(2);
  CHECK(layer.at("path") == "language.layers.2");
  CHECK(layer.at("modality") == "language");
  CHECK(layer.at("children").empty());
  const auto full = nlohmann::json::parse(to_json(c.report, c.log, c.input, {true}));
  const auto& mlp = full.at("modules").at(0).at("children").at(1).at("children").at(2).at("children").at(0);
  CHECK(mlp.at("path") == "language.layers.2.mlp");
  CHECK(mlp.at("type") == "Mlp");
}

TEST_CASE("A module's parameters are counted with those of the modules in it") {
  Log log;
  log.modules = {{}, {0, "a", -1, "A", Modality::none}};
  const Replay result = replay(log, {});
  ReportInput input;
  input.module_parameters = {2, 10};
  CHECK(build_report(log, result, result, input).parameter_count == std::vector<std::int64_t>{12, 10});
}
