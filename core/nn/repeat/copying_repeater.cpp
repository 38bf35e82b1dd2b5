#include "nn/repeat/copying_repeater.h"

#include <algorithm>

namespace oometer {

bool CopyingRepeater::is_about_itself(const LogRange& range, std::size_t block) const {
  const Log& log = pass_.context.log;
  const LogRange forward = pass_.forward_of(block);
  for (std::uint32_t i = range.begin.event; i < range.end.event; ++i) {
    const StorageId id = log.events[i].storage;
    if (log.events[i].kind == EventKind::empty_cache) return false;
    const StorageId near = (pass_.is_in_backward(id) ? range : forward).storages();
    const StorageId origin = origin_of(id, range, block);
    if (id + near < origin || id >= origin + near) return false;
  }
  return true;
}

bool CopyingRepeater::needs_only(const LogRange& range, std::size_t block, StorageId incoming) const {
  const LogRange forward = pass_.forward_of(block);
  const StorageId input = forward_input(block);
  const std::span events = std::span(pass_.context.log.events).subspan(range.begin.event, range.events());
  return std::all_of(events.begin(), events.end(), [&](const Event& event) {
    return range.created(event.storage) || forward.created(event.storage) || event.storage == incoming ||
           event.storage == input;
  });
}

bool CopyingRepeater::is_same(const LogRange& a, std::size_t block_a, const LogRange& b, std::size_t block_b) const {
  if (a.events() != b.events() || a.storages() != b.storages()) return false;
  const Log& log = pass_.context.log;
  const MovedModules moved = pass_.modules.move(block_b, block_a);
  for (std::uint32_t i = 0; i < a.events(); ++i) {
    const Event &x = log.events[a.begin.event + i], &y = log.events[b.begin.event + i];
    if (x.kind != y.kind || x.op != y.op || x.stream != y.stream || x.module != moved(y.module)) return false;
    if (x.storage - origin_of(x.storage, a, block_a) != y.storage - origin_of(y.storage, b, block_b)) return false;
    if (x.kind == EventKind::alloc && !pass_.is_same_storage(x.storage, block_a, y.storage, block_b)) return false;
  }
  return true;
}

RangeCopier CopyingRepeater::copier(const LogRange& range, std::size_t from, std::size_t to) const {
  return {pass_.context,
          range,
          {pass_.forward[to].storage - pass_.forward[from].storage, pass_.now().storage - range.begin.storage,
           pass_.forward.back().storage, pass_.modules.move(from, to)}};
}

bool CopyingRepeater::can_write_forward() { return is_about_itself(pass_.forward_of(pass_.first), pass_.first); }

bool CopyingRepeater::can_write_forward_behind_others(StorageId input) const {
  // It has come from as near as into the first one.
  return input - pass_.now().storage == pass_.input_of_first - pass_.forward[pass_.first].storage &&
         needs_only(pass_.forward_of(pass_.first), pass_.first, pass_.input_of_first);
}

void CopyingRepeater::write_forward(const RepeatedBlocks& blocks) {
  std::optional<RangeCopier> copies;
  for (std::size_t i = blocks.begin; i < blocks.end; ++i) {
    pass_.forward[i] = pass_.now();
    const std::size_t like = i == blocks.begin ? pass_.first : i - 1;
    if (!copies || !copies->was_at_end()) copies.emplace(copier(pass_.forward_of(like), like, i));
    copies->write();
    pass_.forward[i + 1] = pass_.now();
  }
}

bool CopyingRepeater::is_forward_same() {
  return is_same(pass_.forward_of(pass_.last), pass_.last, pass_.forward_of(pass_.first), pass_.first);
}

std::optional<StorageId> CopyingRepeater::write_backward(const RepeatedBlocks& blocks, StorageId incoming) {
  const std::size_t last = pass_.last;
  const LogRange& backward = pass_.last_backward;
  const StorageId distance = pass_.gradient_of_last - backward.begin.storage;
  if (!pass_.hands_gradient_on && incoming - pass_.now().storage != distance) return std::nullopt;
  if (!(blocks.end == last ? is_about_itself(backward, last) : needs_only(backward, last, pass_.gradient_of_last)))
    return std::nullopt;
  std::optional<RangeCopier> copies;
  LogRange range = backward;
  for (std::size_t i = blocks.end; i-- > blocks.begin;) {
    const std::size_t like = i + 1 == blocks.end ? last : i + 1;
    if (!copies || !copies->was_at_end()) copies.emplace(copier(range, like, i));
    range = copies->write();
    give_gradients(i, range.begin);
  }
  return pass_.hands_gradient_on ? incoming : distance + pass_.now().storage;
}

bool CopyingRepeater::is_backward_same(const LogRange& backward_of_first) {
  return is_same(backward_of_first, pass_.first, pass_.last_backward, pass_.last);
}

void CopyingRepeater::give_gradients(std::size_t to, const LogPosition& begin) const {
  const LogRange& backward = pass_.last_backward;
  const std::span<const Parameter> like = pass_.modules.parameters_of(pass_.last),
                                   parameters = pass_.modules.parameters_of(to);
  for (std::size_t k = 0; k < like.size(); ++k) {
    const Tensor& gradient = like[k].tensor->grad;
    if (!gradient || !backward.created(gradient->storage->id)) continue;
    const StorageId id = gradient->storage->id - backward.begin.storage + begin.storage;
    parameters[k].tensor->grad =
        on_storage(pass_.context.resume(id), gradient.sizes(), gradient.strides(), gradient.dtype());
  }
}

}  // namespace oometer
