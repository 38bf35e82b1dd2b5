#include <utility>

#include "ops/ops.h"
#include "tensor/kernel.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// torch.addmm(self, mat1, mat2, beta=..., alpha=...) with a matrix `self`, which is copied into the result (Blas.cpp,
/// addmm_out_cuda_impl).
Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2) {
  Context& context = self.context();
  Tensor result = empty(context, Op::addmm, {mat1.size(0), mat2.size(1)}, mat1.dtype());
  kernel(Op::copy, {&self}, result);
  const GemmWorkspace workspace(context);
  gemm_kernel(Op::addmm, mat1, mat2, result, self);
  return result;
}

/// torch.optim.Muon (PyTorch 2.15: torch/optim/_muon.py), of matrices only.
class Muon final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  void add_group(std::vector<Parameter> parameters, bool decays) override {
    for (const Parameter& parameter : parameters)
      if (parameter.tensor.ndim() != 2 && !context_.refusal)
        context_.refusal =
            Error{"inconsistent", "/training/optimizer",
                  "found torch.optim.Muon of all weights: \"Muon only supports 2D parameters\"; expected "
                  "another optimizer for the others: {\"rest\": \"torch.optim.AdamW\"}"};
    Optimizer::add_group(std::move(parameters), decays);
  }

 private:
  State make_state(const Parameter& parameter) override { return {state_like(parameter.tensor->grad)}; }

  // _single_tensor_muon
  void update(Group& group) override {
    Tensor result;  // `update`
    for_each_tensor(group.parameters, group.states, [&](const Tensor& param, const Tensor& grad, State& state) {
      const Tensor& buf = state[0];
      update_(Op::lerp, {&buf, &grad});
      result = config_.args.nesterov ? pointwise(Op::lerp, {&grad, &buf}, grad.dtype()) : buf;
      result = zeropower_via_newtonschulz(result);
      update_(Op::mul, {&param});
      update_(Op::add, {&param, &result});
    });
  }

  Tensor zeropower_via_newtonschulz(const Tensor& grad) const {
    const bool is_tall = grad.size(0) > grad.size(1);
    Tensor ortho_grad = empty_like(Op::to_copy, grad, DType::bfloat16);
    if (is_tall) ortho_grad = transpose(ortho_grad, 0, 1);
    {
      Tensor norm = reduce(Op::linalg_vector_norm, ortho_grad, {0, 1}, false, DType::bfloat16);
      const Tensor clamped = pointwise(Op::clamp, {&norm}, DType::bfloat16);
      norm.reset();
      update_(Op::div, {&ortho_grad});
    }
    Tensor gram_matrix, gram_update;
    for (std::int64_t i = 0; i < config_.args.ns_steps; ++i) {
      {
        const Tensor transposed = transpose(ortho_grad, 0, 1);
        gram_matrix = mm(ortho_grad, transposed);
      }
      gram_update = addmm(gram_matrix, gram_matrix, gram_matrix);
      ortho_grad = addmm(ortho_grad, gram_update, ortho_grad);
    }
    return is_tall ? transpose(ortho_grad, 0, 1) : ortho_grad;
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(Context& context, const OptimizerConfig& config) {
  return std::make_unique<Muon>(context, config);
}

}  // namespace oometer
