#include "train/optimizers/in_backward.h"

#include <unordered_map>
#include <utility>

#include "train/optimizers/classes.h"

namespace oometer {

namespace {

/// An optimizer a weight, which a hook of its gradient steps (register_post_accumulate_grad_hook): PyTorch's tutorial
/// "How to save memory by fusing the optimizer step into the backward pass", and transformers' layerwise optimizers
/// (_setup_low_rank_optimizer, 5.23).
class OnePerWeight final : public InBackward {
 public:
  OnePerWeight(Context& context, OptimizerConfig config) : InBackward(context, config), of_weights_(std::move(config)) {
    of_weights_.in_backward = false;
  }

  void add_group(std::vector<Parameter> parameters, bool decays) override {
    for (Parameter& parameter : parameters) {
      std::unique_ptr<Optimizer>& own = optimizers_[parameter.tensor.get()];
      own = make_optimizer(context_, of_weights_);
      own->add_group({std::move(parameter)}, decays);
    }
  }

  bool is_post_accumulate() const override { return true; }
  void gradient_ready(const Tensor& parameter) override {
    const auto own = optimizers_.find(parameter.get());
    if (own == optimizers_.end()) return;
    own->second->step();
    own->second->zero_grad();
  }

 private:
  OptimizerConfig of_weights_;
  std::unordered_map<const TensorImpl*, std::unique_ptr<Optimizer>> optimizers_;
};

}  // namespace

std::unique_ptr<Optimizer> make_in_backward(Context& context, const OptimizerConfig& config) {
  return std::make_unique<OnePerWeight>(context, config);
}

}  // namespace oometer
