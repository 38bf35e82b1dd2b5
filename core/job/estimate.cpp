#include "job/estimate.h"

#include <algorithm>
#include <limits>

#include "cuda/replay.h"
#include "job/fixes.h"
#include "job/host.h"
#include "job/notes.h"
#include "job/order_spread.h"
#include "job/parse.h"
#include "report/json.h"
#include "report/json_writer.h"
#include "report/snapshot.h"
#include "runtime/memory.h"

namespace oometer {

namespace {

/// The versions that the measured runs had, and what was recorded of later ones, are near; older ones are far.
Evidence evidence_of(const Job& job) {
  if (job.runtime.framework == Framework::llava) return Evidence::source_only;
  const bool near = job.runtime.torch >= Version{2, 10, 0} && job.runtime.transformers >= Version{5, 0, 0};
  const ModelTraits& traits = job.model.config.traits();
  if (traits.is_recorded && traits.convolutions > 0 && job.runtime.cudnn && job.parallel.world_size() == 1 &&
      job.task == Task::train && job.gpu.calibrated)
    return Evidence::convolutions;
  if (!near || traits.is_recorded || job.task != Task::train || job.parallel.world_size() > 1 || !job.gpu.calibrated)
    return Evidence::none;
  return job.training.quantization ? Evidence::one_gpu_4bit : Evidence::one_gpu;
}

/// What the GPU holds outside the allocator: as the tables have it, or as it was measured.
Outside outside_of(const Job& job, const Behaviours& behaviours) {
  if (const std::optional<std::int64_t> bytes = job.calibration.outside_allocator)
    return {*bytes, 0, *bytes, *bytes, {"CUDA context and libraries: your own measurement."}};
  const ModelTraits& traits = job.model.config.traits();
  const bool gets_none = traits.takes_images && job.data.images() == 0 && job.data.audios() == 0;
  const std::int64_t convolutions = gets_none ? 0 : traits.convolutions;
  // Replicas that infer do not speak to each other.
  const std::int64_t group = job.task == Task::inference ? 1 : job.parallel.world_size();
  return outside_allocator(job.gpu, behaviours, group, convolutions);
}

ReportInput report_input(const Job& job, const Behaviours& behaviours, const Simulation& simulation) {
  const ModelTraits& traits = job.model.config.traits();
  ReportInput input;
  input.gpu = job.gpu;
  input.evidence = evidence_of(job);
  input.calibration = job.calibration;
  input.module_parameters = simulation.module_parameters;
  input.parameters = simulation.parameters;
  input.trainable = simulation.trainable;
  input.host_bytes = simulation.host.sum();
  input.rank = simulation.rank;
  if (job.data.sample_images.empty())
    input.image = {job.data.image_height, job.data.image_width, job.data.tokens_per_image};
  input.lists_steps = job.samples.are_given() || job.training.loop.is_trainer();
  input.assumptions = job.assumptions;
  input.notes = simulation.notes;
  if (job.task == Task::train) {
    const bool is_trainer = job.training.loop.is_trainer();
    if (!job.samples.are_given())
      input.assumptions.emplace_back(
          std::string(is_trainer ? "three" : "two") +
          " steps with the same shapes are simulated; a long run with varying lengths can fragment memory further");
    if (!job.training.keep_outputs && !is_trainer)
      input.assumptions.emplace_back("the model's outputs are freed once the loss is computed, as in HF Trainer");
  } else {
    note_inference(job, simulation, input);
  }
  if (is_flash_attention(job.training.attention))
    input.notes.emplace_back("flash-attn: what its kernels allocate is from source, not measured");
  if (traits.has_experts) note_experts(job, input);
  if (traits.kernels != Kernels::torch) note_kernels(job, input);
  if (autocast_dtype(job.training.precision) && !job.training.loop.is_trainer())
    input.assumptions.emplace_back(
        "autocast covers the forward pass and the loss, as in a plain PyTorch loop; accelerate also converts the "
        "logits "
        "to float32");
  if (job.training.cross_entropy_chunks > 0)
    input.assumptions.emplace_back(
        "the chunked loss runs without torch.compile; compiled, with the conversion to float32 fused, it needs less");
  if (const int ahead = resolve_memory_behaviours(job.runtime).weights_loaded_ahead;
      job.training.quantization && ahead > 0)
    input.assumptions.push_back(
        "threads of transformers 5.0 to 5.3 load weights ahead of quantization: " + std::to_string(ahead) +
        " weights are assumed to be waiting, which fits measured runs best; reserved memory depends on it");
  if (!simulation.ranks_that_differ.empty() && !job.parallel.all_ranks)
    input.assumptions.push_back(
        "ranks differ: this is rank " + std::to_string(simulation.rank) +
        ", which is likely to need most; \"rank\": \"all\" in parallel simulates every rank that can differ");
  if (!job.data.sample_images.empty() || job.data.video) input.notes.push_back(describe_images(job.data));
  if (job.data.audios() > 0)
    input.notes.push_back(
        job.model.config.family().count_audio(job.model.config.config(), job.data.audio_seconds).words);
  if (!traits.is_recorded && !job.samples.are_given())
    input.assumptions.emplace_back(
        "every sample has the full length: nothing is padded or packed, and there is no attention mask");
  input.unmodelled = job.unmodelled;
  input.unmodelled.push_back({"torch.compile"});
  if (job.inference.cache.implementation == CacheImplementation::paged && job.data.images() > 0)
    input.unmodelled.push_back({"vLLM's image encoder and its cache; image tokens are counted"});
  if ((traits.is_recorded || job.data.audios() > 0) && behaviours.cudnn && traits.convolutions > 0)
    input.unmodelled.push_back(
        {"cuDNN's choice of algorithm for " + std::to_string(traits.convolutions) +
         " convolutions: they are assumed to copy their tensors to channels-last order, as the heuristics of cuDNN "
         "9.26 choose for most; with torch.backends.cudnn.benchmark a convolution's first call takes the largest "
         "workspace of all algorithms"});
  if (behaviours.cudnn && traits.takes_images && traits.convolutions > 0 && job.data.images() > 0)
    input.unmodelled.push_back({"cuDNN's workspace for the patch embedding's convolution"});
  return input;
}

/// A rank's run in the allocator.
struct Played {
  Replay unlimited;
  Outcome limited;  ///< on the device

  bool fits() const { return !limited.out_of_memory; }
};

Played play(const Log& log, AllocatorOptions allocator, std::int64_t limit) {
  Played played;
  played.unlimited = replay(log, allocator, limit);
  allocator.usable_bytes = limit;
  played.limited = replay_within(log, allocator, played.unlimited);
  return played;
}

bool is_worse(const Played& a, const Played& b) {
  if (a.fits() != b.fits()) return b.fits();
  const MemoryStats &x = a.unlimited.peak, &y = b.unlimited.peak;
  return x.reserved != y.reserved ? x.reserved > y.reserved : x.allocated > y.allocated;
}

/// Each rank that can differ is run; the report will be the worst one's.
std::vector<RankPeak> run_ranks(const Job& job, const Behaviours& behaviours, const AllocatorOptions& allocator,
                                std::int64_t limit, Simulation& simulation, Played& played) {
  std::vector<RankPeak> peaks;
  const std::vector<std::int64_t> ranks = simulation.ranks_that_differ;
  const auto peak_of = [](const Simulation& s, const Played& p) {
    return RankPeak{s.rank, p.unlimited.peak, s.host.sum(), p.fits()};
  };
  const RankPeak known = peak_of(simulation, played);
  Job of_rank = job;
  for (const std::int64_t rank : ranks) {
    if (rank == known.rank) {
      peaks.push_back(known);
      continue;
    }
    of_rank.parallel.rank = rank;
    Simulation other = simulate(of_rank, behaviours);
    Played its = play(other.log, allocator, limit);
    peaks.push_back(peak_of(other, its));
    if (!is_worse(its, played)) continue;
    simulation = std::move(other);
    played = std::move(its);
  }
  return peaks;
}

}  // namespace

AllocatorOptions allocator_options(const Behaviours& behaviours, const Runtime& runtime) {
  AllocatorOptions options;
  options.expandable_segments = behaviours.expandable_segments;
  options.newest_of_equals = resolve_memory_behaviours(runtime).newest_of_equal_blocks;
  return options;
}

Result<Estimate> estimate(const Job& job, const ReportOptions& options) {
  const Behaviours behaviours = resolve_behaviours(job.runtime);
  Estimate result;
  result.simulation = simulate(job, behaviours);
  if (result.simulation.refusal) return *result.simulation.refusal;
  if (result.simulation.log.overflow)
    return Error{"out-of-range", "", "the job needs more than 2^60 bytes, far more than any GPU has; check its sizes"};
  const AllocatorOptions allocator = allocator_options(behaviours, job.runtime);
  const Outside outside = outside_of(job, behaviours);
  const bool is_paged = job.task == Task::inference && job.inference.cache.implementation == CacheImplementation::paged;
  Gpu gpu = job.gpu;
  if (is_paged)
    gpu.usable_bytes =
        static_cast<std::int64_t>(static_cast<double>(gpu.usable_bytes) * job.inference.cache.gpu_memory_utilization);
  const std::int64_t limit = allocator_limit(gpu, outside, job.calibration);
  Played played = play(result.simulation.log, allocator, limit);
  std::vector<RankPeak> ranks;
  if (job.parallel.all_ranks && !result.simulation.ranks_that_differ.empty())
    ranks = run_ranks(job, behaviours, allocator, limit, result.simulation, played);
  result.input = report_input(job, behaviours, result.simulation);
  result.input.gpu = std::move(gpu);
  result.input.outside = outside;
  result.input.allocator = allocator;
  result.input.ranks = std::move(ranks);
  const Log& log = result.simulation.log;
  result.report = build_report(log, played.unlimited, played.limited, result.input, options);
  if (options.host || job.host.memory) add_host(job, result.simulation, result.report);
  if (options.attribution && played.fits() && played.unlimited.peak_reserved > limit)
    result.report.least =
        static_cast<std::int64_t>(static_cast<double>(least_limit(log, allocator, played.unlimited, limit)) *
                                  job.calibration.reserved) +
        result.report.outside_allocator;
  if (is_paged) {
    const Generated& generated = result.simulation.generated;
    const std::int64_t blocks =
        std::max<std::int64_t>(0, generated.blocks + result.report.headroom / generated.block_bytes);
    result.input.assumptions.push_back("vLLM's pool has about " + std::to_string(blocks) + " blocks, " +
                                       std::to_string(blocks * job.inference.cache.block_size) + " tokens; " +
                                       std::to_string(job.data.micro_batch_size) + " concurrent sequences need " +
                                       std::to_string(generated.blocks));
  }
  if (options.attribution && job.model.config.traits().kernels != Kernels::torch)
    if (std::optional<std::string> note = explain_kernels(job, result.report))
      result.input.notes.push_back(*std::move(note));
  if (options.attribution)
    for (std::string& note : explain(job, result.simulation, result.report, result.input))
      result.input.notes.push_back(std::move(note));
  return result;
}

namespace {

/// {"error": {...}}, with what `more` adds to it.
template <typename More>
std::string error_with(const Error& error, const More& more) {
  JsonWriter writer;
  writer.begin_object();
  writer.key("error");
  writer.begin_object();
  writer.member("code", error.code);
  writer.member("pointer", error.pointer);
  writer.member("message", error.message);
  more(writer);
  writer.end_object();
  writer.end_object();
  return writer.take();
}

/// What a value has to be, no other setting can mend.
bool has_no_fix(const Error& error) {
  return error.code == "not-writer" || error.code == "wrong-type" || error.code == "out-of-range";
}

}  // namespace

std::string error_json(const Error& error) {
  return error_with(error, [](JsonWriter&) {});
}

std::string error_json(const Error& error, std::string_view job) {
  return error_with(error, [&](JsonWriter& writer) {
    if (has_no_fix(error)) return;
    const std::vector<Fix> fixes = known_fixes(job, error);
    if (fixes.empty()) return;
    writer.key("fixes");
    writer.begin_array();
    for (const Fix& fix : fixes) {
      writer.begin_object();
      writer.member("label", fix.label);
      writer.key("change");
      writer.raw(fix.change);
      writer.end_object();
    }
    writer.end_array();
  });
}

Result<Estimate> estimate(std::string_view text, const ReportOptions& options) {
  const Result<Job> job = parse_job(text);
  if (!job) return job.error();
  return estimate(*job, options);
}

std::string estimate_json(std::string_view text, const EstimateOptions& options) {
  const Result<Job> job = parse_job(text);
  if (!job) return error_json(job.error(), text);
  Result<Estimate> result = estimate(*job, options.report);
  if (!result) return error_json(result.error(), text);
  if (options.orders) result->input.spread = order_spread(*job);
  return to_json(result->report, result->simulation.log, result->input, {options.full_tree});
}

std::string summary_json(std::string_view text) {
  ReportOptions options;
  options.attribution = false;
  const Result<Estimate> result = estimate(text, options);
  return result ? summary_to_json(result->report, result->input) : error_json(result.error());
}

std::string tensors_json(std::string_view text, std::string_view module) {
  ReportOptions options;
  options.timeline_points = 0;
  options.largest = std::numeric_limits<std::size_t>::max();
  const Result<Estimate> result = estimate(text, options);
  if (!result) return error_json(result.error());
  const Log& log = result->simulation.log;
  for (ModuleId id = 0; id < log.modules.size(); ++id) {
    if (module_path(log, id) == module)
      return holdings_to_json(holdings_of(log, result->report, id), result->report, log);
  }
  return error_json({"invalid", "", "this model has no module \"" + std::string(module) + "\""});
}

Result<std::string> estimate_snapshot(std::string_view text) {
  ReportOptions options;
  options.attribution = false;
  const Result<Estimate> result = estimate(text, options);
  if (!result) return result.error();
  return memory_snapshot(result->simulation.log, result->input.allocator);
}

}  // namespace oometer
