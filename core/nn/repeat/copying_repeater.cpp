#include "nn/repeat/copying_repeater.h"

#include <utility>

namespace oometer {

std::optional<CopyingRepeater::Taken> CopyingRepeater::take(const LogRange& range, std::size_t block,
                                                            StorageId incoming) const {
  std::optional<RangeCopier> copier = RangeCopier::of(pass_.context, range, pass_.forward_of(block),
                                                      storages_of(block, incoming), pass_.modules.move(block, block));
  if (!copier) return std::nullopt;
  return Taken{block, std::move(*copier)};
}

bool CopyingRepeater::is_same(const Taken& taken_a, const Taken& taken_b) const {
  const LogRange &a = taken_a.copier.range(), &b = taken_b.copier.range();
  if (a.events() != b.events() || a.storages() != b.storages()) return false;
  const Log& log = pass_.context.log;
  const MovedModules moved = pass_.modules.move(taken_b.block, taken_a.block);
  for (std::uint32_t i = 0; i < a.events(); ++i) {
    const Event &x = log.events[a.begin.event + i], &y = log.events[b.begin.event + i];
    if (x.kind != y.kind || x.op != y.op || x.stream != y.stream || x.module != moved(y.module)) return false;
    if (x.kind == EventKind::alloc && !pass_.is_same_storage(x.storage, taken_a.block, y.storage, taken_b.block))
      return false;
  }
  return taken_a.copier.is_about_same(taken_b.copier, log);
}

bool CopyingRepeater::take_forward(std::size_t kind, const BlockKind& of) {
  if (forwards_.size() <= kind) forwards_.resize(kind + 1);
  forwards_[kind] = take(pass_.forward_of(of.first), of.first, pass_.inputs[of.first]);
  return forwards_[kind].has_value();
}

void CopyingRepeater::write_forward(std::size_t kind, std::size_t block) {
  Taken& taken = *forwards_[kind];
  pass_.forward[block] = pass_.now();
  taken.copier.write(storages_of(block, pass_.inputs[block]), pass_.modules.move(taken.block, block).by);
  pass_.forward[block + 1] = pass_.now();
}

bool CopyingRepeater::is_forward_same(std::size_t kind, const BlockKind& of) {
  const std::optional<Taken> again = take(pass_.forward_of(of.last), of.last, pass_.inputs[of.last]);
  return again && is_same(*again, *forwards_[kind]);
}

bool CopyingRepeater::take_backward(std::size_t kind, const BlockKind& of) {
  if (backwards_.size() <= kind) backwards_.resize(kind + 1);
  backwards_[kind] = take(of.backward, of.last, of.gradient_of_last);
  backward_ = of.backward;
  return backwards_[kind].has_value();
}

void CopyingRepeater::write_backward(std::size_t kind, std::size_t block, StorageId incoming) {
  Taken& taken = *backwards_[kind];
  backward_ = taken.copier.write(storages_of(block, incoming), pass_.modules.move(taken.block, block).by);
  give_gradients(taken.block, taken.copier.range(), block, backward_.begin);
}

bool CopyingRepeater::is_backward_same(std::size_t kind, const BlockKind& of, const LogRange& range,
                                       StorageId incoming) {
  const std::optional<Taken> again = take(range, of.first, incoming);
  return again && is_same(*again, *backwards_[kind]);
}

void CopyingRepeater::give_gradients(std::size_t from, const LogRange& backward, std::size_t to,
                                     const LogPosition& begin) const {
  const std::span<const Parameter> like = pass_.modules.parameters_of(from),
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
