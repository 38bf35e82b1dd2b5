#include "report/host.h"

#include <algorithm>
#include <string_view>

#include "report/json_writer.h"
#include "report/report.h"

namespace oometer {

namespace {

constexpr double kWorstError = 1.05;                       ///< of the recorded processes (tests/reference/host)
constexpr std::int64_t kDriver = std::int64_t{512} << 20;  ///< allowed to the CUDA driver, which was not measured

/// A run that is not resumed fits without it.
bool may_not_come(const HostPhase& phase) { return phase.name == std::string_view("resuming"); }

}  // namespace

std::int64_t HostPhase::needs(std::int64_t processes) const {
  std::int64_t sum = 0;
  for (const HostHolding& holding : holdings)
    if (!holding.is_of_file) sum += holding.bytes * (holding.is_of_node ? 1 : processes);
  return sum;
}

std::int64_t HostPhase::resident() const {
  std::int64_t sum = 0;
  for (const HostHolding& holding : holdings) sum += holding.bytes;
  return sum;
}

const HostPhase& HostReport::worst() const {
  const auto rank = [this](const HostPhase& phase) { return may_not_come(phase) ? 0 : phase.needs(processes); };
  return *std::max_element(phases.begin(), phases.end(),
                           [&](const HostPhase& a, const HostPhase& b) { return rank(a) < rank(b); });
}

std::int64_t HostReport::needs_at_most() const {
  return static_cast<std::int64_t>(static_cast<double>(needs()) * kWorstError) + processes * kDriver;
}

Verdict HostReport::verdict() const {
  if (!memory) return Verdict::fits;
  if (needs() > *memory) return Verdict::does_not_fit;
  const bool all_fit = std::all_of(phases.begin(), phases.end(),
                                   [this](const HostPhase& phase) { return phase.needs(processes) <= *memory; });
  return needs_at_most() > *memory || !all_fit ? Verdict::tight : Verdict::fits;
}

[[gnu::noinline]] void write_host(JsonWriter& json, const HostReport& host) {
  json.begin_object();
  json.key("memory");
  if (host.memory)
    json.value(*host.memory);
  else
    json.null();
  json.key("verdict");
  if (host.memory)
    json.value(verdict_name(host.verdict()));
  else
    json.null();
  json.member("processes", host.processes);
  json.member("needs", host.needs());
  json.member("high", host.needs_at_most());
  json.member("phase", host.worst().name);
  json.key("phases");
  json.begin_array();
  for (const HostPhase& phase : host.phases) {
    json.begin_object();
    json.member("name", phase.name);
    json.member("needs", phase.needs(host.processes));
    json.member("resident", phase.resident());
    json.member("pinned", phase.pinned);
    json.key("holdings");
    json.begin_array();
    for (const HostHolding& holding : phase.holdings) {
      json.begin_object();
      json.member("name", holding.name);
      json.member("bytes", holding.bytes);
      json.member("of", holding.is_of_node ? "node" : "process");
      json.member("mapped", holding.is_of_file);
      json.member("source", holding.source);
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.member_array("unmodelled", host.unmodelled);
  json.end_object();
}

}  // namespace oometer
