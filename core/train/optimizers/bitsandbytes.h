#pragma once

#include "train/optimizer.h"

namespace oometer {

/// bitsandbytes' optimizers (0.50.2: optim/optimizer.py, Optimizer1State and Optimizer2State; optim/ademamix.py,
/// optim/lamb.py), in 8 or 32 bits.
class BitsAndBytes : public Optimizer {
 public:
  using Optimizer::Optimizer;

  std::int64_t host_bytes() const override { return paged_bytes_; }

 protected:
  /// init_state: state1, state2, absmax1, absmax2, unorm_vec, in the order in which they are made.
  State make_state(const Parameter& parameter) override;
  /// One kernel a parameter.
  void update(Group& group) override;

 private:
  bool has_two_states() const { return config_.name != OptimizerName::lion && config_.name != OptimizerName::rmsprop; }
  void make_qmaps();
  Tensor get_state_buffer(const Tensor& parameter, DType dtype, std::int64_t count = 1);

  Tensor qmap_, unsigned_qmap_;  ///< what 8-bit states mean, shared by all
  std::int64_t paged_bytes_ = 0;
};

}  // namespace oometer
