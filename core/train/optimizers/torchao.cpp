#include <utility>

#include "ops/ops.h"
#include "tensor/tensor_list.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// torchao.optim's AdamW8bit, AdamW4bit and AdamWFp8, and their Adam (0.18: optim/adam.py, subclass_8bit.py,
/// subclass_4bit.py, subclass_fp8.py). A weight's step is compiled, and what Inductor (PyTorch 2.15) does not fuse lies
/// in buffers as large as the weight.
class TorchAo final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  /// The learning rate is a tensor, which accelerate moves, and of which the scheduler has copies.
  void prepare() override {
    constexpr int kCopies = 4;  // lr, initial_lr, base_lrs, _last_lr
    for (std::size_t i = 0; i < kCopies * groups_.size(); ++i)
      lrs_.push_back(empty(context_, Op::clone, {}, DType::float32, Role::optimizer_state));
  }

 private:
  State make_state(const Parameter&) override { return {}; }

  bool is_quantized(const Tensor& p) const {
    constexpr std::int64_t kLeast = 4096;
    return p.numel() >= kLeast && p.numel() % config_.args.block_size == 0;
  }

  // _new_buffer: codes, scale and, unless in fp8, qmap; small ones, and those that blocks do not fill, are like the
  // weight
  void new_buffer(State& state, const Tensor& p) {
    const std::int64_t block_size = config_.args.block_size, count = p.numel();
    if (!is_quantized(p)) return state.push_back(state_like(p));
    const auto add = [&](const Shape& sizes, DType dtype) {
      state.push_back(empty(context_, Op::zeros, sizes, dtype, Role::optimizer_state));
    };
    const bool is_4bit = config_.name == OptimizerName::torchao_adamw_4bit;
    if (is_4bit)
      add({count / 2}, DType::uint8);
    else
      add(p.sizes(), DType::uint8);
    add({count / block_size}, DType::float32);
    if (config_.name != OptimizerName::torchao_adamw_fp8) add({is_4bit ? 16 : 256}, DType::float32);
  }

  // single_param_adam
  void update(Group& group) override {
    for_each_tensor(group.parameters, group.states, [&](const Tensor& p, const Tensor& grad, State& state) {
      if (state.empty()) {
        new_buffer(state, p);  // exp_avg
        new_buffer(state, p);  // exp_avg_sq
      }
      const TensorList buffers = is_quantized(p) ? unfused(p) : TensorList();
      Tensor seeds;
      if (config_.args.bf16_stochastic_round && p.dtype() == DType::bfloat16)
        seeds = empty(context_, Op::randn, {1}, DType::int64);
      update_(Op::fused_adam, {&p, &grad});
      for (const Tensor& each : state) update_(Op::fused_adam, {&each});
    });
  }

  /// What Inductor's code of the step holds at once. 8 bits: one kernel, unless a block of a state begins in one row
  /// and ends in another. fp8: the same, but before Ada and Hopper Triton has no fp8, so that both moments are scaled
  /// in float32, and then cast one after the other. 4 bits: both moments, scaled, and their codes in int64, which are
  /// packed two by two.
  TensorList unfused(const Tensor& p) const {
    const std::int64_t block_size = config_.args.block_size, row = p.size(-1);
    const bool is_4bit = config_.name == OptimizerName::torchao_adamw_4bit;
    const bool is_fp8 = config_.name == OptimizerName::torchao_adamw_fp8;
    const bool casts = is_fp8 && std::pair(context_.device.major, context_.device.minor) < std::pair(8, 9);
    const bool cuts_rows = p.ndim() > 1 && row % block_size != 0 && block_size % row != 0;
    TensorList buffers;
    const auto add_two = [&](std::int64_t numel, DType dtype) {
      for (int moment = 0; moment < 2; ++moment) buffers.push_back(empty(context_, Op::empty, {numel}, dtype));
    };
    if (is_4bit || cuts_rows) add_two(p.numel() / block_size, DType::float32);
    if (is_4bit || casts || (cuts_rows && !is_fp8)) add_two(p.numel(), DType::float32);
    if (is_4bit) add_two(p.numel(), DType::int64);
    if (casts) {
      if (cuts_rows)
        for (std::size_t i = 0; i < 2; ++i) buffers[i].reset();  // the scales are where they belong
      for (int moment = 0; moment < 2; ++moment) {
        buffers.push_back(empty(context_, Op::to_copy, p.sizes(), DType::uint8));
        buffers[(cuts_rows ? 2 : 0) + static_cast<std::size_t>(moment)].reset();
      }
    }
    return buffers;
  }

  TensorList lrs_;
};

}  // namespace

std::unique_ptr<Optimizer> make_torchao(Context& context, const OptimizerConfig& config) {
  return std::make_unique<TorchAo>(context, config);
}

}  // namespace oometer
