#include "job/parse.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "job/accelerate.h"
#include "job/loop.h"
#include "job/names.h"
#include "job/optimizers.h"
#include "job/read.h"
#include "job/settings/fields.h"

namespace oometer {

using nlohmann::json;

namespace {

/// No tensor may be larger, so that a sum over any model's tensors fits 64 bits.
constexpr double kLargestTensor = 0x1p44;

void check_count(ConfigReader reader, const ParallelConfig& parallel) {
  const auto count = read_integer(reader, settings::gpu_section, "count");
  if (count && *count != parallel.world_size()) {
    reader.fail_found(
        "count", "inconsistent",
        "expected " + std::to_string(parallel.world_size()) + ", the product of the degrees of parallelism");
  }
}

/// Of models that see: SFTTrainer packs no images ("Packing is not supported for vision datasets").
[[gnu::noinline]] void check_packed_texts(ConfigReader& data, const Job& job) {
  if (job.data.images_per_sample > 0)
    data.fail(
        "images_per_sample", "inconsistent",
        "found images in packed samples, which TRL does not pack; expected \"images_per_sample\": 0, or no packing");
  else if (job.model.config.traits().takes_images && is_flash_attention(job.training.attention) &&
           !job.samples.padding_free)
    data.fail("packed", "not-modelled",
              "found packed samples with flash attention and a model that sees, which is supported with "
              "trl.SFTTrainer alone yet; expected that, or sdpa");
}

/// What samples of different lengths do not go with. No first answer wants this, nor the next two.
[[gnu::noinline]] void check_samples(ConfigReader& job_reader, const Job& job) {
  ConfigReader data = job_reader.object("data");
  const char* const key = data.has("lengths") ? "lengths" : "packed";
  const AttentionKind attention = job.training.attention;
  if (job.task == Task::inference)
    data.fail(key, "inconsistent",
              "found it with \"task\": \"inference\"; expected prompts of one length: leave it out");
  else if (job.runtime.framework != Framework::transformers || job.runtime.transformers < Version{5, 23, 0})
    data.fail(
        key, "not-modelled",
        "found samples of different lengths with older code; expected transformers 5.23: masks of earlier versions "
        "are not supported yet");
  else if (attention == AttentionKind::sdpa_flash || attention == AttentionKind::sdpa_cudnn)
    data.fail(key, "inconsistent",
              "found samples that need a mask with " + name_of(attention, kAttentions) +
                  ", a kernel that takes none; expected another attention");
  if (!job.samples.packed.empty() || job.samples.packing == Packing::bfd) check_packed_texts(data, job);
}

/// What a loop wants to know of an evaluation.
[[gnu::noinline]] void check_evaluation(ConfigReader& job_reader, const Job& job) {
  const LoopConfig& loop = job.training.loop;
  if (!loop.is_trainer()) {
    if (job.samples.evaluation)
      job_reader.object("data").fail_found("evaluation", "inconsistent",
                                           "the loop step evaluates nothing; expected a trainer as training.loop");
    return;
  }
  const bool evaluates = loop.eval_strategy != Every::no || job.samples.evaluation;
  const bool is_counted = (job.samples.evaluation && !job.samples.evaluation->empty()) ||
                          (!job.samples.batches.empty() && job.samples.packing == Packing::none);
  if (evaluates && loop.compute_metrics && !loop.prediction_loss_only && loop.eval_accumulation_steps == 0 &&
      !is_counted)
    job_reader.object("training")
        .object("loop")
        .fail_found(
            "compute_metrics", "missing",
            "what it is given gathers on the device until the evaluation is over; expected data.evaluation with its "
            "lengths, or eval_accumulation_steps among the arguments");
}

/// What a preference loop compares with.
[[gnu::noinline]] void check_reference(ConfigReader& job_reader, Job& job) {
  ConfigReader model = job_reader.object("model");
  LoopConfig& loop = job.training.loop;
  const bool has_adapters = job.training.has_adapters();
  Reference& reference = job.model.reference;
  const auto fail = [&](const std::string& why) { model.fail_found("reference", "inconsistent", why); };
  if (!loop.has_reference() || has_adapters) {
    if (job.model.reference_dtype)
      model.fail_found("reference_dtype", "inconsistent", "the loop has no reference that is a model of its own");
  }
  if (!loop.has_reference()) {
    if (reference != Reference::of_trainer)
      fail("expected a preference loop with it, as trl.DPOTrainer or trl.KTOTrainer");
    return;
  }
  if (loop.precompute_ref_log_probs && (reference == Reference::copy || reference == Reference::shared))
    return fail("precompute_ref_log_probs is true: leave one of them out");
  if (reference == Reference::shared && !has_adapters)
    return fail("without adapters the policy cannot be its own reference; expected copy or precomputed");
  if (reference == Reference::precomputed) loop.precompute_ref_log_probs = true;
  if (reference != Reference::copy || !has_adapters) reference = Reference::of_trainer;  // which means the same
  const bool shares = has_adapters && !loop.precompute_ref_log_probs && reference != Reference::copy;
  if (shares && job.training.lora && !job.training.lora->modules_to_save.empty())
    model.fail("reference", "not-modelled",
               "found a reference that shares a policy with modules_to_save, which is not supported yet; expected "
               "\"copy\"");
}

[[gnu::noinline]] std::optional<Error> check_longest_of_rewards(const SamplesConfig& samples) {
  SamplesConfig uncut = samples;
  uncut.max_length.reset();
  if (uncut.longest() <= samples.cut(uncut.longest())) return std::nullopt;
  return Error{"inconsistent", "/data",
               "found samples that are longer than max_length, which the trainer leaves out: leave them out here, or "
               "set training.loop.args.max_length"};
}

/// Where TRL's trainers are not compared with real ones yet. No first answer wants this.
[[gnu::noinline]] void check_trl_on_several_gpus(ConfigReader& reader, const Job& job) {
  const bool is_fsdp = job.parallel.strategy == Strategy::fsdp1 || job.parallel.strategy == Strategy::fsdp2;
  const LoopConfig& loop = job.training.loop;
  const bool has_own_reference = !job.training.has_adapters() || job.model.reference == Reference::copy;
  // prepare_fsdp (trl 1.16, models/utils.py) wraps the reference as a model of its own.
  if (is_fsdp && (loop.name == LoopName::dpo || loop.name == LoopName::kto) &&
      (loop.precompute_ref_log_probs ||
       (has_own_reference && (job.parallel.strategy == Strategy::fsdp1 || job.parallel.fsdp.cpu_offload))))
    reader.object("training")
        .fail("loop", "not-modelled",
              "found " + name_of(loop.name, kLoops) + " under " +
                  (job.parallel.fsdp.cpu_offload && !loop.precompute_ref_log_probs ? "FSDP on the host" : "FSDP") +
                  " with a reference that is a model of its own, or was one, which is not supported yet; expected "
                  "adapters, whose policy without them is the reference, or fsdp2 without offload, ddp or deepspeed");
  if (job.parallel.strategy == Strategy::fsdp1 && loop.name == LoopName::kto &&
      job.training.checkpointing.mode != CheckpointMode::none)
    reader.object("training")
        .fail("loop", "not-modelled",
              "found trl.KTOTrainer under FSDP1 with checkpointed activations, which is not supported yet; expected "
              "\"gradient_checkpointing\": false among its arguments, or fsdp2");
  if (is_fsdp && loop.name == LoopName::kto && job.parallel.fsdp.cpu_offload)
    reader.object("training")
        .fail("loop", "not-modelled", "found trl.KTOTrainer under FSDP on the host, which is not supported yet");
  if ((loop.name == LoopName::reward || loop.name == LoopName::orpo) && is_fsdp)
    reader.object("training")
        .fail("loop", "not-modelled",
              "found " + name_of(loop.name, kLoops) +
                  " under FSDP, which is not supported yet; expected ddp or deepspeed");
  if (loop.name == LoopName::reward && job.model.config.traits().takes_images &&
      job.parallel.strategy != Strategy::none)
    reader.object("training")
        .fail("loop", "not-modelled",
              "found trl.RewardTrainer with a model that takes images on several GPUs, which is not supported yet");
  const bool is_axolotls = loop.project == LoopProject::axolotl;
  if (loop.activation_offloading && job.parallel.strategy != Strategy::none &&
      (job.parallel.strategy != Strategy::ddp || is_axolotls))
    reader.object("training")
        .object("loop")
        .object("args")
        .fail_found("activation_offloading", "not-modelled",
                    is_axolotls ? "Axolotl's is not supported yet on several GPUs; expected one GPU"
                                : "it is not supported yet with DeepSpeed or FSDP; expected one GPU, or ddp");
  if (job.parallel.strategy != Strategy::none && !loop.trl.knows_preferences)
    reader.object("training")
        .fail("loop", "not-modelled",
              "found " + name_of(loop.name, kLoops) + " of TRL " + to_string(job.runtime.trl) +
                  " on several GPUs, which is not supported yet; expected runtime.trl 1.16, or parallel.strategy none");
}

/// What DPOTrainer and KTOTrainer do not do with images (their __init__, DataCollatorForVisionPreference; trl 1.16).
[[gnu::noinline]] void check_seen_preferences(ConfigReader& job_reader, const Job& job) {
  const LoopConfig& loop = job.training.loop;
  if (const auto refusal = job.model.config.traits().refusal(Feature::image_preferences))
    job_reader.object("training").fail("loop", refusal->code, "found preferences with images; " + refusal->why);
  if (loop.precompute_ref_log_probs)
    job_reader.object("training")
        .fail("loop", "inconsistent",
              "found log-probabilities of a reference that come with the batch, which the "
              "trainer refuses for data with images: leave them out");
  if (job.samples.padding == Padding::multiple)
    job_reader.object("data").fail_found("padding", "inconsistent",
                                         "the collator of data with images pads to no multiple: leave it out");
}

/// To what a loop cuts samples: its max_length, which job/loop.h has written where the loop has one.
std::optional<std::int64_t> max_length_of(const json& document) {
  const json::json_pointer at("/training/loop/args/max_length");
  if (!document.contains(at) || !document.at(at).is_number_integer()) return std::nullopt;
  return document.at(at).get<std::int64_t>();
}

/// Whether what is trained is a reward model, which the model's class follows.
bool is_reward_loop(const json& document) {
  const json::json_pointer at("/training/loop");
  if (!document.contains(at)) return false;
  const json& loop = document.at(at);
  return (loop.is_object() ? loop.value("name", json()) : loop) == "trl.RewardTrainer";
}

/// What an answer says of optimizers, trainers and Liger's kernels. No first answer has any of them.
[[gnu::noinline]] void note_training(Job& job) {
  if (!job.training.optimizer.args.target_modules.empty())
    job.assumptions.emplace_back(
        "the optimizer makes its projections anew every update_proj_gap steps; of these steps only the first is run");
  if (const OptimizerConfig& its = job.training.optimizer;
      its.name == OptimizerName::galore_adamw || its.name == OptimizerName::galore_adafactor ||
      its.name == OptimizerName::galore_adamw_8bit || its.args.proj == "svd")
    job.unmodelled.push_back(
        {"cuSOLVER's workspace for torch.linalg.svd, in the steps that make the optimizer's "
         "projections",
         Effect::more});
  if (const OptimizerName name = job.training.optimizer.name;
      name >= OptimizerName::torchao_adamw_8bit && name <= OptimizerName::torchao_adamw_fp8)
    job.unmodelled.push_back(
        {"torch.compile's autotuning where its cache has no such kernel yet: in the first step a "
         "buffer as large as the GPU's L2 cache, 40 MB of an A100, 50 MB of an H100",
         Effect::more});
  if (const LoopConfig& loop = job.training.loop; loop.is_trainer() && loop.save_strategy != Every::no &&
                                                  job.parallel.strategy == Strategy::fsdp1 &&
                                                  !job.training.has_adapters())
    job.unmodelled.push_back(
        {"saving under FSDP1: what is gathered of the optimizer's states is missing from the phase `saving`; "
         "save_only_model, or save_strategy \"no\", leaves them out of the run",
         Effect::more});
}

[[gnu::noinline]] void note_liger(Job& job, const ModelTraits& traits) {
  const LigerConfig& liger = job.training.liger;
  if (*traits.liger.note != '\0' && !(liger.rope && liger.rms_norm && liger.swiglu))
    job.assumptions.emplace_back(traits.liger.note);
  if (traits.liger.experts && liger.swiglu) {
    job.assumptions.emplace_back("the router spreads tokens evenly: lists of Liger's experts are as long as that");
    job.unmodelled.push_back(
        {"Triton's autotuning of Liger's experts: in the first step a buffer of 256 MB",  // get_empty_cache_for_benchmark
         Effect::more});
  }
}

/// A job in its own keys.
Result<Job> read_job(const json& document) {
  Findings findings;
  ConfigReader reader(&document, "", Mode::strict, findings);
  Job job;
  reader.integer("version", 1, {1, 1});
  job.task = reader.choice("task", job.task, kTasks);
  const bool infers = job.task == Task::inference;
  if (!infers && reader.has("inference"))
    reader.fail("inference", "inconsistent", "found it in a training job; expected \"task\": \"inference\" with it");
  job.runtime = read_runtime(reader.object("runtime"));
  job.calibration = read_calibration(reader.object("calibration"));
  job.gpu = read_gpu(reader.object("gpu"));
  job.host = read_host(reader.object("host"));
  job.cost = read_cost(reader.object("cost"));
  if (!reader.has("model"))
    reader.fail("model", "missing", "found nothing; expected {\"preset\": NAME} or {\"config\": {...}}");

  // Each part reads what comes before it: after an error there is nothing sound to read.
  if (findings.error) return *findings.error;
  std::int64_t usual_length = 0;
  std::tie(job.model, usual_length) =
      read_model(reader.object("model"), job.runtime.framework, is_reward_loop(document));
  if (findings.error) return *findings.error;
  const ModelTraits& traits = job.model.config.traits();
  const bool original = job.runtime.framework == Framework::llava;
  if (const auto refusal = traits.refusal(original ? Feature::original_llava : Feature::transformers))
    reader.object("runtime").fail(original ? "framework" : "", refusal->code, "found " + refusal->why);
  if (job.runtime.framework == Framework::transformers && job.runtime.transformers < traits.oldest_transformers)
    reader.object("runtime").fail_found(
        "transformers", "not-modelled",
        "expected " + to_string(traits.oldest_transformers) + " or later for this model");
  if (const auto refusal = traits.refusal(infers ? Feature::inference : Feature::training))
    reader.fail("task", refusal->code, "found " + name_of(job.task, kTasks) + "; " + refusal->why);
  if (infers && (job.runtime.framework != Framework::transformers || job.runtime.transformers < Version{5, 23, 0}))
    reader.object("runtime").fail_found("transformers", "not-modelled", "expected 5.23 or later for inference");
  std::tie(job.data, job.samples) =
      read_data(reader.object("data"), job.model.config, infers, usual_length, max_length_of(document));
  if (findings.error) return *findings.error;
  if (!(job.model.config.family().largest_tensor(job.model.config.config(), job.data) <= kLargestTensor)) {
    return Error{"out-of-range", "/data",
                 "found sizes that give a tensor of more than 16 TiB; expected smaller ones in data or model.config"};
  }
  if (infers) {
    job.inference = read_inference(reader.object("inference"), job);
    job.training = read_training_of_inference(reader.object("training"), job);
  } else {
    job.training = read_training(reader.object("training"), job.model.config, job.data, job.gpu, job.runtime);
  }
  if (findings.error) return *findings.error;
  job.samples.padding_free = job.training.loop.padding_free;
  job.samples.are_pairs = job.training.loop.takes_pairs();
  if (job.training.loop.name == LoopName::reward)
    if (std::optional<Error> error = check_longest_of_rewards(job.samples)) return *std::move(error);
  job.samples.have_turns = job.training.loop.asks_for_turns();
  const bool is_compared = job.training.loop.has_reference() || job.model.reference != Reference::of_trainer;
  if (!infers && (is_compared || job.model.reference_dtype)) check_reference(reader, job);
  const LoopConfig& loop = job.training.loop;
  if (!infers && loop.is_trl() && loop.name != LoopName::sft && job.data.images_per_sample > 0)
    check_seen_preferences(reader, job);
  if (findings.error) return *findings.error;
  // As processors give them, which is what people have who run a trainer, give lengths, or say the two types apart.
  if (are_in_autocast(job.training.precision) || job.training.loop.is_trainer() || job.samples.are_given())
    job.data.pixel_dtype = DType::float32;
  if (traits.has_experts) check_experts(reader, job);
  if (traits.kernels != Kernels::torch) check_kernels(reader, job);
  if (job.samples.are_given()) check_samples(reader, job);
  if (!infers && (job.training.loop.is_trainer() || job.samples.evaluation)) check_evaluation(reader, job);
  if (findings.error) return *findings.error;
  Parallel parallel = read_parallel(reader.object("parallel"), job);
  job.parallel = parallel.config;
  job.ds_config_json = std::move(parallel.ds_config_json);
  if (parallel.optimizer) job.training.optimizer = *parallel.optimizer;
  if (job.samples.by_length)
    job.samples.by_length = {job.data.micro_batch_size * job.training.gradient_accumulation_steps, job.parallel.data};
  check_count(reader.object("gpu"), job.parallel);
  if (job.training.loop.is_trl()) check_trl_on_several_gpus(reader, job);
  if (job.training.loop.is_llamafactory()) check_llamafactory(reader, job);
  if (job.training.loop.name == LoopName::llava || job.training.optimizer.param_groups > 2)
    check_llava_job(reader, job);
  reader.finish();
  if (findings.error) return *findings.error;

  job.unmodelled = std::move(findings.unmodelled);
  job.assumptions = std::move(findings.assumptions);
  for (std::string& caveat : runtime_caveats(job.runtime)) job.assumptions.push_back(std::move(caveat));
  if (job.training.optimizer.implementation == OptimizerImplementation::deepspeed_fused)
    job.assumptions.emplace_back(
        "the optimizer is DeepSpeed's FusedAdam, as the ds_config asks; its kernel takes no memory");
  if (job.training.optimizer.name != OptimizerName::adamw || job.training.loop.is_trainer()) note_training(job);
  if (!job.training.checkpointing.segments.empty())
    job.assumptions.emplace_back(
        "the listed blocks are checkpointed by your own code: transformers offers all blocks or every k-th");
  if (job.training.liger != LigerConfig{}) note_liger(job, traits);
  if (!job.training.peft.empty() && job.parallel.strategy != Strategy::none)
    return Error{"not-modelled", "/training/peft",
                 "found training.peft on several GPUs, which is not supported yet; expected training.lora, or "
                 "parallel.strategy none"};
  if (job.training.lora || job.training.ia3) {
    const Strategy strategy = job.parallel.strategy;
    if (strategy == Strategy::ddp)
      job.assumptions.emplace_back("adapters under DDP were not compared with a recorded run");
  }
  return job;
}

}  // namespace

Result<Job> parse_job(std::string_view text) {
  const Result<json> given = parse_json(text);
  if (!given) return given.error();
  if (!given->is_object()) {
    return Error{"wrong-type", "", "found " + describe(*given) + "; a job is one JSON object {...}"};
  }
  const bool has_accelerate = given->contains("/parallel/accelerate_config"_json_pointer) &&
                              !given->at("/parallel/accelerate_config"_json_pointer).is_null();
  const bool has_loop = given->contains("/training/loop"_json_pointer);
  const bool has_optimizer = given->contains("/training/optimizer"_json_pointer);
  if (!has_accelerate && !has_loop && !has_optimizer) return read_job(*given);
  json job = *given;
  if (has_accelerate)
    if (const std::optional<Error> error = spell_out_accelerate(job)) return *error;
  if (has_loop)
    if (const std::optional<Error> error = spell_out_loop(job)) return *error;
  if (const std::optional<Error> error = spell_out_optimizer(job)) return *error;
  if (!has_accelerate) return read_job(job);
  Result<Job> result = read_job(job);
  if (result) return result;
  Error error = result.error();
  error.pointer = accelerate_pointer(error.pointer);
  return error;
}

Result<Job> default_job(std::string_view preset) {
  return parse_job(json{{"version", 1}, {"model", {{"preset", std::string(preset)}}}}.dump(
      -1, ' ', false, json::error_handler_t::replace));
}

}  // namespace oometer
