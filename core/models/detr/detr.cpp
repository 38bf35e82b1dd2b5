#include "models/detr/detr.h"

#include <utility>

#include "models/bert/bert.h"
#include "models/cross_mask.h"
#include "nn/activation.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

DetrConvEncoder::DetrConvEncoder(const Builder& builder, const DetrConfig& c)
    : features(c.features), module(builder.module) {
  Builder its = builder.child("model", c.timm ? "FeatureListNet" : "ResNetBackbone");
  model_module = its.module;
  if (c.timm) {
    timm.emplace(its, *c.timm, c.num_channels, c.output_stride, c.classes->frozen_norm);
    timm->freeze();
    return;
  }
  std::vector<Parameter> own;
  its.parameters = &own;
  model.emplace(its, c.backbone, c.classes->frozen_norm);
  model->freeze(own);
  builder.parameters->insert(builder.parameters->end(), own.begin(), own.end());
}

List<DetrFeatures> DetrConvEncoder::operator()(const Tensor& pixel_values_in, const Tensor& pixel_mask) const {
  Context& context = pixel_values_in.context();
  ModuleCall call(context, module);
  const Tensor pixel_values = call.argument(pixel_values_in);
  TensorList feature_maps;
  {
    ModuleCall backbone(context, model_module);
    const TensorList hidden_states =
        timm ? (*timm)(backbone.argument(pixel_values)) : (*model)(backbone.argument(pixel_values), true);
    for (const std::size_t stage : features) feature_maps.push_back(hidden_states[timm ? stage - 1 : stage]);
    feature_maps.back() = backbone.result(feature_maps.back());
  }
  List<DetrFeatures> out;
  for (const Tensor& feature_map : feature_maps) {
    const Shape sizes{1, feature_map.size(0), feature_map.size(2), feature_map.size(3)};
    Tensor mask;
    {
      const Tensor numbers = to(pixel_mask, DType::float32);
      mask = empty(context, Op::upsample, sizes, DType::float32);
    }
    mask = to(mask, DType::boolean);
    out.push_back({feature_map, view(mask, {sizes[1], sizes[2], sizes[3]})});
  }
  out.back().feature_map = call.result(out.back().feature_map);
  return out;
}

DetrSinePositionEmbedding::DetrSinePositionEmbedding(const Builder& builder, std::int64_t features, bool its_centers)
    : num_position_features(features), centers(its_centers), module(builder.module) {}

// build_sine_position_embedding, normalized
Tensor DetrSinePositionEmbedding::operator()(DType given, const Tensor& mask) {
  Context& context = mask.context();
  const ModuleScope scope(context, module);
  // cumsum and pow are among what autocast runs in float32.
  const DType dtype = context.autocast.enabled ? DType::float32 : given;
  const Shape& sizes = mask.sizes();
  Tensor embed_mask = empty(context, Op::to_copy, sizes, given);
  Tensor y_embed = cumsum(embed_mask, 1, dtype);
  Tensor x_embed = cumsum(embed_mask, 2, dtype);
  const auto normalize = [&](Tensor& embed, const Shape& last) {
    Tensor quotient;
    {
      Tensor centered;
      if (centers) centered = empty(context, Op::sub, sizes, dtype);
      const Tensor largest = empty(context, Op::add, last, dtype);
      quotient = empty(context, Op::div, sizes, dtype);
    }
    const Tensor result = empty(context, Op::mul, sizes, dtype);
    quotient.reset();
    embed = result;
  };
  normalize(y_embed, {sizes[0], 1, sizes[2]});
  normalize(x_embed, {sizes[0], sizes[1], 1});
  const Shape own{num_position_features};
  Tensor dim_t;
  {
    Tensor range = empty(context, Op::arange, own, DType::int64);
    dim_t = empty(context, Op::to_copy, own, given);
  }
  {
    Tensor exponent = empty(context, Op::div, own, given);
    Tensor twice = mul_scalar(exponent);
    exponent.reset();
    exponent = div_scalar(twice);
    twice.reset();
    const Tensor power = empty(context, Op::pow, own, dtype);
    { const Tensor base = empty(context, Op::fill, {}, DType::float64); }
    exponent.reset();
    dim_t = power;
  }
  const Shape wide{sizes[0], sizes[1], sizes[2], num_position_features},
      half{sizes[0], sizes[1], sizes[2], num_position_features / 2};
  Tensor pos_x = empty(context, Op::div, wide, dtype);
  Tensor pos_y = empty(context, Op::div, wide, dtype);
  for (Tensor* pos : {&pos_x, &pos_y}) {
    Tensor sine = empty(context, Op::sin, half, dtype);
    Tensor cosine = empty(context, Op::cos, half, dtype);
    const Tensor stacked = empty(context, Op::stack, wide, dtype);
    cosine.reset();
    sine.reset();
    *pos = stacked;
  }
  Tensor pos = cat({pos_y, pos_x}, 3);
  for (Tensor* local : {&y_embed, &x_embed, &embed_mask, &dim_t, &pos_x, &pos_y}) local->reset();
  pos = permute(pos, {0, 3, 1, 2});
  cached_mask = mask;
  cached = pos;
  return pos;
}

DetrAttention::DetrAttention(const Builder& builder, std::int64_t d_model, std::int64_t heads, const AttentionCall& its)
    : head_dim(d_model / heads), attention(its), module(builder.module) {
  const auto projection = [&](const char* name) {
    return Linear(builder.child(name, "Linear"), d_model, d_model, true);
  };
  k_proj = projection("k_proj");
  v_proj = projection("v_proj");
  q_proj = projection("q_proj");
  o_proj = projection("o_proj");
}

AttentionOutputs DetrAttention::operator()(const Tensor& argument, const Tensor& position_embeddings,
                                           const Tensor& key_value_states, const Tensor& key_positions,
                                           const Tensor& attention_mask) const {
  ModuleCall call(argument.context(), module);
  const Tensor hidden_states = call.argument(argument);
  const Tensor query_input = add(hidden_states, position_embeddings),
               key_input = key_value_states ? add(key_value_states, key_positions) : query_input;
  AttentionInputs states;
  states.query = heads_of(q_proj(query_input), head_dim);
  states.key = heads_of(k_proj(key_input), head_dim);
  states.value = heads_of(v_proj(key_value_states ? key_value_states : hidden_states), head_dim);
  AttentionOutputs attended =
      attention.kind == AttentionKind::eager
          ? eager_in_own_type(attention, states, attention_mask)
          : attention_forward(attention, states.query, states.key, states.value, attention_mask);
  attended.output = reshape(attended.output, hidden_states.sizes());
  attended.output = call.result(o_proj(attended.output));
  return attended;
}

DetrMLP::DetrMLP(const Builder& builder, std::int64_t d_model, std::int64_t intermediate_size, Activation activation,
                 double its_activation_dropout, double its_dropout)
    : fc1(builder.child("fc1", "Linear"), d_model, intermediate_size, true),
      fc2(builder.child("fc2", "Linear"), intermediate_size, d_model, true),
      activation_fn(activation),
      activation_dropout(its_activation_dropout),
      dropout_prob(its_dropout),
      module(builder.module) {}

Tensor DetrMLP::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor hidden_states = fc1(call.argument(argument));
  hidden_states = activate(activation_fn, hidden_states);
  hidden_states = dropout(hidden_states, activation_dropout);
  hidden_states = fc2(hidden_states);
  return call.result(dropout(hidden_states, dropout_prob));
}

DetrLayer::DetrLayer(const Builder& builder, const DetrConfig& c, const ModelOptions& options, bool is_decoder)
    : self_attn(builder.child("self_attn", c.classes->self_attention), c,
                is_decoder ? c.decoder_attention_heads : c.encoder_attention_heads, options),
      self_attn_layer_norm(builder.child("self_attn_layer_norm", "LayerNorm"), c.d_model),
      dropout_prob(c.dropout),
      module(builder.module) {
  if (is_decoder) {
    encoder_attn.emplace(builder.child("encoder_attn", "DetrCrossAttention"), c, c.decoder_attention_heads, options);
    encoder_attn_layer_norm = LayerNorm(builder.child("encoder_attn_layer_norm", "LayerNorm"), c.d_model);
  }
  mlp.emplace(builder.child("mlp", c.classes->mlp), c, is_decoder ? c.decoder_ffn_dim : c.encoder_ffn_dim);
  final_layer_norm = LayerNorm(builder.child("final_layer_norm", "LayerNorm"), c.d_model);
}

void check_finite(const Tensor& hidden_states) {
  const NoGrad no_grad(hidden_states.context());
  Tensor finite;
  {
    const Tensor size = empty_like(Op::abs, hidden_states);
    const Tensor is_finite = empty_like(Op::ne, hidden_states, DType::boolean);
    const Tensor is_number = empty_like(Op::eq, hidden_states, DType::boolean);
    finite = empty_like(Op::bitwise_and, hidden_states, DType::boolean);
  }
  const Tensor result = all(Op::all, finite, {0, 1, 2}, false);
  finite.reset();
}

Tensor DetrLayer::operator()(const Tensor& hidden_in, const DetrSources& sources) const {
  const ModuleScope scope(hidden_in.context(), module);
  Tensor residual = hidden_in;
  AttentionOutputs attended = self_attn(
      hidden_in, encoder_attn ? sources.object_queries_position_embeddings : sources.spatial_position_embeddings);
  Tensor hidden_states = std::move(attended.output);  // the weights stay in `_` until it is bound again
  const auto add_residual = [&] {
    hidden_states = dropout(hidden_states, dropout_prob);
    hidden_states = add(residual, hidden_states);
  };
  add_residual();
  hidden_states = self_attn_layer_norm(hidden_states);
  if (encoder_attn) {
    residual = hidden_states;
    AttentionOutputs crossed = (*encoder_attn)(hidden_states, sources.object_queries_position_embeddings,
                                               sources.encoder_hidden_states, sources.spatial_position_embeddings);
    hidden_states = std::move(crossed.output);
    attended.weights = std::move(crossed.weights);
    add_residual();
    hidden_states = encoder_attn_layer_norm(hidden_states);
  }
  residual = hidden_states;
  hidden_states = (*mlp)(hidden_states);
  hidden_states = add(residual, hidden_states);
  hidden_states = final_layer_norm(hidden_states);
  if (!encoder_attn && hidden_states.context().training) check_finite(hidden_states);
  return hidden_states;
}

DetrStack::DetrStack(const Builder& builder, const DetrConfig& c, const ModelOptions& options, bool is_decoder)
    : blocks(builder), checkpointing(options.checkpointing), module(builder.module) {
  const std::int64_t count = is_decoder ? c.decoder_layers : c.encoder_layers;
  layers.reserve(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) {
    layers.emplace_back(builder.child("layers", is_decoder ? c.classes->decoder_layer : c.classes->encoder_layer, i), c,
                        options, is_decoder);
    blocks.add_block(builder);
  }
  if (is_decoder) blocks.first_block = static_cast<std::size_t>(c.encoder_layers);
  if (is_decoder) layernorm = LayerNorm(builder.child("layernorm", "LayerNorm"), c.d_model);
}

Tensor DetrStack::run(std::size_t begin, std::size_t end, Tensor hidden_states, const DetrSources& sources) const {
  const auto block = [&](std::size_t i) -> BlockStack::Forward {
    return [&layer = layers[i], sources](const Tensor& hidden) { return layer(hidden, sources); };
  };
  return blocks.run(begin, end, std::move(hidden_states), checkpointing, block);
}

void DetrEncoded::let_go() {
  pixel_mask.reset();
  vision_features.clear();
  for (Tensor* local : {&projected_feature_map, &flattened_features, &sources.spatial_position_embeddings,
                        &flattened_mask, &sources.encoder_hidden_states, &sources.object_queries_position_embeddings})
    local->reset();
}

DetrBase::DetrBase(Context& context, const DetrConfig& c, const DataConfig& data, const ModelOptions& options)
    : ImageModel(context, c, data, options),
      own_(c),
      masked_(masked_by(options.attention)),
      model_builder_(c.detects ? root_.child("model", c.classes->model) : root_),
      backbone_(model_builder_.child("backbone", c.classes->conv_encoder), c),
      position_embedding_(model_builder_.child("position_embedding", c.classes->position_embedding), c.d_model / 2),
      query_position_embeddings_(model_builder_.child("query_position_embeddings", "Embedding"), c.num_queries,
                                 c.d_model),
      input_projection_(model_builder_.child("input_projection", "Conv2d"),
                        c.backbone.hidden_sizes[c.features.back() - 1], c.d_model, {}),
      encoder_(model_builder_.child("encoder", c.classes->encoder), c, options, false) {
  if (options.checkpointing.mode == CheckpointMode::reentrant)
    context.refusal = Error{"not-modelled", "/training/activation_checkpointing",
                            "reentrant checkpoints of layers that read several tensors with gradients are not "
                            "supported yet with " +
                                std::string(c.class_name) + ": expected non-reentrant"};
}

ModelInputs DetrBase::make_inputs(bool with_labels) {
  ModelInputs batch = ImageModel::make_inputs(with_labels);
  if (with_labels && own_.detects) batch.others = make_detection_labels(context_, data_);
  return batch;
}

void DetrBase::encode_images(const Tensor& pixel_values, DetrEncoded& result) {
  const std::int64_t batch = pixel_values.size(0);
  result.pixel_mask = empty(context_, Op::fill, {batch, pixel_values.size(2), pixel_values.size(3)}, DType::float32);
  result.vision_features = backbone_(pixel_values, result.pixel_mask);
  const auto& [feature_map, mask] = result.vision_features.back();
  result.projected_feature_map = input_projection_(feature_map);
  const std::int64_t places =
      checked_product(result.projected_feature_map.size(2), result.projected_feature_map.size(3));
  const auto flattened = [&](const Tensor& images) {
    return transpose(reshape(images, {batch, own_.d_model, places}), 1, 2);
  };
  result.flattened_features = flattened(result.projected_feature_map);
  DetrSources& sources = result.sources;
  sources.spatial_position_embeddings = flattened(position_embedding_(pixel_values.dtype(), mask));
  result.flattened_mask = reshape(mask, {batch, places});
  {  // DetrEncoder.forward
    ModuleCall call(context_, encoder_.module);
    const Tensor inputs_embeds = call.keyword(result.flattened_features);
    Tensor hidden_states = dropout(inputs_embeds, own_.dropout);
    create_bidirectional_mask(inputs_embeds, {{}, result.flattened_mask}, masked_);
    sources.encoder_hidden_states =
        call.result(encoder_.run(0, encoder_.layers.size(), std::move(hidden_states), sources));
  }
  sources.object_queries_position_embeddings = repeat(unsqueeze(query_position_embeddings_.weight, 0), {batch, 1, 1});
}

namespace {

class Detr : public DetrBase {
 public:
  Detr(Context& context, const DetrConfig& c, const DataConfig& data, const ModelOptions& options)
      : DetrBase(context, c, data, options),
        decoder_(model_builder_.child("decoder", c.classes->decoder), c, options, true) {
    if (!c.detects) return;
    class_labels_classifier_ =
        Linear(root_.child("class_labels_classifier", "Linear"), c.d_model, c.num_labels + 1, true);
    bbox_predictor_ = DetectionHead(root_.child("bbox_predictor", c.classes->head), c.d_model, c.d_model, 4, 3);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    ModelOutputs outputs;
    Hidden hidden = model_forward(inputs.pixel_values);
    if (own_.detects) {
      Predictions predictions = predict(hidden.last), intermediate;
      if (!inputs.others.empty()) {
        if (hidden.intermediate) intermediate = predict(hidden.intermediate);
        DetectionLoss loss = object_detection_loss(predictions, inputs.others, own_.num_labels, intermediate);
        outputs.loss = std::move(loss.loss);
        for (Tensor& one : loss.loss_dict) outputs.others.push_back(std::move(one));
      }
      for (Tensor* one : {&predictions.logits, &predictions.boxes, &intermediate.logits, &intermediate.boxes})
        if (*one) outputs.others.push_back(std::move(*one));
    } else if (hidden.intermediate) {
      outputs.others.push_back(std::move(hidden.intermediate));
    }
    outputs.others.insert(own_.detects ? outputs.others.end() : outputs.others.begin(), hidden.last);
    outputs.others.push_back(std::move(hidden.encoder_last));
    return outputs;
  }

 private:
  struct Hidden {
    Tensor last, encoder_last, intermediate;
  };

  Predictions predict(const Tensor& hidden_states) const {
    Predictions result;
    result.logits = class_labels_classifier_(hidden_states);
    const Tensor boxes = bbox_predictor_(hidden_states);
    result.boxes = sigmoid(boxes);
    return result;
  }

  // DetrModel.forward
  Hidden model_forward(const Tensor& argument) {
    ModuleCall call(context_, model_builder_.module);
    const Tensor pixel_values = call.argument(argument);
    DetrEncoded encoded;
    encode_images(pixel_values, encoded);
    const Tensor queries = [&] {
      const NoGrad no_grad(context_);
      return empty_like(Op::zeros_like, encoded.sources.object_queries_position_embeddings);
    }();
    Hidden result;
    result.encoder_last = encoded.sources.encoder_hidden_states;
    decode(queries, encoded.flattened_mask, encoded.sources, result);
    encoded.let_go();
    result.last = call.result(result.last);
    return result;
  }

  // DetrDecoder.forward
  void decode(const Tensor& argument, const Tensor& encoder_attention_mask, const DetrSources& sources,
              Hidden& result) const {
    ModuleCall call(context_, decoder_.module);
    Tensor hidden_states = call.keyword(argument);
    create_cross_mask(hidden_states, sources.encoder_hidden_states, {{}, encoder_attention_mask}, masked_);
    TensorList intermediate;
    const std::size_t count = decoder_.layers.size();
    for (std::size_t i = 0; own_.auxiliary_loss && i < count; ++i) {
      hidden_states = decoder_.run(i, i + 1, std::move(hidden_states), sources);
      hidden_states = decoder_.layernorm(hidden_states);
      intermediate.push_back(hidden_states);
    }
    if (!own_.auxiliary_loss) hidden_states = decoder_.run(0, count, std::move(hidden_states), sources);
    hidden_states = decoder_.layernorm(hidden_states);
    if (own_.auxiliary_loss) result.intermediate = stack(intermediate);
    result.last = call.result(hidden_states);
  }

  DetrStack decoder_;
  Linear class_labels_classifier_;
  DetectionHead bbox_predictor_;
};

}  // namespace

std::unique_ptr<Model> build_detr(Context& context, const DetrConfig& config, const DataConfig& data,
                                  const ModelOptions& options) {
  return std::make_unique<Detr>(context, config, data, options);
}

}  // namespace oometer
