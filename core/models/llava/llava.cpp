#include "models/llava/llava.h"

#include <algorithm>

#include "models/clip/clip.h"
#include "models/llama/llama.h"
#include "nn/activation.h"
#include "ops/ops.h"

namespace oometer {

namespace {

struct LlavaMultiModalProjector {
  LlavaMultiModalProjector() = default;
  LlavaMultiModalProjector(const Builder& builder, const LlavaConfig& config)
      : linear_1(builder.child("linear_1", "Linear"), config.projector_input_size(), config.text.hidden_size,
                 config.projector_bias),
        linear_2(builder.child("linear_2", "Linear"), config.text.hidden_size, config.text.hidden_size,
                 config.projector_bias),
        act(config.projector_hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& image_features) const {
    const ModuleScope scope(image_features.context(), module);
    Tensor hidden_states = linear_1(image_features);
    hidden_states = activate(act, hidden_states);
    return linear_2(hidden_states);
  }

  Linear linear_1, linear_2;
  Activation act = Activation::gelu;
  ModuleId module = 0;
};

// LlavaForConditionalGeneration
class Llava : public Model {
 public:
  Llava(Context& context, const LlavaConfig& config, const DataConfig& data, const ModelOptions& options)
      : context_(context), config_(config), data_(data), dtype_(options.dtype) {
    const Builder root{&context, &parameters,
                       context.add_module(0, "", -1, "LlavaForConditionalGeneration", Modality::none), Modality::none,
                       options.dtype};
    const Builder model = root.child("model", "LlavaModel");
    model_ = model.module;
    vision_tower_ =
        ClipVisionModel(model.child("vision_tower", "CLIPVisionModel", Modality::vision), config.vision, options);
    projector_ = LlavaMultiModalProjector(
        model.child("multi_modal_projector", "LlavaMultiModalProjector", Modality::projector), config);
    language_model_ = LlamaModel(model.child("language_model", "LlamaModel", Modality::language), config.text, options);
    vision_tower_.embeddings.checkpointing = options.checkpointing;
    language_model_.first_block = vision_tower_.encoder.layers.size();
    lm_head_ = Linear(root.child("lm_head", "Linear", Modality::language), config.text.hidden_size,
                      config.text.vocab_size, false);
    if (config.tie_word_embeddings) {
      lm_head_.weight = language_model_.embed_tokens.weight;
      parameters.pop_back();
    }
    const std::vector<std::string>& no_grad = options.components.no_grad;
    tower_without_grad_ = std::any_of(no_grad.begin(), no_grad.end(),
                                      [](const std::string& name) { return name.ends_with("vision_tower"); });
  }

  void make_inputs() override {
    const Shape tokens{data_.micro_batch_size, data_.sequence_length};
    input_ids_ = empty(context_, Op::input, tokens, DType::int64, Role::input);
    labels_ = empty(context_, Op::input, tokens, DType::int64, Role::input);
    if (data_.images() > 0)
      pixel_values_ = empty(context_, Op::input,
                            {data_.images(), config_.vision.num_channels, data_.image_height, data_.image_width},
                            dtype_, Role::input);
  }

  ModelOutputs forward() override {
    ModelOutputs outputs;
    Tensor hidden_states = model_forward(outputs);
    const Tensor logits = lm_head_(hidden_states);
    outputs.loss = causal_lm_loss(logits, labels_);
    outputs.others.push_back(logits);
    outputs.others.push_back(hidden_states);
    return outputs;
  }

 private:
  // LlavaModel.get_image_features
  ClipVisionOutput image_features() const {
    ClipVisionOutput image_outputs;
    {
      const Scoped<bool> grad(context_.grad_mode, context_.grad_mode && !tower_without_grad_);
      image_outputs = vision_tower_(pixel_values_, config_.vision_feature_layers);
    }
    const bool drop_class_token = config_.vision_feature_select == FeatureSelect::without_class_token;
    const auto select = [&](const Tensor& hidden_states) {
      return drop_class_token ? slice(hidden_states, 1, 1, hidden_states.size(1) - 1) : hidden_states;
    };
    Tensor selected;
    if (config_.vision_feature_layer_is_list) {
      TensorList pool;
      for (const Tensor& hidden_states : image_outputs.hidden_states) pool.push_back(select(hidden_states));
      selected = cat(pool, -1);
    } else {
      selected = select(image_outputs.hidden_states.front());
    }
    image_outputs.pooler_output = projector_(selected);
    return image_outputs;
  }

  // LlavaModel.get_placeholder_mask
  Tensor placeholder_mask() const {
    const Tensor mask = pointwise(Op::eq, {&input_ids_}, DType::boolean);
    const Tensor count = sum_all(mask);
    const Tensor elements = mul_scalar(count);
    const Tensor matches = pointwise(Op::eq, {&elements}, DType::boolean);
    return unsqueeze(mask, -1);
  }

  // LlavaModel.forward
  Tensor model_forward(ModelOutputs& outputs) const {
    const ModuleScope scope(context_, model_);
    Tensor inputs_embeds = language_model_.embed(input_ids_);
    ClipVisionOutput image;
    if (pixel_values_) {
      image = image_features();
      Tensor features = cat_unbound(image.pooler_output);
      features = to(features, inputs_embeds.dtype());
      const Tensor mask = placeholder_mask();
      inputs_embeds = masked_scatter(inputs_embeds, mask, features);
      outputs.others.push_back(features);
    }
    return language_model_(inputs_embeds);
  }

  Context& context_;
  LlavaConfig config_;
  DataConfig data_;
  DType dtype_;
  ClipVisionModel vision_tower_;
  LlavaMultiModalProjector projector_;
  LlamaModel language_model_;
  Linear lm_head_;
  bool tower_without_grad_ = false;
  ModuleId model_ = 0;
  Tensor input_ids_, labels_, pixel_values_;
};

}  // namespace

std::unique_ptr<Model> build_llava(Context& context, const LlavaConfig& config, const DataConfig& data,
                                   const ModelOptions& options) {
  return std::make_unique<Llava>(context, config, data, options);
}

}  // namespace oometer
