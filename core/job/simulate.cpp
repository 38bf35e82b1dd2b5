#include "job/simulate.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/deepspeed.h"
#include "distributed/fsdp2_reference.h"
#include "distributed/saved_modules.h"
#include "distributed/strategy.h"
#include "distributed/zero_offload.h"
#include "generation/generate.h"
#include "models/model.h"
#include "models/peft_model.h"
#include "models/value_head.h"
#include "nn/components.h"
#include "nn/placement.h"
#include "nn/quantizer.h"
#include "peft/ia3.h"
#include "peft/lora.h"
#include "peft/method.h"
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

/// The micro-batches of a run whose samples the job gives.
std::vector<DataConfig> micro_batches_of(const Job& job) {
  if (!job.samples.are_given()) return {};
  const std::int64_t micro_steps = job.training.gradient_accumulation_steps;
  std::int64_t steps = job.samples.steps_of(job.data.micro_batch_size, micro_steps);
  if (!job.samples.steps && job.training.loop.is_trainer())
    steps = job.training.loop.steps(std::max(steps, job.training.optimizer.steps()));
  return micro_batches(job.samples, job.data, micro_steps * steps);
}

/// A micro-batch that is full: TRL's collators give a mask, or documents, also there.
DataConfig full_batch_of(const Job& job) {
  return job.training.loop.gives_masks() && !job.samples.are_given() ? collated(job.samples, job.data) : job.data;
}

/// from_pretrained makes models inside zero.Init.
bool cuts_at_construction(const ParallelConfig& parallel) {
  return parallel.strategy == Strategy::deepspeed && parallel.deepspeed.zero_stage == 3;
}

/// The second model of a preference loop: from_pretrained, then accelerate's prepare_model, or trl's prepare_deepspeed,
/// which cuts it under ZeRO-3 only, or prepare_fsdp.
std::unique_ptr<Model> reference_of(const Job& job, Context& context, const DataConfig& data, ModelOptions options) {
  const LoopConfig& loop = job.training.loop;
  const bool has_adapters = job.training.has_adapters();
  if (!loop.has_reference() || loop.precompute_ref_log_probs ||
      (has_adapters && job.model.reference != Reference::copy))
    return nullptr;
  options.wrapping = nullptr;
  options.checkpointing = {};
  options.dtype = job.model.reference_dtype.value_or(options.dtype);
  options.output_router_logits = false;
  const std::size_t root = context.log.modules.size();
  if (cuts_at_construction(job.parallel)) {
    const DeepSpeedConfig config = job.parallel.deepspeed.of_reference();
    ZeroInit zero_init(context, config, job.parallel.world_size(), options.dtype);
    std::unique_ptr<Model> reference = build_model(context, job.model.config, data, options);
    context.log.modules[root].name = "reference";
    reference->around = [offload = std::make_shared<DeepSpeedZeRoOffload>(
                             context, *reference, config, job.parallel.world_size(), zero_init.finish())](
                            const ModelInputs& inputs) { return (*offload)(inputs); };
    return reference;
  }
  context.stopped = true;
  std::unique_ptr<Model> reference = build_model(context, job.model.config, data, options);
  context.stopped = false;
  context.log.modules[root].name = "reference";
  if (job.parallel.strategy == Strategy::fsdp2)
    reference->around = [shards =
                             std::make_shared<FullyShardedReference>(context, *reference, job.training, job.parallel)](
                            const ModelInputs& inputs) { return (*shards)(inputs); };
  else
    move_to_device(context, reference->parameters, reference->buffers);
  return reference;
}

/// What the trainers of TRL 1.16 do with a quantized model (trainer/sft_trainer.py, SFTTrainer.__init__): adapters are
/// bf16, as the paper about QLoRA recommends.
void cast_trained(const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters)
    if (parameter.tensor->leaf_requires_grad) cast_parameter(parameter.tensor, DType::bfloat16);
}

/// Linear4bit gives a bias of another type than it computes in other data (bias.data = bias.data.to(x.dtype)), which is
/// no longer what FSDP gathers.
std::optional<Error> check_biases(const Job& job, const Log& log, const std::vector<Parameter>& parameters) {
  const ParallelConfig& parallel = job.parallel;
  if (parallel.strategy != Strategy::fsdp1 && parallel.strategy != Strategy::fsdp2) return std::nullopt;
  for (const Parameter& parameter : parameters)
    if (parameter.name == std::string_view("bias") &&
        log.modules[parameter.module].type == std::string_view("Linear4bit") &&
        parallel.fsdp.param_dtype.value_or(parameter.tensor.dtype()) != job.training.quantization->compute_dtype)
      return Error{"not-modelled", "/training/quantization/bnb_4bit_compute_dtype",
                   "found biases of quantized layers under FSDP in another dtype than the layers compute in, which is "
                   "not supported yet; expected the dtype of the weights"};
  return std::nullopt;
}

/// accelerate looks up each class that is to be wrapped in the model (FullyShardedDataParallelPlugin's
/// set_auto_wrap_policy, peft's fsdp_auto_wrap_policy).
std::optional<Error> check_wrap(const Job& job, const Log& log) {
  const std::vector<std::string>& usual = job.model.config.traits().no_split_modules;
  if (!job.parallel.fsdp.by_accelerate || job.parallel.fsdp.wrap == usual) return std::nullopt;
  for (const std::string& name : job.parallel.fsdp.wrap)
    if (std::none_of(log.modules.begin(), log.modules.end(),
                     [&](const ModuleRecord& module) { return name == module.type; }))
      return Error{"inconsistent", "/parallel/fsdp/wrap",
                   "found \"" + name + "\", of which " + job.model.config.traits().class_name +
                       " has no module, so that accelerate stops; leave it out, or name a class of its blocks"};
  return std::nullopt;
}

bool evaluates(const Job& job) {
  const LoopConfig& loop = job.training.loop;
  return loop.is_trainer() && (loop.eval_strategy != Every::no || job.samples.evaluation);
}

/// The batches of a trainer's evaluation: as the job gives them, or training's samples in batches of their own size.
std::vector<DataConfig> evaluation_batches(const Job& job) {
  const LoopConfig& loop = job.training.loop;
  constexpr std::int64_t kOfNoOwn = 2;
  DataConfig full = job.data;
  full.micro_batch_size = loop.per_device_eval_batch_size;
  SamplesConfig samples = job.samples;
  if (samples.by_length) samples.by_length->size = full.micro_batch_size;
  std::int64_t count = kOfNoOwn;
  if (samples.evaluation && !samples.evaluation->empty()) {
    samples.batches = *samples.evaluation;
    samples.packed.clear();
    samples.leave_distribution();
    count = std::ssize(samples.batches);
  } else if (!samples.batches.empty() && samples.packing == Packing::none) {
    SamplesConfig::Lengths all;
    for (const SamplesConfig::Lengths& batch : samples.batches) all.insert(all.end(), batch.begin(), batch.end());
    samples.batches.clear();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i % static_cast<std::size_t>(full.micro_batch_size) == 0) samples.batches.emplace_back();
      samples.batches.back().push_back(all[i]);
    }
    count = std::ssize(samples.batches);
  } else if (!samples.are_given()) {
    if (loop.gives_masks()) full = collated(samples, full);
    return {full, full};
  }
  std::vector<DataConfig> batches = micro_batches(samples, full, count);
  for (DataConfig& batch : batches)  // full samples come without a mask where training's do
    if (!loop.gives_masks() && !job.samples.are_given() && !batch.rows.are_padded(batch.sequence_length))
      batch.rows = {};
  return batches;
}

// What first answers do not run is apart, so that a page's first part of the module is small: hence noinline.

bool is_automodels(const Job& job) {
  return job.training.loop.project == LoopProject::automodel || job.training.loop.lora_function != LoraFunction::peft ||
         job.parallel.fsdp.preparer == FsdpConfig::Preparer::automodel;
}

/// What NeMo Automodel's recipe was not compared with.
[[gnu::noinline]] std::optional<Error> check_recipe(const Job& job) {
  const LoopConfig& loop = job.training.loop;
  const bool adapts = loop.lora_function != LoraFunction::peft, is_recipe = loop.project == LoopProject::automodel;
  const auto error = [](const char* pointer, const char* text) { return Error{"not-modelled", pointer, text}; };
  if (loop.is_trainer() && (adapts || is_recipe))
    return error("/training/loop",
                 "found a trainer in NeMo Automodel's hands, which runs steps of its own; expected step");
  if (!is_recipe && job.parallel.fsdp.preparer == FsdpConfig::Preparer::automodel)
    return error("/parallel/fsdp/preparer",
                 "NeMo Automodel shards for its own recipe; expected automodel as training.loop.project");
  if (is_recipe && job.training.use_cache && !micro_batches_of(job).empty())
    return error("/training/use_cache",
                 "samples of several lengths are not supported yet with NeMo Automodel's recipe and a cache; expected "
                 "use_cache false");
  const Strategy strategy = job.parallel.strategy;
  if ((adapts || is_recipe) && strategy != Strategy::none && strategy != Strategy::ddp && strategy != Strategy::fsdp2)
    return error("/parallel/strategy", "NeMo Automodel is not supported yet with it; expected ddp or fsdp2");
  return std::nullopt;
}

/// `lora`: the job's as its trainer has it, which the tuner refers to.
[[gnu::noinline]] std::unique_ptr<Tuner> make_tuner(Context& context, const Job& job,
                                                    const std::optional<LoraConfig>& lora) {
  const TrainingConfig& training = job.training;
  std::unique_ptr<Tuner> tuner;
  if (lora) {
    auto model = std::make_unique<LoraModel>(context, *lora);
    model->function = training.loop.lora_function;
    if (model->function != LoraFunction::peft &&
        (lora->use_dora || lora->dropout > 0 || training.quantization || !job.model.config.traits().liger.swiglu))
      context.refusal = Error{"not-modelled", "/training/loop/lora_function",
                              "NeMo Automodel's adapters are supported without DoRA, dropout and quantized weights, of "
                              "models whose MLPs have silu; expected peft"};
    tuner = std::move(model);
  }
  if (training.ia3) tuner = std::make_unique<Ia3Model>(context, *training.ia3);
  if (!training.peft.empty()) tuner = training.peft.front().method->tuner(context, "peft", training.peft);
  if (job.model.config.traits().ties_embeddings) tuner->tie_embeddings();
  if (job.parallel.strategy == Strategy::none && !training.quantization) tuner->adapt_embeddings();
  return tuner;
}

[[gnu::noinline]] std::optional<Error> get_peft_model(Context& context, const TrainingConfig& training, Tuner& tuner,
                                                      Model& model) {
  tuner.set_shape(model.prompt_shape);
  std::optional<Error> refusal = tuner.inject(model.parameters, model.tied);
  if (refusal) return refusal;
  copy_saved_buffers(context, training, model);
  model.around = [peft = std::make_shared<PeftModel>(model, tuner)](const ModelInputs& inputs) {
    return (*peft)(inputs);
  };
  if (training.lora)
    refusal =
        train_also(context.log, model.root, model.parameters, training.lora->also_train, "/training/lora/also_train");
  if (training.ia3)
    refusal =
        train_also(context.log, model.root, model.parameters, training.ia3->also_train, "/training/ia3/also_train");
  return refusal;
}

[[gnu::noinline]] Error trains_quantized(const Log& log, ModuleId module) {
  return {"inconsistent", "/training/quantization",
          "found " + module_path(log, module) +
              " quantized and trained, but quantized weights cannot be trained; expected its path, or the beginning of "
              "it, in llm_int8_skip_modules"};
}

[[gnu::noinline]] void infer(Context& context, const Job& job, Model& model, const ModelOptions& options, bool repeats,
                             Simulation& simulation) {
  simulation.trainable = 0;
  const ModelTraits& traits = job.model.config.traits();
  model.has_pad_token = traits.has_pad_token;
  if (traits.generates) {
    simulation.generated =
        job.inference.cache.implementation == CacheImplementation::paged
            ? run_paged(context, model, job.data, job.inference, job.gpu.usable_bytes)
            : run_generation(context, model, options, job.data, job.inference, traits.text.windows, !repeats);
    simulation.host.keep(HostPart::kv_cache, simulation.generated.host_bytes);
  } else {
    run_forward(context, model);
  }
  simulation.refusal = context.refusal ? context.refusal : model.refusal;
  simulation.log = std::move(context.log);
}

/// "norm" is a part of a module's path, ".gate" its name. What is below it is cast with it.
[[gnu::noinline]] void cast_to_float32(Context& context, Model& model, const std::vector<std::string>& names) {
  const NoGrad no_grad(context);
  const auto is_named = [&](ModuleId module) {
    std::string path(1, '.');
    path.append(module_path(context.log, module)).push_back('.');
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return path.find(name.starts_with('.') ? name + "." : name) != std::string::npos;
    });
  };
  const auto cast_buffers = [&](ModuleId module) {
    for (const Buffer& buffer : model.buffers) {
      if (buffer.module != module || !is_half(buffer.tensor.dtype())) continue;
      const ModuleScope scope(context, module);
      replace_data(buffer.tensor, empty(context, Op::to_copy, buffer.tensor.sizes(), DType::float32, Role::buffer));
    }
  };
  const std::vector<Parameter>& parameters = model.parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ModuleId module = parameters[i].module;
    if (!is_named(module)) continue;
    if (is_half(parameters[i].tensor.dtype())) cast_parameter(parameters[i].tensor, DType::float32);
    if (i + 1 == parameters.size() || parameters[i + 1].module != module) cast_buffers(module);
  }
}

/// train() (llava/train/train.py) takes the tower to the device, and Trainer what is left.
[[gnu::noinline]] void move_tower_first(Context& context, const Model& model) {
  for (const bool takes_tower : {true, false}) {
    const auto is_taken = [&](const auto& its) {
      return (module_path(context.log, its.module).find("vision_tower") != std::string::npos) == takes_tower;
    };
    std::vector<Parameter> parameters;
    std::vector<Buffer> buffers;
    std::copy_if(model.parameters.begin(), model.parameters.end(), std::back_inserter(parameters), is_taken);
    std::copy_if(model.buffers.begin(), model.buffers.end(), std::back_inserter(buffers), is_taken);
    move_to_device(context, parameters, buffers);
  }
}

}  // namespace

Simulation simulate(const Job& job, const Behaviours& behaviours, bool repeats) {
  Simulation simulation;
  Context context(behaviours, {job.gpu.major, job.gpu.minor, static_cast<int>(job.gpu.sm_count)});
  context.repeats = repeats;
  if (job.runtime.experts == ExpertsImplementation::eager) context.expert_loop = &job.data.routing;
  context.begin_phase(PhaseName::init, 0);
  if (job.task == Task::train && is_automodels(job)) simulation.refusal = check_recipe(job);
  if (simulation.refusal) return simulation;
  std::optional<LoraConfig> lora = job.training.lora;
  if (lora && job.training.loop.turns_dropout_off()) {
    lora->dropout_is_off = lora->dropout > 0;
    lora->dropout = 0;
  }
  const std::unique_ptr<Tuner> tuner = job.training.has_adapters() ? make_tuner(context, job, lora) : nullptr;
  std::unique_ptr<Quantizer> quantizer;
  if (job.training.quantization)
    quantizer = std::make_unique<Quantizer>(context, *job.training.quantization,
                                            resolve_memory_behaviours(job.runtime).weights_loaded_ahead);
  std::optional<bool> output_router_logits;
  const LoopName loop = job.training.loop.name;
  if ((loop == LoopName::sft || loop == LoopName::dpo || loop == LoopName::kto) && job.training.loop.has_fused_head())
    output_router_logits = job.model.config.traits().balances_experts;  // their __init__ (trl 1.16)
  const ModelOptions options{
      weight_dtype(job.training.precision),
      job.training.attention,
      job.training.checkpointing,
      job.training.liger,
      tuner.get(),
      quantizer.get(),
      job.inference.cache.implementation == CacheImplementation::mtla ? job.inference.cache.stride : 0,
      output_router_logits};
  {
    std::unique_ptr<ZeroInit> zero_init;
    if (cuts_at_construction(job.parallel))
      zero_init = std::make_unique<ZeroInit>(context, job.parallel.deepspeed, job.parallel.world_size(), options.dtype);
    const DataConfig data = full_batch_of(job);
    // ZeRO's Init and bitsandbytes take each weight to the device.
    const bool on_host = job.training.loop.loads_on_host && !zero_init && !quantizer;
    context.stopped = quantizer != nullptr || on_host;
    const ModelConfig config =
        job.training.loop.turns_dropout_off() ? job.model.config.without_dropout() : job.model.config;
    const std::unique_ptr<Model> model = build_model(context, config, data, options);
    context.stopped = on_host;
    if (quantizer) simulation.refusal = quantizer->check_skipped();
    if (quantizer && !simulation.refusal) simulation.refusal = quantizer->check_experts(model->parameters);
    if (simulation.refusal) return simulation;
    const std::unique_ptr<Objective> objective = make_objective(job.training, model->loss_type);
    if (job.task == Task::train) model->loss_function = objective->loss_function();
    if (quantizer) quantizer->load(model->parameters, model->buffers);
    if (!job.training.float32_modules.empty()) cast_to_float32(context, *model, job.training.float32_modules);
    std::vector<ZeroParameter> cut;
    if (zero_init) cut = zero_init->finish();
    if (!job.training.checkpointing.segments.empty())
      simulation.refusal = check_segments(context.log, job.training.checkpointing.segments);
    if (simulation.refusal) return simulation;
    simulation.refusal = apply_components(context, model->root, model->parameters, job.training.components);
    if (simulation.refusal) return simulation;
    if (tuner) {
      if (zero_init) tuner->gather_with(gather_of(context, cut, job.parallel.world_size()));
      simulation.refusal = get_peft_model(context, job.training, *tuner, *model);
      if (simulation.refusal) return simulation;
      simulation.notes = tuner->notes();
    }
    if (job.training.loop.name == LoopName::pairwise)
      model->around = [with_head = std::make_shared<ValueHeadModel>(context, *model)](const ModelInputs& inputs) {
        return (*with_head)(inputs);
      };
    if (quantizer && job.training.loop.is_trl()) cast_trained(model->parameters);
    simulation.refusal = check_wrap(job, context.log);
    if (quantizer && !simulation.refusal) simulation.refusal = check_biases(job, context.log, model->parameters);
    if (simulation.refusal) return simulation;
    if (on_host && job.parallel.strategy == Strategy::deepspeed && job.parallel.deepspeed.casts_weights)
      cast_module(context, *model, weight_dtype(job.training.precision));
    if (on_host) {
      context.stopped = false;
      // accelerate's FSDP takes a unit's parameters to the device when it makes the unit, Automodel's makes shards
      // there.
      if (job.training.loop.name == LoopName::llava)
        move_tower_first(context, *model);
      else if (!job.parallel.fsdp.by_accelerate && job.parallel.fsdp.preparer != FsdpConfig::Preparer::automodel)
        move_to_device(context, model->parameters, model->buffers);
    }
    simulation.module_parameters.resize(context.log.modules.size());
    for (const Parameter& parameter : model->parameters) {
      if (quantizer && parameter.tensor->leaf_requires_grad && quantizer->is_quantized(parameter)) {
        simulation.refusal = trains_quantized(context.log, parameter.module);
        return simulation;
      }
      const std::int64_t elements = quantizer ? quantizer->elements_of(parameter) : parameter.tensor.numel();
      simulation.module_parameters[parameter.module] += elements;
      simulation.parameters += elements;
      if (!parameter.tensor->leaf_requires_grad) continue;
      simulation.trainable += parameter.tensor.numel();
      simulation.trains_vision |= context.log.modules[parameter.module].modality == Modality::vision;
    }
    if (job.task == Task::train && simulation.trainable == 0) {
      simulation.refusal = Error{"invalid", "/training", "every parameter is frozen; expected at least one to train"};
      return simulation;
    }
    if (job.task == Task::inference) {
      infer(context, job, *model, options, repeats, simulation);
      return simulation;
    }
    const std::unique_ptr<TrainingStrategy> strategy =
        make_strategy(context, *model, job.training, job.parallel, job.gpu.usable_bytes, std::move(cut));
    const std::unique_ptr<Model> reference = reference_of(job, context, data, options);
    simulation.module_parameters.resize(context.log.modules.size());
    if (reference)
      for (const Parameter& parameter : reference->parameters)
        simulation.module_parameters[parameter.module] += parameter.tensor.numel();
    run_training(context, *model, *strategy, *objective, job.training, data, micro_batches_of(job),
                 evaluates(job) ? evaluation_batches(job) : std::vector<DataConfig>(), reference.get());
    simulation.host = strategy->host_memory();
    simulation.host.keep(HostPart::saved_for_backward, context.most_saved_on_host);
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
