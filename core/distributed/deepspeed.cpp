#include "distributed/deepspeed.h"

#include "autograd/engine.h"
#include "ops/ops.h"

namespace oometer {

Tensor scalar(Context& context, Op op, DType dtype) { return empty(context, op, {}, dtype); }

Tensor is_finite(const Tensor& x) {
  const Tensor magnitude = empty_like(Op::abs, x);
  const Tensor not_infinite = empty_like(Op::ne, x, DType::boolean);
  const Tensor not_nan = empty_like(Op::eq, x, DType::boolean);
  return empty_like(Op::mul, x, DType::boolean);
}

Tensor is_infinite(const Tensor& x) {
  const Tensor magnitude = empty_like(Op::abs, x);
  return empty_like(Op::eq, x, DType::boolean);
}

namespace {

/// `buffer.data = buffer.data.to(dtype)`.
void cast_buffer(Context& context, const Buffer& buffer, DType dtype) {
  const ModuleScope scope(context, buffer.module);
  const Tensor cast = empty(context, Op::to_copy, buffer.tensor.sizes(), dtype, Role::buffer);
  buffer.tensor->dtype = dtype;
  set_data(buffer.tensor, cast);
}

}  // namespace

void cast_module(Context& context, const Model& model, DType dtype) {
  for (const Parameter& parameter : model.parameters) cast_parameter(parameter.tensor, dtype);
  const bool halves = context.behaviours.deepspeed_halves_buffers;
  for (const Buffer& buffer : model.buffers) {
    if (!is_floating_point(buffer.tensor.dtype())) continue;
    const DType wanted = halves ? dtype : DType::float32;
    if (buffer.tensor.dtype() == wanted) continue;
    if (halves || buffer.is_kept_in_float32) cast_buffer(context, buffer, wanted);
  }
}

void DeepSpeedTrainer::refuse_half_gradients() {
  for (const Parameter& parameter : model_.parameters)
    if (parameter.tensor->leaf_requires_grad && parameter.tensor.dtype() != DType::float32)
      refusal_ =
          Error{"not-modelled", "/training/loop/args",
                "found weights in half precision that train while DeepSpeed's bf16 and fp16 are off, as the "
                "trainer's bf16 and fp16 say; gradients are then reduced as float32, which is not supported yet; "
                "expected bf16 true, or adapters in float32"};
}

TensorList DeepSpeedTrainer::states_of_basic_optimizer() const {
  TensorList states;
  if (!has_states_at_once()) return states;
  for (const Parameter& parameter : model_.parameters) {
    if (!parameter.tensor->leaf_requires_grad || !context_.record(parameter.tensor)) continue;  // cut by zero.Init
    states.push_back(empty_like(Op::full_like, parameter.tensor));
    context_.set_role(states.back(), Role::optimizer_state, parameter.module);
  }
  return states;
}

void DeepSpeedTrainer::backward(const Tensor& loss, bool last_micro_step) {
  last_micro_step_ = last_micro_step;
  const Behaviours& b = context_.behaviours;
  if (b.zero_buckets_at_first_gradient) {
    // DeepSpeedEngine.backward (0.19.8): the loss is divided by the accumulation steps, be it by 1, and scaled.
    const Tensor divided = scale_wrt_gas ? div_scalar(loss) : loss;
    Tensor scaled = mul_scalar(divided);  // scale_if_loss, in the loss's own type
    autograd::backward(scaled);
    backward_epilogue(last_micro_step);
    scaled.reset();
    return;
  }
  // _scale_loss_by_gas
  Tensor own = loss;
  if (training_.gradient_accumulation_steps > 1) {
    const Tensor as_float = to(loss, DType::float32);
    own = div_scalar(as_float);
  }
  Tensor mean = mean_all(own);
  if (b.deepspeed_keeps_losses)  // the mean is a local name of engine.backward until it returns
    losses_ = losses_ ? pointwise(Op::add, {&losses_, &mean}, mean.dtype()) : detach(mean);
  else
    mean.reset();
  backward_prologue();
  {
    const Tensor as_float = to(own, DType::float32);
    const Tensor scaled = mul_scalar(as_float);
    autograd::backward(scaled);
  }
  backward_epilogue(last_micro_step);
}

Tensor DeepSpeedTrainer::combine_norms(std::vector<Tensor>& groups) {
  const DType dtype = groups.front().dtype();
  Tensor stacked = empty(context_, Op::stack, {static_cast<std::int64_t>(groups.size())}, dtype);
  if (!context_.behaviours.zero_checks_overflow_always) {
    Tensor norm = scalar(context_, Op::linalg_vector_norm, dtype);
    stacked.reset();
    groups.clear();
    return norm;
  }
  Tensor finite = is_finite(stacked);
  Tensor not_finite = empty_like(Op::logical_not, finite);
  finite.reset();
  Tensor negative = empty_like(Op::le, stacked, DType::boolean);
  Tensor either = empty_like(Op::add, negative);
  not_finite.reset();
  negative.reset();
  const Tensor any = scalar(context_, Op::all, DType::boolean);
  either.reset();
  const Tensor combined = scalar(context_, Op::linalg_vector_norm, dtype);
  const Tensor infinity = scalar(context_, Op::fill, dtype);
  return scalar(context_, Op::where, dtype);
}

void DeepSpeedTrainer::unscale_and_clip(const Tensor& norm) {
  if (!norm || (config_.gradient_clipping <= 0 && !context_.behaviours.deepspeed_clips_by_default)) return;
  const auto next = [&](Op op) { return scalar(context_, op, norm.dtype()); };
  Tensor coefficient = next(Op::div);
  coefficient = next(Op::add);
  coefficient = next(Op::div);
  coefficient = next(Op::clamp);
  const Tensor combined = next(Op::mul);
  Tensor inverse = next(Op::reciprocal);
  inverse = next(Op::mul);
}

}  // namespace oometer
