#include "cli/event_log.h"

#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "report/report.h"
#include "report/work.h"
#include "time/kernel_time.h"

namespace oometer::cli {

std::string event_log(const Log& log) {
  constexpr std::array kKinds = {"alloc", "free", "record_stream", "empty_cache"};
  std::vector<std::string> paths(log.modules.size());
  for (ModuleId module = 0; module < log.modules.size(); ++module) paths[module] = module_path(log, module);

  std::string out;
  auto phase = log.phases.begin();
  for (std::size_t i = 0; i < log.events.size(); ++i) {
    while (phase != log.phases.end() && std::next(phase) != log.phases.end() && std::next(phase)->first_event <= i)
      ++phase;
    const Event& event = log.events[i];
    // None of the texts can hold a character that JSON escapes: operators, modules and phases are names.
    out += "{\"event\": \"";
    out += kKinds[static_cast<std::size_t>(event.kind)];
    out += '"';
    if (event.storage != kNever) {
      out += ", \"bytes\": " + std::to_string(log.storages[event.storage].bytes);
      out += ", \"storage\": " + std::to_string(event.storage);
    }
    out += ", \"op\": \"";
    out += log.ops[event.op];
    out += "\", \"module\": \"" + paths[event.module] + '"';
    if (phase != log.phases.end()) {
      out += ", \"phase\": \"";
      out += phase_name(phase->name);
      out += "\", \"iteration\": " + std::to_string(phase->iteration);
    }
    out += ", \"stream\": " + std::to_string(event.stream) + "}\n";
  }
  return out;
}

std::string work_log(const Log& log, const GpuSpeed* gpu) {
  std::string out;
  std::optional<KernelTimes> kernels;
  if (gpu) kernels.emplace(*gpu);
  for (std::size_t p = 0; p < log.phases.size(); ++p) {
    const PhaseMark& phase = log.phases[p];
    const WorkMark end = p + 1 < log.phases.size() ? log.phases[p + 1].work : log.work.mark();
    const std::vector<std::int64_t> times = log.work.times({phase.work, end});
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (times[i] == 0) continue;
      const Work& work = log.work.works[i];
      const WorkProduct& product = log.work.product(work);
      out += "{\"op\": \"" + std::string(log.ops[work.op]) + "\", \"kind\": \"" + work_kind_name(work.kind) +
             "\", \"dtype\": \"" + dtype_name(work.dtype) + "\", \"module\": \"" + module_path(log, work.module) +
             "\", \"phase\": \"" + phase_name(phase.name) + "\", \"iteration\": " + std::to_string(phase.iteration);
      const auto add = [&](const char* key, std::int64_t value) {
        out += std::string(", \"") + key + "\": " + std::to_string(value);
      };
      add("stream", work.stream);
      add("times", times[i]);
      if (product.m > 0) {
        add("batch", product.batch);
        add("m", product.m);
        add("n", product.n);
        add("k", product.k);
        add("flops", product.flops);
        add("counted", product.counted);
      }
      add("read", work.read);
      add("written", work.written);
      if (work.kind == WorkKind::communication) {
        add("ranks", product.n);
        add("sent", product.sent);
      }
      if (kernels && work.kind != WorkKind::none) {
        const KernelTime time = kernels->of(log.work, work);
        add("ns", std::llround(time.seconds * 1e9));
        out += std::string(", \"bound\": \"") + (time.is_compute_bound ? "compute" : "memory") + "\"";
      }
      out += work.recomputed ? ", \"recomputed\": true}\n" : "}\n";
    }
  }
  return out;
}

}  // namespace oometer::cli
