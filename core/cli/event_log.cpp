#include "cli/event_log.h"

#include <array>
#include <vector>

#include "report/report.h"

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

}  // namespace oometer::cli
