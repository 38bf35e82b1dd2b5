#include "job/host.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "job/estimate.h"
#include "job/parse.h"
#include "report/json_writer.h"
#include "train/step.h"

namespace oometer {

namespace {

constexpr const char* kMeasured =
    "measured: /proc/PID/status of a process that has imported them and opened a device without a driver, torch 2.15";

/// A process that has imported its libraries and opened its device, in bytes of its own (tests/reference).
constexpr std::int64_t kMiB = 1 << 20;
struct Libraries {
  std::int64_t own;
  std::int64_t files, files_used;  ///< which processes share: at first, and when the step's kernels have run
};
constexpr Libraries kTorch = {423 * kMiB, 329 * kMiB, 386 * kMiB}, kTrainer = {552 * kMiB, 355 * kMiB, 431 * kMiB},
                    kDeepSpeed = {556 * kMiB, 355 * kMiB, 431 * kMiB};
constexpr std::int64_t kDataWorker = 10 * kMiB;

constexpr const char* kLoading = "transformers 5.23: modeling_utils.py, _load_pretrained_model";

struct PartWords {
  const char* name;
  const char* source;
};
constexpr PartWords kPartWords[] = {
    {"offloaded parameters",
     "DeepSpeed 0.19.8: runtime/zero/stage3.py, _create_param_groups_fp16_flat_cpu_memory; PyTorch 2.15: FSDP's "
     "shards"},
    {"fp32 master weights",
     "DeepSpeed 0.19.8: stage_1_and_2.py, single_partition_of_fp32_groups; stage3.py, "
     "_create_fp32_partitions"},
    {"gradients",
     "DeepSpeed 0.19.8: initialize_optimizer_states, grad_partitions_flat_buffer, "
     "temp_grad_buffer_for_cpu_offload; PyTorch 2.15: FSDP's sharded gradients"},
    {"sums of gradients", "DeepSpeed 0.19.8: stage_1_and_2.py, accumulated_grads_in_cpu"},
    {"optimizer states", "DeepSpeed 0.19.8: ops/adam/cpu_adam.py; torch.optim on the host; paged ones: bitsandbytes"},
    {"half-precision copies of the masters",
     "DeepSpeed 0.19.8: stage_1_and_2.py, param_buffer_of_bit16_for_cpu_offload_groups"},
    {"saved for backward", "PyTorch 2.15: torch.autograd.graph.save_on_cpu; trl 1.16: OffloadActivations"},
    {"KV cache", "transformers 5.23: cache_utils.py, offloading"},
    {"freed memory that allocators keep",
     "PyTorch 2.15: ATen/core/CachingHostAllocator.h; glibc: malloc.c, DEFAULT_MMAP_THRESHOLD_MAX"}};
static_assert(std::size(kPartWords) == kHostParts);

/// The holdings of a phase, as they are found.
class HostPhases {
 public:
  HostPhases(const Job& job, const Simulation& simulation)
      : job_(job),
        simulation_(simulation),
        weight_type_(weight_dtype(job.training.precision)),
        is_deepspeed_(job.parallel.strategy == Strategy::deepspeed),
        is_third_(is_deepspeed_ && job.parallel.deepspeed.zero_stage == 3) {
    report_.memory = job.host.memory;
    report_.processes = std::min(job.parallel.world_size(), job.host.gpus);
  }

  HostReport run() {
    loading();
    wrapping();
    training();
    if (job_.task == Task::train) {
      saving();
      resuming();
    }
    left_out();
    return std::move(report_);
  }

 private:
  void begin(const char* name, bool has_trained) {
    report_.phases.push_back({name, {}});
    const Libraries& its = is_deepspeed_ ? kDeepSpeed : job_.training.loop.is_trainer() ? kTrainer : kTorch;
    hold("libraries", kMeasured, its.own);
    HostHolding& files = hold("files of the libraries", kMeasured, has_trained ? its.files_used : its.files);
    files.is_of_file = files.is_of_node = true;
  }
  HostHolding& hold(const char* name, const char* source, std::int64_t bytes) {
    std::vector<HostHolding>& holdings = report_.phases.back().holdings;
    holdings.push_back({name, source, bytes});
    return holdings.back();
  }
  /// Safetensors files are mapped: their pages are resident while they are read.
  void hold_checkpoint() {
    HostHolding& files = hold("checkpoint's files", kLoading, of_weights(job_.host.checkpoint_dtype));
    files.is_of_file = files.is_of_node = true;
  }
  std::int64_t of_weights(DType type) const { return checked_product(simulation_.parameters, element_size(type)); }

  void loading() {
    begin("loading", false);
    if (job_.model.config.traits().is_recorded) return;
    hold_checkpoint();
    // Tensors of the checkpoint's own type stay views of the file; others are copies (_materialize_copy).
    const bool on_host = job_.training.loop.loads_on_host && !is_third_ && !job_.training.quantization;
    // zero.Init leaves this rank's parts on the host.
    if (is_third_ && job_.parallel.deepspeed.offload_param != OffloadDevice::none)
      hold("partitions", "DeepSpeed 0.19.8: partition_parameters.py, Init",
           std::max(of_weights(weight_type_) / job_.parallel.world_size(), simulation_.host[HostPart::pinned_cache]));
    if (on_host && weight_type_ != job_.host.checkpoint_dtype) hold("weights", kLoading, of_weights(weight_type_));
  }

  /// What making the optimizer takes for a moment, where that is more than training does.
  void wrapping() {
    const DeepSpeedConfig& config = job_.parallel.deepspeed;
    if (!is_third_ || config.offloads_optimizer() || config.offload_param != OffloadDevice::none) return;
    begin("wrapping", false);
    hold("trained partitions, on their way into one buffer", "DeepSpeed 0.19.8: runtime/zero/utils.py, defragment",
         checked_product(simulation_.trainable, element_size(weight_type_)) / job_.parallel.world_size());
  }

  void training() {
    begin(job_.task == Task::train ? "training" : "inference", true);
    hold_kept();
    if (job_.host.data_workers > 0)
      hold("data workers", "measured: private pages of torch.utils.data's workers (fork), torch 2.15",
           job_.host.data_workers * kDataWorker);
  }

  /// save_pretrained by one process: safetensors takes a file's tensors from the device, all of them, before it writes.
  void saving() {
    const LoopConfig& loop = job_.training.loop;
    if (!loop.is_trainer() || loop.save_strategy == Every::no || is_third_) return;
    begin("saving", true);
    constexpr std::int64_t kShard = 50'000'000'000;
    const bool is_adapter = job_.training.has_adapters();
    hold(is_adapter ? "adapters" : "weights",
         "transformers 5.23: save_pretrained (max_shard_size); safetensors 0.8: save_file",
         is_adapter ? checked_product(simulation_.trainable, element_size(DType::float32))
                    : std::min(of_weights(weight_type_), kShard))
        .is_of_node = true;
  }

  void resuming() {
    const bool is_trainer = job_.training.loop.is_trainer();
    if (job_.parallel.strategy == Strategy::none && is_trainer) {
      begin("resuming", false);
      hold("optimizer states", "transformers 5.23: trainer.py, _load_optimizer_and_scheduler (to the CPU on one GPU)",
           states_on_device());
    } else if (is_deepspeed_) {
      begin("resuming", false);
      hold_kept();
      constexpr const char* kSource = "DeepSpeed 0.19.8: runtime/engine.py, load_checkpoint; read, not measured";
      const std::int64_t states = states_on_device() + simulation_.host[HostPart::master_weights] +
                                  simulation_.host[HostPart::optimizer_states];
      const std::int64_t weights = is_third_ ? 0 : of_weights(weight_type_);
      // One file after the other: of the weights, then of this rank's states.
      if (weights > states)
        hold("weights, read from the checkpoint", kSource, weights);
      else
        hold("optimizer states, read from the checkpoint", kSource, states);
    } else if (is_trainer && job_.parallel.shards_parameters()) {
      report_.unmodelled.emplace_back("saving and resuming under FSDP");
    }
  }

  /// Masters and states, as they are when the last forward begins.
  std::int64_t states_on_device() const {
    const Log& log = simulation_.log;
    std::uint32_t at = kNever;
    for (const PhaseMark& phase : log.phases)
      if (phase.name == PhaseName::forward) at = phase.first_event;
    std::int64_t sum = 0;
    for (const StorageRecord& storage : log.storages)
      if (storage.role == Role::optimizer_state && storage.alloc_event < at && storage.free_event >= at)
        sum += storage.bytes;
    return sum;
  }

  void hold_kept() {
    for (std::size_t i = 0; i < kHostParts; ++i)
      if (const std::int64_t bytes = simulation_.host[static_cast<HostPart>(i)]; bytes > 0)
        hold(kPartWords[i].name, kPartWords[i].source, bytes);
    report_.phases.back().pinned = simulation_.host.pinned();
  }

  void left_out() {
    report_.unmodelled.emplace_back("the CUDA driver's own host memory");
    if (job_.host.data_workers > 0)
      report_.unmodelled.emplace_back(
          "pages that Python's reference counts take from what data workers share: more, the longer they run");
    report_.unmodelled.emplace_back("the data set, and what a tokenizer or an image processor keeps of it");
  }

  const Job& job_;
  const Simulation& simulation_;
  DType weight_type_;
  bool is_deepspeed_, is_third_;
  HostReport report_;
};

}  // namespace

HostReport host_report(const Job& job, const Simulation& simulation) { return HostPhases(job, simulation).run(); }

[[gnu::noinline]] void add_host(const Job& job, const Simulation& simulation, Report& report) {
  report.host = host_report(job, simulation);
  const Verdict verdict = report.host->verdict();
  if (verdict == Verdict::does_not_fit) report.fits = false;
  report.verdict = std::max(report.verdict, verdict);
}

std::string host_json(std::string_view text) {
  const Result<Job> job = parse_job(text);
  if (!job) return error_json(job.error());
  const Simulation run = simulate(*job, resolve_behaviours(job->runtime));
  if (run.refusal) return error_json(*run.refusal);
  JsonWriter writer;
  writer.begin_object();
  writer.key("host");
  write_host(writer, host_report(*job, run));
  writer.end_object();
  return writer.take();
}

}  // namespace oometer
