#include "models/blip_2/blip_2.h"

#include <algorithm>
#include <utility>

#include "models/bert/bert.h"
#include "models/kit/decoder.h"
#include "nn/attention.h"
#include "nn/wrapped_call.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

/// What get_image_features gives; all of it lives until the model's outputs do.
struct Blip2Images {
  Tensor features;
  ClipVisionOutput vision_outputs;
  QFormerModel::Output qformer_outputs;
};

/// What stands before the language model.
struct Blip2Parts {
  Blip2Parts() = default;
  Blip2Parts(const Builder& root, const Blip2Config& c, const ModelOptions& options)
      : vision_model(root.child("vision_model", c.family->vision.model, Modality::vision), c, options),
        reads_text(c.reads_text()),
        is_half(options.dtype == DType::float16),
        image_size(c.vision.image_size) {
    root.children_are_through();
    Builder own = root;
    own.modality = Modality::projector;
    query_tokens = own.parameter("query_tokens", {1, c.num_query_tokens, c.qformer.hidden_size});
    qformer = QFormerModel(root.child("qformer", c.family->qformer->model, Modality::projector), c.qformer, options);
    qformer.blocks.first_block = vision_model.layers.size();
    language_projection = Linear(root.child("language_projection", "Linear", Modality::projector),
                                 c.qformer.hidden_size, c.text_hidden_size(), true);
  }

  /// Puts pixels, and what the Q-Former reads, into a batch.
  void complete(Context& context, const DataConfig& data, DType dtype, ModelInputs& batch) const {
    const std::int64_t images = data.images();
    if (images == 0) return;
    const auto input = [&](const Shape& sizes, DType type) {
      return empty(context, Op::input, sizes, type, Role::input);
    };
    batch.pixel_values = input({images, 3, image_size, image_size}, data.pixel_dtype.value_or(dtype));
    if (!reads_text) return;
    // InstructBlipProcessor gives the Q-Former the text again, in tokens of its own: as many here as the language
    // model has behind the queries' places.
    const Shape text{images, std::max<std::int64_t>(data.sequence_length - query_tokens.size(1), 1)};
    batch.others.push_back(input(text, DType::int64));
    batch.others.push_back(input(text, DType::int64));
  }

  Blip2Images image_features(const ModelInputs& inputs) const {
    const Tensor& pixel_values = inputs.pixel_values;
    Context& context = pixel_values.context();
    if (is_half)
      context.refusal = Error{"not-modelled", "/training/precision",
                              "found float16, in which parts of the class stay float32; this is not supported yet: "
                              "expected bfloat16"};
    Blip2Images images;
    images.vision_outputs = vision_model(pixel_values);
    const Tensor& image_embeds = images.vision_outputs.last_hidden_state;
    const std::int64_t batch = image_embeds.size(0);
    const Tensor image_attention_mask = empty(context, Op::fill, {batch, image_embeds.size(1)}, DType::int64);
    const Tensor tokens = expand(query_tokens, {batch, query_tokens.size(1), query_tokens.size(2)});
    if (!reads_text) {
      images.qformer_outputs = qformer(tokens, image_embeds, image_attention_mask);
      const Tensor query_output = to(images.qformer_outputs.last_hidden_state, image_embeds.dtype());
      images.features = language_projection(query_output);
      return images;
    }
    const Tensor query_attention_mask = empty(context, Op::fill, {batch, query_tokens.size(1)}, DType::int64);
    QFormerModel::Text text;
    text.input_ids = inputs.others[0];
    text.attention_mask = cat({query_attention_mask, inputs.others[1]}, 1);
    if (inputs.attention_mask) text.rows = inputs.rows;  // the Q-Former's text is as long, and padded as it is
    images.qformer_outputs = qformer(tokens, image_embeds, image_attention_mask, text);
    const Tensor query_output = slice(images.qformer_outputs.last_hidden_state, 1, 0, query_tokens.size(1));
    images.features = language_projection(query_output);
    return images;
  }

  Blip2VisionModel vision_model;
  Tensor query_tokens;
  QFormerModel qformer;
  Linear language_projection;
  bool reads_text = false, is_half = false;
  std::int64_t image_size = 0;
};

/// Behind the logits: what the class hands back beside them.
void add_outputs(ModelOutputs& outputs, const Blip2Images& images) {
  for (const Tensor* tensor : {&images.vision_outputs.last_hidden_state, &images.vision_outputs.pooler_output,
                               &images.qformer_outputs.last_hidden_state, &images.qformer_outputs.pooler_output})
    outputs.others.push_back(*tensor);
}

/// The features in the embeddings of the text, and the names that live until forward returns.
struct Blip2Merged {
  Blip2Merged(const Tensor& input_ids, const Tensor& text, const Tensor& features)
      : language_model_inputs(to(features, text.dtype())),
        special_image_mask(pointwise(Op::eq, {&input_ids}, DType::boolean)),
        inputs_embeds(masked_scatter(text, unsqueeze(special_image_mask, -1), language_model_inputs)) {}

  Tensor language_model_inputs, special_image_mask, inputs_embeds;
};

/// LlamaForCausalLM inside another class.
class LlamaLanguageModel : public LanguageModel {
 protected:
  LlamaLanguageModel(Context& context, const char* class_name, const DataConfig& data, const ModelOptions& options)
      : LanguageModel(context, class_name, Modality::none, data, options) {}
  void make_causal_lm(const Builder& causal_lm, const LlamaConfig& text, const ModelOptions& options) {
    make_decoder(causal_lm.child("model", text.names->model), text, options);
    make_head(causal_lm, text, text.tie_word_embeddings);
  }
  Tensor run_text_decoder(const Tensor& inputs_embeds, const MaskArguments& given) const {
    return run_decoder(inputs_embeds, given);
  }
};

/// Blip2ForConditionalGeneration around a decoder.
template <class Text, class TextConfig>
class Blip2Decoder : public Text {
 public:
  Blip2Decoder(Context& context, const Blip2Config& c, const DataConfig& data, const ModelOptions& options)
      : Text(context, c.family->conditional_generation, data, options),
        slices_logits_(c.family->slices_logits),
        requires_input_grads_(options.checkpointing.input_require_grads),
        parts_(this->root_, c, options) {
    const auto& text = std::get<TextConfig>(c.text);
    const Builder causal_lm = this->root_.child("language_model", text.names->causal_lm, Modality::language);
    causal_lm_ = causal_lm.module;
    this->make_causal_lm(causal_lm, text, options);
    this->language_model_.blocks.first_block = parts_.vision_model.layers.size() + parts_.qformer.layers.size();
  }

  bool activate_neftune() override { return false; }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    this->data_.images_per_sample = images_per_sample;
    parts_.complete(this->context_, this->data_, this->dtype_, batch);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    ModelOutputs outputs;
    const Blip2Images images = parts_.image_features(inputs);
    Tensor text = requires_input_grads_ ? this->language_model_.embed(inputs.input_ids)
                                        : this->language_model_.embed_tokens(inputs.input_ids);
    Tensor attention_mask = inputs.attention_mask;
    if (!attention_mask) attention_mask = empty(this->context_, Op::ones_like, inputs.input_ids.sizes(), DType::int64);
    const Blip2Merged merged(inputs.input_ids, text, images.features);
    text.reset();
    Tensor logits;
    {
      const ModuleScope scope(this->context_, causal_lm_);
      const Tensor hidden_states = this->run_text_decoder(merged.inputs_embeds, {{}, attention_mask, inputs.rows});
      logits = this->lm_head_(hidden_states);
    }
    const Tensor of_language_model = logits;
    if (inputs.labels) {
      if (slices_logits_) logits = slice(logits, 1, 0, inputs.labels.size(1));
      outputs.loss = (*this->loss_function)(logits, inputs.labels);
    }
    outputs.others.push_back(std::move(logits));
    add_outputs(outputs, images);
    outputs.others.push_back(of_language_model);
    return outputs;
  }

 private:
  void complete(ModelInputs& batch) override { make_images(batch, this->data_.images_per_sample); }

  bool slices_logits_;
  /// Its main input is pixels, so that checkpointing alone makes no embeddings want gradients; adapters do.
  bool requires_input_grads_;
  ModuleId causal_lm_ = 0;
  Blip2Parts parts_;
};

T5Config held_t5(const Blip2Config& c) {
  T5Config text = *c.encoder_decoder();
  text.class_name = c.family->conditional_generation;
  return text;
}

/// Blip2ForConditionalGeneration around an encoder and its decoder.
class Blip2T5 : public T5LanguageModel {
 public:
  Blip2T5(Context& context, const Blip2Config& c, const DataConfig& data, const ModelOptions& options)
      : T5LanguageModel(context, held_t5(c), data, options), dtype_(options.dtype), parts_(root_, c, options) {
    const T5Config& text = *c.encoder_decoder();
    const Builder generation = root_.child("language_model", text.class_name, Modality::language);
    generation_ = generation.module;
    make_t5(generation, text, options, parts_.vision_model.layers.size() + parts_.qformer.layers.size());
  }

  ModelInputs make_inputs(bool with_labels) override {
    ModelInputs batch = T5LanguageModel::make_inputs(with_labels);
    make_images(batch, data_.images_per_sample);
    return batch;
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    data_.images_per_sample = images_per_sample;
    parts_.complete(context_, data_, dtype_, batch);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const Blip2Images images = parts_.image_features(inputs);
    Tensor text = embed_shared(inputs.input_ids);
    ModelInputs masked = inputs;
    if (!masked.attention_mask)
      masked.attention_mask = empty(context_, Op::ones_like, inputs.input_ids.sizes(), DType::int64);
    const Blip2Merged merged(inputs.input_ids, text, images.features);
    text.reset();
    ModelOutputs its;
    {
      const ModuleScope scope(context_, generation_);
      its = run_t5(merged.inputs_embeds, masked);
    }
    ModelOutputs outputs;
    outputs.loss = its.loss;
    outputs.others.push_back(its.others.front());
    add_outputs(outputs, images);
    for (std::size_t i = 0; i < its.others.size(); ++i) outputs.others.push_back(its.others[i]);
    return outputs;
  }

 private:
  DType dtype_;
  ModuleId generation_ = 0;
  Blip2Parts parts_;
};

}  // namespace

Blip2Attention::Blip2Attention(const Builder& builder, const Blip2Config& c, const ModelOptions& options)
    : num_heads(c.vision.num_attention_heads),
      call{.kind = options.attention, .dropout = c.vision.attention_dropout},
      module(builder.module) {
  const std::int64_t size = c.vision.hidden_size;
  const bool is_quantized = builder.quantizer != nullptr;  // replaced before it is loaded, with a bias of its own
  const Builder of_qkv = builder.child("qkv", "Linear");
  qkv = Linear(of_qkv, size, 3 * size, c.qkv_bias && is_quantized);
  Tensor q_bias, v_bias;
  if (c.qkv_bias && !is_quantized) {
    q_bias = empty(*builder.context, Op::zeros, {size}, builder.dtype);
    v_bias = empty(*builder.context, Op::zeros, {size}, builder.dtype);
    const Tensor no_bias = empty(*builder.context, Op::zeros_like, {size}, builder.dtype);
    Builder its = of_qkv;
    its.module = qkv.module;
    qkv.bias = its.parameter("bias", {3 * size});
  }
  projection = Linear(builder.child("projection", "Linear"), size, size, true);
}

AttentionOutputs Blip2Attention::operator()(const Tensor& hidden_in) const {
  ModuleCall self(hidden_in.context(), module);
  const Tensor hidden_states = self.keyword(hidden_in);
  const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1), width = hidden_states.size(2);
  Tensor mixed_qkv = qkv(hidden_states);
  mixed_qkv = view(mixed_qkv, {batch, length, 3, num_heads, width / num_heads});
  mixed_qkv = permute(mixed_qkv, {2, 0, 3, 1, 4});
  AttentionInputs states;
  states.query = select(mixed_qkv, 0, 0);
  states.key = select(mixed_qkv, 0, 1);
  states.value = select(mixed_qkv, 0, 2);
  AttentionOutputs attention = call.kind == AttentionKind::eager
                                   ? eager_in_own_type(call, states, {})
                                   : attention_forward(call, states.query, states.key, states.value, {});
  attention.output = reshape(attention.output, {batch, length, width});
  attention.output = self.result(projection(attention.output));
  return attention;
}

Blip2EncoderLayer::Blip2EncoderLayer(const Builder& builder, const Blip2Config& c, const ModelOptions& options)
    : self_attn(builder.child("self_attn", c.family->vision.attention), c, options),
      layer_norm1(builder.child("layer_norm1", "LayerNorm"), c.vision.hidden_size),
      mlp(builder.child("mlp", c.family->vision.mlp), vision_layers(c.vision, options.attention)),
      layer_norm2(builder.child("layer_norm2", "LayerNorm"), c.vision.hidden_size),
      module(builder.module) {}

Tensor Blip2EncoderLayer::operator()(const Tensor& hidden_in) const {
  const ModuleScope scope(hidden_in.context(), module);
  Tensor residual = hidden_in;
  Tensor hidden_states = layer_norm1(hidden_in);
  AttentionOutputs attention = self_attn(hidden_states);
  hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
  hidden_states = add(hidden_states, residual);
  residual = hidden_states;
  hidden_states = layer_norm2(hidden_states);
  hidden_states = mlp(hidden_states);
  return add(hidden_states, residual);
}

Blip2VisionModel::Blip2VisionModel(const Builder& builder, const Blip2Config& c, const ModelOptions& options)
    : checkpointing(options.checkpointing), module(builder.module) {
  const ClipVisionConfig& v = c.vision;
  const Builder of_embeddings = builder.child("embeddings", v.family->embeddings);
  embeddings.module = of_embeddings.module;
  embeddings.class_embedding = of_embeddings.parameter("class_embedding", {1, 1, v.hidden_size});
  embeddings.patch_embedding =
      Conv2d(of_embeddings.child("patch_embedding", "Conv2d"), v.num_channels, v.hidden_size, v.patch_size, true);
  embeddings.position_embedding = of_embeddings.parameter("position_embedding", {1, v.num_positions(), v.hidden_size});
  const Builder of_encoder = builder.child("encoder", v.family->encoder);
  encoder = of_encoder.module;
  blocks = BlockStack(of_encoder);
  layers.reserve(static_cast<std::size_t>(v.num_hidden_layers));
  for (std::int32_t i = 0; i < v.num_hidden_layers; ++i) {
    layers.emplace_back(of_encoder.child("layers", v.family->encoder_layer, i), c, options);
    blocks.add_block(of_encoder);
  }
  post_layernorm = LayerNorm(builder.child("post_layernorm", "LayerNorm"), v.hidden_size);
}

Tensor Blip2VisionModel::embed(const Tensor& pixel_values) const {
  Context& context = pixel_values.context();
  ModuleCall call(context, embeddings.module);
  const DType target_dtype = embeddings.patch_embedding.weight.dtype();
  if (context.modules) context.modules->read(embeddings.patch_embedding.weight);  // `target_dtype`
  const std::int64_t batch = pixel_values.size(0), width = embeddings.class_embedding.size(2);
  Tensor pixels = to(pixel_values, target_dtype);
  Tensor patch_embeds = embeddings.patch_embedding(pixels);
  pixels.reset();
  patch_embeds = transpose(
      reshape(patch_embeds, {batch, width, checked_product(patch_embeds.size(2), patch_embeds.size(3))}), 1, 2);
  const Tensor class_embeds = to(expand(embeddings.class_embedding, {batch, 1, width}), target_dtype);
  Tensor output = cat({class_embeds, patch_embeds}, 1);
  {
    const Tensor positions = to(embeddings.position_embedding, target_dtype);
    output = add(output, positions);
  }
  if (checkpointing.input_require_grads) require_input_grad(checkpointing, output, embeddings.module);
  return call.result(output);
}

ClipVisionOutput Blip2VisionModel::operator()(const Tensor& pixel_values) const {
  ModuleCall call(pixel_values.context(), module);
  const Tensor given = call.keyword(pixel_values);
  const Tensor hidden_states =
      wrapped_call(given, embeddings.module, [&](const Tensor& pixels) { return embed(pixels); });
  Tensor encoder_outputs;
  {
    ModuleCall encode(pixel_values.context(), encoder);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i]](const Tensor& hidden) { return layer(hidden); };
    };
    const Tensor inputs_embeds = encode.keyword(hidden_states);
    encoder_outputs =
        encode.result(blocks.run(0, layers.size(), inputs_embeds, checkpointing, block, {.positional = true}));
  }
  ClipVisionOutput output;
  output.last_hidden_state = post_layernorm(encoder_outputs);
  output.pooler_output = select(output.last_hidden_state, 1, 0);
  output.pooler_output = post_layernorm(output.pooler_output);
  for (Tensor* tensor : {&output.last_hidden_state, &output.pooler_output}) *tensor = call.result(*tensor);
  return output;
}

std::unique_ptr<Model> build_blip2(Context& context, const Blip2Config& config, const DataConfig& data,
                                   const ModelOptions& options) {
  if (config.encoder_decoder()) return std::make_unique<Blip2T5>(context, config, data, options);
  if (std::holds_alternative<OptConfig>(config.text))
    return std::make_unique<Blip2Decoder<OptLanguageModel, OptConfig>>(context, config, data, options);
  return std::make_unique<Blip2Decoder<LlamaLanguageModel, LlamaConfig>>(context, config, data, options);
}

}  // namespace oometer
