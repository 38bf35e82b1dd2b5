#include "nn/repeat/recorded_block.h"

#include <algorithm>

namespace oometer {

bool is_same(const BlockPass& pass, const RecordedBlock& a, std::size_t block_a, const RecordedBlock& b,
             std::size_t block_b) {
  const MovedModules moved = pass.modules.move(block_b, block_a);
  const auto same_event = [&](const RecordedBlock::RecordedEvent& x, const RecordedBlock::RecordedEvent& y) {
    return x.event.kind == y.event.kind && x.event.op == y.event.op && x.event.stream == y.event.stream &&
           x.event.module == moved(y.event.module) && x.owner == y.owner && x.index == y.index;
  };
  const auto same_storage = [&](StorageId x, StorageId y) { return pass.is_same_storage(x, block_a, y, block_b); };
  const auto same_call = [&](const RecordedBlock::HookCall& x, RecordedBlock::HookCall y) {
    y.module = moved(y.module);
    y.of = moved(y.of);
    return x == y;
  };
  const auto same_share = [&](const RecordedBlock::CreatedShare& x, const RecordedBlock::CreatedShare& y) {
    return x.index == y.index && x.module == moved(y.module) && x.elements == y.elements;
  };
  return std::equal(a.events.begin(), a.events.end(), b.events.begin(), b.events.end(), same_event) &&
         std::equal(a.shares.begin(), a.shares.end(), b.shares.begin(), b.shares.end(), same_share) &&
         std::equal(a.created.begin(), a.created.end(), b.created.begin(), b.created.end(), same_storage) &&
         std::equal(a.calls.begin(), a.calls.end(), b.calls.begin(), b.calls.end(), same_call) &&
         a.gradients == b.gradients && a.holds == b.holds && a.includes_listener == b.includes_listener;
}

}  // namespace oometer
