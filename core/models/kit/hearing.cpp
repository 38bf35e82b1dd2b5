#include "models/kit/hearing.h"

#include "models/kit/image_text.h"
#include "ops/ops.h"

namespace oometer {

ModelOutputs HearingModel::forward(const ModelInputs& inputs) {
  Tensor audio_embeds;  // among the inner model's outputs
  const Tensor hidden_states = model_forward(inputs, audio_embeds);
  return causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function);
}

Tensor HearingModel::model_forward(const ModelInputs& inputs, Tensor& audio_embeds) const {
  ModuleCall call(context_, model_);
  Tensor special_audio_mask;  // bound until forward returns
  Tensor inputs_embeds = language_model_.embed(inputs.input_ids);
  if (inputs.input_features) {
    audio_embeds = audio_features(inputs);
    special_audio_mask = checked_placeholder_mask(inputs.input_ids, inputs_embeds, audio_embeds);
    const Tensor features = to(audio_embeds, inputs_embeds.dtype());
    inputs_embeds = masked_scatter(inputs_embeds, special_audio_mask, features);
  }
  return call.result(
      run_decoder(inputs_embeds, {inputs.position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q}));
}

}  // namespace oometer
