#include "job/resolve.h"

#include <algorithm>
#include <utility>

#include "config/reader.h"
#include "job/accelerate.h"
#include "job/estimate.h"
#include "job/parse.h"
#include "report/json_writer.h"

namespace oometer {

using nlohmann::json;

namespace {

const char* device_name(OffloadDevice device) {
  constexpr const char* kNames[] = {"none", "cpu", "nvme"};
  return kNames[static_cast<std::size_t>(device)];
}

/// A key of a DeepSpeed configuration on which memory depends.
struct DeepSpeedKey {
  const char* key;
  json (*value)(const Job& job);
  const char* from = "";                ///< what "auto" becomes (transformers 5.23, integrations/deepspeed.py)
  int first_stage = 0, last_stage = 3;  ///< of ZeRO, at which it matters
};

template <auto Member>
json zero(const Job& job) {
  return job.parallel.deepspeed.*Member;
}

using D = DeepSpeedConfig;

constexpr DeepSpeedKey kDeepSpeedKeys[] = {
    {"/bf16/enabled", [](const Job& job) { return json(job.training.precision == Precision::bf16); },
     "training.precision"},
    {"/fp16/enabled", [](const Job& job) { return json(job.training.precision == Precision::fp16); },
     "training.precision"},
    {"/train_micro_batch_size_per_gpu", [](const Job& job) { return json(job.data.micro_batch_size); },
     "data.micro_batch_size"},
    {"/gradient_accumulation_steps", [](const Job& job) { return json(job.training.gradient_accumulation_steps); },
     "training.gradient_accumulation_steps"},
    {"/train_batch_size",
     [](const Job& job) {
       return json(job.data.micro_batch_size * job.training.gradient_accumulation_steps * job.parallel.data);
     },
     "micro-batch × accumulation × GPUs"},
    {"/gradient_clipping", zero<&D::gradient_clipping>, "training.max_grad_norm"},
    {"/zero_optimization/stage", zero<&D::zero_stage>},
    {"/zero_optimization/offload_optimizer/device",
     [](const Job& job) { return json(device_name(job.parallel.deepspeed.offload_optimizer)); }},
    {"/zero_optimization/offload_param/device",
     [](const Job& job) { return json(device_name(job.parallel.deepspeed.offload_param)); }, "", 3},
    {"/zero_optimization/overlap_comm", zero<&D::overlap_comm>},
    {"/zero_optimization/contiguous_gradients", zero<&D::contiguous_gradients>},
    {"/zero_optimization/reduce_scatter", zero<&D::reduce_scatter>, "", 1, 2},
    {"/zero_optimization/round_robin_gradients", zero<&D::round_robin_gradients>, "", 1, 2},
    {"/zero_optimization/reduce_bucket_size", zero<&D::reduce_bucket_size>, "hidden size × hidden size"},
    {"/zero_optimization/allgather_bucket_size", zero<&D::allgather_bucket_size>, "", 1, 2},
    {"/zero_optimization/sub_group_size", zero<&D::sub_group_size>, "", 3},
    {"/zero_optimization/stage3_prefetch_bucket_size", zero<&D::prefetch_bucket_size>,
     "0.9 × hidden size × hidden size", 3},
    {"/zero_optimization/stage3_param_persistence_threshold", zero<&D::param_persistence_threshold>, "10 × hidden size",
     3},
    {"/zero_optimization/stage3_model_persistence_threshold", zero<&D::model_persistence_threshold>, "", 3},
    {"/zero_optimization/stage3_max_live_parameters", zero<&D::max_live_parameters>, "", 3},
    {"/zero_optimization/stage3_max_reuse_distance", zero<&D::max_reuse_distance>, "", 3},
    {"/zero_optimization/stage3_allgather_sequential", zero<&D::allgather_sequential>, "", 3},
    {"/zero_optimization/memory_efficient_linear", zero<&D::memory_efficient_linear>, "", 3},
};

/// Of an accelerate file; its other keys change no memory.
constexpr const char* kAccelerate[] = {
    "/distributed_type",
    "/num_processes",
    "/mixed_precision",
    "/deepspeed_config/zero_stage",
    "/deepspeed_config/offload_optimizer_device",
    "/deepspeed_config/offload_param_device",
    "/deepspeed_config/gradient_clipping",
    "/deepspeed_config/gradient_accumulation_steps",
    "/fsdp_config/fsdp_version",
    "/fsdp_config/fsdp_offload_params",
    "/fsdp_config/fsdp_sharding_strategy",
    "/fsdp_config/fsdp_reshard_after_forward",
    "/fsdp_config/fsdp_backward_prefetch",
    "/fsdp_config/fsdp_forward_prefetch",
    "/fsdp_config/fsdp_use_orig_params",
    "/fsdp_config/fsdp_sync_module_states",
    "/fsdp_config/fsdp_auto_wrap_policy",
    "/fsdp_config/fsdp_transformer_layer_cls_to_wrap",
};

class Resolution {
 public:
  explicit Resolution(const Job& job) : job_(job) {}

  /// A DeepSpeed configuration that stands at `place`.
  void read_deepspeed(const json& file, const std::string& place) {
    const std::size_t first = keys_.size();
    for (const DeepSpeedKey& row : kDeepSpeedKeys) {
      const json::json_pointer pointer(row.key);
      const bool is_given = file.contains(pointer);
      const bool is_auto = is_given && file[pointer] == "auto";
      const auto stage = static_cast<int>(job_.parallel.deepspeed.zero_stage);
      const bool matters = row.first_stage <= stage && stage <= row.last_stage;
      if (!is_given && !matters) continue;
      keys_.push_back({place + row.key, row.value(job_),
                       is_auto    ? Origin::automatic
                       : is_given ? Origin::file
                                  : Origin::fallback,
                       is_auto ? row.from : "", matters ? Matters::yes : Matters::no});
    }
    read_others(file, place, first);
    std::stable_partition(keys_.begin() + static_cast<std::ptrdiff_t>(first), keys_.end(),
                          [](const ResolvedKey& key) { return key.origin != Origin::fallback; });
  }

  void read_accelerate(const json& file, const std::string& place) {
    const std::size_t first = keys_.size();
    for (const char* key : kAccelerate)
      if (const json::json_pointer pointer(key); file.contains(pointer))
        keys_.push_back({place + key, file[pointer], Origin::file, "", Matters::yes});
    json others = file;
    const json::json_pointer inner("/deepspeed_config/deepspeed_config_file");
    const bool has_inner = file.contains(inner) && file[inner].is_object();
    if (has_inner) others[inner.parent_pointer()].erase(inner.back());
    read_others(others, place, first);
    if (has_inner) read_deepspeed(file[inner], place + inner.to_string());
  }

  std::vector<ResolvedKey> take() { return std::move(keys_); }

 private:
  /// What of a file is not among the keys from `first` on.
  void read_others(const json& value, const std::string& place, std::size_t first) {
    if (value.is_object() && !value.empty()) {
      for (const auto& [key, member] : value.items())
        read_others(member, std::string(place).append("/").append(key), first);
      return;
    }
    for (std::size_t i = first; i < keys_.size(); ++i)
      if (keys_[i].pointer == place) return;
    keys_.push_back({place, value, Origin::file, "", is_not_modelled(place) ? Matters::not_modelled : Matters::no});
  }

  bool is_not_modelled(const std::string& pointer) const {
    return std::any_of(job_.unmodelled.begin(), job_.unmodelled.end(), [&](const Unmodelled& left_out) {
      const std::string place = left_out.text.substr(0, left_out.text.find(':'));
      return pointer == place || pointer.starts_with(place + "/");
    });
  }

  const Job& job_;
  std::vector<ResolvedKey> keys_;
};

}  // namespace

Result<std::vector<ResolvedKey>> resolved_keys(std::string_view text) {
  const Result<Job> job = parse_job(text);
  if (!job) return job.error();
  const json document = *parse_json(text);
  Resolution resolution(*job);
  const json::json_pointer ds_config("/parallel/ds_config"), accelerate("/parallel/accelerate_config");
  if (document.contains(accelerate) && document[accelerate].is_object())
    resolution.read_accelerate(document[accelerate], accelerate.to_string());
  else if (document.contains(ds_config) && document[ds_config].is_object())
    resolution.read_deepspeed(document[ds_config], ds_config.to_string());
  return resolution.take();
}

std::string resolve_json(std::string_view job) {
  const Result<std::vector<ResolvedKey>> keys = resolved_keys(job);
  if (!keys) return error_json(keys.error(), job);
  constexpr const char* kOrigins[] = {"file", "auto", "default"};
  JsonWriter out;
  out.begin_object();
  out.key("resolved");
  out.begin_array();
  for (const ResolvedKey& key : *keys) {
    out.begin_object();
    out.member("pointer", key.pointer);
    out.key("value");
    out.raw(key.value.dump(-1, ' ', false, json::error_handler_t::replace));
    out.member("origin", kOrigins[static_cast<std::size_t>(key.origin)]);
    out.member("from", key.from);
    out.key("matters");
    if (key.matters == Matters::not_modelled)
      out.value("not modelled");
    else
      out.value(key.matters == Matters::yes);
    out.end_object();
  }
  out.end_array();
  out.end_object();
  return out.take();
}

}  // namespace oometer
