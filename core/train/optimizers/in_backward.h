#pragma once

#include "tensor/context.h"
#include "train/optimizer.h"

namespace oometer {

/// An optimizer whose weights change while backward runs: it hears of their gradients. Blocks are all executed then.
class InBackward : public Optimizer, public GradientListener {
 public:
  InBackward(Context& context, const OptimizerConfig& config) : Optimizer(context, config) {
    context.listen(kModel, *this);
    context.repeats = false;
  }
  ~InBackward() override { context_.forget(*this); }

  void step() override {}
  void zero_grad() override {}

 protected:
  State make_state(const Parameter&) override { return {}; }
  void update(Group&) override {}
};

}  // namespace oometer
