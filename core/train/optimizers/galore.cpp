#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/hf_adafactor.h"
#include "train/optimizers/low_rank.h"

namespace oometer {

namespace {

/// galore_torch's AdamW (1.0: adamw.py, galore_projector.py): the moments are those of the projected gradient, and what
/// they give is projected back. The projection changes every update_proj_gap steps as it was made in the first.
class GaLoreAdamW final : public LowRankAdamW {
 public:
  using LowRankAdamW::LowRankAdamW;

 private:
  Tensor project(const Tensor& grad, State& state, bool is_first) override {
    if (is_first) state[ortho_matrix] = singular_vectors(grad, config_);
    return times_projection(grad, state[ortho_matrix], config_);
  }
  void project_back(const Tensor& of_p, State& state, bool) override {
    norm_grad_ = from_projection(norm_grad_, state[ortho_matrix], projects_left(of_p, config_.args.proj_type));
  }
};

/// galore_torch's Adafactor (1.0: adafactor.py), a copy of transformers'.
class GaLoreAdafactor final : public LowRank<HfAdafactor> {
 public:
  using LowRank::LowRank;

 private:
  Tensor project(const Group& group, Tensor grad, Tensor& basis) override {
    if (!has_rank(group)) return grad;
    if (!basis) basis = singular_vectors(grad, config_);
    return times_projection(grad, basis, config_);
  }
  Tensor project_back(const Group& group, const Tensor& p, Tensor update, const Tensor& basis) override {
    if (!has_rank(group)) return update;
    return from_projection(update, basis, projects_left(p, config_.args.proj_type));
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_galore(Context& context, const OptimizerConfig& config) {
  if (config.name == OptimizerName::galore_adafactor) return std::make_unique<GaLoreAdafactor>(context, config);
  return std::make_unique<GaLoreAdamW>(context, config);
}

}  // namespace oometer
