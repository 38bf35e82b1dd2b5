#include <algorithm>

#include "models/clip/clip.h"
#include "models/kit/decoder.h"
#include "models/llava/llava.h"
#include "nn/activation.h"
#include "ops/integers.h"
#include "ops/ops.h"

/// haotian-liu/LLaVA v1.2.2 (llava/model/llava_arch.py, multimodal_encoder/clip_encoder.py,
/// multimodal_projector/builder.py, language_model/llava_llama.py) on transformers 4.37.2. train_mem.py trains with the
/// flash-attn package, whose kernel takes and saves what SDPA's flash kernel does: `training.attention` "sdpa" stands
/// for both. Samples are full: nothing is padded or truncated after the merge.
namespace oometer {

namespace {

// build_vision_projector: nn.Linear, nn.Sequential of them with GELU between, or IdentityMap
struct VisionProjector {
  VisionProjector() = default;
  VisionProjector(const Builder& parent, const LlavaConfig& config) {
    const char* type = config.projector_depth == 0   ? "IdentityMap"
                       : config.projector_depth == 1 ? "Linear"
                                                     : "Sequential";
    const Builder builder = parent.child("mm_projector", type, Modality::projector);
    module = builder.module;
    for (std::int32_t i = 0; i < config.projector_depth; ++i) {
      // Linear layers are the even items of a Sequential: mm_projector.0, mm_projector.2, ...
      const Builder item = config.projector_depth == 1 ? builder : builder.child("", "Linear", 2 * i);
      layers.emplace_back(item, i == 0 ? config.projector_input_size() : config.text.hidden_size,
                          config.text.hidden_size, true);
    }
  }

  Tensor operator()(const Tensor& image_features) const {
    if (layers.size() == 1) return layers.front()(image_features);  // mm_projector is the Linear itself
    ModuleCall call(image_features.context(), module);
    Tensor x = call.argument(image_features);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (i > 0) x = activate(Activation::gelu, x);
      x = layers[i](x);
    }
    return call.result(x);
  }

  std::vector<Linear> layers;
  ModuleId module = 0;
};

// LlavaLlamaForCausalLM
class OriginalLlava : public LanguageModel {
 public:
  OriginalLlava(Context& context, const LlavaConfig& config, const DataConfig& data, const ModelOptions& options)
      : LanguageModel(context, "LlavaLlamaForCausalLM", Modality::language, data, options), config_(config) {
    loss_type = LossType::shifted;
    const Builder model = root_.child("model", "LlavaLlamaModel");
    make_decoder(model, config.text, options);
    const Builder tower = model.child("vision_tower", "CLIPVisionTower", Modality::vision);
    tower_ = tower.module;
    const Builder clip = tower.child("vision_tower", "CLIPVisionModel");
    clip_ = clip.module;
    vision_tower_ = ClipVisionModel(clip.child("vision_model", "CLIPVisionTransformer"), config.vision, options);
    language_model_.blocks.first_block = vision_tower_.encoder.layers.size();
    mm_projector_ = VisionProjector(model, config);
    make_head(root_, config.text, config.tie_word_embeddings);
    // output_hidden_states=True: all of them.
    for (std::int64_t i = 0; i <= config.vision.num_hidden_layers; ++i) all_layers_.push_back(i);
  }

  // LlavaLlamaForCausalLM.forward, then LlamaForCausalLM.forward
  ModelOutputs forward(const ModelInputs& inputs) override {
    const Prepared prepared = prepare_inputs_labels_for_multimodal(inputs);
    ModelOutputs outputs;
    const Tensor hidden_states = run_decoder(prepared.inputs_embeds, {{}, prepared.attention_mask});
    Tensor logits = lm_head_(hidden_states);
    logits = to(logits, DType::float32);
    if (inputs.labels) outputs.loss = (*loss_function)(logits, prepared.labels);
    outputs.others.push_back(logits);
    return outputs;
  }

 private:
  // One <image> token an image.
  std::int64_t text_length() const override {
    return data_.sequence_length - checked_product(data_.images_per_sample, config_.tokens_per_image() - 1);
  }

  // A sample without images still brings one, of zeros (LazySupervisedDataset.__getitem__).
  void complete(ModelInputs& batch) override {
    batch.attention_mask = input(batch.input_ids.sizes(), DType::boolean);
    const std::int64_t height = data_.image_height > 0 ? data_.image_height : config_.vision.image_size;
    const std::int64_t width = data_.image_width > 0 ? data_.image_width : config_.vision.image_size;
    batch.pixel_values =
        input({std::max(data_.images(), data_.micro_batch_size), config_.vision.num_channels, height, width},
              data_.pixel_dtype.value_or(dtype_));  // images
  }

  struct Prepared {
    Tensor inputs_embeds, attention_mask, labels;
  };

  // encode_images; CLIPVisionTower.forward is decorated with torch.no_grad
  Tensor encode_images(const Tensor& images) const {
    Tensor image_features;
    {
      ModuleCall call(context_, tower_);
      const NoGrad no_grad(context_);
      const Tensor pixels = to(images, vision_tower_.embeddings.patch_embedding.weight.dtype());
      const ClipVisionOutput image_forward_outs = run_clip(pixels);
      // feature_select
      image_features =
          image_forward_outs.hidden_states[static_cast<std::size_t>(config_.vision_feature_layers.front())];
      if (config_.vision_feature_select == FeatureSelect::without_class_token)
        image_features = slice(image_features, 1, 1, image_features.size(1) - 1);
      image_features = call.result(to(image_features, images.dtype()));
    }
    image_features = mm_projector_(image_features);
    return image_features;
  }

  ClipVisionOutput run_clip(const Tensor& pixels) const {
    ModuleCall call(context_, clip_);
    ClipVisionOutput output = vision_tower_(pixels, all_layers_);
    output.last_hidden_state = call.result(output.last_hidden_state);
    return output;
  }

  Prepared prepare_inputs_labels_for_multimodal(const ModelInputs& inputs) const {
    const std::int64_t batch = data_.micro_batch_size, images_a_sample = data_.images_per_sample,
                       length = data_.sequence_length, text = text_length();
    const auto booleans = [&](Op op, const Shape& sizes) { return empty(context_, op, sizes, DType::boolean); };
    const Tensor image_features = encode_images(inputs.pixel_values);
    Tensor position_ids = integers(context_, Op::arange, {text});

    // Remove the padding using attention_mask.
    const auto attended = [&](const Tensor& tokens) {
      TensorList list;
      for (std::int64_t i = 0; i < batch; ++i)
        list.push_back(index_mask(select(tokens, 0, i), select(inputs.attention_mask, 0, i), text));
      return list;
    };
    const TensorList input_ids = attended(inputs.input_ids),
                     labels = attended(inputs.labels ? inputs.labels : empty_like(Op::fill, inputs.input_ids));

    TensorList new_input_embeds, new_labels;
    Tensor num_images, cur_input_embeds, cur_image_features;
    TensorList cur_new_input_embeds, cur_new_labels;
    std::int64_t cur_image_idx = 0;
    for (std::int64_t i = 0; i < batch; ++i) {
      const Tensor& cur_input_ids = input_ids[static_cast<std::size_t>(i)];
      {
        const Tensor is_image = booleans(Op::eq, {text});
        Tensor count = integers(context_, Op::sum, {});
        { const Tensor as_integers = integers(context_, Op::to_copy, {text}); }
        num_images = std::move(count);
      }
      { const Tensor none = booleans(Op::eq, {}); }
      if (images_a_sample == 0) {
        cur_image_features = select(image_features, 0, cur_image_idx++);
        const Tensor cur_input_embeds_1 = language_model_.embed(cur_input_ids);
        cur_input_embeds = cat({cur_input_embeds_1, slice(cur_image_features, 0, 0, 0)}, 0);
        new_input_embeds.push_back(cur_input_embeds);
        new_labels.push_back(labels[static_cast<std::size_t>(i)]);
        continue;
      }
      {
        const Tensor is_image = booleans(Op::eq, {text});
        const Tensor image_token_indices = nonzero(is_image, images_a_sample);
      }
      {
        const Tensor cur_input_ids_noim = integers(context_, Op::cat, {text - images_a_sample});
        cur_input_embeds = language_model_.embed(cur_input_ids_noim);
      }
      cur_new_input_embeds = {split(cur_input_embeds)};
      // range(num_images + 1), and `i < num_images` in each turn
      { const Tensor pieces = integers(context_, Op::add, {}); }
      for (std::int64_t k = 0; k <= images_a_sample; ++k) {
        { const Tensor image_follows = booleans(Op::lt, {}); }
        if (k == images_a_sample) break;
        cur_image_features = select(image_features, 0, cur_image_idx++);
        cur_new_input_embeds.push_back(cur_image_features);
        cur_new_labels.push_back(integers(context_, Op::fill, {cur_image_features.size(0)}));
      }
      new_input_embeds.push_back(cat(cur_new_input_embeds, 0));
      cur_new_input_embeds.clear();
      new_labels.push_back(integers(context_, Op::cat, {length}));
      cur_new_labels.clear();
    }

    // Truncate to tokenizer_model_max_length, which a full sample has: a view all the same.
    for (Tensor& embeds : new_input_embeds) embeds = slice(embeds, 0, 0, length);

    // Combine them.
    TensorList new_input_embeds_padded;
    const Tensor new_labels_padded = integers(context_, Op::fill, {batch, length});
    const Tensor attention_mask = booleans(Op::zeros, {batch, length});
    position_ids = integers(context_, Op::zeros, {batch, length});
    for (const Tensor& cur_new_embed : new_input_embeds) {
      new_input_embeds_padded.push_back(cat({cur_new_embed}, 0));  // with zeros, none of them here
      const Tensor positions = integers(context_, Op::arange, {length});
    }
    return {stack(new_input_embeds_padded), attention_mask, new_labels_padded};
  }

  LlavaConfig config_;
  ClipVisionModel vision_tower_;
  VisionProjector mm_projector_;
  std::vector<std::int64_t> all_layers_;
  ModuleId tower_ = 0, clip_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_original_llava(Context& context, const LlavaConfig& config, const DataConfig& data,
                                            const ModelOptions& options) {
  return std::make_unique<OriginalLlava>(context, config, data, options);
}

}  // namespace oometer
