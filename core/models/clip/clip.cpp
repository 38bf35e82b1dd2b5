#include "models/clip/clip.h"

#include "models/masking.h"
#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/checkpointing.h"
#include "nn/wrapped_call.h"
#include "ops/ops.h"

namespace oometer {

namespace {

template <class Config>
ClipLayerConfig layer_config(const Config& config, const VisionFamily& family, AttentionKind attention, bool causal) {
  return {config.hidden_size,
          config.intermediate_size,
          config.num_attention_heads,
          config.hidden_act,
          {attention, causal, config.attention_dropout},
          &family};
}

}  // namespace

ClipLayerConfig vision_layers(const ClipVisionConfig& config, AttentionKind attention) {
  return layer_config(config, *config.family, attention, false);
}

ClipLayerConfig text_layers(const ClipTextConfig& config, const VisionFamily& family, AttentionKind attention,
                            bool causal) {
  return layer_config(config, family, attention, causal);
}

ClipAttention::ClipAttention(const Builder& builder, const ClipLayerConfig& config)
    : k_proj(builder.child("k_proj", "Linear"), config.hidden_size, config.hidden_size, true),
      v_proj(builder.child("v_proj", "Linear"), config.hidden_size, config.hidden_size, true),
      q_proj(builder.child("q_proj", "Linear"), config.hidden_size, config.hidden_size, true),
      out_proj(builder.child("out_proj", "Linear"), config.hidden_size, config.hidden_size, true),
      head_dim(config.hidden_size / config.num_attention_heads),
      projects_first(config.family->projects_first),
      call(config.call),
      module(builder.module) {
  call.own_class = builder.context->behaviours.clip_eager_is_bmm;
}

// CLIPAttention.forward where it is eager, up to 4.51.
Tensor ClipAttention::by_bmm(const Tensor& hidden_states, const Tensor& attention_mask) const {
  const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1),
                     heads = hidden_states.size(2) / head_dim;
  const auto shape = [&](const Tensor& projected) { return contiguous(heads_of(projected, head_dim)); };
  Tensor query_states = [&] {
    const Tensor projected = q_proj(hidden_states);
    return mul_scalar(projected);
  }();
  Tensor key_states = shape(k_proj(hidden_states));
  Tensor value_states = shape(v_proj(hidden_states));
  const Shape flat{checked_product(batch, heads), length, head_dim};
  query_states = view(shape(query_states), flat);
  key_states = view(key_states, flat);
  value_states = view(value_states, flat);
  Tensor attn_weights = bmm(autocast_lower(query_states), transpose(autocast_lower(key_states), 1, 2));
  if (attention_mask) {
    attn_weights = add(view(attn_weights, {batch, heads, length, length}), attention_mask);
    attn_weights = view(attn_weights, {flat[0], length, length});
  }
  attn_weights =
      softmax(attn_weights, hidden_states.context().autocast.enabled ? DType::float32 : attn_weights.dtype());
  const Tensor attn_probs = dropout(attn_weights, call.dropout);
  Tensor attn_output = bmm(autocast_lower(attn_probs), autocast_lower(value_states));
  attn_output = transpose(view(attn_output, {batch, heads, length, head_dim}), 1, 2);
  attn_output = reshape(attn_output, hidden_states.sizes());
  return out_proj(attn_output);
}

AttentionOutputs ClipAttention::operator()(const Tensor& hidden_in, const Tensor& attention_mask) const {
  const Tensor given = cast_forward_input(hidden_in, module);
  ModuleCall self(hidden_in.context(), module);
  const Tensor hidden_states = self.keyword(given);
  const Behaviours& behaviours = hidden_states.context().behaviours;
  if (behaviours.clip_attention_always_eager || (call.kind == AttentionKind::eager && behaviours.clip_eager_is_bmm))
    return {self.result(by_bmm(hidden_states, attention_mask)), {}};
  const auto [queries, keys, values] = project(hidden_states, q_proj, k_proj, v_proj, head_dim, projects_first);
  AttentionOutputs attention = attention_forward(call, queries, keys, values, attention_mask);
  attention.output = reshape(attention.output, hidden_states.sizes());
  attention.output = self.result(out_proj(attention.output));
  if (behaviours.clip_text_always_masked) attention.weights.reset();
  return attention;
}

ClipMLP::ClipMLP(const Builder& builder, const ClipLayerConfig& config)
    : fc1(builder.child("fc1", "Linear"), config.hidden_size, config.intermediate_size, true),
      fc2(builder.child("fc2", "Linear"), config.intermediate_size, config.hidden_size, true),
      activation_fn(config.hidden_act),
      module(builder.module) {}

Tensor ClipMLP::operator()(const Tensor& hidden_in) const {
  ModuleCall call(hidden_in.context(), module);
  Tensor hidden_states = fc1(call.argument(hidden_in));
  hidden_states = activate(activation_fn, hidden_states);
  return call.result(fc2(hidden_states));
}

ClipEncoderLayer::ClipEncoderLayer(const Builder& builder, const ClipLayerConfig& config) : module(builder.module) {
  const auto norm = [&](const char* name) { return LayerNorm(builder.child(name, "LayerNorm"), config.hidden_size); };
  const bool norm_first = config.family->norm_first;
  if (norm_first) layer_norm1 = norm("layer_norm1");
  self_attn = ClipAttention(builder.child("self_attn", config.family->attention), config);
  if (!norm_first) layer_norm1 = norm("layer_norm1");
  if (norm_first) layer_norm2 = norm("layer_norm2");
  mlp = ClipMLP(builder.child("mlp", config.family->mlp), config);
  if (!norm_first) layer_norm2 = norm("layer_norm2");
}

Tensor ClipEncoderLayer::operator()(const Tensor& hidden_in, const Tensor& attention_mask) const {
  const ModuleScope scope(hidden_in.context(), module);
  Tensor residual = hidden_in;
  Tensor hidden_states = layer_norm1(hidden_in);
  // Idefics3's and SmolVLM's attention is what FSDP1 wraps (_no_split_modules).
  BlockListener* const listener = hidden_in.context().blocks;
  if (listener) hidden_states = listener->before_block(self_attn.module, std::move(hidden_states));
  AttentionOutputs attention = self_attn(hidden_states, attention_mask);
  if (listener) attention.output = listener->after_block(self_attn.module, std::move(attention.output));
  hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
  hidden_states = add(residual, hidden_states);
  residual = hidden_states;
  hidden_states = layer_norm2(hidden_states);
  hidden_states = mlp(hidden_states);
  return add(residual, hidden_states);
}

ClipEncoder::ClipEncoder(const Builder& builder, const ClipLayerConfig& config, std::int64_t num_hidden_layers,
                         const CheckpointingConfig& checkpointing_)
    : checkpointing(checkpointing_), module(builder.module) {
  layers.reserve(static_cast<std::size_t>(num_hidden_layers));
  blocks = BlockStack(builder);
  for (std::int32_t i = 0; i < num_hidden_layers; ++i) {
    layers.emplace_back(builder.child("layers", config.family->encoder_layer, i), config);
    blocks.add_block(builder);
  }
}

Tensor ClipEncoder::operator()(const Tensor& inputs_embeds, const Tensor& attention_mask,
                               const std::vector<std::int64_t>& wanted, TensorList& captured) const {
  ModuleCall call(inputs_embeds.context(), module);
  captured.resize(wanted.size());
  const auto block = [&](std::size_t i) -> BlockStack::Forward {
    return [&layer = layers[i], attention_mask](const Tensor& hidden) { return layer(hidden, attention_mask); };
  };
  Tensor hidden_states = inputs_embeds;
  std::size_t begin = 0;
  for (std::size_t index = 0; index <= layers.size(); ++index) {
    const bool last = index == layers.size();
    const auto index_is_wanted = [&](std::int64_t want) { return want == static_cast<std::int64_t>(index); };
    if (!last && std::none_of(wanted.begin(), wanted.end(), index_is_wanted)) continue;
    hidden_states = blocks.run(begin, index, std::move(hidden_states), checkpointing, block, {.positional = true});
    for (std::size_t k = 0; k < wanted.size(); ++k)
      if (index_is_wanted(wanted[k])) captured[k] = hidden_states;
    begin = index;
  }
  return call.result(hidden_states);
}

ClipVisionEmbeddings::ClipVisionEmbeddings(const Builder& builder, const ClipVisionConfig& config)
    : class_embedding(builder.parameter("class_embedding", {config.hidden_size})),
      patch_embedding(builder.child("patch_embedding", "Conv2d"), config.num_channels, config.hidden_size,
                      config.patch_size, false),
      position_embedding(builder.child("position_embedding", "Embedding"), config.num_positions(), config.hidden_size),
      position_ids(builder.buffer({1, config.num_positions()}, DType::int64)),
      module(builder.module) {}

Tensor ClipVisionEmbeddings::operator()(const Tensor& pixel_values) const {
  Context& context = pixel_values.context();
  ModuleCall call(context, module);
  if (context.modules) context.modules->read(patch_embedding.weight);  // `target_dtype`
  const std::int64_t batch = pixel_values.size(0), width = class_embedding.size(0);
  Tensor pixels = to(pixel_values, patch_embedding.weight.dtype());
  Tensor patch_embeds = patch_embedding(pixels);
  pixels.reset();
  require_input_grad(checkpointing, patch_embeds, patch_embedding.module);
  patch_embeds = transpose(
      reshape(patch_embeds, {batch, width, checked_product(patch_embeds.size(2), patch_embeds.size(3))}), 1, 2);
  const Tensor class_embeds = expand(class_embedding, {batch, 1, width});
  const Tensor embeddings = cat({class_embeds, patch_embeds}, 1);
  const Tensor positions = position_embedding(position_ids);
  return call.result(add(embeddings, positions));
}

ClipVisionModel::ClipVisionModel(const Builder& builder, const ClipVisionConfig& config, const ModelOptions& options)
    : embeddings(builder.child("embeddings", "CLIPVisionEmbeddings"), config),
      pre_layrnorm(builder.child("pre_layrnorm", "LayerNorm"), config.hidden_size),
      encoder(builder.child("encoder", "CLIPEncoder"), vision_layers(config, options.attention),
              config.num_hidden_layers, options.checkpointing),
      post_layernorm(builder.child("post_layernorm", "LayerNorm"), config.hidden_size),
      module(builder.module) {}

ClipVisionOutput ClipVisionModel::operator()(const Tensor& pixel_values,
                                             const std::vector<std::int64_t>& wanted) const {
  ModuleCall call(pixel_values.context(), module);
  ClipVisionOutput output;
  Tensor hidden_states = wrapped_call(pixel_values, embeddings.module, embeddings);
  hidden_states = pre_layrnorm(hidden_states);
  output.last_hidden_state = encoder(hidden_states, {}, wanted, output.hidden_states);
  output.pooler_output = select(output.last_hidden_state, 1, 0);
  output.pooler_output = post_layernorm(output.pooler_output);
  for (Tensor* tensor : {&output.last_hidden_state, &output.pooler_output}) *tensor = call.result(*tensor);
  for (Tensor& tensor : output.hidden_states) tensor = call.result(tensor);
  return output;
}

ClipTextEmbeddings::ClipTextEmbeddings(const Builder& builder, const ClipTextConfig& config)
    : token_embedding(builder.child("token_embedding", "Embedding"), config.vocab_size, config.hidden_size),
      position_embedding(builder.child("position_embedding", "Embedding"), config.max_position_embeddings,
                         config.hidden_size),
      position_ids(builder.buffer({1, config.max_position_embeddings}, DType::int64)),
      module(builder.module) {}

Tensor ClipTextEmbeddings::operator()(const Tensor& input_ids, const CheckpointingConfig& checkpointing) const {
  ModuleCall call(input_ids.context(), module);
  const Tensor positions = slice(position_ids, 1, 0, input_ids.size(1));
  Tensor inputs_embeds = token_embedding(input_ids);
  require_input_grad(checkpointing, inputs_embeds, token_embedding.module);
  const Tensor position_embeds = position_embedding(positions);
  return call.result(add(inputs_embeds, position_embeds));
}

ClipTextModel::ClipTextModel(const Builder& builder, const ClipTextConfig& config, const ModelOptions& options)
    : embeddings(builder.child("embeddings", "CLIPTextEmbeddings"), config),
      encoder(builder.child("encoder", "CLIPEncoder"), text_layers(config, kClipVision, options.attention, true),
              config.num_hidden_layers, options.checkpointing),
      final_layer_norm(builder.child("final_layer_norm", "LayerNorm"), config.hidden_size),
      pools_by_argmax(config.eos_token_id == 2),
      masked(masked_by(options.attention)),
      module(builder.module) {}

ClipVisionOutput ClipTextModel::operator()(const Tensor& input_ids) const {
  Context& context = input_ids.context();
  ModuleCall call(context, module);
  const Tensor hidden_states = wrapped_call(input_ids, embeddings.module,
                                            [&](const Tensor& ids) { return embeddings(ids, encoder.checkpointing); });
  const Tensor attention_mask = context.behaviours.clip_text_always_masked
                                    ? create_4d_causal_mask(hidden_states)
                                    : create_causal_mask(hidden_states, {}, masked);
  TensorList none;
  ClipVisionOutput output;
  Tensor encoder_outputs = encoder(hidden_states, attention_mask, {}, none);
  output.last_hidden_state = final_layer_norm(encoder_outputs);
  const std::int64_t batch = input_ids.size(0);
  const Tensor rows = empty(context, Op::arange, {batch}, DType::int64);
  Tensor tokens = to(input_ids, DType::int32);
  if (!pools_by_argmax) {
    tokens = pointwise(Op::eq, {&tokens}, DType::boolean);
    tokens = to(tokens, DType::int32);
  }
  const Tensor columns = empty(context, Op::argmax, {batch}, DType::int64);
  tokens.reset();
  output.pooler_output = index(output.last_hidden_state, rows, columns);
  encoder_outputs.reset();
  for (Tensor* tensor : {&output.last_hidden_state, &output.pooler_output}) *tensor = call.result(*tensor);
  return output;
}

namespace {

Tensor make_pixels(Context& context, const DataConfig& data, std::int64_t channels, DType dtype) {
  return empty(context, Op::input, {data.images(), channels, data.image_height, data.image_width}, dtype, Role::input);
}

// CLIPVisionModel
class ClipVisionOnly : public Model {
 public:
  ClipVisionOnly(Context& context, const ClipVisionConfig& config, const DataConfig& data, const ModelOptions& options)
      : context_(context), data_(data), channels_(config.num_channels), dtype_(options.dtype) {
    loss_type = LossType::none;
    const Builder builder{
        &context,         &parameters,   &buffers,        context.add_root("CLIPVisionModel", Modality::vision),
        Modality::vision, options.dtype, options.wrapping};
    model_ = ClipVisionModel(builder, config, options);
    if (options.checkpointing.input_require_grads) model_.embeddings.checkpointing = options.checkpointing;
  }

  ModelInputs make_inputs(bool) override {
    ModelInputs batch;
    batch.pixel_values = make_pixels(context_, data_, channels_, data_.pixel_dtype.value_or(dtype_));
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    ClipVisionOutput output = model_(inputs.pixel_values);
    return {{}, output.pooler_output, {output.last_hidden_state}};
  }

 private:
  Context& context_;
  DataConfig data_;
  std::int64_t channels_;
  DType dtype_;
  ClipVisionModel model_;
};

// _get_vector_norm, or tensor.norm(p=2, dim=-1, keepdim=True)
Tensor vector_norm(const Tensor& tensor) {
  if (tensor.context().behaviours.clip_norm_is_one_operator) return linalg_vector_norm(tensor);
  const Tensor square = pow(tensor, 2);
  const Tensor total = sum(square, {-1}, true);
  return pow(total, 0.5);
}

// CLIPModel
class ClipModel : public Model {
 public:
  ClipModel(Context& context, const ClipConfig& config, const DataConfig& data, const ModelOptions& options)
      : context_(context), data_(data), channels_(config.vision.num_channels), dtype_(options.dtype) {
    loss_type = LossType::contrastive;
    const Builder builder{
        &context,       &parameters,   &buffers,         context.add_root("CLIPModel", Modality::none),
        Modality::none, options.dtype, options.wrapping, options.quantizer};
    text_model_ = ClipTextModel(builder.child("text_model", "CLIPTextModel", Modality::language), config.text, options);
    vision_model_ =
        ClipVisionModel(builder.child("vision_model", "CLIPVisionModel", Modality::vision), config.vision, options);
    vision_model_.encoder.blocks.first_block = text_model_.encoder.layers.size();
    vision_model_.embeddings.checkpointing = options.checkpointing;
    visual_projection_ = Linear(builder.child("visual_projection", "Linear", Modality::projector),
                                config.vision.hidden_size, config.projection_dim, false);
    text_projection_ = Linear(builder.child("text_projection", "Linear", Modality::projector), config.text.hidden_size,
                              config.projection_dim, false);
    logit_scale_ = builder.parameter("logit_scale", {});
  }

  ModelInputs make_inputs(bool) override {
    ModelInputs batch;
    batch.input_ids =
        empty(context_, Op::input, {data_.micro_batch_size, data_.sequence_length}, DType::int64, Role::input);
    batch.pixel_values = make_pixels(context_, data_, channels_, data_.pixel_dtype.value_or(dtype_));
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const bool projects_last = context_.behaviours.clip_projects_last;
    ClipVisionOutput vision = vision_model_(inputs.pixel_values);
    if (!projects_last) vision.pooler_output = visual_projection_(vision.pooler_output);
    ClipVisionOutput text = text_model_(inputs.input_ids);
    Tensor image_embeds = projects_last ? visual_projection_(vision.pooler_output) : vision.pooler_output;
    Tensor text_embeds = text_projection_(text.pooler_output);
    if (!projects_last) text.pooler_output = text_embeds;
    image_embeds = div(image_embeds, vector_norm(image_embeds));
    text_embeds = div(text_embeds, vector_norm(text_embeds));
    Tensor logit_scale = context_.behaviours.clip_scales_first ? exp(logit_scale_) : Tensor();
    Tensor logits_per_text = matmul(text_embeds, transpose(image_embeds, 0, 1));
    if (!logit_scale) logit_scale = exp(logit_scale_);
    logits_per_text = mul(logits_per_text, logit_scale);
    const Tensor logits_per_image = transpose(logits_per_text, 0, 1);
    Tensor loss;  // return_loss=True
    if (loss_function) loss = (*loss_function)(logits_per_text, {});
    return {loss,
            {},
            {logits_per_image, logits_per_text, text_embeds, image_embeds, text.last_hidden_state, text.pooler_output,
             vision.last_hidden_state, vision.pooler_output}};
  }

 private:
  Context& context_;
  DataConfig data_;
  std::int64_t channels_;
  DType dtype_;
  ClipTextModel text_model_;
  ClipVisionModel vision_model_;
  Linear visual_projection_, text_projection_;
  Tensor logit_scale_;
};

}  // namespace

std::unique_ptr<Model> build_clip(Context& context, const ClipConfig& config, const DataConfig& data,
                                  const ModelOptions& options) {
  return std::make_unique<ClipModel>(context, config, data, options);
}

std::unique_ptr<Model> build_clip_vision(Context& context, const ClipVisionConfig& config, const DataConfig& data,
                                         const ModelOptions& options) {
  return std::make_unique<ClipVisionOnly>(context, config, data, options);
}

}  // namespace oometer
