#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace oometer {

enum class Verdict : std::uint8_t;
class JsonWriter;

/// Something in a node's memory.
struct HostHolding {
  const char* name = "";
  const char* source = "";  ///< project, file, symbol, version; or how it was measured
  std::int64_t bytes = 0;   ///< of one process, or of the node
  bool is_of_node = false;  ///< one process has it, or all share it
  bool is_of_file = false;  ///< pages of a mapped file: resident, but given up where memory is short
};

/// A time of the run in which the host has a peak of its own.
struct HostPhase {
  const char* name = "";
  std::vector<HostHolding> holdings;
  std::int64_t pinned = 0;  ///< of the holdings, by a process: rounded up to powers of two by PyTorch, and never paged

  /// What the node's processes need together.
  std::int64_t needs(std::int64_t processes) const;
  /// The resident set of the process that has most (VmHWM of /proc/PID/status), mapped files too.
  std::int64_t resident() const;
};

/// What a job needs of a node's memory.
struct HostReport {
  std::optional<std::int64_t> memory;  ///< that the node has, if the job says it
  std::int64_t processes = 1;          ///< on the node, a GPU each
  std::vector<HostPhase> phases;
  std::vector<std::string> unmodelled;

  /// Of a run that is not resumed.
  const HostPhase& worst() const;
  std::int64_t needs() const { return worst().needs(processes); }
  /// What the need may be, with the measured error and what the driver may take.
  std::int64_t needs_at_most() const;
  /// Where the node's memory is known: tight where the job fits, but could not be resumed.
  Verdict verdict() const;
};

/// The report's member `host`: {"memory", "verdict" (both null where the job does not say the memory), "processes",
/// "needs", "high", "phase", "phases": [{"name", "needs", "resident", "pinned", "holdings": [{"name", "bytes", "of",
/// "mapped", "source"}]}], "unmodelled"}. `needs` is a node's, without mapped files; `resident` and `pinned` are one
/// process's, with them.
void write_host(JsonWriter& json, const HostReport& host);

}  // namespace oometer
