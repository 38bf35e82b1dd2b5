#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// grokadamw.GrokAdamW (0.1.2: grokadamw.py): its three states stay in host memory; those of one parameter come to the
/// device for its update.
class GrokAdamW final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  std::int64_t host_bytes() const override { return host_bytes_; }

 private:
  /// A sign that the states are on the host.
  State make_state(const Parameter& parameter) override {
    host_bytes_ += checked_product(parameter.tensor.nbytes(), 3);
    return {Tensor()};
  }

  // _update_group: names of a loop's turn outlive it
  void update(Group& group) override {
    Tensor exp_avg, exp_avg_sq, grok_ema, grok_grad;
    for (const Parameter& parameter : group.parameters) {
      const Tensor& p = parameter.tensor;
      const Tensor grad = p->grad;
      if (!grad) continue;
      const ModuleScope scope(context_, parameter.module);
      {
        Tensor first = empty_like(Op::to_copy, p);
        Tensor second = empty_like(Op::to_copy, p);
        exp_avg = std::move(first);
        exp_avg_sq = std::move(second);
      }
      {
        Tensor moved = empty_like(Op::to_copy, p);
        grok_ema = std::move(moved);
      }
      clip_grad_norm(context_, {parameter});
      update_(Op::add, {&grok_ema, &grad});
      {
        const Tensor amplified = mul_scalar(grok_ema);
        Tensor sum = add(grad, amplified);
        grok_grad = std::move(sum);
      }
      update_(Op::add, {&exp_avg, &grok_grad});
      update_(Op::addcmul, {&exp_avg_sq, &grok_grad});
      update_(Op::mul, {&p});
      const Tensor denominator = pointwise(Op::sqrt, {&exp_avg_sq}, p.dtype());
      update_(Op::addcdiv, {&p, &exp_avg, &denominator});
    }
  }

  std::int64_t host_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> make_grokadamw(Context& context, const OptimizerConfig& config) {
  return std::make_unique<GrokAdamW>(context, config);
}

}  // namespace oometer
