#include "nn/block_stack.h"

#include <algorithm>
#include <optional>

#include "autograd/checkpoint.h"
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

/// What a block itself did in a backward that a listener (DeepSpeed) was told of on the way. The listener's own doing
/// is left out: it differs from block to block, and is done anew wherever the calls came.
struct BlockStack::Heard {
  enum class About : std::uint8_t { born, incoming, forward };
  struct Step {
    Event event;
    About about;
    StorageId place;  ///< among those born; or from where the block's forward began (modulo 2^32)
  };
  struct Call {
    std::size_t step;       ///< before which it came
    std::size_t parameter;  ///< of the block's
    StorageId gradient;     ///< the parameter's: its place among those born
    bool held;              ///< the block lets the gradient's storage go itself, later
    Shape sizes, strides;
    DType dtype;
    ModuleId module;
  };

  std::vector<StorageId> born;
  std::vector<Step> steps;
  std::vector<Call> calls;
};

BlockStack::BlockStack(const Builder& builder)
    : parameters_(builder.parameters), starts_{static_cast<ModuleId>(builder.context->log.modules.size())} {}

void BlockStack::add_block(const Builder& builder) {
  starts_.push_back(static_cast<ModuleId>(builder.context->log.modules.size()));
}

std::span<const Parameter> BlockStack::parameters_of(std::size_t block) const {
  const auto first_of = [&](ModuleId start) {
    return std::lower_bound(parameters_->begin(), parameters_->end(), start,
                            [](const Parameter& p, ModuleId module) { return p.module < module; });
  };
  const auto first = first_of(starts_[block]), last = first_of(starts_[block + 1]);
  return {parameters_->data() + (first - parameters_->begin()), static_cast<std::size_t>(last - first)};
}

/// One pass through the blocks, and the backward that follows it.
class BlockStack::Run : public std::enable_shared_from_this<Run>, private GradientListener {
 public:
  Run(const BlockStack& stack, Context& context, std::size_t begin, std::size_t end)
      : stack_(stack),
        context_(context),
        listener_(context.gradients),
        first_(begin + 1),
        last_(end - 2),
        forward_(end + 1, {kNever, kNever}) {
    if (listener_) post_accumulate = listener_->post_accumulate;
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  /// The graph goes. Where backward has not come by, what the blocks have saved goes with it, which nobody wrote.
  ~Run() override {
    stop_recording();
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
    const std::vector<ModuleId>& starts = stack_.starts_;
    const bool inside = module >= starts[from] && module < starts[from + 1];
    return inside ? module - starts[from] + starts[to] : module;
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
      if (x.kind == EventKind::alloc && !is_same_birth(x.storage, block_a, y.storage, block_b)) return false;
    }
    return true;
  }

  bool is_same_birth(StorageId a, std::size_t block_a, StorageId b, std::size_t block_b) const {
    const StorageRecord &x = context_.log.storages[a], &y = context_.log.storages[b];
    return x.bytes == y.bytes && x.ndim == y.ndim && x.dtype == y.dtype && x.role == y.role &&
           x.recomputed == y.recomputed && x.module == module_of(block_b, block_a, y.module) &&
           std::equal(dims(x).begin(), dims(x).end(), dims(y).begin());
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
    if (!is_sole(gradient)) return give_up(b, gradient);
    if (listener_) return repeat_heard(b, gradient, passed_on);
    const StorageId output = incoming - part.end.storage;
    if (!is_about_itself(part, last_)) return give_up(b, gradient);
    if (!passed_on && output != gradient_of_last_ - part.begin.storage) return give_up(b, gradient);
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

  // --- once more, with a listener ---

  /// What a listener was told while a block was executed.
  struct Told {
    Mark begin, end;
    std::size_t parameter;
    StorageId gradient;
    Shape sizes, strides;
    DType dtype;
    ModuleId module;
  };

  void record(std::size_t block) {
    if (!listener_) return;
    recorded_ = block;
    told_.clear();
    context_.gradients = this;
  }
  void stop_recording() {
    if (context_.gradients == this) context_.gradients = listener_;
  }

  void gradient_ready(const Tensor& parameter) override {
    const std::span<const Parameter> parameters = stack_.parameters_of(recorded_);
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const Parameter& own) { return own.tensor.get() == parameter.get(); });
    if (found == parameters.end()) {
      fail();
      return listener_->gradient_ready(parameter);
    }
    const Tensor& gradient = parameter->grad;
    Told told{mark(),
              {},
              static_cast<std::size_t>(found - parameters.begin()),
              gradient->storage->id,
              gradient.sizes(),
              gradient.strides(),
              gradient.dtype(),
              context_.module};
    listener_->gradient_ready(parameter);
    told.end = mark();
    told_.push_back(told);
  }

  /// A block's own part of a backward; none where it was about more than itself and what came into it.
  std::optional<Heard> heard(const Part& part, std::size_t block, StorageId incoming) const {
    const Log& log = context_.log;
    const Part forward = forward_of(block);
    Heard heard;
    std::vector<StorageId> places(part.storages(), kNever);
    std::vector<char> freed(part.storages(), false);
    auto told = told_.begin();
    for (std::uint32_t i = part.begin.event;; ++i) {
      for (; told != told_.end() && told->begin.event == i; ++told) {
        if (!part.has(told->gradient) || places[told->gradient - part.begin.storage] == kNever) return std::nullopt;
        heard.calls.push_back({heard.steps.size(), told->parameter, places[told->gradient - part.begin.storage], false,
                               told->sizes, told->strides, told->dtype, told->module});
        i = told->end.event;
      }
      if (i >= part.end.event) break;
      const Event& event = log.events[i];
      const StorageId id = event.storage;
      if (event.kind == EventKind::empty_cache) return std::nullopt;
      if (event.kind == EventKind::alloc) {
        places[id - part.begin.storage] = static_cast<StorageId>(heard.born.size());
        heard.born.push_back(id);
      }
      if (part.has(id)) {
        const StorageId place = places[id - part.begin.storage];
        if (place == kNever) return std::nullopt;  // the listener's
        if (event.kind == EventKind::free) freed[place] = true;
        heard.steps.push_back({event, Heard::About::born, place});
      } else if (id == incoming) {
        heard.steps.push_back({event, Heard::About::incoming, 0});
      } else {
        const StorageId near = forward.storages(), begin = forward.begin.storage;
        if (is_in_backward(id) || id + near < begin || id >= begin + near) return std::nullopt;
        heard.steps.push_back({event, Heard::About::forward, id - begin});
      }
    }
    for (Heard::Call& call : heard.calls) call.held = freed[call.gradient];
    return heard;
  }

  bool is_same(const Heard& a, std::size_t block_a, const Heard& b, std::size_t block_b) const {
    const auto same_step = [&](const Heard::Step& x, const Heard::Step& y) {
      return x.event.kind == y.event.kind && x.event.op == y.event.op && x.event.stream == y.event.stream &&
             x.event.module == module_of(block_b, block_a, y.event.module) && x.about == y.about && x.place == y.place;
    };
    const auto same_birth = [&](StorageId x, StorageId y) { return is_same_birth(x, block_a, y, block_b); };
    const auto same_call = [](const Heard::Call& x, const Heard::Call& y) {
      return x.step == y.step && x.parameter == y.parameter && x.gradient == y.gradient;
    };
    return std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(), same_step) &&
           std::equal(a.born.begin(), a.born.end(), b.born.begin(), b.born.end(), same_birth) &&
           std::equal(a.calls.begin(), a.calls.end(), b.calls.begin(), b.calls.end(), same_call);
  }

  /// The last block's backward as that of block `to`, into which `incoming` comes. The storages that were born.
  std::vector<StorageId> write(const Heard& heard, std::size_t to, StorageId incoming) {
    Log& log = context_.log;
    std::vector<StorageId> born;
    born.reserve(heard.born.size());
    std::vector<Storage> held(heard.born.size());
    const std::span<const Parameter> parameters = stack_.parameters_of(to);
    auto call = heard.calls.begin();
    const auto tell = [&](std::size_t step) {
      for (; call != heard.calls.end() && call->step == step; ++call) {
        const ModuleScope scope(context_, module_of(last_, to, call->module));
        const Tensor& parameter = parameters[call->parameter].tensor;
        Storage gradient = context_.resume(born[call->gradient]);
        parameter->grad = on_storage(gradient, call->sizes, call->strides, call->dtype);
        if (call->held) held[call->gradient] = gradient;
        gradient.reset();
        listener_->gradient_ready(parameter);
      }
    };
    for (std::size_t i = 0; i < heard.steps.size(); ++i) {
      tell(i);
      const Heard::Step& step = heard.steps[i];
      const auto now = static_cast<std::uint32_t>(log.events.size());
      Event event = step.event;
      event.module = module_of(last_, to, event.module);
      if (event.kind == EventKind::alloc) {
        StorageRecord record = log.storages[heard.born[step.place]];
        record.alloc_event = now;
        record.free_event = kNever;
        record.module = module_of(last_, to, record.module);
        born.push_back(static_cast<StorageId>(log.storages.size()));
        log.storages.push_back(record);
        context_.change_allocated(Context::rounded(record.bytes));
      }
      event.storage = step.about == Heard::About::born       ? born[step.place]
                      : step.about == Heard::About::incoming ? incoming
                                                             : forward_[to].storage + step.place;
      if (event.kind == EventKind::free) {
        log.storages[event.storage].free_event = now;
        context_.change_allocated(-Context::rounded(log.storages[event.storage].bytes));
        if (step.about == Heard::About::born && held[step.place]) let_go(held[step.place]);
      }
      log.events.push_back(event);
    }
    tell(heard.steps.size());
    return born;
  }

  /// The log has let it go already.
  void let_go(Storage& storage) {
    if (storage->references != 1) fail();
    storage->id = kNever;
    storage.reset();
  }

  void repeat_heard(Backward& b, const Tensor& gradient, bool passed_on) {
    stop_recording();
    heard_ = heard(last_backward_, last_, gradient_of_last_);
    if (!heard_) return give_up(b, gradient);
    StorageId incoming = gradient->storage->id;
    const auto output = std::find(heard_->born.begin(), heard_->born.end(), incoming) - heard_->born.begin();
    if (!passed_on && output == std::ssize(heard_->born)) return give_up(b, gradient);
    for (std::size_t i = last_; --i > first_;) {
      const std::vector<StorageId> born = write(*heard_, i, incoming);
      if (!passed_on) incoming = born[static_cast<std::size_t>(output)];
      copy_saved_in_forward(i);
    }
    copy_saved_in_forward(first_);
    end_of_repetition_ = mark();
    gradient_of_first_ = incoming;
    record(first_);
    if (passed_on) return b.give(0, gradient);
    b.give(0, on_storage(context_.resume(incoming), gradient.sizes(), gradient.strides(), gradient.dtype()));
    gradient->storage->id = kNever;
  }

  /// The gradients that the last block's parameters have got in `part`, which begins at `begin` this time.
  void give_gradients(const Part& part, const Mark& begin, std::span<const Parameter> parameters) {
    const std::span<const Parameter> like = stack_.parameters_of(last_);
    for (std::size_t k = 0; k < like.size(); ++k) {
      const Tensor& gradient = like[k].tensor->grad;
      if (!gradient || !part.has(gradient->storage->id)) continue;
      const StorageId id = gradient->storage->id - part.begin.storage + begin.storage;
      parameters[k].tensor->grad =
          on_storage(context_.resume(id), gradient.sizes(), gradient.strides(), gradient.dtype());
    }
  }

  void copy_saved(std::span<const Parameter> from, std::span<const Parameter> to) {
    for (std::size_t k = 0; k < from.size(); ++k)
      if (const StorageRecord* record = context_.record(from[k].tensor))
        context_.record(to[k].tensor)->saved = record->saved;
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
    record(last_);
    b.give(0, std::move(b.grads[0]));
  }
  void leave_first(Backward& b) {
    stop_recording();
    const Part part{end_of_repetition_, mark()};
    const bool repeated = end_of_repetition_.event != 0;
    if (repeated && !(listener_ ? is_heard_again(part) : is_same(part, first_, last_backward_, last_))) fail();
    b.give(0, std::move(b.grads[0]));
  }
  bool is_heard_again(const Part& part) const {
    const std::optional<Heard> again = heard(part, first_, gradient_of_first_);
    return again && is_same(*again, first_, *heard_, last_);
  }

  void fail() { context_.repetition_failed = true; }
  /// Backward goes on with any gradient at all: its log will not be used.
  void give_up(Backward& b, const Tensor& gradient) {
    fail();
    b.give(0, gradient);
  }

  const BlockStack& stack_;
  Context& context_;
  GradientListener* const listener_;
  std::size_t first_, last_;   ///< whose forward is repeated, whose backward; what is between is not executed
  std::vector<Mark> forward_;  ///< where each block's forward begins, and where the last one's ends
  Part last_backward_{};
  Mark end_of_repetition_{};
  StorageId gradient_of_last_ = kNever;  ///< that comes into it
  bool waits_for_backward_ = false;

  // with a listener
  std::size_t recorded_ = 0;  ///< the block that is executed while it is recorded
  std::vector<Told> told_;
  std::optional<Heard> heard_;  ///< of the last block
  StorageId gradient_of_first_ = kNever;
};

const std::vector<CheckpointSegment>* BlockStack::segments_of(const CheckpointingConfig& checkpointing,
                                                              const Log& log) const {
  for (const StackSegments& given : checkpointing.segments)
    if (path_ends_with(log, starts_[0], given.stack + ".0")) return &given.segments;
  return nullptr;
}

Tensor BlockStack::run(std::size_t begin, std::size_t end, Tensor hidden_states,
                       const CheckpointingConfig& checkpointing, const std::function<Forward(std::size_t)>& block,
                       const TensorList& nested) const {
  Context& context = hidden_states.context();
  const Checkpointing mode = checkpointing.mode == CheckpointMode::none        ? Checkpointing::none
                             : checkpointing.mode == CheckpointMode::reentrant ? Checkpointing::reentrant
                                                                               : Checkpointing::non_reentrant;
  // activation_checkpointing_enable(offload=True): save_on_cpu(pin_memory=True) around each checkpoint.
  const auto run_checkpoint = [&](const Tensor& x, Forward forward) {
    const Scoped<SavesOn> place(context.saves_on, checkpointing.offload ? SavesOn::pinned : context.saves_on);
    return checkpoint(mode, x, std::move(forward), nested);
  };
  if (!checkpointing.segments.empty()) {
    const std::vector<CheckpointSegment>* segments = segments_of(checkpointing, context.log);
    // A model that takes hidden states out of the middle of a stack ends a region there and begins another.
    const auto segment_with = [&](std::size_t i) -> const CheckpointSegment* {
      if (!segments) return nullptr;
      const auto found = std::find_if(segments->begin(), segments->end(),
                                      [&](const CheckpointSegment& s) { return s.begin <= i && i < s.end; });
      return found == segments->end() ? nullptr : &*found;
    };
    for (std::size_t i = begin; i < end;) {
      const CheckpointSegment* segment = segment_with(i);
      if (!segment) {
        hidden_states = block(i++)(hidden_states);
        continue;
      }
      std::vector<Forward> forwards;
      for (const std::size_t last = std::min(segment->end, end); i < last; ++i) forwards.push_back(block(i));
      hidden_states = run_checkpoint(hidden_states, [forwards = std::move(forwards)](const Tensor& x) {
        Tensor hidden = forwards.front()(x);
        for (std::size_t k = 1; k < forwards.size(); ++k) hidden = forwards[k](hidden);
        return hidden;
      });
    }
    return hidden_states;
  }
  const auto run_block = [&](std::size_t i, const Tensor& x) {
    const bool is_checkpointed =
        mode != Checkpointing::none && (first_block + i) % static_cast<std::size_t>(checkpointing.every) == 0;
    return is_checkpointed ? run_checkpoint(x, block(i)) : block(i)(x);
  };
  const auto same_parameters = [&](std::size_t a, std::size_t b) {
    if (starts_[a + 1] - starts_[a] != starts_[b + 1] - starts_[b]) return false;
    const std::span<const Parameter> of_a = parameters_of(a), of_b = parameters_of(b);
    return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), [&](const Parameter& x, const Parameter& y) {
      return x.tensor.sizes() == y.tensor.sizes() && x.tensor.dtype() == y.tensor.dtype() &&
             x.tensor.requires_grad() == y.tensor.requires_grad() && x.module - starts_[a] == y.module - starts_[b];
    });
  };
  const bool alike = checkpointing.mode == CheckpointMode::none || checkpointing.every == 1;
  bool repeats = alike && !checkpointing.offload && context.saves_on == SavesOn::device && context.repeats &&
                 !context.frame && !context.recomputing && end - begin > 4;
  for (std::size_t i = begin; repeats && i < end; ++i) repeats = same_parameters(begin, i);
  if (repeats) {
    const std::span<const Parameter> parameters = parameters_of(begin);
    const bool trains =
        std::any_of(parameters.begin(), parameters.end(), [](const Parameter& p) { return p.tensor.requires_grad(); });
    // A listener may keep state of its own, which a repetition would not know.
    const bool heard = context.gradients && context.grad_mode && (trains || hidden_states.requires_grad());
    if (heard && !context.gradients->only_listens) repeats = false;
    if (context.blocks || context.modules) repeats = false;
  }
  if (repeats) return (*std::make_shared<Run>(*this, context, begin, end))(std::move(hidden_states), run_block);
  for (std::size_t i = begin; i < end; ++i) {
    if (context.blocks) hidden_states = context.blocks->before_block(starts_[i], std::move(hidden_states));
    if (context.modules) {
      ModuleCall call(context, starts_[i]);
      hidden_states = call.result(run_block(i, call.argument(hidden_states)));
    } else {
      hidden_states = run_block(i, hidden_states);
    }
    if (context.blocks) hidden_states = context.blocks->after_block(starts_[i], std::move(hidden_states));
  }
  return hidden_states;
}

}  // namespace oometer
