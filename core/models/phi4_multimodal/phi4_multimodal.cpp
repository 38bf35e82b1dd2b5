#include "models/phi4_multimodal/phi4_multimodal.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "models/kit/recurrent.h"
#include "models/kit/text_attention.h"
#include "models/kit/text_family.h"
#include "models/phi3/phi3.h"
#include "models/phi4_multimodal/audio.h"
#include "models/phi4_multimodal/vision.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

/// longrope_frequency_update (transformers 5.23, modeling_rope_utils.py) around the module's forward.
class LongRope {
 public:
  PositionEmbeddings operator()(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids, DType dtype) {
    update(rotary_emb, position_ids);
    const Tensor like = make_view(rotary_emb.inv_freq, {1}, {1});
    return rotary_emb(dtype == like.dtype() ? like : to(like, dtype), position_ids);
  }

 private:
  void update(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids) {
    Context& context = position_ids.context();
    const NoGrad no_grad(context);
    const ModuleScope scope(context, rotary_emb.module);
    const auto floats = [&](Op op) { return empty(context, op, rotary_emb.inv_freq.sizes(), DType::float32); };
    Tensor seq_len;
    {
      const Tensor last = reduce(Op::max, position_ids, {0, 1}, false, DType::int64);
      seq_len = integers(context, Op::add, {});
    }
    if (!long_inv_freq_) {
      const Tensor ext_factors = floats(Op::to_copy);
      Tensor inv_freq_shape;
      {
        const Tensor even = integers(context, Op::arange, rotary_emb.inv_freq.sizes());
        const Tensor as_float = floats(Op::to_copy);
        inv_freq_shape = floats(Op::div);
      }
      Tensor powers = floats(Op::pow);
      const Tensor product = floats(Op::mul);
      powers.reset();
      long_inv_freq_ = floats(Op::reciprocal);
    }
    const Tensor is_longer = empty(context, Op::gt, {}, DType::boolean);
    const Tensor inv_freq = floats(Op::where);
  }

  Tensor long_inv_freq_;
};

DecoderParts make_parts(const Phi4Config& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config.text, options, make_phi3_layer);
  complete_parts(parts, config.text);
  if (config.is_longrope)
    parts.rotary = [rope = std::make_shared<LongRope>()](const LlamaRotaryEmbedding& rotary_emb,
                                                         const Tensor& position_ids, DType dtype) {
      return (*rope)(rotary_emb, position_ids, dtype);
    };
  return parts;
}

class Phi4Multimodal final : public LanguageModel {
 public:
  Phi4Multimodal(Context& context, const Phi4Config& config, const DataConfig& data, const ModelOptions& options)
      : LanguageModel(context, "Phi4MultimodalForCausalLM", Modality::language, data, options), config_(config) {
    DecoderParts parts = make_parts(config, options);
    parts.rest = [&](const Builder& model) {
      const Builder extend = model.child("embed_tokens_extend", "Phi4MultimodalFeatureEmbedding");
      extend_ = extend.module;
      image_embed_ = Phi4ImageEmbedding(extend.child("image_embed", "Phi4MultimodalImageEmbedding", Modality::vision),
                                        config, options);
      audio_embed_ = Phi4AudioEmbedding(extend.child("audio_embed", "Phi4MultimodalAudioEmbedding", Modality::vision),
                                        config, options);
    };
    make_decoder(root_.child("model", config.text.names->model), config.text, options, std::move(parts));
    language_model_.parts.rest = nullptr;
    make_head(root_, config.text, config.text.tie_word_embeddings);
    if (is_flash_attention(options.attention) && data.audios() > 0)
      refusal = Error{"not-modelled", "/training/attention",
                      "flash attention is not supported yet with audio: expected sdpa or eager"};
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    data_.images_per_sample = images_per_sample;
    if (data_.images() == 0) return;
    const ClipVisionConfig& vision = config_.vision;
    std::int64_t crops = 0;
    for (const Phi4Crops& its : cut()) crops = std::max(crops, 1 + its.crops());
    batch.pixel_values = input({data_.images(), crops, vision.num_channels, vision.image_size, vision.image_size},
                               data_.pixel_dtype.value_or(dtype_));
    batch.image_grid_thw = input({data_.images(), 2});  // image_sizes
    batch.pixel_attention_mask = input({data_.images(), crops, config_.patches(), config_.patches()}, DType::float32);
  }

  void make_audios(ModelInputs& batch) override {
    const std::int64_t audios = data_.audios();
    if (audios == 0) return;
    const std::int64_t frames = Phi4AudioConfig::frames(data_.audio_seconds);
    batch.input_features = input({audios, frames, config_.audio.input_size}, data_.pixel_dtype.value_or(dtype_));
    batch.second_per_grid_ts = input({audios});                                          // audio_embed_sizes
    if (audios > 1) batch.image_position_ids = input({audios, frames}, DType::boolean);  // audio_attention_mask
  }

  /// generate() encodes none of them before its prefill, but hands them on to each forward.
  TensorList encoded_images(const ModelInputs& batch) override {
    prompt_ = batch;
    return {};
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    ModelInputs given = inputs;
    if (context_.past_key_values) {
      const bool continues = context_.past_key_values->length() > 0 && inputs.input_ids.size(1) > 1;
      if (continues) prompt_ = {};  // a later turn's prompt, which has neither
      given.pixel_values = prompt_.pixel_values;
      given.image_grid_thw = prompt_.image_grid_thw;
      given.pixel_attention_mask = prompt_.pixel_attention_mask;
      given.input_features = prompt_.input_features;
      given.image_position_ids = prompt_.image_position_ids;
    }
    const Tensor hidden_states = model_forward(given);
    return causal_lm_outputs(hidden_states, lm_head_, given, loss_function);
  }

 private:
  std::vector<Phi4Crops> cut() const {
    std::vector<Phi4Crops> all;
    for (std::int64_t i = 0; i < data_.images(); ++i)
      all.push_back(config_.cut(data_.image(i).image_height, data_.image(i).image_width));
    return all;
  }

  void complete(ModelInputs& batch) override {
    make_images(batch, data_.images_per_sample);
    make_audios(batch);
  }

  Tensor model_forward(const ModelInputs& inputs) const {
    ModuleCall call(context_, language_model_.module);
    Tensor inputs_embeds = language_model_.embed(inputs.input_ids);
    inputs_embeds = extend(inputs, inputs_embeds);
    return call.result(language_model_.run(
        inputs_embeds, {inputs.position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q}));
  }

  // Phi4MultimodalFeatureEmbedding.forward
  Tensor extend(const ModelInputs& inputs, const Tensor& argument) const {
    ModuleCall call(context_, extend_);
    const Tensor inputs_embeds = call.argument(argument);
    const Tensor& input_ids = inputs.input_ids;
    const bool is_prompt = !context_.past_key_values || input_ids.size(1) > 1;
    Tensor image_position_mask = unsqueeze(pointwise(Op::eq, {&input_ids}, DType::boolean), -1);
    Tensor non_image_position_mask = pointwise(Op::bitwise_not, {&image_position_mask}, DType::boolean);
    Tensor image_embeds, audio_embeds;
    const auto looks_for = [&] {
      const Tensor found = pointwise(Op::eq, {&input_ids}, DType::boolean);
      const Tensor any = all(Op::all, found, {0, 1}, false);
      return is_prompt;
    };
    if (inputs.pixel_values && looks_for())
      image_embeds = image_embed_(input_ids, inputs_embeds,
                                  {inputs.pixel_values, inputs.image_grid_thw, inputs.pixel_attention_mask, cut()});
    if (inputs.input_features && looks_for())
      audio_embeds = audio_embed_(input_ids, inputs_embeds, {inputs.input_features, inputs.image_position_ids},
                                  static_cast<bool>(inputs.pixel_values));
    if (image_embeds && audio_embeds) {
      Tensor seen, heard;
      seen = mul(image_embeds, image_position_mask);
      heard = mul(audio_embeds, non_image_position_mask);
      return call.result(add(seen, heard));
    }
    return call.result(image_embeds ? image_embeds : audio_embeds ? audio_embeds : inputs_embeds);
  }

  Phi4Config config_;
  ModelInputs prompt_;  ///< of generate(), with its images and audio
  Phi4ImageEmbedding image_embed_;
  Phi4AudioEmbedding audio_embed_;
  ModuleId extend_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_phi4_multimodal(Context& context, const Phi4Config& config, const DataConfig& data,
                                             const ModelOptions& options) {
  return std::make_unique<Phi4Multimodal>(context, config, data, options);
}

}  // namespace oometer
