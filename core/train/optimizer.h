#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "nn/module.h"
#include "tensor/context.h"
#include "train/config.h"

/// Optimizers by what they allocate; each class has a file of its own in train/optimizers. Here is what they share, and
/// what a training loop calls.
namespace oometer {

/// What an optimizer keeps of a parameter: tensors in its class's own order. In place, as models have many parameters.
class OptimizerState {
 public:
  OptimizerState() = default;
  OptimizerState(std::initializer_list<Tensor> tensors) : size_(tensors.size()) {
    std::copy(tensors.begin(), tensors.end(), tensors_.begin());
  }
  OptimizerState(OptimizerState&& other) noexcept { *this = std::move(other); }
  OptimizerState& operator=(OptimizerState&& other) noexcept {
    for (std::size_t i = 0; i < std::max(size_, other.size_); ++i) tensors_[i] = std::move(other.tensors_[i]);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  ~OptimizerState() {
    for (std::size_t i = 0; i < size_; ++i) tensors_[i].reset();  // the first one first
  }

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  void resize(std::size_t size) { size_ = size; }  ///< to more than there were: handles of nothing yet
  void push_back(Tensor tensor) { tensors_.at(size_++) = std::move(tensor); }
  Tensor& operator[](std::size_t i) { return tensors_[i]; }
  const Tensor& operator[](std::size_t i) const { return tensors_[i]; }
  const Tensor* begin() const { return tensors_.data(); }
  const Tensor* end() const { return begin() + size_; }

 private:
  static constexpr std::size_t kMost = 6;  // CAME's, and torchao's codes, scales and maps
  std::array<Tensor, kMost> tensors_;
  std::size_t size_ = 0;
};

/// torch.optim.Optimizer (PyTorch 2.15): groups of parameters (or of flat partitions of many), and a state of each.
class Optimizer {
 public:
  Optimizer(Context& context, const OptimizerConfig& config);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// `decays`: the config's weight decay is this group's.
  virtual void add_group(std::vector<Parameter> parameters, bool decays = true);
  std::size_t group_count() const { return groups_.size(); }

  /// loss.backward(), or what the class has in its place.
  virtual void backward(const Tensor& loss);
  /// Optimizer.step(): the first creates the states.
  virtual void step();
  /// The same for one group (DeepSpeed steps them one by one).
  void step_group(std::size_t group);
  /// zero_grad(set_to_none=True)
  virtual void zero_grad();
  /// AcceleratedOptimizer.__init__ (accelerate/optimizer.py) moves the states that there are to the device.
  virtual void prepare() {}

  /// What states take in the host's memory, or in unified memory where they are paged.
  virtual std::int64_t host_bytes() const { return 0; }

 protected:
  using State = OptimizerState;  ///< empty: not made yet
  struct Group {
    std::vector<Parameter> parameters;
    std::vector<State> states;
    double weight_decay = 0;
  };

  /// The state of a parameter that has a gradient for the first time (_init_group).
  virtual State make_state(const Parameter& parameter) = 0;
  /// The group's parameters change.
  virtual void update(Group& group) = 0;

  void make_states(Group& group);
  /// A state, shared out among modules as what it is like.
  Tensor state_like(const Tensor& like, Op op = Op::zeros_like) const;
  Tensor scalar_state(Op op = Op::zeros, DType dtype = DType::float32) const;

  Context& context_;
  const OptimizerConfig config_;
  std::vector<Group> groups_;
};

/// The optimizer of that class.
std::unique_ptr<Optimizer> make_optimizer(Context& context, const OptimizerConfig& config);

/// Tensors as large as the parameter that an optimizer keeps of it.
std::int64_t states_per_parameter(const OptimizerConfig& config);

/// Trainable parameters in the groups that HF Trainer makes (Trainer.get_decay_parameter_names): with weight decay, and
/// without (biases and norms); one group holds them all.
std::vector<std::vector<Parameter>> parameter_groups(const std::vector<Parameter>& parameters, std::int64_t groups);

/// The places of those with a gradient, by dtype and in the order that torch's foreach functions take them: the dtype
/// that was met last comes first (_group_tensors_by_device_and_dtype, torch/utils/_foreach_utils.py; ForeachUtils.h
/// holds the groups in a std::unordered_map, which libstdc++ reads from its newest entry).
std::vector<std::vector<std::size_t>> group_by_dtype(const std::vector<Parameter>& parameters);

/// torch.nn.utils.clip_grad_norm_(parameters, max_norm), foreach: one scalar a gradient, no copy of any. `are_sharded`:
/// the gradients are DTensors, so that their norms are summed over the ranks.
/// Gives the norm of them all.
Tensor clip_grad_norm(Context& context, const std::vector<Parameter>& parameters, bool are_sharded = false);

}  // namespace oometer
