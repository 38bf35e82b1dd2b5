#include "nn/repeat/repeating_run.h"

#include <utility>

#include "nn/repeat/copying_repeater.h"
#include "nn/repeat/replaying_repeater.h"
#include "nn/repeat/tensor_metadata.h"
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

RepeatingRun::RepeatingRun(const BlockModules& modules, Context& context, std::size_t begin, std::size_t end,
                           std::vector<RepeatedBlocks> repeated)
    : pass_{modules, context, repeated.front().begin - 1, repeated.back().end,
            std::vector<LogPosition>(end + 1, {kNever, kNever})},
      repeater_(make_repeater(pass_)),
      begin_(begin),
      repeated_(std::move(repeated)) {}

RepeatingRun::~RepeatingRun() {
  repeater_->stop_recording();
  if (!written_.empty()) pass_.fail();
}

Tensor RepeatingRun::operator()(Tensor x, const std::function<Tensor(std::size_t, const Tensor&)>& block) {
  const Context& context = pass_.context;
  const std::size_t first = pass_.first, last = pass_.last, end = pass_.forward.size() - 1;
  const auto execute = [&](std::size_t i) {
    pass_.forward[i] = pass_.now();
    x = block(i, x);
    pass_.forward[i + 1] = pass_.now();
  };
  const auto record = [&](std::size_t i) {
    repeater_->start_recording(i);
    execute(i);
    repeater_->stop_recording();
  };
  const std::size_t cached_weights = context.autocast.weights.size();
  for (std::size_t i = begin_; i < first; ++i) execute(i);
  const TensorMetadata input(x);
  pass_.input_of_first = x->storage->id;
  x = with_hook(x, &RepeatingRun::leave_first);
  record(first);
  const auto repeats = [&] {
    return TensorMetadata(x) == input && is_sole(x) && cached_weights == context.autocast.weights.size();
  };
  std::optional<StorageId> output;
  if (repeats() && repeater_->can_write_forward())
    output = repeater_->created_in_forward(first).index_of(x->storage->id);
  if (!output) {
    for (std::size_t i = first + 1; i < end; ++i) execute(i);
    return x;
  }
  pass_.output = *output;
  saves_input_ = context.log.storages[pass_.input_of_first].saved;
  saves_output_ = context.log.storages[x->storage->id].saved;
  std::size_t next = first + 1;
  for (const RepeatedBlocks& blocks : repeated_) {
    while (next < blocks.begin) execute(next++);
    if (blocks.begin > first + 1 && !(repeats() && repeater_->can_write_forward_behind_others(x->storage->id)))
      continue;  // they are executed, too
    x = write_forward(x, blocks);
    next = blocks.end;
  }
  if (next < last) pass_.fail();  // backward has nothing to write then
  while (next < last) execute(next++);
  record(last);
  if (!repeater_->is_forward_same()) pass_.fail();
  x = with_hook(x, &RepeatingRun::enter_last);
  for (std::size_t i = last + 1; i < end; ++i) execute(i);
  return x;
}

Tensor RepeatingRun::write_forward(const Tensor& x, const RepeatedBlocks& blocks) {
  Context& context = pass_.context;
  // Whether backward holds a block's output, the block after it decides.
  context.log.storages[x->storage->id].saved = saves_input_;
  repeater_->write_forward(blocks);
  StorageId output = kNever;
  for (std::size_t i = blocks.begin; i < blocks.end; ++i) {
    output = repeater_->created_in_forward(i)[pass_.output];
    context.log.storages[output].saved = i + 1 < blocks.end ? saves_input_ : saves_output_;
  }
  Tensor result = on_storage(context.resume(output), x.sizes(), x.strides(), x.dtype());
  if (x.requires_grad()) {
    result = hook(result, x, &RepeatingRun::write_backward);
    written_.push_back(blocks);
  }
  x->storage->id = kNever;  // the log has let it go
  return result;
}

void RepeatingRun::write_backward(Backward& b) {
  const RepeatedBlocks blocks = written_.back();
  written_.pop_back();
  const Tensor gradient = std::move(b.grads[0]);
  const StorageId incoming = gradient->storage->id;
  if (blocks.end == pass_.last) {
    pass_.last_backward.end = pass_.now();
    pass_.hands_gradient_on = incoming == pass_.gradient_of_last;
  }
  if (pass_.context.repetition_failed || !is_sole(gradient)) return give_up(b, gradient);
  const std::optional<StorageId> outgoing = repeater_->write_backward(blocks, incoming);
  if (!outgoing) return give_up(b, gradient);
  for (std::size_t i = blocks.begin; i < blocks.end; ++i) copy_saved_in_forward(i);
  if (blocks.begin == pass_.first + 1) {
    copy_saved_in_forward(pass_.first);
    end_of_repetition_ = pass_.now();
    repeater_->start_recording(pass_.first);
  }
  if (pass_.hands_gradient_on) return b.give(0, gradient);
  b.give(0, on_storage(pass_.context.resume(*outgoing), gradient.sizes(), gradient.strides(), gradient.dtype()));
  gradient->storage->id = kNever;
}

/// Recomputation saves what the forward did not.
void RepeatingRun::copy_saved_in_forward(std::size_t to) {
  std::vector<StorageRecord>& storages = pass_.context.log.storages;
  const CreatedStorages from = repeater_->created_in_forward(pass_.last), copies = repeater_->created_in_forward(to);
  for (StorageId k = 0; k < from.size(); ++k) storages[copies[k]].saved = storages[from[k]].saved;
}

void RepeatingRun::enter_last(Backward& b) {
  pass_.last_backward.begin = pass_.now();
  pass_.gradient_of_last = b.grad()->storage->id;
  repeater_->start_recording(pass_.last);
  b.give(0, std::move(b.grads[0]));
}

void RepeatingRun::leave_first(Backward& b) {
  repeater_->stop_recording();
  const bool repeated = end_of_repetition_.event != 0;
  if (repeated && !repeater_->is_backward_same({end_of_repetition_, pass_.now()})) pass_.fail();
  b.give(0, std::move(b.grads[0]));
}

/// Backward goes on with any gradient at all: its log will not be used.
void RepeatingRun::give_up(Backward& b, const Tensor& gradient) {
  pass_.fail();
  b.give(0, gradient);
}

Tensor RepeatingRun::hook(const Tensor& output, const Tensor& input, BackwardHook member) {
  Record record(Op::none, nullptr, {&input});
  if (!record) return output;
  record->custom = std::make_unique<std::function<void(Backward&)>>(
      [self = shared_from_this(), member](Backward& b) { ((*self).*member)(b); });
  return record.output(output);
}

Tensor RepeatingRun::with_hook(const Tensor& x, BackwardHook member) {
  return x.requires_grad() ? hook(detach(x), x, member) : x;
}

}  // namespace oometer
