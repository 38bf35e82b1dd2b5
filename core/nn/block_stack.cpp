#include "nn/block_stack.h"

#include <algorithm>
#include <optional>

#include "autograd/checkpoint.h"
#include "autograd/node.h"
#include "ops/ops.h"

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

/// A part of the log, written again and again at its end: each time the same steps further, so that writing needs no
/// decisions.
class BlockStack::Stencil {
 public:
  /// How far the next block's storages and modules are from this one's.
  struct Steps {
    StorageId forward, backward;  ///< of storages born before `begin_of_backward`, and later (modulo 2^32)
    StorageId begin_of_backward;
    MovedModules moved;
  };

  Stencil(Context& context, const Part& part, const Steps& steps)
      : context_(context), last_(part), is_near_(part.end.event == context.log.events.size()) {
    const Log& log = context.log;
    const auto module_step = [&](ModuleId module) { return steps.moved(module) - module; };
    steps_.reserve(part.events());
    records_.reserve(part.storages());
    for (std::uint32_t i = 0; i < part.events(); ++i) {
      const Event& event = log.events[part.begin.event + i];
      const StorageRecord& record = log.storages[event.storage];
      steps_.push_back(
          {event.storage < steps.begin_of_backward ? steps.forward : steps.backward, module_step(event.module)});
      if (event.kind == EventKind::alloc) {
        records_.push_back({module_step(record.module), record.free_event < part.end.event});
        change_ += Context::rounded(record.bytes);
      } else if (event.kind == EventKind::free) {
        if (!part.has(event.storage)) frees_.push_back(i);
        change_ -= Context::rounded(record.bytes);
      }
    }
  }

  /// Whether the part was at the end of the log. The steps from another are right once, and others from there on.
  bool is_near() const { return is_near_; }

  /// Where it was written.
  Part repeat() {
    Log& log = context_.log;
    const std::uint32_t events = last_.events();
    const StorageId storages = last_.storages();
    const Mark now{static_cast<std::uint32_t>(log.events.size()), static_cast<StorageId>(log.storages.size())};
    const Step* step = steps_.data();
    for (Event& event : append_again(log.events, last_.begin.event, events)) {
      event.storage += step->storage;
      event.module += step->module;
      ++step;
    }
    const RecordStep* record_step = records_.data();
    for (StorageRecord& record : append_again(log.storages, last_.begin.storage, storages)) {
      record.module += record_step->module;
      record.move(now.event - last_.begin.event, record_step->is_freed);
      ++record_step;
    }
    for (const std::uint32_t i : frees_) {
      const std::uint32_t at = now.event + i;
      log.storages[log.events[at].storage].free_event = at;
    }
    last_ = {now, {now.event + events, now.storage + storages}};
    context_.change_allocated(change_);
    return last_;
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
  bool is_near_;
  std::vector<Step> steps_;           ///< of each event
  std::vector<RecordStep> records_;   ///< of each storage born
  std::vector<std::uint32_t> frees_;  ///< the events that free others
  std::int64_t change_ = 0;           ///< of the bytes alive
};

/// What a block itself did while listeners (DeepSpeed) were told of its calls and gradients on the way. The listeners'
/// own doing is left out where it differs from block to block: it is done anew wherever the calls came.
struct BlockStack::Heard {
  enum class About : std::uint8_t { born, incoming, born_in_forward, incoming_in_forward, gradient, parameter };
  struct Step {
    Event event;
    About about;
    StorageId place;            ///< among those born; of a held gradient in `calls`, of a parameter's memory in `holds`
    bool moves = false;         ///< the event's module is one of the block's
    bool record_moves = false;  ///< the storage's is
  };
  /// The block itself holds the memory that a parameter has (a view of it was saved for backward).
  struct Hold {
    bool operator==(const Hold& other) const = default;

    StorageId id;  ///< the memory's, while it is recorded
    std::size_t parameter;
    std::size_t from, until;  ///< calls before which this begins, and has ended
    bool outlives;            ///< the parameter got other memory meanwhile: the block lets this memory go
  };
  /// As Share, of a storage that is told by its place among those born.
  struct BornShare {
    StorageId place;
    ModuleId module;
    std::int64_t elements;
  };
  enum class What : std::uint8_t { before_forward, after_forward, before_backward, after_backward, read, gradient };
  struct Call {
    bool operator==(const Call& other) const = default;

    What what;
    bool recomputing, grad_mode;
    std::uint8_t stream;
    ModuleId module, of;          ///< where it came from; of which module it told
    std::uint32_t parameter = 0;  ///< of the block's: what was read, what got a gradient
    std::uint32_t step = 0;       ///< before which it came
    StorageId gradient = kNever;  ///< its place among those born (its id, while it is recorded); kNever: it was there
                                  ///< before, and was added to
    std::uint32_t looks = 0;      ///< of that gradient, among `gradients`
    bool held = false;            ///< the block lets the gradient's storage go itself, later
    bool moves_holds = false;     ///< some begin or have ended before it
    std::uint32_t begin = 0, end = 0;  ///< while it is recorded: the listener's own part of the log
  };

  std::vector<StorageId> born;
  std::vector<Step> steps;
  std::vector<Call> calls;
  std::vector<Looks> gradients;
  std::vector<Hold> holds;  ///< in the order of `from`
  std::vector<BornShare> shares;
  bool holds_gradients = false;
  bool is_whole = false;    ///< with the doing of ModuleListener, which is told of no call then
  std::int64_t change = 0;  ///< of the bytes alive, by the block itself
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
class BlockStack::Run : public std::enable_shared_from_this<Run>, private GradientListener, private ModuleListener {
 public:
  /// All of [begin, end), the blocks of `gaps` written. Of two blocks before the first gap and of two behind the last,
  /// all is as of those in the gaps.
  Run(const BlockStack& stack, Context& context, std::size_t begin, std::size_t end, std::vector<Gap> gaps)
      : stack_(stack),
        context_(context),
        gradients_(context.gradients),
        modules_(context.modules),
        begin_(begin),
        gaps_(std::move(gaps)),
        first_(gaps_.front().begin - 1),
        last_(gaps_.back().end),
        forward_(end + 1, {kNever, kNever}) {
    if (gradients_) post_accumulate = gradients_->post_accumulate;
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  /// The graph goes. Where backward has not come by, what the blocks have saved goes with it, which nobody wrote.
  ~Run() override {
    stop_recording();
    if (!written_.empty()) fail();
  }

  Tensor operator()(Tensor x, const std::function<Tensor(std::size_t, const Tensor&)>& block) {
    const auto execute = [&](std::size_t i) {
      forward_[i] = mark();
      x = block(i, x);
      forward_[i + 1] = mark();
    };
    const std::size_t cached_weights = context_.autocast.weights.size();
    for (std::size_t i = begin_; i < first_; ++i) execute(i);
    const Looks input(x);
    input_of_first_ = x->storage->id;
    x = with_hook(x, &Run::leave_first);
    record(first_);
    execute(first_);
    stop_recording();
    const auto repeats = [&] {
      return Looks(x) == input && is_sole(x) && cached_weights == context_.autocast.weights.size();
    };
    const bool is_repeatable = repeats() && is_repeatable_forward() && forward_place(first_, x->storage->id);
    const std::size_t end = forward_.size() - 1;
    if (!is_repeatable) {
      for (std::size_t i = first_ + 1; i < end; ++i) execute(i);
      return x;
    }
    output_ = *forward_place(first_, x->storage->id);
    saves_input_ = context_.log.storages[input_of_first_].saved;
    saves_output_ = context_.log.storages[x->storage->id].saved;
    std::size_t next = first_ + 1;
    for (const Gap& gap : gaps_) {
      while (next < gap.begin) execute(next++);
      if (gap.begin > first_ + 1 && !(repeats() && enters_as_first(x))) continue;  // it is executed, too
      x = repeat_forward(x, gap);
      next = gap.end;
    }
    if (next < last_) fail();  // backward has nothing to write then
    while (next < last_) execute(next++);
    record(last_);
    execute(last_);
    stop_recording();
    if (!is_forward_again()) fail();
    x = with_hook(x, &Run::enter_last);
    for (std::size_t i = last_ + 1; i < end; ++i) execute(i);
    return x;
  }

 private:
  using Hook = void (Run::*)(Backward&);

  Mark mark() const {
    return {static_cast<std::uint32_t>(context_.log.events.size()),
            static_cast<StorageId>(context_.log.storages.size())};
  }
  Part forward_of(std::size_t block) const { return {forward_[block], forward_[block + 1]}; }

  MovedModules move(std::size_t from, std::size_t to) const {
    const std::vector<ModuleId>& starts = stack_.starts_;
    return {starts[from], starts[from + 1] - starts[from], starts[to] - starts[from]};
  }
  ModuleId module_of(std::size_t from, std::size_t to, ModuleId module) const { return move(from, to)(module); }

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

  /// Whether all that `part` is about, but for `incoming` and the block's own, is what came into the block's forward.
  /// So it can be written behind a block that is not like those in the gaps.
  bool needs_only(const Part& part, std::size_t block, StorageId incoming) const {
    const Part forward = forward_of(block);
    const std::span events = std::span(context_.log.events).subspan(part.begin.event, part.events());
    return std::all_of(events.begin(), events.end(), [&](const Event& event) {
      return part.has(event.storage) || forward.has(event.storage) || event.storage == incoming ||
             event.storage == forward_input(block);
    });
  }

  /// Whether x has come into the block that begins here from as near as into the first one.
  bool enters_as_first(const Tensor& x) const {
    return x->storage->id - mark().storage == input_of_first_ - forward_[first_].storage &&
           needs_only(forward_of(first_), first_, input_of_first_);
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

  bool is_repeatable_forward() {
    if (!listens()) return is_about_itself(forward_of(first_), first_);
    heard_in_forward_ = heard(forward_of(first_), first_, input_of_first_);
    if (!heard_in_forward_) return false;
    born_.reserve((last_ - first_ + 1) * heard_in_forward_->born.size());
    born_ = heard_in_forward_->born;
    return true;
  }

  bool is_forward_again() {
    if (!listens()) return is_same(forward_of(last_), last_, forward_of(first_), first_);
    const std::optional<Heard> again = heard(forward_of(last_), last_, forward_input(last_));
    if (!again || !is_same(*again, last_, *heard_in_forward_, first_)) return false;
    born_.insert(born_.end(), again->born.begin(), again->born.end());
    return true;
  }

  /// From `part`, which block `like` did, to block i, which does the same at the end of the log.
  Stencil::Steps steps(const Part& part, std::size_t like, std::size_t i) const {
    return {forward_[i].storage - forward_[like].storage, mark().storage - part.begin.storage, forward_.back().storage,
            move(like, i)};
  }

  Tensor repeat_forward(const Tensor& x, const Gap& gap) {
    // Whether backward holds a block's output, the block after it decides.
    context_.log.storages[x->storage->id].saved = saves_input_;
    std::optional<Stencil> stencil;
    for (std::size_t i = gap.begin; i < gap.end; ++i) {
      forward_[i] = mark();
      if (listens()) {
        write(*heard_in_forward_, first_, i, forward_input(i), born_);
      } else {
        const std::size_t like = i == gap.begin ? first_ : i - 1;
        if (!stencil || !stencil->is_near())
          stencil.emplace(context_, forward_of(like), steps(forward_of(like), like, i));
        stencil->repeat();
      }
      forward_[i + 1] = mark();
      context_.log.storages[forward_id(i, output_)].saved = i + 1 < gap.end ? saves_input_ : saves_output_;
    }
    Tensor result = on_storage(context_.resume(forward_id(gap.end - 1, output_)), x.sizes(), x.strides(), x.dtype());
    if (x.requires_grad()) {
      result = hook(result, x, &Run::repeat_backward);
      written_.push_back(gap);
    }
    x->storage->id = kNever;  // the log has let it go
    return result;
  }

  void repeat_backward(Backward& b) {
    const Gap gap = written_.back();
    written_.pop_back();
    const Tensor gradient = std::move(b.grads[0]);
    const StorageId incoming = gradient->storage->id;
    if (gap.end == last_) {
      last_backward_.end = mark();
      passed_on_ = incoming == gradient_of_last_;  // accumulated into, all the way
    }
    if (context_.repetition_failed || !is_sole(gradient)) return give_up(b, gradient);
    if (listens()) return repeat_heard(b, gradient, passed_on_);
    const StorageId distance = gradient_of_last_ - last_backward_.begin.storage;
    if (!passed_on_ && incoming - mark().storage != distance) return give_up(b, gradient);
    if (!(gap.end == last_ ? is_about_itself(last_backward_, last_)
                           : needs_only(last_backward_, last_, gradient_of_last_)))
      return give_up(b, gradient);
    std::optional<Stencil> stencil;
    Part part = last_backward_;
    for (std::size_t i = gap.end; i-- > gap.begin;) {
      const std::size_t like = i + 1 == gap.end ? last_ : i + 1;
      if (!stencil || !stencil->is_near()) stencil.emplace(context_, part, steps(part, like, i));
      part = stencil->repeat();
      give_gradients(last_backward_, part.begin, stack_.parameters_of(i));
      copy_saved_in_forward(i);
    }
    if (gap.begin == first_ + 1) {
      copy_saved_in_forward(first_);
      end_of_repetition_ = mark();
    }
    if (passed_on_) return b.give(0, gradient);
    b.give(0, on_storage(context_.resume(distance + mark().storage), gradient.sizes(), gradient.strides(),
                         gradient.dtype()));
    gradient->storage->id = kNever;
  }

  // --- once more, with listeners ---

  bool listens() const { return gradients_ || modules_; }

  /// Storages of a block's forward by their place among those born in it.
  StorageId forward_id(std::size_t block, StorageId place) const {
    if (!listens()) return forward_[block].storage + place;
    return forward_ids(block)[place];
  }
  const StorageId* forward_ids(std::size_t block) const {
    return born_.data() + (block - first_) * heard_in_forward_->born.size();
  }
  std::optional<StorageId> forward_place(std::size_t block, StorageId id) const {
    if (!forward_of(block).has(id)) return std::nullopt;
    if (!listens()) return id - forward_[block].storage;
    const std::span ids(forward_ids(block), heard_in_forward_->born.size());
    const auto found = std::lower_bound(ids.begin(), ids.end(), id);
    if (found == ids.end() || *found != id) return std::nullopt;
    return static_cast<StorageId>(found - ids.begin());
  }
  /// What came into a block's forward.
  StorageId forward_input(std::size_t block) const {
    return block == first_ ? input_of_first_ : forward_id(block - 1, output_);
  }

  void record(std::size_t block) {
    if (!listens()) return;
    recorded_ = stack_.parameters_of(block);
    recording_ = {};
    memory_.clear();
    if (modules_)
      for (const Parameter& parameter : recorded_) memory_.push_back({parameter.tensor.get()});
    look_after_call();
    first_share_ = context_.log.shares.size();
    if (modules_) modules_->begin_block();
    if (gradients_) context_.gradients = this;
    if (modules_) context_.modules = this;
  }
  void stop_recording() {
    if (is_recording()) look_before_call();
    if (context_.gradients == this) context_.gradients = gradients_;
    if (context_.modules == this) context_.modules = modules_;
  }
  bool is_recording() const { return context_.gradients == this || context_.modules == this; }

  void pass_on(Heard::Call told, const Tensor& parameter = {}) {
    if (context_.stopped) return call(told.what, told.of, parameter);  // it has all it needs, and hears of nothing
    look_before_call();
    told.begin = mark().event;
    call(told.what, told.of, parameter);
    told.end = mark().event;
    recording_.calls.push_back(told);
    look_after_call();
  }

  void call(Heard::What what, ModuleId of, const Tensor& parameter) {
    switch (what) {
      case Heard::What::before_forward:
        return modules_->before_forward(of);
      case Heard::What::after_forward:
        return modules_->after_forward(of);
      case Heard::What::before_backward:
        return modules_->before_backward(of);
      case Heard::What::after_backward:
        return modules_->after_backward(of);
      case Heard::What::read:
        return modules_->read(parameter);
      case Heard::What::gradient:
        return gradients_->gradient_ready(parameter);
    }
  }

  /// The memory of a parameter of the block that is executed. What changes its count of references between two calls is
  /// the block.
  struct Memory {
    const TensorImpl* parameter;
    const StorageImpl* storage = nullptr;
    StorageId id = kNever;
    std::uint32_t references = 0;
    std::uint32_t held = 0;  ///< by the block
    std::size_t hold = 0;    ///< which, if so
  };
  void look_before_call() {
    for (Memory& memory : memory_) {
      if (memory.id == kNever || memory.storage->references == memory.references) continue;
      if (memory.held == 0) {
        memory.hold = recording_.holds.size();
        const auto parameter = static_cast<std::size_t>(&memory - memory_.data());
        recording_.holds.push_back({memory.id, parameter, recording_.calls.size(), kNever, false});
      }
      memory.held += memory.storage->references - memory.references;
      if (memory.held == 0) recording_.holds[memory.hold].until = recording_.calls.size();
    }
  }
  void look_after_call() {
    for (Memory& memory : memory_) {
      const StorageImpl& storage = *memory.parameter->storage;
      if (storage.id != memory.id) {
        // What was freed in its place (storage.resize_) is no longer there to be held.
        if (memory.held > 0 && memory.storage == &storage)
          recording_.holds[memory.hold].until = recording_.calls.size();
        if (memory.held > 0 && memory.storage != &storage) recording_.holds[memory.hold].outlives = true;
        memory.held = 0;
        memory.id = storage.id;
      }
      memory.storage = &storage;
      memory.references = storage.references;
    }
  }
  Heard::Call told(Heard::What what, ModuleId of = kNever) const {
    return {what, context_.recomputing, context_.grad_mode, context_.stream, context_.module, of};
  }
  /// None for a leaf that is no parameter: what a reentrant checkpoint runs again on.
  std::optional<Heard::Call> told(Heard::What what, const Tensor& parameter) {
    const auto find = [&](std::span<const Parameter> parameters) {
      return std::find_if(parameters.begin(), parameters.end(),
                          [&](const Parameter& known) { return known.tensor.get() == parameter.get(); }) -
             parameters.begin();
    };
    Heard::Call result = told(what);
    result.parameter = static_cast<std::uint32_t>(find(recorded_));
    if (result.parameter < recorded_.size()) return result;
    if (find(*stack_.parameters_) < std::ssize(*stack_.parameters_)) fail();  // another block's
    return std::nullopt;
  }

  void before_forward(ModuleId module) override { pass_on(told(Heard::What::before_forward, module)); }
  void after_forward(ModuleId module) override { pass_on(told(Heard::What::after_forward, module)); }
  void before_backward(ModuleId module) override { pass_on(told(Heard::What::before_backward, module)); }
  bool hears(ModuleId module) const override { return modules_->hears(module); }
  bool hears_keywords() const override { return modules_->hears_keywords(); }
  std::optional<DType> input_dtype() const override { return modules_->input_dtype(); }
  void after_backward(ModuleId module) override { pass_on(told(Heard::What::after_backward, module)); }
  void read(const Tensor& parameter) override {
    const std::optional<Heard::Call> result = told(Heard::What::read, parameter);
    if (!result) return modules_->read(parameter);
    pass_on(*result, parameter);
  }
  void gradient_ready(const Tensor& parameter) override {
    std::optional<Heard::Call> result = told(Heard::What::gradient, parameter);
    if (!result) return gradients_->gradient_ready(parameter);
    const Tensor& gradient = parameter->grad;
    result->gradient = gradient->storage->id;
    result->looks = static_cast<std::uint32_t>(recording_.gradients.size());
    recording_.gradients.emplace_back(gradient);
    pass_on(*result, parameter);
  }

  /// A block's own part of its forward or backward; none where it was about more than itself and what came into it.
  std::optional<Heard> heard(const Part& part, std::size_t block, StorageId incoming) {
    const Log& log = context_.log;
    Heard heard = std::move(recording_);
    heard.is_whole = modules_ && modules_->end_block();
    if (heard.is_whole) {
      std::erase_if(heard.calls, [](const Heard::Call& call) { return call.what != Heard::What::gradient; });
      heard.holds.clear();
    }
    const bool in_backward = is_in_backward(part.begin.storage);
    const MovedModules itself = move(block, block);
    std::vector<StorageId> places(part.storages(), kNever);
    std::vector<StorageId> told(part.storages(), kNever);  // in which call of a gradient
    StorageId calls = 0;
    for (std::uint32_t i = part.begin.event;; ++i) {
      for (; calls < heard.calls.size() && heard.calls[calls].begin == i; ++calls) {
        Heard::Call& call = heard.calls[calls];
        call.step = static_cast<std::uint32_t>(heard.steps.size());
        if (part.has(call.gradient)) {
          call.gradient = places[call.gradient - part.begin.storage];
          if (call.gradient == kNever) return std::nullopt;  // the listener's
          told[call.gradient] = calls;
        } else {
          call.gradient = kNever;
        }
        i = std::exchange(call.end, 0);
        call.begin = 0;
      }
      if (i >= part.end.event) break;
      const Event& event = log.events[i];
      const StorageId id = event.storage;
      if (event.kind == EventKind::empty_cache) return std::nullopt;
      if (event.kind == EventKind::free) heard.change -= Context::rounded(log.storages[id].bytes);
      if (event.kind == EventKind::alloc) {
        heard.change += Context::rounded(log.storages[id].bytes);
        places[id - part.begin.storage] = static_cast<StorageId>(heard.born.size());
        heard.born.push_back(id);
      }
      StorageId hold = event.kind == EventKind::free ? 0 : static_cast<StorageId>(heard.holds.size());
      while (hold < heard.holds.size() && !(heard.holds[hold].id == id && heard.holds[hold].outlives)) ++hold;
      if (hold < heard.holds.size()) {
        heard.holds[hold].until = calls;
        heard.steps.push_back({event, Heard::About::parameter, hold});
      } else if (part.has(id)) {
        const StorageId place = places[id - part.begin.storage];
        if (place == kNever) return std::nullopt;  // the listener's
        if (event.kind == EventKind::free && told[place] != kNever) {
          heard.calls[told[place]].held = heard.holds_gradients = true;
          heard.steps.push_back({event, Heard::About::gradient, told[place]});
        } else {
          heard.steps.push_back({event, Heard::About::born, place});
        }
      } else if (id == incoming) {
        heard.steps.push_back({event, Heard::About::incoming, 0});
      } else if (in_backward && id == forward_input(block)) {
        heard.steps.push_back({event, Heard::About::incoming_in_forward, 0});
      } else if (const auto place = in_backward ? forward_place(block, id) : std::nullopt) {
        heard.steps.push_back({event, Heard::About::born_in_forward, *place});
      } else {
        return std::nullopt;
      }
      heard.steps.back().moves = itself.moves(event.module);
      heard.steps.back().record_moves = itself.moves(log.storages[id].module);
    }
    for (const Share& share : std::span(log.shares).subspan(first_share_))
      if (const StorageId place = part.has(share.storage) ? places[share.storage - part.begin.storage] : kNever;
          place != kNever)
        heard.shares.push_back({place, share.module, share.elements});
    for (Heard::Hold& hold : heard.holds) {
      hold.id = kNever;
      if (hold.until == kNever) return std::nullopt;
      for (const std::size_t call : {hold.from, hold.until})
        if (call < heard.calls.size()) heard.calls[call].moves_holds = true;
    }
    return heard;
  }

  bool is_same(const Heard& a, std::size_t block_a, const Heard& b, std::size_t block_b) const {
    const auto same_step = [&](const Heard::Step& x, const Heard::Step& y) {
      return x.event.kind == y.event.kind && x.event.op == y.event.op && x.event.stream == y.event.stream &&
             x.event.module == module_of(block_b, block_a, y.event.module) && x.about == y.about && x.place == y.place;
    };
    const auto same_birth = [&](StorageId x, StorageId y) { return is_same_birth(x, block_a, y, block_b); };
    const auto same_call = [&](const Heard::Call& x, Heard::Call y) {
      y.module = module_of(block_b, block_a, y.module);
      y.of = module_of(block_b, block_a, y.of);
      return x == y;
    };
    const auto same_share = [&](const Heard::BornShare& x, const Heard::BornShare& y) {
      return x.place == y.place && x.module == module_of(block_b, block_a, y.module) && x.elements == y.elements;
    };
    return std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(), same_step) &&
           std::equal(a.shares.begin(), a.shares.end(), b.shares.begin(), b.shares.end(), same_share) &&
           std::equal(a.born.begin(), a.born.end(), b.born.begin(), b.born.end(), same_birth) &&
           std::equal(a.calls.begin(), a.calls.end(), b.calls.begin(), b.calls.end(), same_call) &&
           a.gradients == b.gradients && a.holds == b.holds && a.is_whole == b.is_whole;
  }

  /// What block `from` did, as block `to` does it, into which `incoming` comes. The storages that are born go to
  /// `born`.
  void write(const Heard& heard, std::size_t from, std::size_t to, StorageId incoming, std::vector<StorageId>& born) {
    Log& log = context_.log;
    const std::span<const Parameter> parameters = stack_.parameters_of(to);
    const StorageId input = forward_input(to);
    const std::size_t first_born = born.size();
    born.resize(first_born + heard.born.size());
    const StorageId* const storages[] = {born.data() + first_born, &incoming,
                                         is_in_backward(incoming) ? forward_ids(to) : nullptr, &input};
    std::vector<Storage> gradients(heard.holds_gradients ? heard.calls.size() : 0), holds;
    const MovedModules moved = move(from, to);
    // What each call is told under.
    const Scoped<ModuleId> module(context_.module, context_.module);
    const Scoped<std::uint8_t> stream(context_.stream, context_.stream);
    const Scoped<bool> recomputing(context_.recomputing, context_.recomputing),
        grad_mode(context_.grad_mode, context_.grad_mode);
    const Heard::Step* step = heard.steps.data();
    auto share = heard.shares.begin();
    const std::size_t calls = heard.calls.size();
    for (std::size_t i = 0;; ++i) {
      const Heard::Step* const until = heard.steps.data() + (i < calls ? heard.calls[i].step : heard.steps.size());
      auto now = static_cast<std::uint32_t>(log.events.size());
      auto next = static_cast<StorageId>(log.storages.size());
      for (; step != until; ++step, ++now) {
        Event event = step->event;
        event.module += step->moves ? moved.by : 0;
        if (event.kind == EventKind::alloc) {
          event.storage = next++;
          born[first_born + step->place] = event.storage;
          StorageRecord& record = log.storages.emplace_back(log.storages[heard.born[step->place]]);
          record.alloc_event = now;
          record.free_event = kNever;
          record.module += step->record_moves ? moved.by : 0;
          for (; share != heard.shares.end() && share->place == step->place; ++share)
            log.shares.push_back({event.storage, moved(share->module), share->elements});
        } else {
          if (step->about == Heard::About::gradient)
            event.storage = let_go(gradients[step->place]);
          else if (step->about == Heard::About::parameter)
            event.storage = let_go(holds[step->place]);
          else
            event.storage = storages[static_cast<std::size_t>(step->about)][step->place];
          if (event.kind == EventKind::free) log.storages[event.storage].free_event = now;
        }
        log.events.push_back(event);
      }
      if (i == calls) break;
      const Heard::Call& call = heard.calls[i];
      if (call.moves_holds) hold(heard, i, parameters, holds);
      Storage gradient;
      if (call.gradient != kNever) gradient = context_.resume(born[first_born + call.gradient]);
      if (call.held) gradients[i] = gradient;
      tell(heard, call, moved, parameters, std::move(gradient));
    }
    context_.change_allocated(heard.change);
    if (heard.is_whole && !modules_->repeat_block(moved)) fail();
  }

  /// What the block holds of its parameters' memory when `call` comes.
  void hold(const Heard& heard, std::size_t call, std::span<const Parameter> parameters, std::vector<Storage>& holds) {
    for (std::size_t k = 0; k < holds.size(); ++k) {
      if (!holds[k] || heard.holds[k].until > call) continue;
      if (holds[k]->references == 1) fail();  // the parameter had other memory by then
      holds[k].reset();
    }
    while (holds.size() < heard.holds.size() && heard.holds[holds.size()].from == call)
      holds.emplace_back(parameters[heard.holds[holds.size()].parameter].tensor->storage);
  }

  void tell(const Heard& heard, const Heard::Call& told, const MovedModules& moved,
            std::span<const Parameter> parameters, Storage gradient) {
    context_.module = moved(told.module);
    context_.stream = told.stream;
    context_.recomputing = told.recomputing;
    context_.grad_mode = told.grad_mode;
    const Tensor& parameter = parameters.empty() ? none_ : parameters[told.parameter].tensor;
    if (told.what == Heard::What::gradient) {
      // It has one already where this one was added to it.
      if (static_cast<bool>(parameter->grad) == static_cast<bool>(gradient)) return fail();
      const Looks& looks = heard.gradients[told.looks];
      if (gradient) parameter->grad = on_storage(gradient, looks.sizes, looks.strides, looks.dtype);
      gradient.reset();
    }
    call(told.what, moved(told.of), parameter);
  }

  /// The last handle goes, of which the log is told by others.
  StorageId let_go(Storage& storage) {
    if (storage->references != 1) fail();
    const StorageId id = std::exchange(storage->id, kNever);
    storage.reset();
    return id;
  }

  void repeat_heard(Backward& b, const Tensor& gradient, bool passed_on) {
    stop_recording();
    heard_ = heard(last_backward_, last_, gradient_of_last_);
    if (!heard_) return give_up(b, gradient);
    StorageId incoming = gradient->storage->id;
    const auto output = std::find(heard_->born.begin(), heard_->born.end(), incoming) - heard_->born.begin();
    if (!passed_on && output == std::ssize(heard_->born)) return give_up(b, gradient);
    std::vector<StorageId> born;
    for (std::size_t i = last_; --i > first_;) {
      born.clear();
      write(*heard_, last_, i, incoming, born);
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

  /// Recomputation saves what the forward did not.
  void copy_saved_in_forward(std::size_t to) {
    std::vector<StorageRecord>& storages = context_.log.storages;
    const std::size_t count = listens() ? heard_in_forward_->born.size() : forward_of(last_).storages();
    for (StorageId k = 0; k < count; ++k) storages[forward_id(to, k)].saved = storages[forward_id(last_, k)].saved;
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

  Tensor with_hook(const Tensor& x, Hook member) { return x.requires_grad() ? hook(detach(x), x, member) : x; }

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
    if (repeated && !(listens() ? is_heard_again(part) : is_same(part, first_, last_backward_, last_))) fail();
    b.give(0, std::move(b.grads[0]));
  }
  bool is_heard_again(const Part& part) {
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
  GradientListener* const gradients_;
  ModuleListener* const modules_;
  const std::size_t begin_;
  const std::vector<Gap> gaps_;
  const std::size_t first_, last_;  ///< whose forward is written in the gaps, whose backward; between them is any gap
  std::vector<Mark> forward_;       ///< where each block's forward begins, and where the last one's ends
  Part last_backward_{};
  Mark end_of_repetition_{};
  StorageId gradient_of_last_ = kNever;              ///< that comes into it
  bool passed_on_ = false;                           ///< its own backward hands that on
  std::vector<Gap> written_;                         ///< those whose backward has not come by
  StorageId input_of_first_ = kNever;                ///< of its forward
  StorageId output_ = kNever;                        ///< place of a block's output among those born in its forward
  bool saves_input_ = false, saves_output_ = false;  ///< a block's forward, for backward

  // with listeners
  std::span<const Parameter> recorded_;  ///< those of the block that is executed while it is recorded
  Heard recording_;
  std::size_t first_share_ = 0;  ///< of what is recorded, in Log::shares
  const Tensor none_;
  std::vector<Memory> memory_;             ///< of its parameters
  std::optional<Heard> heard_in_forward_;  ///< of the first block
  std::vector<StorageId> born_;            ///< in each block's forward, by place, block after block
  std::optional<Heard> heard_;             ///< of the last block's backward
  StorageId gradient_of_first_ = kNever;
};

const std::vector<CheckpointSegment>* BlockStack::segments_of(const CheckpointingConfig& checkpointing,
                                                              const Log& log) const {
  for (const StackSegments& given : checkpointing.segments)
    if (path_ends_with(log, starts_[0], given.stack + ".0")) return &given.segments;
  return nullptr;
}

/// Stretches of blocks that are alike, as their neighbours are. Of the first the first block is executed, and of the
/// last the last, for the others to be written from.
std::vector<BlockStack::Gap> BlockStack::gaps_between(std::size_t begin, std::size_t end,
                                                      const std::function<bool(std::size_t)>& is_other) {
  const auto is_alike = [&](std::size_t i) { return i >= begin && i < end && !(is_other && is_other(i)); };
  std::vector<Gap> gaps;
  for (std::size_t i = begin + 1; i + 1 < end; ++i) {
    if (!is_alike(i - 1) || !is_alike(i) || !is_alike(i + 1)) continue;
    if (!gaps.empty() && gaps.back().end == i)
      ++gaps.back().end;
    else
      gaps.push_back({i, i + 1});
  }
  std::erase_if(gaps, [](const Gap& gap) { return gap.end - gap.begin < 2; });
  if (gaps.empty() || (gaps.size() == 1 && gaps[0].end - gaps[0].begin < 3)) return {};
  ++gaps.front().begin;
  --gaps.back().end;
  return gaps;
}

Tensor BlockStack::run(std::size_t begin, std::size_t end, Tensor hidden_states,
                       const CheckpointingConfig& checkpointing, const std::function<Forward(std::size_t)>& block,
                       const BlockTraits& traits) const {
  Context& context = hidden_states.context();
  const CheckpointMode mode = checkpointing.mode;
  const bool positional = traits.positional || !context.behaviours.checkpoint_passes_keywords;
  // activation_checkpointing_enable(offload=True): save_on_cpu(pin_memory=True) around each checkpoint.
  const auto run_checkpoint = [&](const Tensor& x, Forward forward) {
    const Scoped<SavesOn> place(context.saves_on, checkpointing.offload ? SavesOn::pinned : context.saves_on);
    return checkpoint(mode, x, std::move(forward), positional, traits.nested);
  };
  const std::vector<CheckpointSegment>* segments = segments_of(checkpointing, context.log);
  const auto segment_with = [&](std::size_t i) -> const CheckpointSegment* {
    if (!segments) return nullptr;
    const auto found = std::find_if(segments->begin(), segments->end(),
                                    [&](const CheckpointSegment& s) { return s.begin <= i && i < s.end; });
    return found == segments->end() ? nullptr : &*found;
  };
  const auto is_checkpointed = [&](std::size_t i) {
    if (!checkpointing.segments.empty()) return segment_with(i) != nullptr;
    return mode != CheckpointMode::none && (first_block + i) % static_cast<std::size_t>(checkpointing.every) == 0;
  };
  const auto run_forward = [&](std::size_t i, const Tensor& x) {
    return is_checkpointed(i) ? run_checkpoint(x, block(i)) : block(i)(x);
  };
  const auto run_block = [&](std::size_t i, const Tensor& x) {
    if (!context.modules || !context.modules->hears(starts_[i])) return run_forward(i, x);
    const Tensor input = cast_forward_input(x, starts_[i]);
    ModuleCall call(context, starts_[i]);
    return call.result(run_forward(i, call.argument(input)));
  };
  const auto same_parameters = [&](std::size_t a, std::size_t b) {
    if (starts_[a + 1] - starts_[a] != starts_[b + 1] - starts_[b]) return false;
    const std::span<const Parameter> of_a = parameters_of(a), of_b = parameters_of(b);
    return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), [&](const Parameter& x, const Parameter& y) {
      return x.tensor.sizes() == y.tensor.sizes() && x.tensor.dtype() == y.tensor.dtype() &&
             x.tensor.requires_grad() == y.tensor.requires_grad() && x.module - starts_[a] == y.module - starts_[b];
    });
  };
  const bool alike =
      checkpointing.segments.empty() && (checkpointing.mode == CheckpointMode::none || checkpointing.every == 1);
  if (traits.is_other && alike && (context.gradients || context.modules)) {
    // Listeners are told between blocks that are all alike.
    for (std::size_t i = begin; i < end;) {
      const std::size_t first = i;
      while (i < end && traits.is_other(i) == traits.is_other(first)) ++i;
      hidden_states =
          run(first, i, std::move(hidden_states), checkpointing, block, {traits.nested, traits.positional, nullptr});
    }
    return hidden_states;
  }
  bool repeats = alike && !checkpointing.offload && context.saves_on == SavesOn::device && context.repeats &&
                 !context.frame && !context.recomputing && !context.blocks && !context.past_key_values;
  std::vector<Gap> gaps;
  if (repeats) gaps = gaps_between(begin, end, traits.is_other);
  repeats = !gaps.empty();
  for (std::size_t i = begin; repeats && i < end; ++i) repeats = same_parameters(begin, i);
  if (repeats)
    return (*std::make_shared<Run>(*this, context, begin, end, std::move(gaps)))(std::move(hidden_states), run_block);
  for (std::size_t i = begin; i < end; ++i) {
    // A region of several blocks (not under FSDP). A model that takes hidden states out of the middle of a stack ends
    // it there and begins another.
    if (const CheckpointSegment* segment = segment_with(i); segment && std::min(segment->end, end) - i > 1) {
      std::vector<Forward> forwards;
      for (const std::size_t last = std::min(segment->end, end); i < last; ++i) forwards.push_back(block(i));
      --i;
      hidden_states = run_checkpoint(hidden_states, [forwards = std::move(forwards)](const Tensor& x) {
        Tensor hidden = forwards.front()(x);
        for (std::size_t k = 1; k < forwards.size(); ++k) hidden = forwards[k](hidden);
        return hidden;
      });
      continue;
    }
    if (context.blocks) hidden_states = context.blocks->before_block(starts_[i], std::move(hidden_states));
    hidden_states = run_block(i, hidden_states);
    if (context.blocks) hidden_states = context.blocks->after_block(starts_[i], std::move(hidden_states));
  }
  return hidden_states;
}

}  // namespace oometer
