#include "models/kit/audio_input.h"

namespace oometer {

void check_audio_input(Context& context, const Tensor& features, const Tensor& weight) {
  if (context.autocast.enabled || features.dtype() == weight.dtype()) return;
  if (weight.dtype() == DType::float32)
    context.refusal = Error{"inconsistent", "/training/quantization/prepare_model_for_kbit_training",
                            "found true, which makes the convolutions float32, and features in another type, which "
                            "these do not take (a RuntimeError); expected false, or a precision with autocast"};
  else
    context.refusal =
        Error{"inconsistent", "/training/precision",
              "found weights in a half type and features in float32, as the processor gives them, which "
              "the encoder's convolutions do not take without autocast (a RuntimeError); expected autocast"};
}

}  // namespace oometer
