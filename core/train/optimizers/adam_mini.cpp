#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// adam_mini.Adam_mini (1.1.1: adam_mini.py), by the names of the parameters: one second moment for a head, for a row,
/// or for a whole tensor; biases have Adam's.
class AdamMini final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  void step() override {
    Optimizer::step();
    for (Tensor* name : {&block_numel_, &tmp_lr_, &h_, &stepsize_, &update_name_}) name->reset();
  }

 private:
  enum : std::size_t { m, v };
  enum class Block : std::uint8_t { bias, head, row, whole };

  static bool has_any(const std::string& name, std::initializer_list<std::string_view> parts) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](std::string_view part) { return name.find(part) != std::string::npos; });
  }
  Block block_of(const Parameter& parameter) const {
    std::string name = module_path(context_.log, parameter.module) + "." + std::string(parameter.name);
    std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
    if (has_any(name, {"bias"})) return Block::bias;
    if (has_any(name, {"k_proj", "q_proj", "wq", "wk", "query", "key"})) return Block::head;
    if (has_any(name, {"embed", "embd", "wte", "lm_head", "output", "final_layer", "v_proj", "wv", "value",
                       "feed_forward", "linear", "mlp", "o_proj", "wo", "attn.proj"}))
      return Block::row;
    return Block::whole;
  }

  /// How many second moments there are; 0: the class cannot.
  std::int64_t moments(const Parameter& parameter, Block block) const {
    const Tensor& p = parameter.tensor;
    if (block == Block::whole) return 1;
    if (block == Block::row) return p.ndim() == 2 ? p.size(0) : 0;
    const std::int64_t head_numel = config_.args.dim * config_.args.dim / config_.args.heads;
    return head_numel > 0 && p.numel() % head_numel == 0 ? p.numel() / head_numel : 0;
  }

  State make_state(const Parameter&) override { return {}; }

  State first_state(const Parameter& parameter) {
    const Tensor& p = parameter.tensor;
    const Block block = block_of(parameter);
    State state;
    if (block == Block::bias) {
      state.push_back(state_like(p));
      state.push_back(state_like(p));
      return state;
    }
    const std::int64_t count = moments(parameter, block);
    if (count == 0) {
      if (!context_.refusal)
        context_.refusal =
            Error{"inconsistent", "/training/optimizer/args",
                  "Adam-mini cuts " + module_path(context_.log, parameter.module) + "." + std::string(parameter.name) +
                      (block == Block::head ? " into heads of dim * dim / n_heads elements, which do not fill it; "
                                              "expected the model's hidden_size and num_attention_heads"
                                            : " into rows, and it is no matrix; expected another optimizer")};
      return state;
    }
    state.push_back(state_like(p));
    if (block == Block::whole) {
      block_numel_ = empty(context_, Op::to_copy, {}, DType::float32);
      Tensor square = mul(p, p);
      const Tensor sum = reduce(Op::sum, square, all_dims(p), false, p.dtype());
      square.reset();
      state.push_back(empty(context_, Op::zeros_like, {}, p.dtype(), Role::optimizer_state));
    } else {
      state.push_back(empty(context_, Op::zeros_like, {count, 1}, p.dtype(), Role::optimizer_state));
    }
    return state;
  }

  static std::vector<int> all_dims(const Tensor& x) {
    std::vector<int> dims;
    for (int i = 0; i < x.ndim(); ++i) dims.push_back(i);
    return dims;
  }

  void update(Group& group) override {
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const Parameter& parameter = group.parameters[i];
      const Tensor& p = parameter.tensor;
      const Tensor& grad = p->grad;
      State& state = group.states[i];
      if (!grad) continue;
      const ModuleScope scope(context_, parameter.module);
      if (state.empty()) state = first_state(parameter);
      if (state.empty()) return;
      const Block block = block_of(parameter);
      if (block == Block::bias) {
        update_(Op::addcmul, {&state[v], &grad});
      } else if (block == Block::whole) {
        {
          const Tensor square = mul(grad, grad);
          tmp_lr_ = reduce(Op::sum, square, all_dims(grad), false, p.dtype());
        }
        tmp_lr_ = div_scalar(tmp_lr_);
      } else {
        const Tensor square = mul(view(grad, {state[v].size(0), grad.numel() / state[v].size(0)}),
                                  view(grad, {state[v].size(0), grad.numel() / state[v].size(0)}));
        tmp_lr_ = reduce(Op::mean, square, {1}, true, p.dtype());
      }
      update_(Op::lerp, {&state[m], &grad});
      {
        const Tensor root = pointwise(Op::sqrt, {&state[v]}, p.dtype());
        h_ = div_scalar(root);
      }
      if (block == Block::bias) {
        update_(Op::addcdiv, {&p, &state[m], &h_});
        continue;
      }
      {
        const Tensor inverse = pointwise(Op::reciprocal, {&h_}, p.dtype());
        stepsize_ = mul_scalar(inverse);
      }
      update_name_ = pointwise(Op::mul, {&state[m]}, p.dtype());
      update_(Op::mul, {&update_name_});
      const Tensor negative = neg(update_name_);
      update_(Op::add, {&p, &negative});
    }
  }

  // Names of `step`, which outlive its loops.
  Tensor block_numel_, tmp_lr_, h_, stepsize_, update_name_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adam_mini(Context& context, const OptimizerConfig& config) {
  return std::make_unique<AdamMini>(context, config);
}

}  // namespace oometer
