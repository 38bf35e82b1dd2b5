#pragma once

#include <array>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "trace/log.h"

/// Logs for tests of the allocator: recorded, random, or written down.
namespace oometer {

inline void log_alloc(Log& log, std::int64_t bytes, std::uint8_t stream = kDefaultStream) {
  StorageRecord record;
  record.bytes = bytes;
  record.alloc_event = static_cast<std::uint32_t>(log.events.size());
  Event event;
  event.storage = static_cast<StorageId>(log.storages.size());
  event.stream = stream;
  log.storages.push_back(record);
  log.events.push_back(event);
}

inline void log_event(Log& log, EventKind kind, StorageId storage = 0, std::uint8_t stream = kDefaultStream) {
  if (kind == EventKind::free) log.storages[storage].free_event = static_cast<std::uint32_t>(log.events.size());
  Event event;
  event.storage = storage;
  event.kind = kind;
  event.stream = stream;
  log.events.push_back(event);
}

inline void log_free(Log& log, StorageId storage) { log_event(log, EventKind::free, storage); }

inline void log_phase(Log& log, PhaseName name, int iteration) {
  log.phases.push_back({static_cast<std::uint32_t>(log.events.size()), name, iteration, log.work.mark()});
}

/// A file of tests/unit/cuda/data: its first lines say what it holds.
struct History {
  Log log;
  std::map<std::string, std::map<int, std::array<std::int64_t, 3>>> peaks;  ///< mode, iteration: requested ...
};

inline History read_history(const std::string& name) {
  History history;
  Log& log = history.log;
  log_phase(log, PhaseName::init, 0);
  std::ifstream file(std::string(OOMETER_SOURCE_DIR) + "/tests/unit/cuda/data/" + name);
  std::vector<std::int64_t> sizes;
  std::string word;
  while (file >> word) {
    if (word == "#") {
      std::getline(file, word);
    } else if (word == "sizes") {
      std::size_t count = 0;
      file >> count;
      sizes.resize(count);
      for (std::int64_t& size : sizes) file >> size;
    } else if (word == "peak") {
      std::string mode;
      int iteration = 0;
      file >> mode >> iteration;
      for (std::int64_t& peak : history.peaks[mode][iteration]) file >> peak;
    } else if (word == "events") {
      file >> word;
    } else if (word == "|") {
      log_phase(log, PhaseName::forward, log.phases.back().iteration + 1);
    } else if (const long number = std::stol(word); number < 0) {
      log_free(log, static_cast<StorageId>(-number - 1));
    } else {
      log_alloc(log, sizes[static_cast<std::size_t>(number)]);
    }
  }
  return history;
}

}  // namespace oometer
