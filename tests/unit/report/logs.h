#pragma once

#include <random>

#include "cuda/histories.h"

namespace oometer {

/// A log of no meaning in which everything happens: modules three deep, two iterations, all roles, two streams.
inline Log random_log(unsigned seed, int events_per_phase = 300) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  Log log;
  log.modules.push_back({0, "", -1, "Model", Modality::none});
  log.modules.push_back({0, "tower", -1, "Tower", Modality::vision});
  log.modules.push_back({0, "language", -1, "Language", Modality::language});
  for (std::int32_t i = 0; i < 3; ++i) {
    log.modules.push_back({2, "layers", i, "Layer", Modality::language});
    log.modules.push_back({static_cast<ModuleId>(log.modules.size() - 1), "mlp", -1, "Mlp", Modality::language});
  }
  log.ops = {"none", "parameter", "mm", "mul"};
  log.dims = {4, 3, 2};

  std::vector<StorageId> live;
  const auto add = [&](Role role) {
    // Sometimes nothing: it never reaches the allocator.
    log_alloc(log, static_cast<std::int64_t>(below(40) == 0 ? 0 : 1 + below(std::size_t{1} << (6 + below(19)))),
              static_cast<std::uint8_t>(below(8) == 0));
    StorageRecord& record = log.storages.back();
    record.role = role;
    record.ndim = static_cast<std::uint8_t>(below(4));
    record.dtype = static_cast<DType>(below(8));
    record.saved = role == Role::tensor && below(3) == 0;
    record.module = log.events.back().module = static_cast<ModuleId>(below(log.modules.size()));
    log.events.back().op = role == Role::parameter ? 1 : static_cast<OpId>(2 + below(2));
    live.push_back(static_cast<StorageId>(log.storages.size() - 1));
  };
  log_phase(log, PhaseName::init, 0);
  for (int i = 0; i < 30; ++i) add(i < 25 ? Role::parameter : Role::buffer);
  for (int iteration = 1; iteration <= 2; ++iteration) {
    for (const PhaseName phase : {PhaseName::forward, PhaseName::backward, PhaseName::optimizer}) {
      log_phase(log, phase, iteration);
      for (int i = 0; i < events_per_phase; ++i) {
        const std::size_t action = below(100);
        const std::size_t growth = phase == PhaseName::forward ? 65 : phase == PhaseName::backward ? 40 : 50;
        if (action < growth || live.size() < 40) {
          constexpr Role kRoles[] = {Role::tensor, Role::tensor,   Role::tensor,         Role::workspace,
                                     Role::input,  Role::gradient, Role::optimizer_state};
          add(kRoles[below(7)]);
        } else if (action < 95) {
          const std::size_t index = 30 + below(live.size() - 30);  // parameters stay
          log_free(log, live[index]);
          live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
        } else if (action < 98) {
          log_event(log, EventKind::record_stream, live[below(live.size())], 1);
        } else {
          log_event(log, EventKind::empty_cache, kNever);
        }
      }
    }
  }
  return log;
}

}  // namespace oometer
