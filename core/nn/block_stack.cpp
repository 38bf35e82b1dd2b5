#include "nn/block_stack.h"

#include <algorithm>

#include "autograd/node.h"

namespace oometer {

namespace {

/// Blocks that are executed at each end: the outermost has neighbours that are no blocks, the next two are compared.
constexpr std::size_t kExecuted = 3;

/// What a block can tell of its input.
struct Looks {
  explicit Looks(const Tensor& x)
      : sizes(x.sizes()), strides(x.strides()), dtype(x.dtype()), requires_grad(x.requires_grad()) {}
  bool operator==(const Looks& other) const = default;

  Shape sizes, strides;
  DType dtype;
  bool requires_grad;
};

/// Nobody else holds the tensor or its storage, nor does it hold another.
bool is_sole(const Tensor& x) { return x->references == 1 && x->storage->references == 1 && !x->base; }

}  // namespace

BlockStack::BlockStack(const Builder& builder)
    : taken_(builder.parameters->size()), starts_{{static_cast<ModuleId>(builder.context->log.modules.size()), 0}} {}

void BlockStack::add_block(const Builder& builder) {
  for (; taken_ < builder.parameters->size(); ++taken_) parameters_.push_back((*builder.parameters)[taken_].tensor);
  starts_.push_back({static_cast<ModuleId>(builder.context->log.modules.size()), parameters_.size()});
}

/// One pass through the blocks, and the backward that follows it.
class BlockStack::Run : public std::enable_shared_from_this<Run> {
 public:
  Run(const BlockStack& stack, Context& context, std::size_t begin, std::size_t end)
      : stack_(stack), context_(context), begin_(begin), end_(end), forward_(end + 1) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  /// The graph goes. Where backward has not come by, what the blocks have saved goes with it, which nobody wrote.
  ~Run() {
    if (waits_for_backward_) fail();
  }

  Tensor operator()(Tensor x, const std::function<Tensor(std::size_t, const Tensor&)>& block) {
    const std::size_t cached_weights = context_.autocast.weights.size(), shares = context_.log.shares.size();
    const auto execute = [&](std::size_t i) {
      forward_[i] = mark();
      x = block(i, x);
      forward_[i + 1] = mark();
    };
    const std::size_t second = begin_ + 1, third = begin_ + 2, first_after = end_ - kExecuted;
    execute(begin_);
    execute(second);
    const Looks input_of_third(x);
    x = with_mark(std::move(x), &Run::enter_third);
    execute(third);
    const bool repeats = Looks(x) == input_of_third && is_sole(x) &&
                         cached_weights == context_.autocast.weights.size() && shares == context_.log.shares.size() &&
                         is_own(third, x->storage->id) && forward_is_same(third, second);
    if (!repeats) {
      for (std::size_t i = third + 1; i < end_; ++i) execute(i);
      return x;
    }
    x = repeat_forward(std::move(x));
    for (std::size_t i = first_after; i < end_; ++i) {
      if (i > first_after) x = with_mark(std::move(x), i == end_ - 1 ? &Run::enter_last_but_one : &Run::enter_template);
      execute(i);
    }
    if (!forward_is_same(first_after, third)) context_.repetition_failed = true;
    return x;
  }

 private:
  using Hook = void (Run::*)(Backward&);

  Mark mark() const {
    return {static_cast<std::uint32_t>(context_.log.events.size()),
            static_cast<StorageId>(context_.log.storages.size())};
  }

  // --- what belongs to which block ---

  std::int64_t modules_between(std::size_t from, std::size_t to) const {
    return std::int64_t{stack_.starts_[to].module} - stack_.starts_[from].module;
  }
  ModuleId module_of(std::size_t from, std::size_t to, ModuleId module) const {
    const bool inside = module >= stack_.starts_[from].module && module < stack_.starts_[from + 1].module;
    return inside ? static_cast<ModuleId>(module + modules_between(from, to)) : module;
  }
  bool is_own(std::size_t block, StorageId id) const {
    return id >= forward_[block].storage && id < forward_[block + 1].storage;
  }

  /// What block `from`'s events say of a storage of its own forward or the block's before, said of block `to`'s.
  bool is_near(const Mark& begin, const Mark& end, StorageId id) const {
    const StorageId count = end.storage - begin.storage;
    return id + count >= begin.storage && id < end.storage;
  }

  // --- whether two blocks do the same ---

  bool forward_is_same(std::size_t a, std::size_t b) const {
    const auto same_storage = [&](StorageId x, StorageId y) {
      return is_near(forward_[a], forward_[a + 1], x) && x - forward_[a].storage == y - forward_[b].storage;
    };
    return is_same(a, forward_[a], forward_[a + 1], b, forward_[b], forward_[b + 1], same_storage);
  }

  bool backward_is_same(std::size_t a, const Mark& a_begin, const Mark& a_end, std::size_t b, const Mark& b_begin,
                        const Mark& b_end) const {
    const auto same_storage = [&](StorageId x, StorageId y) {
      if (x >= forward_[end_].storage)  // of a backward: this block's, or the one's after it
        return is_near(a_begin, a_end, x) && x - a_begin.storage == y - b_begin.storage;
      return is_near(forward_[a], forward_[a + 1], x) && x - forward_[a].storage == y - forward_[b].storage;
    };
    return is_same(a, a_begin, a_end, b, b_begin, b_end, same_storage);
  }

  template <class SameStorage>
  bool is_same(std::size_t a, const Mark& a_begin, const Mark& a_end, std::size_t b, const Mark& b_begin,
               const Mark& b_end, const SameStorage& same_storage) const {
    if (a_end.event - a_begin.event != b_end.event - b_begin.event) return false;
    if (a_end.storage - a_begin.storage != b_end.storage - b_begin.storage) return false;
    const Log& log = context_.log;
    for (std::uint32_t i = 0; i < a_end.event - a_begin.event; ++i) {
      const Event &x = log.events[a_begin.event + i], &y = log.events[b_begin.event + i];
      if (x.kind != y.kind || x.op != y.op || x.stream != y.stream || module_of(b, a, y.module) != x.module)
        return false;
      if (x.kind == EventKind::empty_cache || !same_storage(x.storage, y.storage)) return false;
      if (x.kind == EventKind::alloc && !same_record(a, log.storages[x.storage], b, log.storages[y.storage]))
        return false;
    }
    return true;
  }

  bool same_record(std::size_t a, const StorageRecord& x, std::size_t b, const StorageRecord& y) const {
    if (x.bytes != y.bytes || x.ndim != y.ndim || x.dtype != y.dtype || x.role != y.role ||
        x.recomputed != y.recomputed)
      return false;
    for (unsigned i = 0; i < x.ndim; ++i)
      if (context_.log.dims[x.shape + i] != context_.log.dims[y.shape + i]) return false;
    return module_of(b, a, y.module) == x.module;
  }

  // --- once more ---

  Tensor repeat_forward(Tensor x) {
    const std::size_t from = begin_ + kExecuted - 1, last = end_ - kExecuted;
    const StorageId stride = forward_[from + 1].storage - forward_[from].storage;
    for (std::size_t i = from + 1; i < last; ++i) {
      context_.repeat(
          forward_[from].event, forward_[from + 1].event,
          [&](StorageId id) { return id - forward_[from].storage + forward_[i].storage; },
          [&](ModuleId module) { return module_of(from, i, module); });
      forward_[i + 1] = mark();
    }
    for (std::size_t i = from; i < last; ++i) copy_saved(from - 1, i);  // whose output has been taken by now
    const StorageId output = x->storage->id + static_cast<StorageId>(last - 1 - from) * stride;
    Tensor result = on_storage(context_.resume(output), x.sizes(), x.strides(), x.dtype());
    if (!x.requires_grad()) {
      x->storage->id = kNever;  // the log has let it go
      return result;
    }
    result = hook(result, x, &Run::repeat_backward);
    waits_for_backward_ = true;
    x->storage->id = kNever;
    return result;
  }

  void repeat_backward(Backward& b) {
    waits_for_backward_ = false;
    const Mark now = mark();
    const std::size_t from = end_ - kExecuted;  // the block whose backward has just ended
    const Tensor gradient = std::move(b.grads[0]);
    const StorageId incoming = gradient->storage->id;
    const bool passed_on = incoming == gradient_of_template_;  // accumulated into, all the way
    if (!passed_on && incoming - now.storage != gradient_of_template_ - template_.storage) return fail();
    if (!is_sole(gradient) || !backward_is_same(from, template_, now, from + 1, last_but_one_, template_))
      return fail();
    for (std::size_t i = from; i-- > begin_ + kExecuted;) {
      const Mark begin = mark();
      context_.repeat(
          template_.event, now.event,
          [&](StorageId id) {
            return id >= forward_[end_].storage ? id - template_.storage + begin.storage
                                                : id - forward_[from].storage + forward_[i].storage;
          },
          [&](ModuleId module) { return module_of(from, i, module); });
      for (std::size_t k = 0; k < stack_.parameters_of(from).size(); ++k) {
        const Tensor& like = stack_.parameters_of(from)[k]->grad;
        if (!like || like->storage->id < template_.storage || like->storage->id >= now.storage) continue;
        stack_.parameters_of(i)[k]->grad =
            on_storage(context_.resume(like->storage->id - template_.storage + begin.storage), like.sizes(),
                       like.strides(), like.dtype());
      }
      copy_saved(from, i);
    }
    copy_saved(from, begin_ + kExecuted - 1);
    template_end_ = now;
    end_of_repetition_ = mark();
    if (passed_on) return b.give(0, gradient);
    const StorageId left = incoming - now.storage + end_of_repetition_.storage;
    b.give(0, on_storage(context_.resume(left), gradient.sizes(), gradient.strides(), gradient.dtype()));
    gradient->storage->id = kNever;
  }

  /// Whether backward holds a storage is known only when all who save it have run.
  void copy_saved(std::size_t from, std::size_t to) {
    std::vector<StorageRecord>& storages = context_.log.storages;
    for (StorageId k = 0; k < forward_[from + 1].storage - forward_[from].storage; ++k)
      storages[forward_[to].storage + k].saved = storages[forward_[from].storage + k].saved;
    for (std::size_t k = 0; k < stack_.parameters_of(from).size(); ++k)
      if (const StorageRecord* record = context_.record(stack_.parameters_of(from)[k]))
        context_.record(stack_.parameters_of(to)[k])->saved = record->saved;
  }

  // --- hooks of backward ---

  /// `output` as the result of an operator on `input` whose backward is `member`.
  Tensor hook(const Tensor& output, const Tensor& input, Hook member) {
    Record record(Op::none, nullptr, {&input});
    if (!record) return output;
    record->custom = std::make_unique<std::function<void(Backward&)>>(
        [self = shared_from_this(), member](Backward& b) { ((*self).*member)(b); });
    return record.output(output);
  }

  Tensor with_mark(Tensor x, Hook member) { return x.requires_grad() ? hook(detach(x), x, member) : x; }

  /// Backward has come to the output of the second block: the third one's is over.
  void enter_third(Backward& b) {
    if (end_of_repetition_.event != 0) {
      const std::size_t third = begin_ + kExecuted - 1, from = end_ - kExecuted;
      if (!backward_is_same(third, end_of_repetition_, mark(), from, template_, template_end_)) return fail();
    }
    b.give(0, std::move(b.grads[0]));
  }
  void enter_last_but_one(Backward& b) {
    last_but_one_ = mark();
    b.give(0, std::move(b.grads[0]));
  }
  void enter_template(Backward& b) {
    template_ = mark();
    gradient_of_template_ = b.grad()->storage->id;
    b.give(0, std::move(b.grads[0]));
  }

  void fail() { context_.repetition_failed = true; }

  const BlockStack& stack_;
  Context& context_;
  std::size_t begin_, end_;
  std::vector<Mark> forward_;         ///< where each block's forward begins, and where the last one's ends
  Mark last_but_one_{};               ///< where backward of the last block but one begins
  Mark template_{}, template_end_{};  ///< backward of the block that is repeated
  Mark end_of_repetition_{};
  StorageId gradient_of_template_ = kNever;
  bool waits_for_backward_ = false;
};

Tensor BlockStack::run(std::size_t begin, std::size_t end, Tensor hidden_states,
                       const CheckpointingConfig& checkpointing,
                       const std::function<Tensor(std::size_t, const Tensor&)>& block) const {
  Context& context = hidden_states.context();
  const auto same_parameters = [&](std::size_t a, std::size_t b) {
    if (starts_[a + 1].module - starts_[a].module != starts_[b + 1].module - starts_[b].module) return false;
    const std::span<const Tensor> of_a = parameters_of(a), of_b = parameters_of(b);
    return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(),
                      [](const Tensor& x, const Tensor& y) { return Looks(x) == Looks(y); });
  };
  const bool alike = checkpointing.mode == CheckpointMode::none || checkpointing.every == 1;
  bool repeats = alike && context.repeats && !context.frame && !context.recomputing && end - begin > 2 * kExecuted;
  for (std::size_t i = begin; repeats && i < end; ++i) repeats = same_parameters(begin, i);
  if (repeats) {
    const std::span<const Tensor> parameters = parameters_of(begin);
    const bool trains =
        std::any_of(parameters.begin(), parameters.end(), [](const Tensor& p) { return p.requires_grad(); });
    // A listener (DeepSpeed) keeps state of its own, which a repetition would not know.
    if (context.gradients && context.grad_mode && (trains || hidden_states.requires_grad())) repeats = false;
  }
  if (repeats) return (*std::make_shared<Run>(*this, context, begin, end))(std::move(hidden_states), block);
  for (std::size_t i = begin; i < end; ++i) hidden_states = block(i, hidden_states);
  return hidden_states;
}

}  // namespace oometer
