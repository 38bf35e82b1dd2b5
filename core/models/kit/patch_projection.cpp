#include "models/kit/patch_projection.h"

#include "ops/ops.h"
#include "peft/lora.h"

namespace oometer {

Tensor project_patches(const Linear& projection, const Tensor& x_in, const CheckpointingConfig& checkpointing) {
  if (!projection.wrapper || checkpointing.mode == CheckpointMode::none || checkpointing.hooks_adapters) {
    Tensor projected = projection(x_in);
    require_input_grad(checkpointing, projected, projection.module);
    return projected;
  }
  const LoraLinear* const lora = projection.wrapper->as_lora();
  if (!lora) {
    x_in.context().refusal =
        Error{"not-modelled", "/training",
              "found an adapter on the projection of patches beside checkpointing, which is supported "
              "with LoRA only: leave that layer out"};
    return projection(x_in);
  }
  Tensor result = projection.forward(x_in);
  require_input_grad(checkpointing, result, projection.module);
  if (x_in.context().adapters_disabled) return result;
  const DType result_dtype = result.dtype();
  const LoraAdapter& adapter = lora->adapter();
  if (projection.quantized) {
    const bool converts = !x_in.context().autocast.enabled;
    result = clone(result);
    const Tensor x = converts ? adapter.input(x_in) : x_in;
    Tensor output = adapter.output(x);
    if (converts) output = to(output, result_dtype);
    return add(result, output);
  }
  const Tensor x = adapter.input(x_in);
  result = adapter.update(projection, x, result);
  return to(result, result_dtype);
}

}  // namespace oometer
