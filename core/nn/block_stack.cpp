#include "nn/block_stack.h"

#include <algorithm>

#include "autograd/node.h"

namespace oometer {

namespace {

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

/// What a block did: its part of the log.
struct BlockStack::Part {
  bool has(StorageId id) const { return id >= begin.storage && id < end.storage; }
  StorageId storages() const { return end.storage - begin.storage; }
  std::uint32_t events() const { return end.event - begin.event; }

  Mark begin, end;
};

/// The part at the end of the log, written again and again: each time the same steps further, so that writing needs no
/// decisions.
class BlockStack::Stencil {
 public:
  /// `storage_step`, `module_step`: how far the next block's storage or module is from this one (modulo 2^32).
  template <class StorageStep, class ModuleStep>
  Stencil(Context& context, const Part& part, const StorageStep& storage_step, const ModuleStep& module_step)
      : context_(context), last_(part) {
    const Log& log = context.log;
    steps_.reserve(part.events());
    records_.reserve(part.storages());
    for (std::uint32_t i = 0; i < part.events(); ++i) {
      const Event& event = log.events[part.begin.event + i];
      const StorageRecord& record = log.storages[event.storage];
      steps_.push_back({storage_step(event.storage), module_step(event.module)});
      if (event.kind == EventKind::alloc) {
        records_.push_back({module_step(record.module), record.free_event < part.end.event});
        change_ += Context::rounded(record.bytes);
      } else if (event.kind == EventKind::free) {
        if (!part.has(event.storage)) frees_.push_back(i);
        change_ -= Context::rounded(record.bytes);
      }
    }
  }

  void repeat() {
    Log& log = context_.log;
    const std::uint32_t events = last_.events();
    const StorageId storages = last_.storages();
    const Step* step = steps_.data();
    for (Event& event : append_again(log.events, last_.begin.event, events)) {
      event.storage += step->storage;
      event.module += step->module;
      ++step;
    }
    const RecordStep* record_step = records_.data();
    for (StorageRecord& record : append_again(log.storages, last_.begin.storage, storages)) {
      record.module += record_step->module;
      record.move(events, record_step->is_freed);
      ++record_step;
    }
    for (const std::uint32_t i : frees_) {
      const std::uint32_t at = last_.end.event + i;
      log.storages[log.events[at].storage].free_event = at;
    }
    last_ = {last_.end, {last_.end.event + events, last_.end.storage + storages}};
    context_.change_allocated(change_);
  }

 private:
  struct Step {
    StorageId storage;
    ModuleId module;
  };
  struct RecordStep {
    ModuleId module;
    bool is_freed;  ///< by the block itself
  };

  Context& context_;
  Part last_;
  std::vector<Step> steps_;           ///< of each event
  std::vector<RecordStep> records_;   ///< of each storage born
  std::vector<std::uint32_t> frees_;  ///< the events that free others
  std::int64_t change_ = 0;           ///< of the bytes alive
};

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
      : stack_(stack), context_(context), first_(begin + 1), last_(end - 2), forward_(end + 1, {kNever, kNever}) {}
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
    execute(first_ - 1);
    const Looks input(x);
    const StorageId input_id = x->storage->id;
    x = with_hook(std::move(x), &Run::leave_first);
    execute(first_);
    const bool repeats = Looks(x) == input && is_sole(x) && cached_weights == context_.autocast.weights.size() &&
                         shares == context_.log.shares.size() && forward_of(first_).has(x->storage->id) &&
                         is_about_itself(forward_of(first_), first_);
    if (!repeats) {
      for (std::size_t i = first_ + 1; i < last_ + 2; ++i) execute(i);
      return x;
    }
    x = repeat_forward(std::move(x), context_.log.storages[input_id].saved);
    execute(last_);
    x = with_hook(std::move(x), &Run::enter_last);
    execute(last_ + 1);
    if (!is_same(forward_of(last_), last_, forward_of(first_), first_)) fail();
    return x;
  }

 private:
  using Hook = void (Run::*)(Backward&);

  Mark mark() const {
    return {static_cast<std::uint32_t>(context_.log.events.size()),
            static_cast<StorageId>(context_.log.storages.size())};
  }
  Part forward_of(std::size_t block) const { return {forward_[block], forward_[block + 1]}; }

  ModuleId module_of(std::size_t from, std::size_t to, ModuleId module) const {
    const std::vector<Start>& starts = stack_.starts_;
    const bool inside = module >= starts[from].module && module < starts[from + 1].module;
    return inside ? module - starts[from].module + starts[to].module : module;
  }

  // --- what a block's events are about: storages of its own or of its neighbour that ran just before, in forward or in
  // --- this part; told by their distance from where that began

  bool is_in_backward(StorageId id) const { return id >= forward_.back().storage; }

  const Mark& begin_for(StorageId id, const Part& part, std::size_t block) const {
    return is_in_backward(id) ? part.begin : forward_[block];
  }

  bool is_about_itself(const Part& part, std::size_t block) const {
    const Log& log = context_.log;
    const Part forward = forward_of(block);
    for (std::uint32_t i = part.begin.event; i < part.end.event; ++i) {
      const StorageId id = log.events[i].storage;
      if (log.events[i].kind == EventKind::empty_cache) return false;
      const StorageId near = (is_in_backward(id) ? part : forward).storages();
      const StorageId begin = begin_for(id, part, block).storage;
      if (id + near < begin || id >= begin + near) return false;
    }
    return true;
  }

  std::span<const std::int64_t> dims(const StorageRecord& record) const {
    return std::span(context_.log.dims).subspan(record.shape, record.ndim);
  }

  /// Whether two blocks did the same.
  bool is_same(const Part& a, std::size_t block_a, const Part& b, std::size_t block_b) const {
    if (a.events() != b.events() || a.storages() != b.storages()) return false;
    const Log& log = context_.log;
    for (std::uint32_t i = 0; i < a.events(); ++i) {
      const Event &x = log.events[a.begin.event + i], &y = log.events[b.begin.event + i];
      if (x.kind != y.kind || x.op != y.op || x.stream != y.stream) return false;
      if (x.module != module_of(block_b, block_a, y.module)) return false;
      if (x.storage - begin_for(x.storage, a, block_a).storage != y.storage - begin_for(y.storage, b, block_b).storage)
        return false;
      if (x.kind != EventKind::alloc) continue;
      const StorageRecord &of_x = log.storages[x.storage], &of_y = log.storages[y.storage];
      if (of_x.bytes != of_y.bytes || of_x.ndim != of_y.ndim || of_x.dtype != of_y.dtype || of_x.role != of_y.role ||
          of_x.recomputed != of_y.recomputed || of_x.module != module_of(block_b, block_a, of_y.module) ||
          !std::equal(dims(of_x).begin(), dims(of_x).end(), dims(of_y).begin()))
        return false;
    }
    return true;
  }

  // --- once more ---

  Tensor repeat_forward(Tensor x, bool input_is_saved) {
    const Part part = forward_of(first_);
    const StorageId output = x->storage->id - part.begin.storage;
    Stencil stencil(
        context_, part, [&](StorageId) { return part.storages(); },
        [&](ModuleId module) { return module_of(first_, first_ + 1, module) - module; });
    for (std::size_t i = first_ + 1; i < last_; ++i) {
      stencil.repeat();
      forward_[i + 1] = mark();
      copy_saved(stack_.parameters_of(first_), stack_.parameters_of(i));
    }
    // Whether backward holds a block's output, the block after it decides.
    for (std::size_t i = first_; i + 1 < last_; ++i)
      context_.log.storages[forward_[i].storage + output].saved = input_is_saved;
    Tensor result =
        on_storage(context_.resume(forward_[last_ - 1].storage + output), x.sizes(), x.strides(), x.dtype());
    if (x.requires_grad()) {
      result = hook(result, x, &Run::repeat_backward);
      waits_for_backward_ = true;
    }
    x->storage->id = kNever;  // the log has let it go
    return result;
  }

  void repeat_backward(Backward& b) {
    waits_for_backward_ = false;
    const Tensor gradient = std::move(b.grads[0]);
    const StorageId incoming = gradient->storage->id;
    const bool passed_on = incoming == gradient_of_last_;  // accumulated into, all the way
    last_backward_.end = mark();
    const Part part = last_backward_;
    const StorageId output = incoming - part.end.storage;
    if (!is_sole(gradient) || !is_about_itself(part, last_)) return fail();
    if (!passed_on && output != gradient_of_last_ - part.begin.storage) return fail();
    Stencil stencil(
        context_, part,
        [&](StorageId id) { return is_in_backward(id) ? part.storages() : 0 - forward_of(last_).storages(); },
        [&](ModuleId module) { return module_of(last_, last_ - 1, module) - module; });
    for (std::size_t i = last_; --i > first_;) {
      const Mark begin = mark();
      stencil.repeat();
      give_gradients(part, begin, stack_.parameters_of(i));
      copy_saved_in_forward(i);
    }
    copy_saved_in_forward(first_);
    end_of_repetition_ = mark();
    if (passed_on) return b.give(0, gradient);
    b.give(0, on_storage(context_.resume(output + end_of_repetition_.storage), gradient.sizes(), gradient.strides(),
                         gradient.dtype()));
    gradient->storage->id = kNever;
  }

  /// The gradients that the last block's parameters have got in `part`, which begins at `begin` this time.
  void give_gradients(const Part& part, const Mark& begin, std::span<const Tensor> parameters) {
    const std::span<const Tensor> like = stack_.parameters_of(last_);
    for (std::size_t k = 0; k < like.size(); ++k) {
      const Tensor& gradient = like[k]->grad;
      if (!gradient || !part.has(gradient->storage->id)) continue;
      const StorageId id = gradient->storage->id - part.begin.storage + begin.storage;
      parameters[k]->grad = on_storage(context_.resume(id), gradient.sizes(), gradient.strides(), gradient.dtype());
    }
  }

  void copy_saved(std::span<const Tensor> from, std::span<const Tensor> to) {
    for (std::size_t k = 0; k < from.size(); ++k)
      if (const StorageRecord* record = context_.record(from[k])) context_.record(to[k])->saved = record->saved;
  }

  /// Recomputation saves what the forward did not.
  void copy_saved_in_forward(std::size_t to) {
    std::vector<StorageRecord>& storages = context_.log.storages;
    for (StorageId k = 0; k < forward_of(last_).storages(); ++k)
      storages[forward_[to].storage + k].saved = storages[forward_[last_].storage + k].saved;
    copy_saved(stack_.parameters_of(last_), stack_.parameters_of(to));
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

  Tensor with_hook(Tensor x, Hook member) { return x.requires_grad() ? hook(detach(x), x, member) : x; }

  void enter_last(Backward& b) {
    last_backward_.begin = mark();
    gradient_of_last_ = b.grad()->storage->id;
    b.give(0, std::move(b.grads[0]));
  }
  void leave_first(Backward& b) {
    const bool repeated = end_of_repetition_.event != 0;
    if (repeated && !is_same({end_of_repetition_, mark()}, first_, last_backward_, last_)) fail();
    b.give(0, std::move(b.grads[0]));
  }

  void fail() { context_.repetition_failed = true; }

  const BlockStack& stack_;
  Context& context_;
  std::size_t first_, last_;   ///< whose forward is repeated, whose backward; what is between is not executed
  std::vector<Mark> forward_;  ///< where each block's forward begins, and where the last one's ends
  Part last_backward_{};
  Mark end_of_repetition_{};
  StorageId gradient_of_last_ = kNever;  ///< that comes into it
  bool waits_for_backward_ = false;
};

Tensor BlockStack::run(std::size_t begin, std::size_t end, Tensor hidden_states,
                       const CheckpointingConfig& checkpointing,
                       const std::function<Tensor(std::size_t, const Tensor&)>& block) const {
  Context& context = hidden_states.context();
  const auto same_parameters = [&](std::size_t a, std::size_t b) {
    if (starts_[a + 1].module - starts_[a].module != starts_[b + 1].module - starts_[b].module) return false;
    const std::span<const Tensor> of_a = parameters_of(a), of_b = parameters_of(b);
    return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), [](const Tensor& x, const Tensor& y) {
      return x.sizes() == y.sizes() && x.dtype() == y.dtype() && x.requires_grad() == y.requires_grad();
    });
  };
  const bool alike = checkpointing.mode == CheckpointMode::none || checkpointing.every == 1;
  bool repeats = alike && context.repeats && !context.frame && !context.recomputing && end - begin > 4;
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
