#include "train/step.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "train/loops/run_trainer.h"
#include "train/recipe_clip.h"
#include "train/repetition.h"
#include "train/training_cache.h"

namespace oometer {

DType weight_dtype(Precision precision) {
  switch (precision) {
    case Precision::bf16:
    case Precision::bf16_in_autocast:
      return DType::bfloat16;
    case Precision::fp16:
    case Precision::fp16_in_autocast:
      return DType::float16;
    case Precision::fp32:
    case Precision::amp_bf16:
    case Precision::amp_fp16:
      break;
  }
  return DType::float32;
}

std::optional<DType> autocast_dtype(Precision precision) {
  switch (precision) {
    case Precision::amp_bf16:
    case Precision::bf16_in_autocast:
      return DType::bfloat16;
    case Precision::amp_fp16:
    case Precision::fp16_in_autocast:
      return DType::float16;
    case Precision::fp32:
    case Precision::bf16:
    case Precision::fp16:
      break;
  }
  return std::nullopt;
}

Error nothing_to_train() {
  return {"inconsistent", "/training",
          "found no trained parameter that the loss depends on (for example only the vision tower's in a "
          "batch without images): PyTorch fails with \"element 0 of tensors does not require grad and "
          "does not have a grad_fn\"; expected other parameters to train, or images in the data"};
}

void TrainingStrategy::initialize() {
  optimizer_ = make_optimizer(context_, training_.optimizer);
  const std::int64_t groups = training_.optimizer.param_groups;
  for (std::vector<Parameter>& group : parameter_groups(model_.parameters, groups)) {
    const bool decays = groups == 1 || group.front().decays;
    optimizer_->add_group(std::move(group), decays);
  }
  if (training_.ema) average_model();
}

void TrainingStrategy::average_model() {
  if (training_.quantization) {
    model_.refusal = Error{"not-modelled", "/training/ema",
                           "an average of quantized weights is not supported yet: leave one of them out"};
    return;
  }
  struct Place {
    ModuleId module;
    const Tensor* tensor;
    Role role;
  };
  std::vector<Place> places;  // of a module its parameters, then its buffers, then its children
  for (const Parameter& parameter : model_.parameters)
    places.push_back({parameter.module, &parameter.tensor, Role::parameter});
  for (const Buffer& buffer : model_.buffers) places.push_back({buffer.module, &buffer.tensor, Role::buffer});
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.module < b.module; });
  for (const Place& place : places) {
    const ModuleScope scope(context_, place.module);
    averaged_.push_back(empty_like(Op::clone, *place.tensor));
    context_.set_role(averaged_.back(), place.role, place.module);
  }
}

void TrainingStrategy::update_averaged() {
  if (averaged_.empty() || n_averaged_++ == 0) return;  // the first time all is copied
  std::vector<DType> dtypes;
  for (const Parameter& parameter : model_.parameters)
    if (std::find(dtypes.begin(), dtypes.end(), parameter.tensor.dtype()) == dtypes.end())
      dtypes.push_back(parameter.tensor.dtype());
  for (std::size_t i = 0; i < dtypes.size(); ++i)  // self.n_averaged.to(device), for each type's _foreach_lerp_
    const Tensor n_averaged = empty(context_, Op::to_copy, {}, DType::int64);
}

void TrainingStrategy::backward(const Tensor& loss, bool) {
  if (!scales_gradients(training_.precision)) return optimizer_->backward(loss);
  // GradScaler.scale: its scale and growth tracker are made on first use (torch/amp/grad_scaler.py).
  if (!grad_scale_) {
    grad_scale_ = empty(context_, Op::scale, {}, DType::float32, Role::optimizer_state);
    growth_tracker_ = empty(context_, Op::scale, {}, DType::int32, Role::optimizer_state);
  }
  const Tensor scaled = mul(loss, grad_scale_);
  autograd::backward(scaled);
}

namespace {

/// GradScaler.unscale_, in place on the gradients, or _check_inf_per_device. What was found, which stays until
/// GradScaler.update.
Tensor find_inf(Context& context, bool unscales) {
  const auto scalar = [&](Op op, DType dtype = DType::float32) { return empty(context, op, {}, dtype); };
  Tensor inverse_scale;
  if (unscales) {
    Tensor as_double = scalar(Op::to_copy, DType::float64);
    const Tensor reciprocal = scalar(Op::reciprocal, DType::float64);
    as_double.reset();
    inverse_scale = scalar(Op::to_copy);
  } else {
    inverse_scale = scalar(Op::is_finite);
  }
  const Tensor found_inf = scalar(Op::is_finite);
  // _MultiDeviceReplicator.get: copies, also on the scaler's own device
  Tensor on_device = scalar(Op::to_copy);
  const Tensor inverse_on_device = scalar(Op::to_copy);
  return on_device;
}

}  // namespace

namespace {

bool has_gradients_in(const std::vector<Parameter>& parameters, DType dtype) {
  return std::any_of(parameters.begin(), parameters.end(), [dtype](const Parameter& parameter) {
    return parameter.tensor->grad && parameter.tensor->grad.dtype() == dtype;
  });
}

}  // namespace

/// save_pretrained (transformers 5.23), which holds all that revert_weight_conversion (core_model_loading.py) has
/// copied.
void TrainingStrategy::save() {
  if (training_.has_adapters()) return;  // peft's writes these alone
  TensorList state_dict;
  for (const Parameter& parameter : model_.parameters)
    for (std::int32_t i = 0; i < parameter.saved_copies; ++i)
      state_dict.push_back(empty(context_, Op::clone, {parameter.tensor.numel() / parameter.saved_copies},
                                 parameter.tensor.dtype(), Role::parameter));
}

void TrainingStrategy::step() {
  // torch/amp/grad_scaler.py: clipping wants unscaled gradients; a fused optimizer divides by the scale in its kernel.
  const bool fused = training_.optimizer.implementation == OptimizerImplementation::fused;
  const bool unscales = training_.max_grad_norm || !fused;
  if (grad_scale_ && unscales) {
    const auto stops = [&](DType dtype, const char* name, const char* why) {
      if (has_gradients_in(model_.parameters, dtype))
        model_.refusal = Error{"inconsistent", "/training/precision",
                               std::string("found trained weights in ") + name +
                                   " under autocast to fp16, at which PyTorch's GradScaler stops (" + why +
                                   "); expected amp-fp16, whose weights are fp32, or adapters in fp32"};
    };
    stops(DType::float16, "fp16", "\"Attempting to unscale FP16 gradients.\"");
    stops(DType::bfloat16, "bf16", "it has no kernel for their gradients");
    if (model_.refusal) return;
  }
  Tensor found_inf, sum_of_found, scale, recipes_norm;
  if (grad_scale_) found_inf = find_inf(context_, unscales);
  if (training_.max_grad_norm) {
    if (training_.loop.project == LoopProject::automodel) {
      recipes_norm = clip_recipes_grad_norm(context_, model_.parameters);
    } else {
      Tensor norm = clip_grad_norm(context_, model_.parameters);
      if (grad_norm.is_held) grad_norm.value = std::move(norm);
    }
  }
  if (grad_scale_ && fused) {
    sum_of_found = add_scalar(found_inf);
    if (!unscales) scale = mul_scalar(grad_scale_);
  }
  optimizer_->step();
  scale.reset();
  sum_of_found.reset();
  found_inf.reset();
  update_averaged();
  optimizer_->zero_grad();
}

std::optional<std::vector<Tensor*>> TrainingStrategy::left_by_backward() {
  if (context_.gradients || context_.blocks) return std::nullopt;  // a listener keeps state of its own
  std::vector<Tensor*> gradients;
  gradients.reserve(model_.parameters.size());
  for (const Parameter& parameter : model_.parameters) gradients.push_back(&parameter.tensor->grad);
  return gradients;
}

namespace {

/// A training loop's variables, where they stay to the end of the step: a later micro-step's take the place of an
/// earlier one's.
struct Kept {
  Tensor loss;
  ModelOutputs outputs;
  std::unique_ptr<TrainingCache> cache;
};

void run_micro_step(Context& context, Model& model, TrainingStrategy& strategy, const Objective& objective,
                    const TrainingConfig& training, ModelInputs& batch, int iteration, int micro_step, int micro_steps,
                    Kept& kept, const DataConfig* next = nullptr) {
  context.begin_phase(PhaseName::forward, iteration);
  if (next) {  // the loop's `batch` is the last one until this one is on the device
    model.set_data(*next);
    if (LossFunction* const loss_function = objective.loss_function()) loss_function->scored = next->scored;
    ModelInputs made = objective.prepare(model);
    batch = std::move(made);
  }
  Tensor loss;
  {
    ModelOutputs outputs;
    std::unique_ptr<TrainingCache> cache;  // transformers goes without it where layers are checkpointed
    if (training.use_cache && training.checkpointing.mode == CheckpointMode::none)
      cache = std::make_unique<TrainingCache>();
    const Scoped<KvCache*> with_cache(context.past_key_values, cache.get());
    const AutocastRegion region(context, autocast_dtype(training.precision).has_value());
    const Scoped<SavesOn> saving(context.saves_on, training.save_on_cpu);
    context.saved_on_host = 0;
    loss = objective.loss(
        [&](ModelInputs& inputs) -> const ModelOutputs& {
          strategy.before_forward(inputs, micro_step == micro_steps);
          if (strategy.refusal()) return outputs;
          outputs = model(inputs);
          if (model.refusal) return outputs;
          strategy.after_forward(outputs);
          if (training.keep_outputs) kept.outputs = outputs;
          return outputs;
        },
        batch);
    if (strategy.stops()) return;
    if (training.keep_outputs) {
      kept.loss = loss;
      kept.cache = std::move(cache);
    }
  }
  if (micro_steps > 1 && strategy.divides_loss() && training.loop.project != LoopProject::automodel) {
    loss = div_scalar(loss);
    if (training.keep_outputs) kept.loss = loss;
  }
  if (!loss.requires_grad()) {
    model.refusal = nothing_to_train();
    return;
  }
  context.begin_phase(PhaseName::backward, iteration);
  strategy.backward(loss, micro_step == micro_steps);
}

/// `recipes`: the data of a recipe whose micro-steps have a batch of their own each; null: `batch` stays.
void run_steps(Context& context, Model& model, TrainingStrategy& strategy, const Objective& objective,
               const TrainingConfig& training, ModelInputs& batch, const DataConfig* recipes) {
  // Every micro-step after the second repeats it: the gradients are there and are added to. The third still finds the
  // allocator's free blocks elsewhere than the second did, those after it as the third. So of many micro-steps three
  // are run, the last as the last, and the work of the others is the second's.
  const int micro_steps = static_cast<int>(std::min<std::int64_t>(training.gradient_accumulation_steps, 3));
  Repetition micro_steps_again(context);
  for (int iteration : {1, 2}) {
    Kept kept;
    if (iteration == 1 || !micro_steps_again.repeat()) {
      for (int micro_step = 1; micro_step <= micro_steps && !strategy.stops(); ++micro_step) {
        WorkLog& work = context.log.work;
        const WorkMark begin = work.mark();
        run_micro_step(context, model, strategy, objective, training, batch, iteration, micro_step, micro_steps, kept,
                       recipes);
        if (recipes) batch = {};
        if (micro_step == 2) work.repeat({begin, work.mark()}, training.gradient_accumulation_steps - micro_steps);
      }
      if (strategy.stops()) return;
      if (iteration == 1 && context.repeats) {
        if (const auto left = strategy.left_by_backward()) micro_steps_again.finish(*left);
      }
    }
    context.begin_phase(PhaseName::optimizer, iteration);
    strategy.step();
  }
}

/// What of a batch, beside its shapes, a program makes tensors of.
struct Reads {
  bool padding, scored;  ///< it makes tensors without the padding, or of scored tokens alone
};

/// Whether a program does the same with both, but for values.
bool are_alike(const DataConfig& a, const DataConfig& b, Reads reads) {
  if (reads.scored && a.scored != b.scored) return false;
  if (reads.padding &&
      (a.rows.tokens() != b.rows.tokens() || a.rows.count() != b.rows.count() || a.rows.longest() != b.rows.longest()))
    return false;
  return a.micro_batch_size == b.micro_batch_size && a.sequence_length == b.sequence_length &&
         a.rows.has_mask == b.rows.has_mask && a.rows.has_positions == b.rows.has_positions &&
         a.rows.are_padded(a.sequence_length) == b.rows.are_padded(b.sequence_length) &&
         a.rows.are_packed() == b.rows.are_packed();
}

/// An optimizer step that was executed, and may happen again.
struct ExecutedStep {
  std::span<const DataConfig> micro_batches;
  Repetition events;
};

/// Steps whose batches differ. One like an earlier one is written, not executed, where no listener keeps state of its
/// own.
void run_steps_of(std::span<const DataConfig> micro_batches, Context& context, Model& model, TrainingStrategy& strategy,
                  const Objective& objective, const TrainingConfig& training, ModelInputs& batch) {
  const auto micro_steps = static_cast<std::size_t>(training.gradient_accumulation_steps);
  const bool repeats = context.repeats && !training.ema && !context.gradients && !context.blocks && !context.modules;
  Kept kept;  // until the next ones take their place
  const Reads reads{is_flash_attention(training.attention), training.cut_cross_entropy};
  std::vector<ExecutedStep> executed;
  int iteration = 0;
  for (std::size_t i = 0; i < micro_batches.size(); i += micro_steps) {
    const std::span<const DataConfig> own = micro_batches.subspan(i, micro_steps);
    const auto is_like = [&](ExecutedStep& step) {
      const auto alike = [&](const DataConfig& a, const DataConfig& b) { return are_alike(a, b, reads); };
      return std::equal(own.begin(), own.end(), step.micro_batches.begin(), alike) && step.events.repeat(iteration);
    };
    ++iteration;
    if (repeats && std::any_of(executed.begin(), executed.end(), is_like)) {
      model.set_data(own.back());
      continue;
    }
    Repetition events(context, batch.all());
    int micro_step = 0;
    for (const DataConfig& next : own) {
      run_micro_step(context, model, strategy, objective, training, batch, iteration, ++micro_step,
                     static_cast<int>(micro_steps), kept, &next);
      if (strategy.stops()) return;
    }
    context.begin_phase(PhaseName::optimizer, iteration);
    strategy.step();
    if (!repeats) continue;
    events.finish(batch.all());
    if (events.is_repeatable()) executed.push_back({own, std::move(events)});
  }
}

}  // namespace

void run_training(Context& context, Model& model, TrainingStrategy& strategy, const Objective& objective,
                  const TrainingConfig& training, const DataConfig& data, const std::vector<DataConfig>& micro_batches,
                  const std::vector<DataConfig>& evaluation, Model* reference) {
  if (training.loop.is_trainer())
    return run_trainer(context, model, reference, strategy, objective, training, data, micro_batches, evaluation);
  strategy.initialize();
  ModelInputs batch;
  const DataConfig* const recipes = training.loop.project == LoopProject::automodel ? &data : nullptr;
  if (recipes) context.empty_cache();  // the last line of its setup()
  if (micro_batches.empty() && !recipes) batch = objective.prepare(model);
  context.autocast.dtype = autocast_dtype(training.precision).value_or(DType::bfloat16);
  if (micro_batches.empty())
    run_steps(context, model, strategy, objective, training, batch, recipes);
  else
    run_steps_of(micro_batches, context, model, strategy, objective, training, batch);
  context.finish();  // the loop has its batch still
}

}  // namespace oometer
