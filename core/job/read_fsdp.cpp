#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "job/names.h"
#include "job/read.h"
#include "job/settings/fields.h"
#include "train/step.h"

namespace oometer {

using nlohmann::json;

namespace {

std::optional<DType> read_dtype(ConfigReader& reader, const char* key, std::optional<DType> fallback) {
  if (!reader.has(key)) return fallback;
  return reader.choice(key, DType::float32, kFloats);
}

}  // namespace

FsdpConfig read_fsdp(ConfigReader fsdp, const Job& job, const ParallelConfig& so_far) {
  FsdpConfig config;
  const bool first = so_far.strategy == Strategy::fsdp1;
  const bool mixed = fsdp.boolean("mp", false);
  config.by_accelerate = job.training.loop.is_trainer();
  // FullyShardedDataParallelPlugin.set_mixed_precision (accelerate 1.15): all in the type of bf16 or fp16; of FSDP1
  // with quantized weights in the type that holds them (update_fsdp_plugin_peft, transformers 5.23).
  const std::optional<QuantizationConfig>& quantization = job.training.quantization;
  const bool takes_storage =
      first && config.by_accelerate && quantization && is_floating_point(quantization->quant_storage);
  std::optional<DType> trainers;
  if (config.by_accelerate)
    trainers = takes_storage ? quantization->quant_storage : autocast_dtype(job.training.precision);
  const auto given = [&](DType dtype) { return mixed ? std::optional(dtype) : trainers; };
  config.param_dtype = read_dtype(fsdp, "param_dtype", given(DType::bfloat16));
  config.reduce_dtype = read_dtype(fsdp, "reduce_dtype", given(DType::float32));
  config.buffer_dtype = read_dtype(fsdp, "buffer_dtype", first ? given(DType::bfloat16) : std::nullopt);
  if (!first) config.output_dtype = trainers;
  if (config.by_accelerate && (config.param_dtype != trainers || config.reduce_dtype != trainers))
    fsdp.fail("", "inconsistent",
              "found types that a trainer does not give to FSDP, which takes them from its arguments bf16 and fp16: "
              "leave them out");
  if (const json* sharding = fsdp.find("sharding");
      sharding && sharding->is_string() && sharding->get<std::string>().find("HYBRID") != std::string::npos)
    fsdp.fail_found("sharding", "not-modelled", "sharding within a node is not supported yet; expected FULL_SHARD");
  read_fields(fsdp, settings::fsdp_section, config);
  if (fsdp.is_null("backward_prefetch")) config.backward_prefetch = FsdpConfig::BackwardPrefetch::none;
  if (fsdp.boolean("keep_low_precision_grads", false))
    fsdp.fail_found("keep_low_precision_grads", "inconsistent",
                    "torch.optim stops at gradients of another dtype than their parameters': leave it out");
  const auto of_other = [&](std::initializer_list<const char*> keys, const char* whose) {
    for (const char* key : keys)
      if (fsdp.has(key))
        fsdp.fail_found(key, "inconsistent", std::string("only strategy ") + whose + " has it: leave it out");
  };
  if (first)
    of_other({"reshard_after_forward", "preparer"}, "\"fsdp2\"");
  else
    of_other({"sharding", "backward_prefetch", "buffer_dtype", "use_orig_params", "forward_prefetch",
              "limit_all_gathers", "sync_module_states", "keep_low_precision_grads"},
             "\"fsdp1\"");
  const ModelTraits& traits = job.model.config.traits();
  config.wrap = fsdp.has("wrap") ? fsdp.texts("wrap") : traits.no_split_modules;
  const auto is_block = [every = families()](const std::string& name) {
    return std::any_of(every.begin(), every.end(), [&](const Family* family) {
      return std::find(family->blocks.begin(), family->blocks.end(), name) != family->blocks.end();
    });
  };
  for (const std::string& name : config.wrap) {
    if (is_block(name)) continue;
    std::string known;
    for (const std::string& block : traits.no_split_modules)
      if (is_block(block)) known += (known.empty() ? "" : ", ") + block;
    const char* whose = fsdp.has("wrap") ? "" : ", which the class names among those that are not split";
    fsdp.fail("wrap", "unknown-value", "found " + quote(name) + whose + "; expected blocks, of this model: " + known);
  }
  const Precision precision = job.training.precision;
  if (config.param_dtype && !takes_storage && (precision == Precision::bf16 || precision == Precision::fp16)) {
    fsdp.fail_found(mixed ? "mp" : "param_dtype", "inconsistent",
                    "FSDP's mixed precision keeps the weights in float32; expected training.precision \"fp32\" or "
                    "\"amp-bf16\"");
  }
  // Its forward casts pixels to the dtype of its first parameter, which is then a unit's that is not gathered.
  if (first && !config.use_orig_params && config.param_dtype && precision == Precision::fp32 &&
      traits.casts_by_first_parameter)
    fsdp.fail_found("use_orig_params", "inconsistent",
                    traits.class_name + " fails in mixed precision without the original parameters; expected true");
  if (are_in_autocast(precision) && !config.by_accelerate)
    fsdp.fail("", "not-modelled",
              "found FSDP with bf16 weights under autocast, which is not supported yet; expected training.precision "
              "bf16 or amp-bf16");
  if (scales_gradients(precision)) {
    fsdp.fail("", "not-modelled",
              "GradScaler under FSDP is not supported yet; expected training.precision bf16 or amp-bf16");
  }
  // FlatParamHandle._writeback_orig_params, of what fix_4bit_weight_quant_state_from_module put in a weight's place.
  if (first && quantization && config.use_orig_params && config.sharding == FsdpConfig::Sharding::shard_grad_op)
    fsdp.fail_found("sharding", "inconsistent",
                    "FSDP stops in backward where parameters that bitsandbytes has replaced stay gathered (\"does not "
                    "support changing the parameters between forward and backward\"); expected FULL_SHARD, or "
                    "use_orig_params false");
  const bool shards = !first || config.sharding_on(so_far.world_size()) != FsdpConfig::Sharding::no_shard;
  if (config.by_accelerate && !shards)
    fsdp.fail("", "not-modelled", "found FSDP that shards nothing, which is not supported yet under a trainer");
  if (config.by_accelerate && so_far.world_size() == 1)
    fsdp.fail("", "not-modelled", "found FSDP on one GPU, which is not supported yet under a trainer");
  if (config.cpu_offload && !shards)
    fsdp.fail_found("cpu_offload", "not-modelled",
                    "offloading with NO_SHARD, as FSDP1 has it on one GPU, is not supported yet: leave one out");
  fsdp.finish();
  return config;
}

}  // namespace oometer
