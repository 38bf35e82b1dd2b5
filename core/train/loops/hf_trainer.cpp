#include "train/loops/hf_trainer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/kernel.h"
#include "train/objectives/label_smoother.h"

namespace oometer {

namespace {

/// EvalLoopContainer (trainer_pt_utils.py): what batches give, end to end, on the device until it is taken to the host.
class EvalLoopContainer {
 public:
  void add(const TensorList& tensors) {
    if (tensors_.size() == 0) {
      tensors_ = tensors;
      return;
    }
    TensorList joined;  // nested_concat
    for (std::size_t i = 0; i < tensors.size(); ++i) joined.push_back(cat({tensors_[i], tensors[i]}, 0));
    tensors_ = std::move(joined);
  }
  void to_cpu_and_numpy() { tensors_ = {}; }

 private:
  TensorList tensors_;
};

/// Axolotl's ActivationOffloadingMixin.
AxolotlOffloading axolotls_offloading(const Context& context, const Model& model, const TrainingConfig& training) {
  const LoopConfig& loop = training.loop;
  if (loop.project != LoopProject::axolotl || loop.name != LoopName::trainer) return {};
  AxolotlOffloading its{.clones_first = true, .takes_views = training.has_adapters(), .head = 0};
  for (ModuleId module = model.root + 1, end = context.log.end_of(model.root); module < end; ++module)
    if (const ModuleRecord& record = context.log.modules[module];
        record.parent == model.root && record.name == std::string_view("lm_head"))
      its.head = module;
  return its;
}

}  // namespace

HfTrainer::HfTrainer(Context& context, Model& model, TrainingStrategy& strategy, const Objective& objective,
                     const TrainingConfig& training, const DataConfig& data,
                     const std::vector<DataConfig>& micro_batches, const std::vector<DataConfig>& evaluation)
    : context_(context),
      model_(model),
      strategy_(strategy),
      args_(training.loop),
      training_(training),
      objective_(objective),
      data_(data),
      micro_batches_(micro_batches),
      evaluation_(evaluation),
      offload_activations_(new OffloadActivations(context, axolotls_offloading(context, model, training))) {}

void HfTrainer::train() {
  if (args_.neftune_noise_alpha && !model_.activate_neftune()) {
    model_.refusal = Error{"not-modelled", "/training/loop/args/neftune_noise_alpha",
                           "found noise on the embeddings of this model, which is not supported yet: leave it out"};
    return;
  }
  context_.empty_cache();  // Accelerator.free_memory: what a tied head left on the device goes
  strategy_.initialize();
  strategy_.prepare_optimizer();
  strategy_.grad_norm.is_held = true;
  strategy_.scale_wrt_gas = false;
  context_.autocast.dtype = autocast_dtype(training_.precision).value_or(DType::bfloat16);
  tr_loss_ = empty(context_, Op::to_copy, {}, DType::float32, Role::buffer);
  const auto micro_steps = training_.gradient_accumulation_steps;
  const int steps = static_cast<int>(micro_batches_.empty() ? args_.steps(training_.optimizer.steps())
                                                            : std::ssize(micro_batches_) / micro_steps);
  // What happens after many steps happens here after the second, and (DefaultFlowCallback) at the end.
  const auto is_time = [steps](int step, Every every, std::int64_t by_steps) {
    return (every == Every::steps && step % by_steps == 0) || step == std::min(2, steps) || step == steps;
  };
  for (int step = 1; step <= steps && !refused(); ++step) {
    run_step(step);
    if (!refused() && !evaluation_.empty() && is_time(step, args_.eval_strategy, args_.eval_steps)) evaluate(step);
    if (!refused() && args_.save_strategy != Every::no && is_time(step, args_.save_strategy, args_.save_steps)) {
      context_.begin_phase(PhaseName::saving, step);  // what is saved is copied to the host, tensor by tensor
      strategy_.save();
    }
  }
  context_.finish();
  offload_activations_->let_go();  // what it holds may hold it
}

const DataConfig& HfTrainer::micro_batch(int step, std::size_t i) const {
  if (micro_batches_.empty()) return data_;
  const auto micro_steps = static_cast<std::size_t>(training_.gradient_accumulation_steps);
  return micro_batches_[static_cast<std::size_t>(step - 1) * micro_steps + i];
}

void HfTrainer::set_data(const DataConfig& batch) {
  batch_ = &batch;
  model_.set_data(batch);
}

// get_batch_samples: the batches of the last step are let go when these are there.
void HfTrainer::get_batch_samples(int step) {
  std::vector<ModelInputs> batch_samples;
  for (std::size_t i = 0; i < static_cast<std::size_t>(training_.gradient_accumulation_steps); ++i) {
    set_data(micro_batch(step, i));
    batch_samples.push_back(make_batch());
  }
  Tensor num_items_in_batch = count_items(batch_samples);
  batch_samples_ = std::move(batch_samples);
  num_items_in_batch_ = std::move(num_items_in_batch);
}

// _get_num_items_in_batch
Tensor HfTrainer::count_items(const std::vector<ModelInputs>& batches) const {
  if (!model_.accepts_loss_kwargs) return {};
  Tensor total;
  for (const ModelInputs& batch : batches) {
    if (!batch.labels) return {};
    Tensor labels = batch.labels;
    if (model_.loss_type == LossType::causal_lm) labels = slice(labels, 1, 1, labels.size(1) - 1);
    Tensor is_scored = pointwise(Op::ne, {&labels}, DType::boolean);
    const Tensor count = sum_all(is_scored);
    is_scored.reset();
    total = total ? add(total, count) : add_scalar(count);
  }
  if (args_.average_tokens_across_devices && strategy_.world_size() > 1) total = sum_all(gather(total));
  return pointwise(Op::div, {&total}, DType::float32);
}

void HfTrainer::run_step(int step) {
  context_.begin_phase(PhaseName::batch, step);
  get_batch_samples(step);
  const std::size_t micro_steps = batch_samples_.size();
  for (std::size_t i = 0; i < micro_steps; ++i) {
    inputs_ = batch_samples_[i];
    set_data(micro_batch(step, i));
    context_.begin_phase(PhaseName::forward, step);
    training_step(inputs_, step, i + 1 == micro_steps);
    if (refused()) return;
    track_tokens(inputs_);
  }
  strategy_.grad_norm.value.reset();
  if (strategy_.divides_loss()) strategy_.step();
}

void HfTrainer::training_step(const ModelInputs& inputs, int step, bool is_last) {
  is_last_ = is_last;
  std::optional<OffloadRegion> offloading;
  if (args_.activation_offloading) offloading.emplace(context_, *offload_activations_);
  Tensor loss = compute_loss(inputs, num_items_in_batch_, nullptr);
  if (refused()) return;
  if (!loss.requires_grad()) {
    model_.refusal = nothing_to_train();
    return;
  }
  if (args_.torch_empty_cache_steps > 0 && (step - 1) % args_.torch_empty_cache_steps == 0) context_.empty_cache();
  if (!num_items_in_batch_) loss = div_scalar(loss);  // by the accumulation steps
  context_.begin_phase(PhaseName::backward, step);
  if (strategy_.divides_loss()) {
    const Tensor scaled = div_scalar(loss);  // Accelerator.backward, by its own accumulation steps
    strategy_.backward(scaled, is_last);
  } else {
    strategy_.backward(loss, is_last);
  }
  passed_on_.reset();
  context_.begin_phase(PhaseName::optimizer, step);
  if (!strategy_.divides_loss() && is_last) strategy_.step();  // DeepSpeedEngineWrapper.backward
  tr_loss_step_ = detach(loss);
  loss.reset();
  if (args_.project == LoopProject::axolotl && args_.name == LoopName::dpo)
    context_.empty_cache();  // AxolotlDPOTrainer.training_step
  const NoGrad no_grad(context_);
  { const Tensor is_nan = pointwise(Op::ne, {&tr_loss_step_}, DType::boolean); }
  const Tensor magnitude = pointwise(Op::abs, {&tr_loss_step_}, tr_loss_step_.dtype());
  const Tensor is_inf = pointwise(Op::eq, {&magnitude}, DType::boolean);
}

/// The wrapper's forward ends: of a fused head it sees all members (FusedCausalLMOutput is a dataclass that torch's
/// pytree knows).
void HfTrainer::return_outputs(ModelOutputs& outputs) {
  FusedCausalLMOutput* const fused = fused_output();
  if (!fused || !fused->loss) return strategy_.after_forward(outputs);
  after_fused_forward(strategy_, *fused, outputs);
}

ModelOutputs HfTrainer::call_model(Model& model, const ModelInputs& inputs) {
  // An evaluation, and the reference that is the policy without its adapters, call the model that is in the wrapper.
  const bool calls_wrapper = (context_.training && !context_.adapters_disabled) || strategy_.wraps_evaluation();
  if (&model != &model_ || !calls_wrapper) return call_prepared(model, inputs);
  ModelInputs given = inputs;
  strategy_.before_forward(given, is_last_);
  if (refused()) return {};
  ModelOutputs outputs = call_prepared(model, given);
  if (!refused()) return_outputs(outputs);
  return outputs;
}

ModelOutputs HfTrainer::call_prepared(Model& model, const ModelInputs& inputs) {
  ModelOutputs raw;
  {
    const AutocastRegion region(context_, autocasts());
    raw = model(inputs);
    // A FusedCausalLMOutput has nothing else of what the backbone returned (add_fused_lm_head, trl 1.16).
    if (args_.has_fused_head() && inputs.labels) raw.others = {};
  }
  if (!autocasts()) return raw;
  // convert_outputs_to_fp32 (accelerate/utils/operations.py): all are there before the model's own go.
  ModelOutputs converted;
  if (raw.loss) converted.loss = to(raw.loss, DType::float32);
  if (raw.aux_loss) converted.aux_loss = to(raw.aux_loss, DType::float32);
  for (const Tensor& other : raw.others) converted.others.push_back(to(other, DType::float32));
  if (raw.pooler_output) converted.pooler_output = to(raw.pooler_output, DType::float32);
  return converted;
}

Tensor HfTrainer::compute_loss(ModelInputs inputs, const Tensor& num_items_in_batch, ModelOutputs* returned) {
  const bool smooths = args_.label_smoothing_factor != 0;
  const Tensor labels = smooths ? std::exchange(inputs.labels, {}) : Tensor();
  LossFunction* const loss_function = objective_.loss_function();
  if (loss_function) {
    loss_function->num_items_in_batch = num_items_in_batch;
    if (const std::optional<DType> dtype = strategy_.arguments_dtype(); dtype && num_items_in_batch) {
      loss_function->num_items_in_batch = to(num_items_in_batch, *dtype);
      // GradientCheckpointingLayer.__call__: a partial of each block's keyword arguments, of which this is one.
      if (training_.checkpointing.mode != CheckpointMode::none) passed_on_ = loss_function->num_items_in_batch;
    }
    loss_function->scored = batch_->scored;
  }
  ModelOutputs outputs = call_model(model_, inputs);
  if (loss_function) loss_function->num_items_in_batch.reset();
  if (refused()) return {};
  Tensor loss = smooths ? smoothed_loss(outputs.others.front(), labels, model_.is_causal_lm, num_items_in_batch)
                        : std::move(outputs.loss);
  if (args_.average_tokens_across_devices && num_items_in_batch) loss = mul_scalar_(std::move(loss));
  if (returned) *returned = std::move(outputs);
  return loss;
}

void HfTrainer::track_tokens(const ModelInputs& inputs) const {
  if (args_.include_num_input_tokens_seen == TokensSeen::none) return;
  Tensor count;
  if (args_.include_num_input_tokens_seen == TokensSeen::non_padding && inputs.attention_mask)
    count = sum_all(inputs.attention_mask);
  else
    count = empty(context_, Op::to_copy, {}, DType::int64);
  const Tensor total = sum_all(gather(count));
}

// Accelerator.gather (accelerate/utils/operations.py, _gpu_gather)
Tensor HfTrainer::gather(const Tensor& tensor) const {
  const std::int64_t world = strategy_.world_size();
  if (world == 1) return tensor;
  const Tensor own = tensor.ndim() == 0 ? pointwise(Op::clone, {&tensor}, tensor.dtype()) : tensor;
  const Tensor output = empty(context_, Op::empty, {world * own.numel()}, own.dtype());
  collective(context_, Op::all_gather, output.nbytes(), own.dtype(), world);
  if (own.ndim() == 0) return output;
  Shape sizes = own.sizes();
  sizes[0] *= world;
  return view(output, sizes);
}

// pad_across_processes (accelerate/utils/operations.py): the ranks' shapes are compared, and here they are alike.
void HfTrainer::compare_shapes(const Tensor& tensor) const {
  const std::int64_t world = strategy_.world_size();
  if (world == 1) return;
  const Tensor size = empty(context_, Op::to_copy, {1, tensor.ndim()}, DType::int64);
  const Tensor sizes = gather(size);
}

void HfTrainer::evaluate(int step) {
  context_.begin_phase(PhaseName::evaluation, step);
  const Scoped<bool> in_evaluation(context_.training, false);
  const Scoped<bool> all_executed(context_.repeats, false);  // what repeats blocks waits for a backward
  const bool prediction_loss_only = args_.prediction_loss_only || !args_.compute_metrics;
  EvalLoopContainer all_losses, all_preds, all_labels;
  ModelInputs inputs;
  Prediction last;
  Tensor losses;
  std::int64_t done = 0;
  const std::int64_t batch_size = evaluation_.front().micro_batch_size / (args_.takes_pairs() ? 2 : 1);  // of samples
  for (const DataConfig& batch : evaluation_) {
    set_data(batch);
    inputs = make_batch();
    if (!prediction_loss_only && !inputs.others.empty())
      context_.refusal = Error{"not-modelled", "/training/loop/compute_metrics",
                               "labels of two kinds (start_positions, end_positions) are not supported yet with it"};
    last = prediction_step(inputs, prediction_loss_only);
    if (refused()) break;
    losses = gather(repeat(last.loss, {batch_size}));
    last.loss.reset();
    all_losses.add({losses});
    if (last.labels) compare_shapes(last.labels);
    if (last.logits.size() > 0) {
      for (const Tensor& logits : last.logits) compare_shapes(logits);
      TensorList gathered;
      for (const Tensor& logits : last.logits) gathered.push_back(gather(logits));
      last.logits = std::move(gathered);
      all_preds.add(last.logits);
    }
    if (last.labels) {
      last.labels = gather(last.labels);
      all_labels.add({last.labels});
    }
    if (args_.eval_accumulation_steps == 0 || ++done % args_.eval_accumulation_steps != 0) continue;
    for (EvalLoopContainer* container : {&all_losses, &all_preds, &all_labels}) container->to_cpu_and_numpy();
    losses.reset();
    last = {};
    context_.empty_cache();
  }
}

HfTrainer::Prediction HfTrainer::prediction_step(const ModelInputs& inputs, bool prediction_loss_only) {
  Prediction prediction;
  Tensor labels;
  if (inputs.labels) labels = detach(inputs.labels);
  const NoGrad no_grad(context_);
  ModelOutputs outputs;
  {
    const Tensor num_items_in_batch = count_items({inputs});
    Tensor loss = compute_loss(inputs, num_items_in_batch, &outputs);
    if (refused()) return prediction;
    prediction.loss = mean_all(loss);
  }
  if (prediction_loss_only) return prediction;
  for (const Tensor& other : outputs.others) prediction.logits.push_back(other);
  prediction.labels = labels;
  return prediction;
}

HfTrainer::Prediction HfTrainer::predict(const ModelInputs& inputs, const Tensor& labels, bool prediction_loss_only) {
  Prediction prediction;
  const NoGrad no_grad(context_);
  ModelOutputs outputs;
  prediction.loss = compute_loss(inputs, {}, prediction_loss_only ? nullptr : &outputs);
  if (refused() || prediction_loss_only) return prediction;
  prediction.logits.push_back(outputs.others.front());
  prediction.labels = labels;
  return prediction;
}

}  // namespace oometer
