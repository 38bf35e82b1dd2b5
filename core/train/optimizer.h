#pragma once

#include <vector>

#include "nn/module.h"
#include "tensor/context.h"
#include "train/config.h"

/// torch.optim, by what it allocates (PyTorch 2.15: torch/optim/adam.py, adamw.py, sgd.py), and bitsandbytes' Adam and
/// AdamW (0.50.2: optim/optimizer.py, Optimizer2State), and DeepSpeed's FusedAdam (0.19.8: ops/adam/fused_adam.py).
namespace oometer {

/// What one optimizer steps: a parameter (or a flat partition of many), with its gradient.
class Optimizer {
 public:
  Optimizer(Context& context, const OptimizerConfig& config);

  void add_group(std::vector<Parameter> parameters) { groups_.push_back({std::move(parameters), {}}); }
  std::size_t group_count() const { return groups_.size(); }

  /// Optimizer.step(): the first creates the states.
  void step();
  /// The same for one group (DeepSpeed steps them one by one).
  void step_group(std::size_t group);
  /// zero_grad(set_to_none=True)
  void zero_grad();

  /// What paged states take in unified memory, which is not the caching allocator's.
  std::int64_t paged_bytes() const { return paged_bytes_; }

 private:
  struct State {
    Storage step, first, second;  ///< exp_avg, exp_avg_sq; or momentum_buffer. Nothing asks for more than their memory
    Storage first_absmax, second_absmax;  ///< bitsandbytes, 8 bits: the largest of each block
    bool made = false;
  };
  struct Group {
    std::vector<Parameter> parameters;
    std::vector<State> states;
    /// Of the parameters that have states, which are those that are updated, their gradients and states.
    std::int64_t parameter_bytes = 0, gradient_bytes = 0, first_bytes = 0, second_bytes = 0;
  };

  void init_group(Group& group);
  void update(Group& group);
  void make_state(const Parameter& parameter, State& state);
  static void add_bytes(Group& group, const Parameter& parameter, const State& state);
  void tell(const Group& group) const;
  void init_bitsandbytes(const Parameter& parameter, State& state);
  Storage bitsandbytes_buffer(const Parameter& parameter, DType dtype);

  Context& context_;
  OptimizerConfig config_;
  std::vector<Group> groups_;
  Storage overflow_buffer_;       ///< DeepSpeed: _dummy_overflow_buf
  Storage qmap_, unsigned_qmap_;  ///< bitsandbytes: what 8-bit states mean, shared by all
  std::int64_t paged_bytes_ = 0;
};

/// Tensors as large as the parameter that an optimizer keeps of it.
std::int64_t states_per_parameter(const OptimizerConfig& config);

/// Trainable parameters in the groups that HF Trainer makes (Trainer.get_decay_parameter_names): with weight decay, and
/// without (biases and norms); one group holds them all.
std::vector<std::vector<Parameter>> parameter_groups(const std::vector<Parameter>& parameters, std::int64_t groups);

/// Those with a gradient, by dtype and in the order that torch's foreach functions take them: the dtype that was met
/// last comes first (_group_tensors_by_device_and_dtype, torch/utils/_foreach_utils.py; ForeachUtils.h holds the groups
/// in a std::unordered_map, which libstdc++ reads from its newest entry).
std::vector<std::vector<Parameter>> foreach_groups(const std::vector<Parameter>& parameters);

/// torch.nn.utils.clip_grad_norm_(parameters, max_norm), foreach: one scalar a gradient, no copy of any. `are_sharded`:
/// the gradients are DTensors, so that their norms are summed over the ranks.
/// Gives the norm of them all.
Tensor clip_grad_norm(Context& context, const std::vector<Parameter>& parameters, bool are_sharded = false);

}  // namespace oometer
