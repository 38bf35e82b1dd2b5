#include "nn/block_stack.h"

#include <algorithm>
#include <utility>

#include "autograd/checkpoint.h"
#include "nn/hidden_states.h"
#include "nn/repeat/repeating_run.h"

namespace oometer {

namespace {

[[gnu::noinline]] void refuse_regions(Context& context) {
  context.refusal = Error{"not-modelled", "/training/activation_checkpointing",
                          "found regions of several layers, each of which gets embeddings of its own, which is not "
                          "supported yet: expected regions of one layer"};
}

}  // namespace

BlockStack::BlockStack(const Builder& builder)
    : modules_{builder.parameters, {static_cast<ModuleId>(builder.context->log.modules.size())}} {}

void BlockStack::add_block(const Builder& builder) {
  modules_.starts.push_back(static_cast<ModuleId>(builder.context->log.modules.size()));
}

const std::vector<CheckpointSegment>* BlockStack::segments_of(const CheckpointingConfig& checkpointing,
                                                              const Log& log) const {
  for (const StackSegments& given : checkpointing.segments)
    if (path_ends_with(log, modules_.starts[0], given.stack + ".0")) return &given.segments;
  return nullptr;
}

std::vector<std::size_t> BlockStack::alike(const Context& context, std::size_t begin, std::size_t end,
                                           const BlockTraits& traits) const {
  std::vector<std::size_t> firsts, result;
  result.reserve(end - begin);
  for (std::size_t i = begin; i < end; ++i) {
    const auto first = std::find_if(firsts.begin(), firsts.end(), [&](std::size_t k) {
      return (!traits.kind || traits.kind(k) == traits.kind(i)) && modules_.are_alike(context, k, i);
    });
    result.push_back(first == firsts.end() ? i : *first);
    if (first == firsts.end()) firsts.push_back(i);
  }
  return result;
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
    return checkpoint(mode, x, std::move(forward), positional, traits.nested, traits.second ? *traits.second : nullptr);
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
  const auto run_forward = [&](std::size_t i, const Tensor& x, Forward forward) {
    return is_checkpointed(i) ? run_checkpoint(x, std::move(forward)) : forward(x);
  };
  const auto run_block = [&](std::size_t i, const Tensor& x) {
    if (context.hidden_states && context.hidden_states->is_empty()) context.hidden_states->add(x);
    if (!context.modules || !context.modules->hears(modules_.starts[i])) return run_forward(i, x, block(i));
    const Tensor input = cast_forward_input(x, modules_.starts[i]);
    Forward forward = block(i);  // its keywords are cast, too, before the module's hooks
    ModuleCall call(context, modules_.starts[i]);
    return call.result(run_forward(i, call.argument(input), std::move(forward)));
  };
  const bool all_or_none =
      checkpointing.segments.empty() && (checkpointing.mode == CheckpointMode::none || checkpointing.every == 1);
  if (all_or_none && !checkpointing.offload && context.saves_on == SavesOn::device && context.repeats &&
      !context.saved_tensor_hooks && !context.recomputing && !context.blocks && !context.past_key_values &&
      !context.hidden_states) {
    const auto pass = std::make_shared<RepeatingRun>(modules_, context, begin, alike(context, begin, end, traits));
    if (pass->repeats()) return (*pass)(std::move(hidden_states), run_block);
  }
  for (std::size_t i = begin; i < end; ++i) {
    // A region of several blocks (not under FSDP). A model that takes hidden states out of the middle of a stack ends
    // it there and begins another.
    if (const CheckpointSegment* segment = segment_with(i); segment && std::min(segment->end, end) - i > 1) {
      std::vector<Forward> forwards;
      for (const std::size_t last = std::min(segment->end, end); i < last; ++i) forwards.push_back(block(i));
      if (traits.second && *traits.second) refuse_regions(context);
      --i;
      hidden_states = run_checkpoint(hidden_states, [forwards = std::move(forwards)](const Tensor& x) {
        Tensor hidden = forwards.front()(x);
        for (std::size_t k = 1; k < forwards.size(); ++k) hidden = forwards[k](hidden);
        return hidden;
      });
      continue;
    }
    if (context.blocks) hidden_states = context.blocks->before_block(modules_.starts[i], std::move(hidden_states));
    hidden_states = run_block(i, hidden_states);
    if (context.hidden_states) context.hidden_states->add(hidden_states);
    if (context.blocks) hidden_states = context.blocks->after_block(modules_.starts[i], std::move(hidden_states));
  }
  return hidden_states;
}

}  // namespace oometer
