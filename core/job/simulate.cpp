#include "job/simulate.h"

#include "distributed/strategy.h"
#include "generation/generate.h"
#include "models/model.h"
#include "nn/components.h"
#include "nn/quantizer.h"
#include "peft/ia3.h"
#include "peft/lora.h"
#include "runtime/memory.h"
#include "tensor/context.h"
#include "train/objectives/objective.h"
#include "train/segments.h"

namespace oometer {

namespace {

/// GatheredParameters around what peft makes of some of the model's weights.
GatherParameters gather_of(Context& context, std::vector<ZeroParameter>& cut, std::int64_t world) {
  return
      [&context, &cut, world, gathered = std::vector<ZeroParameter*>()](const TensorList& tensors, bool whole) mutable {
        if (whole) {
          for (const Tensor& tensor : tensors)
            for (ZeroParameter& parameter : cut)
              if (parameter.tensor.get() == tensor.get()) gathered.push_back(&parameter);
          return gather_parameters(context, gathered, world);
        }
        for (std::size_t i = 0; i < gathered.size(); ++i) {
          gathered[i]->tensor = tensors[i];
          release_parameter(*gathered[i]);
        }
        gathered.clear();
      };
}

}  // namespace

Simulation simulate(const Job& job, const Behaviours& behaviours, bool repeats) {
  Simulation simulation;
  Context context(behaviours, {job.gpu.major, job.gpu.minor, static_cast<int>(job.gpu.sm_count)});
  context.repeats = repeats;
  context.begin_phase(PhaseName::init, 0);
  std::unique_ptr<Tuner> tuner;
  if (job.training.lora) tuner = std::make_unique<LoraModel>(context, *job.training.lora);
  if (job.training.ia3) tuner = std::make_unique<Ia3Model>(context, *job.training.ia3);
  std::unique_ptr<Quantizer> quantizer;
  if (job.training.quantization)
    quantizer = std::make_unique<Quantizer>(context, *job.training.quantization,
                                            resolve_memory_behaviours(job.runtime).weights_loaded_ahead);
  const ModelOptions options{
      weight_dtype(job.training.precision),
      job.training.attention,
      job.training.checkpointing,
      job.training.liger,
      tuner.get(),
      quantizer.get(),
      job.inference.cache.implementation == CacheImplementation::mtla ? job.inference.cache.stride : 0};
  {
    std::unique_ptr<ZeroInit> zero_init;
    if (job.parallel.strategy == Strategy::deepspeed && job.parallel.deepspeed.zero_stage == 3)
      zero_init = std::make_unique<ZeroInit>(context, job.parallel.deepspeed, job.parallel.world_size());
    context.stopped = quantizer != nullptr;
    const std::unique_ptr<Model> model = build_model(context, job.model.config, job.data, options);
    context.stopped = false;
    if (quantizer) simulation.refusal = quantizer->check_skipped();
    if (simulation.refusal) return simulation;
    const std::unique_ptr<Objective> objective = make_objective(job.training, model->loss_type);
    model->loss_function = objective->loss_function();
    if (quantizer) quantizer->load(model->parameters, model->buffers);
    std::vector<ZeroParameter> cut;
    if (zero_init) cut = zero_init->finish();
    simulation.refusal = check_segments(context.log, job.training.checkpointing.segments);
    if (simulation.refusal) return simulation;
    simulation.refusal = apply_components(context, model->parameters, job.training.components);
    if (simulation.refusal) return simulation;
    if (tuner) {
      if (zero_init) tuner->gather_with(gather_of(context, cut, job.parallel.world_size()));
      simulation.refusal = tuner->inject(model->parameters, model->tied);
      if (simulation.refusal) return simulation;
      simulation.notes = tuner->notes();
      simulation.refusal =
          job.training.lora
              ? train_also(context.log, model->parameters, job.training.lora->also_train, "/training/lora/also_train")
              : train_also(context.log, model->parameters, job.training.ia3->also_train, "/training/ia3/also_train");
      if (simulation.refusal) return simulation;
    }
    if (quantizer) simulation.parameters = quantizer->packed_elements();
    for (const Parameter& parameter : model->parameters) {
      if (quantizer && parameter.tensor->leaf_requires_grad && quantizer->is_quantized(parameter)) {
        simulation.refusal = Error{"inconsistent", "/training/quantization",
                                   "found " + module_path(context.log, parameter.module) +
                                       " quantized and trained, but quantized weights cannot be trained; expected "
                                       "its path, or the beginning of it, in llm_int8_skip_modules"};
        return simulation;
      }
      simulation.parameters += parameter.tensor.numel();
      if (parameter.tensor->leaf_requires_grad) simulation.trainable += parameter.tensor.numel();
    }
    if (job.task == Task::inference) {
      simulation.trainable = 0;
      const ModelTraits& traits = job.model.config.traits();
      model->has_pad_token = traits.has_pad_token;
      if (traits.generates) {
        simulation.generated =
            job.inference.cache.implementation == CacheImplementation::paged
                ? run_paged(context, *model, job.data, job.inference, job.gpu.usable_bytes)
                : run_generation(context, *model, options, job.data, job.inference, traits.text.windows, !repeats);
        simulation.host_bytes = simulation.generated.host_bytes;
      } else {
        run_forward(context, *model);
        simulation.refusal = model->refusal;
      }
      simulation.log = std::move(context.log);
      return simulation;
    }
    const std::unique_ptr<TrainingStrategy> strategy =
        make_strategy(context, *model, job.training, job.parallel, job.gpu.usable_bytes, std::move(cut));
    std::vector<DataConfig> batches;
    if (job.samples.are_given()) {
      const std::int64_t micro_steps = job.training.gradient_accumulation_steps;
      batches = micro_batches(job.samples, job.data,
                              micro_steps * job.samples.steps_of(job.data.micro_batch_size, micro_steps));
    }
    run_training(context, *model, *strategy, *objective, job.training, batches);
    simulation.host_bytes = strategy->host_bytes() + context.most_saved_on_host;
    simulation.refusal = model->refusal ? model->refusal : strategy->refusal();
    if (context.refusal) simulation.refusal = context.refusal;
    simulation.rank = strategy->rank();
    if (!job.parallel.rank) simulation.ranks_that_differ = strategy->ranks_that_differ();
  }
  if (context.repetition_failed) return simulate(job, behaviours, false);
  simulation.log = std::move(context.log);
  return simulation;
}

}  // namespace oometer
