#include <string_view>
#include <utility>

#include "train/optimizers/classes.h"

namespace oometer {

namespace {

/// Two optimizers, stepped one after the other: one of the matrices of the layers, as Muon takes them, and one of the
/// rest.
class WithRest final : public Optimizer {
 public:
  WithRest(Context& context, OptimizerConfig config)
      : Optimizer(context, config), rest_config_(std::move(config.rest.front())) {
    config.rest.clear();
    of_matrices_ = make_optimizer(context, config);
    of_rest_ = make_optimizer(context, rest_config_);
  }

  void add_group(std::vector<Parameter> parameters, bool decays) override {
    std::vector<Parameter> matrices, rest;
    for (Parameter& parameter : parameters)
      (is_matrix_of_layer(parameter) ? matrices : rest).push_back(std::move(parameter));
    if (!matrices.empty()) of_matrices_->add_group(std::move(matrices), decays);
    for (std::vector<Parameter>& group : parameter_groups(rest, rest_config_.param_groups)) {
      const bool has_decay = rest_config_.param_groups == 1 || group.front().decays;
      of_rest_->add_group(std::move(group), has_decay);
    }
  }

  void step() override {
    of_matrices_->step();
    of_rest_->step();
  }
  void zero_grad() override {
    of_matrices_->zero_grad();
    of_rest_->zero_grad();
  }
  void prepare() override {
    of_matrices_->prepare();
    of_rest_->prepare();
  }
  std::int64_t host_bytes() const override { return of_matrices_->host_bytes() + of_rest_->host_bytes(); }

 private:
  /// p.dim() == 2 and "layers." in name
  bool is_matrix_of_layer(const Parameter& parameter) const {
    if (parameter.tensor.ndim() != 2) return false;
    const Log& log = context_.log;
    for (ModuleId id = parameter.module; id != 0; id = log.modules[id].parent) {
      if (log.modules[id].index >= 0 && log.modules[id].name == std::string_view("layers")) return true;
      if (log.modules[id].parent == id) break;
    }
    return false;
  }

  State make_state(const Parameter&) override { return {}; }
  void update(Group&) override {}

  OptimizerConfig rest_config_;
  std::unique_ptr<Optimizer> of_matrices_, of_rest_;
};

}  // namespace

std::unique_ptr<Optimizer> make_with_rest(Context& context, const OptimizerConfig& config) {
  return std::make_unique<WithRest>(context, config);
}

}  // namespace oometer
