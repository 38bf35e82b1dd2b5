#include "models/qwen2_audio/qwen2_audio.h"

#include <utility>

#include "models/kit/attended_loss.h"
#include "models/kit/decoder.h"
#include "models/masking.h"
#include "ops/ops.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

constexpr WhisperClassNames kQwen2AudioEncoder{"Qwen2AudioEncoder", "Qwen2AudioEncoderLayer", "Qwen2AudioAttention",
                                               WhisperClassNames::Positions::added, 2};

struct Qwen2AudioMultiModalProjector {
  Qwen2AudioMultiModalProjector() = default;
  Qwen2AudioMultiModalProjector(const Builder& builder, const Qwen2AudioConfig& c)
      : linear(builder.child("linear", "Linear"), c.audio.hidden_size, c.text.hidden_size, true),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    return call.result(linear(call.argument(argument)));
  }

  Linear linear;
  ModuleId module = 0;
};

class Qwen2Audio : public LanguageModel {
 public:
  Qwen2Audio(Context& context, const Qwen2AudioConfig& config, const DataConfig& data, const ModelOptions& options)
      : LanguageModel(context, "Qwen2AudioForConditionalGeneration", Modality::none, data, options),
        config_(config),
        masked_(masked_by(options.attention)) {
    loss_type = LossType::shifted;
    const Builder model = root_.child("model", "Qwen2AudioModel");
    model_ = model.module;
    ModelOptions of_tower = options;
    // The model's main input is text: enable_input_require_grads reaches the tower's first convolution, too.
    of_tower.checkpointing.input_require_grads |= options.checkpointing.mode != CheckpointMode::none;
    audio_tower_ = WhisperEncoder(model.child("audio_tower", kQwen2AudioEncoder.encoder, Modality::vision),
                                  config.audio, kQwen2AudioEncoder, of_tower);
    projector_ = Qwen2AudioMultiModalProjector(
        model.child("multi_modal_projector", "Qwen2AudioMultiModalProjector", Modality::projector), config);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options);
    language_model_.blocks.first_block = audio_tower_.layers.size();
    make_head(root_, config.text, false);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const Tensor hidden_states = model_forward(inputs);
    ModelInputs of_all = inputs;
    of_all.logits_to_keep = 0;  // which its forward does not take
    if (inputs.labels && inputs.attention_mask && !loss_function->replaces_forward())
      return attended_outputs(hidden_states, lm_head_, inputs, data_, "Qwen2AudioForConditionalGeneration");
    return causal_lm_outputs(hidden_states, lm_head_, of_all, loss_function);
  }

  void make_audios(ModelInputs& batch) override {
    if (data_.audios() == 0) return;
    batch.input_features =
        input({data_.audios(), config_.audio.num_mel_bins, config_.audio.frames()}, data_.pixel_dtype.value_or(dtype_));
    // feature_attention_mask
    batch.pixel_attention_mask = input({data_.audios(), config_.audio.frames()}, DType::int32);
  }

 private:
  void complete(ModelInputs& batch) override { make_audios(batch); }

  Tensor integers(Op op, const Shape& sizes) const { return empty(context_, op, sizes, DType::int64); }

  /// (lengths - of) // 2 + 1
  Tensor halved(const Shape& audios) const {
    Tensor lengths = integers(Op::sub, audios);
    lengths = integers(Op::div, audios);
    return integers(Op::add, audios);
  }

  /// What the tower's layers get, of audio shorter than its window; `states`: [audios].
  Tensor audio_mask(const Tensor& audio_attention_mask_2d, const Tensor& dummy_embeds) const {
    Rows rows;
    rows.has_mask = true;
    rows.documents.assign(static_cast<std::size_t>(dummy_embeds.size(0)), {config_.states(data_.audio_seconds)});
    MaskArguments given;
    given.attention_mask = audio_attention_mask_2d;
    given.rows = &rows;
    return create_bidirectional_mask(dummy_embeds, given, masked_);
  }

  // Qwen2AudioModel.forward, of input_ids in which the processor has put as many audio tokens as there are features
  Tensor model_forward(const ModelInputs& inputs) const {
    ModuleCall call(context_, model_);
    Tensor inputs_embeds = language_model_.embed(inputs.input_ids);
    // Python's locals, bound until forward returns
    Tensor audio_feat_lengths, audio_output_lengths, seq_range, padding_mask, audio_attention_mask_2d, dummy_embeds,
        audio_attention_mask, selected_audio_feature, audio_features, audio_tokens, legacy_processing,
        audio_features_mask, special_audio_mask;
    if (inputs.input_features) {
      const std::int64_t audios = inputs.input_features.size(0), states = config_.audio.max_source_positions,
                         tokens = config_.tokens(data_.audio_seconds);
      {
        const Tensor lengths = sum(inputs.pixel_attention_mask, {1}, false);
        audio_feat_lengths = halved({audios});
        audio_output_lengths = halved({audios});
      }
      seq_range = integers(Op::arange, {states});
      padding_mask = empty(context_, Op::ge, {audios, states}, DType::boolean);
      {
        const Tensor attended = empty(context_, Op::bitwise_not, {audios, states}, DType::boolean);
        audio_attention_mask_2d = integers(Op::to_copy, {audios, states});
      }
      dummy_embeds = empty(context_, Op::zeros, {audios, states, 1}, inputs_embeds.dtype());
      audio_attention_mask = audio_mask(audio_attention_mask_2d, dummy_embeds);
      selected_audio_feature = audio_tower_(inputs.input_features, audio_attention_mask);
      audio_features = projector_(selected_audio_feature);
      audio_tokens = pointwise(Op::eq, {&inputs.input_ids}, DType::boolean);
      {
        const Tensor tokens_but_one = slice(audio_tokens, 1, 0, audio_tokens.size(1) - 1);
        Tensor both = pointwise(Op::bitwise_and, {&tokens_but_one}, DType::boolean);
        const Tensor count = sum_all(both);
        both.reset();
        legacy_processing = pointwise(Op::eq, {&count}, DType::boolean);
      }
      const std::int64_t of_each = audio_features.size(1);
      audio_features_mask = integers(Op::arange, {of_each});
      audio_features_mask = empty(context_, Op::lt, {audios, of_each}, DType::boolean);
      audio_features = index_mask(audio_features, audio_features_mask, checked_product(audios, tokens));
      {
        Tensor is_audio = pointwise(Op::eq, {&inputs.input_ids}, DType::boolean);
        const Tensor n_audio_tokens = sum_all(is_audio);
      }
      special_audio_mask = pointwise(Op::eq, {&inputs.input_ids}, DType::boolean);
      special_audio_mask = unsqueeze(special_audio_mask, -1);
      audio_features = to(audio_features, inputs_embeds.dtype());
      inputs_embeds = masked_scatter(inputs_embeds, special_audio_mask, audio_features);
    }
    return call.result(run_decoder(inputs_embeds, {inputs.position_ids, inputs.attention_mask, inputs.rows}));
  }

  Qwen2AudioConfig config_;
  MaskedBy masked_;
  WhisperEncoder audio_tower_;
  Qwen2AudioMultiModalProjector projector_;
  ModuleId model_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_qwen2_audio(Context& context, const Qwen2AudioConfig& config, const DataConfig& data,
                                         const ModelOptions& options) {
  return std::make_unique<Qwen2Audio>(context, config, data, options);
}

}  // namespace oometer
