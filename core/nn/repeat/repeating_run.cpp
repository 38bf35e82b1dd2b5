#include "nn/repeat/repeating_run.h"

#include <algorithm>
#include <utility>

#include "nn/repeat/copying_repeater.h"
#include "nn/repeat/replaying_repeater.h"
#include "ops/ops.h"

namespace oometer {

namespace {

/// Nobody else holds the tensor or its storage, nor does it hold another.
bool is_sole(const Tensor& x) { return x->references == 1 && x->storage->references == 1 && !x->base; }

std::unique_ptr<Repeater> make_repeater(BlockPass& pass) {
  if (pass.context.gradients || pass.context.modules) return std::make_unique<ReplayingRepeater>(pass);
  return std::make_unique<CopyingRepeater>(pass);
}

}  // namespace

RepeatingRun::RepeatingRun(const BlockModules& modules, Context& context, std::size_t begin,
                           const std::vector<std::size_t>& like)
    : pass_{modules, context, std::vector<LogPosition>(begin + like.size() + 1, {kNever, kNever}),
            std::vector<StorageId>(begin + like.size(), kNever)},
      repeater_(make_repeater(pass_)),
      begin_(begin),
      kind_of_(like.size(), kNone) {
  // The stack's ends are executed: what comes into them, or their backward, has come otherwise than from a block. So is
  // the first of each kind: it is the last one that holds what its kind alone takes (a mask, position embeddings).
  std::vector<bool> is_known(like.size());
  for (std::size_t i = 0; i + 1 < like.size(); ++i) {
    if (is_known[i]) continue;
    std::size_t first = 0, last = 0, count = 0;
    for (std::size_t k = i; k + 1 < like.size(); ++k) {
      if (like[k] != like[i]) continue;
      is_known[k] = true;
      last = k;
      if (++count == 2) first = k;
    }
    if (count < 4) continue;
    for (std::size_t k = first; k <= last; ++k)
      if (like[k] == like[i]) kind_of_[k] = kinds_.size();
    Kind kind;
    kind.first = begin + first;
    kind.last = begin + last;
    kinds_.push_back(std::move(kind));
  }
}

RepeatingRun::~RepeatingRun() {
  repeater_->stop_recording();
  if (!written_.empty()) pass_.fail();
}

/// Whether somebody else holds what a block created, its backward being over: it goes at another time.
bool RepeatingRun::leaves_something(const Kind& kind, std::size_t block) const {
  const Context& context = pass_.context;
  const std::vector<StorageRecord>& storages = context.log.storages;
  const CreatedStorages in_forward = repeater_->created_in_forward(block),
                        in_backward = repeater_->created_in_backward();
  for (StorageId k = 0; k < in_forward.size(); ++k)
    if (k != kind.output && storages[in_forward[k]].free_event == kNever) return true;
  if (context.gradients || context.modules) return false;  // listeners hold what they were called with
  const std::span<const Parameter> parameters = pass_.modules.parameters_of(block);
  for (StorageId k = 0; k < in_backward.size(); ++k) {
    const StorageId id = in_backward[k];
    if (k == kind.gradient_output || storages[id].free_event != kNever) continue;
    if (std::none_of(parameters.begin(), parameters.end(), [&](const Parameter& parameter) {
          return parameter.tensor->grad && parameter.tensor->grad->storage->id == id;
        }))
      return true;
  }
  return false;
}

Tensor RepeatingRun::operator()(Tensor x, const std::function<Tensor(std::size_t, const Tensor&)>& block) {
  const Context& context = pass_.context;
  const std::size_t end = begin_ + kind_of_.size();
  const auto execute = [&](std::size_t i) {
    pass_.inputs[i] = x->storage->id;
    pass_.forward[i] = pass_.now();
    x = block(i, x);
    pass_.forward[i + 1] = pass_.now();
  };
  for (std::size_t i = begin_; i < end;) {
    if (kind_of(i) == kNone) {
      execute(i++);
      continue;
    }
    Kind& kind = kinds_[kind_of(i)];
    if (!is_first_or_last(i)) {
      std::size_t after = i;
      if (const TensorMetadata hidden_states(x); is_sole(x))
        while (after < end && can_write(after, hidden_states)) ++after;
      if (after == i)
        execute(i++);
      else
        x = write_forward(x, std::exchange(i, after), after);
      continue;
    }
    // A kind of which nothing is written has nothing to be compared.
    const bool is_first = i == kind.first;
    if (!is_first && kind.written == 0) {
      execute(i++);
      continue;
    }
    const TensorMetadata input(x);
    const StorageId id = x->storage->id;
    const std::size_t cached_weights = context.autocast.weights.size();
    x = with_hook(x, [i](RepeatingRun& run, Backward& b) { run.leave(i, b); });
    const bool saved = std::exchange(pass_.context.log.storages[id].saved, false);
    repeater_->start_recording(i);
    execute(i);
    repeater_->stop_recording();
    const bool saves_input = pass_.context.log.storages[id].saved;
    pass_.context.log.storages[id].saved |= saved;
    if (is_first) {
      if (is_sole(x) && TensorMetadata(x) == input && repeater_->take_forward(kind_of(i), kind)) {
        const auto output = repeater_->created_in_forward(i).index_of(x->storage->id);
        const bool casts = context.autocast.weights.size() != cached_weights;
        if (output && (!casts || take_cached_weights(kind, i, cached_weights))) {
          kind.output = *output;
          kind.saves_input = saves_input;
          kind.saves_output = context.log.storages[x->storage->id].saved;
          kind.hidden_states = input;
        }
      }
    } else if (!repeater_->is_forward_same(kind_of(i), kind) ||
               context.autocast.weights.size() - cached_weights != kind.cached_weights.size() ||
               (!kind.cached_weights.empty() && cached_weights_of(i, cached_weights) != kind.cached_weights)) {
      pass_.fail();
    }
    x = with_hook(x, [i](RepeatingRun& run, Backward& b) { run.enter(i, b); });
    ++i;
  }
  return x;
}

Tensor RepeatingRun::write_forward(const Tensor& x, std::size_t begin, std::size_t end) {
  std::vector<StorageRecord>& storages = pass_.context.log.storages;
  StorageId id = x->storage->id;
  for (std::size_t i = begin; i < end; ++i) {
    Kind& kind = kinds_[kind_of(i)];
    pass_.inputs[i] = id;
    storages[id].saved |= kind.saves_input;
    repeater_->write_forward(kind_of(i), i);
    id = repeater_->created_in_forward(i)[kind.output];
    storages[id].saved = kind.saves_output;
    if (!kind.cached_weights.empty()) cache_weights(kind, i);
    ++kind.written;
  }
  Tensor result = on_storage(pass_.context.resume(id), x.sizes(), x.strides(), x.dtype());
  if (x.requires_grad()) {
    result = hook(result, x, &RepeatingRun::write_backward);
    written_.push_back({begin, end});
  }
  x->storage->id = kNever;  // the log has let it go
  return result;
}

std::optional<std::vector<RepeatingRun::CachedWeight>> RepeatingRun::cached_weights_of(std::size_t block,
                                                                                       std::size_t begin) const {
  const std::vector<Tensor>& weights = pass_.context.autocast.weights;
  const std::span<const Parameter> parameters = pass_.modules.parameters_of(block);
  const CreatedStorages created = repeater_->created_in_forward(block);
  std::vector<CachedWeight> result;
  for (std::size_t k = begin; k < weights.size(); ++k) {
    const auto parameter = std::find_if(parameters.begin(), parameters.end(),
                                        [&](const Parameter& p) { return p.tensor.get() == weights[k].get(); });
    const Tensor& copy = weights[k]->autocast_copy;
    const std::optional<StorageId> index = created.index_of(copy->storage->id);
    if (parameter == parameters.end() || !index) return std::nullopt;
    result.push_back({static_cast<std::size_t>(parameter - parameters.begin()), *index, !is_sole(copy)});
  }
  return result;
}

bool RepeatingRun::take_cached_weights(Kind& kind, std::size_t block, std::size_t begin) const {
  std::optional<std::vector<CachedWeight>> cached = cached_weights_of(block, begin);
  if (!cached) return false;
  kind.cached_weights = std::move(*cached);
  return true;
}

void RepeatingRun::cache_weights(const Kind& kind, std::size_t block) {
  Context& context = pass_.context;
  for (const CachedWeight& cached : kind.cached_weights) {
    const Tensor& parameter = pass_.modules.parameters_of(block)[cached.parameter].tensor;
    if (parameter->autocast_copy) return pass_.fail();
    const Storage storage = context.resume(repeater_->created_in_forward(block)[cached.created]);
    const Tensor& like = pass_.modules.parameters_of(kind.first)[cached.parameter].tensor->autocast_copy;
    parameter->autocast_copy = on_storage(storage, like.sizes(), like.strides(), like.dtype());
    // What backward holds goes with backward, which is written.
    if (cached.is_saved) storage->id = kNever;
    context.autocast.weights.push_back(parameter);
  }
}

void RepeatingRun::write_backward(Backward& b) {
  const WrittenBlocks blocks = written_.back();
  written_.pop_back();
  const Tensor gradient = std::move(b.grads[0]);
  if (pass_.context.repetition_failed || !is_sole(gradient)) return give_up(b, gradient);
  const StorageId incoming = gradient->storage->id;
  StorageId outgoing = incoming;
  const TensorMetadata metadata(gradient);
  for (std::size_t i = blocks.end; i-- > blocks.begin;) {
    const Kind& kind = kinds_[kind_of(i)];
    if (!(kind.gradient == metadata)) return give_up(b, gradient);
    repeater_->write_backward(kind_of(i), i, outgoing);
    if (!kind.hands_gradient_on) outgoing = repeater_->created_in_backward()[kind.gradient_output];
    copy_saved_in_forward(i);
  }
  if (outgoing == incoming) return b.give(0, gradient);
  b.give(0, on_storage(pass_.context.resume(outgoing), gradient.sizes(), gradient.strides(), gradient.dtype()));
  gradient->storage->id = kNever;
}

/// Recomputation saves what the forward did not. What it does to a block's output, the block behind it decides.
void RepeatingRun::copy_saved_in_forward(std::size_t to) {
  std::vector<StorageRecord>& storages = pass_.context.log.storages;
  const Kind& kind = kinds_[kind_of(to)];
  const CreatedStorages from = repeater_->created_in_forward(kind.last), copies = repeater_->created_in_forward(to);
  for (StorageId k = 0; k < from.size(); ++k)
    if (k != kind.output) storages[copies[k]].saved = storages[from[k]].saved;
  storages[pass_.inputs[to]].saved |= storages[pass_.inputs[kind.last]].saved;
}

void RepeatingRun::enter(std::size_t block, Backward& b) {
  Kind& kind = kinds_[kind_of(block)];
  if (kind.written > 0) {
    if (block == kind.last) kind.gradient = TensorMetadata(b.grad());
    begin_of_backward_ = pass_.now();
    incoming_ = b.grad()->storage->id;
    repeater_->start_recording(block);
  }
  b.give(0, std::move(b.grads[0]));
}

void RepeatingRun::leave(std::size_t block, Backward& b) {
  repeater_->stop_recording();
  Tensor gradient = std::move(b.grads[0]);
  Kind& kind = kinds_[kind_of(block)];
  const LogRange range{begin_of_backward_, pass_.now()};
  if (kind.written > 0 && block == kind.last) {
    kind.backward = range;
    kind.gradient_of_last = incoming_;
    kind.hands_gradient_on = gradient->storage->id == incoming_;
    bool is_taken = is_sole(gradient) && kind.gradient == TensorMetadata(gradient) &&
                    repeater_->take_backward(kind_of(block), kind);
    if (is_taken && !kind.hands_gradient_on) {
      const auto output = repeater_->created_in_backward().index_of(gradient->storage->id);
      if (output) kind.gradient_output = *output;
      is_taken = output.has_value();
    }
    is_taken = is_taken && !leaves_something(kind, block);
    if (!is_taken) kind.gradient.reset();
  } else if (kind.written > 0 && kind.gradient && !pass_.context.repetition_failed &&
             !repeater_->is_backward_same(kind_of(block), kind, range, incoming_)) {
    pass_.fail();
  }
  b.give(0, std::move(gradient));
}

/// Backward goes on with any gradient at all: its log will not be used.
void RepeatingRun::give_up(Backward& b, const Tensor& gradient) {
  pass_.fail();
  b.give(0, gradient);
}

Tensor RepeatingRun::hook(const Tensor& output, const Tensor& input, BackwardHook its) {
  Record record(Op::none, nullptr, {&input});
  if (!record) return output;
  record->custom = std::make_unique<std::function<void(Backward&)>>(
      [self = shared_from_this(), its = std::move(its)](Backward& b) { its(*self, b); });
  return record.output(output);
}

Tensor RepeatingRun::with_hook(const Tensor& x, BackwardHook its) {
  return x.requires_grad() ? hook(detach(x), x, std::move(its)) : x;
}

}  // namespace oometer
