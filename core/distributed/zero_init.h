#pragma once

#include <cstdint>
#include <vector>

#include "distributed/config.h"
#include "nn/module.h"
#include "tensor/context.h"

namespace oometer {

/// A parameter as ZeRO-3 has it: cut evenly among the ranks, whole only while a module needs it.
struct ZeroParameter {
  enum class Status : std::uint8_t { not_available, inflight, available };

  Tensor tensor;                     ///< the model's own; without memory while it is not available
  ModuleId module = 0;               ///< whose it is
  std::int64_t numel = 0;            ///< ds_numel
  std::int64_t partition_numel = 0;  ///< of each rank, padded
  Tensor partition;                  ///< ds_tensor; null where it is in host memory
  Storage nothing;                   ///< what `tensor` has while it is not available
  Status status = Status::not_available;
};

/// deepspeed.zero.Init (runtime/zero/partition_parameters.py), inside which from_pretrained builds a model under
/// ZeRO-3: each module's parameters are cut as soon as its constructor is through. Lives while the model is built.
class ZeroInit final : public ConstructionListener {
 public:
  /// `dtype`: of the engine's precision.
  ZeroInit(Context& context, const DeepSpeedConfig& config, std::int64_t world, DType dtype);
  ~ZeroInit() override;

  /// The model is there. Its parameters, in the order in which they were cut.
  std::vector<ZeroParameter> finish();

 private:
  void module_reached(ModuleId module) override { complete(module); }
  void parameter_made(const Tensor& parameter, ModuleId module) override;
  void complete(ModuleId next);

  Context& context_;
  const DeepSpeedConfig& config_;
  std::int64_t world_;
  DType dtype_;
  std::vector<ZeroParameter> pending_, done_;
};

/// Init._zero_init_param: the rank's part gets memory of its own, on the device or in host memory, and the whole is let
/// go.
void partition_parameter(Context& context, ZeroParameter& parameter, const DeepSpeedConfig& config, std::int64_t world);
/// Param.all_gather(param_list): each that is cut into memory of its own, at once (_allgather_params_sequential,
/// _allgather_params_coalesced).
void gather_parameters(Context& context, const std::vector<ZeroParameter*>& wanted, std::int64_t world);
/// New memory of `numel` elements for a parameter, or for a part of it.
Storage parameter_memory(Context& context, const ZeroParameter& parameter, std::int64_t numel);
/// Param.partition(): the whole parameter is freed.
void release_parameter(ZeroParameter& parameter);

}  // namespace oometer
