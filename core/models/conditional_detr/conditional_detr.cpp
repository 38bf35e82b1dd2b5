#include "models/conditional_detr/conditional_detr.h"

#include <utility>

#include "models/bert/bert.h"
#include "ops/detection.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

AttentionOutputs attend(const AttentionCall& attention, const AttentionInputs& states) {
  return attention.kind == AttentionKind::eager
             ? eager_in_own_type(attention, states, {})
             : attention_forward(attention, states.query, states.key, states.value, {});
}

/// ConditionalDetrDecoderSelfAttention, ConditionalDetrDecoderCrossAttention: `sine` is the second's alone.
struct ConditionalDetrAttention {
  /// `dropped`: takes the parameters of q_proj's positions where the decoder throws that layer away.
  ConditionalDetrAttention(const Builder& builder, const DetrConfig& c, const ModelOptions& options, bool is_cross,
                           std::vector<Parameter>* dropped)
      : head_dim(c.d_model / c.decoder_attention_heads),
        attention{.kind = options.attention, .dropout = c.attention_dropout},
        module(builder.module) {
    const auto projection = [&](const char* name, std::vector<Parameter>* parameters = nullptr) {
      Builder own = builder.child(name, "Linear");
      if (parameters) {
        own.parameters = parameters;
        own.wrapping = nullptr;
      }
      return Linear(own, c.d_model, c.d_model, true);
    };
    q_content_proj = projection("q_content_proj");
    q_pos_proj = projection("q_pos_proj", dropped);
    k_content_proj = projection("k_content_proj");
    k_pos_proj = projection("k_pos_proj");
    v_proj = projection("v_proj");
    if (is_cross) q_pos_sine_proj = projection("q_pos_sine_proj");
    o_proj = projection("o_proj");
  }

  /// Of the first kind.
  AttentionOutputs operator()(const Tensor& argument, const Tensor& query_position_embeddings) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = call.argument(argument);
    AttentionInputs states;
    const auto joined = [&](const Linear& content, const Linear& positions) {
      const Tensor own = content(hidden_states);
      const Tensor its_positions = positions(query_position_embeddings);
      return heads_of(add(own, its_positions), head_dim);
    };
    states.query = joined(q_content_proj, q_pos_proj);
    states.key = joined(k_content_proj, k_pos_proj);
    states.value = heads_of(v_proj(hidden_states), head_dim);
    AttentionOutputs attended = attend(attention, states);
    attended.output = reshape(attended.output, hidden_states.sizes());
    attended.output = call.result(o_proj(attended.output));
    return attended;
  }

  /// Of the second kind. `query_position_embeddings`: null in all layers but the first.
  AttentionOutputs operator()(const Tensor& argument, const DetrSources& sources, const Tensor& sine_embed,
                              const Tensor& query_position_embeddings) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = call.argument(argument);
    Tensor query_input = q_content_proj(hidden_states);
    Tensor key_input = k_content_proj(sources.encoder_hidden_states);
    const Tensor value_states = v_proj(sources.encoder_hidden_states);
    Tensor key_pos = k_pos_proj(sources.spatial_position_embeddings);
    if (query_position_embeddings) {
      {
        const Tensor positions = q_pos_proj(query_position_embeddings);
        query_input = add(query_input, positions);
      }
      key_input = add(key_input, key_pos);
    }
    const auto by_head = [&](const Tensor& x) {
      return view(x, {x.size(0), x.size(1), x.size(2) / head_dim, head_dim});
    };
    query_input = by_head(query_input);
    key_input = by_head(key_input);
    Tensor query_sine_embed = by_head(q_pos_sine_proj(sine_embed));
    key_pos = by_head(key_pos);
    AttentionInputs states;
    states.query = cat({query_input, query_sine_embed}, 3);
    states.key = cat({key_input, key_pos}, 3);
    states.query = transpose(states.query, 1, 2);
    states.key = transpose(states.key, 1, 2);
    states.value = transpose(by_head(value_states), 1, 2);
    AttentionOutputs attended = attend(attention, states);
    attended.output = reshape(attended.output, hidden_states.sizes());
    attended.output = call.result(o_proj(attended.output));
    for (Tensor* local : {&query_sine_embed, &query_input, &key_input}) local->reset();
    return attended;
  }

  Linear q_content_proj, q_pos_proj, k_content_proj, k_pos_proj, v_proj, q_pos_sine_proj, o_proj;
  std::int64_t head_dim;
  AttentionCall attention;
  ModuleId module;
};

struct ConditionalDetrDecoderLayer {
  ConditionalDetrDecoderLayer(const Builder& builder, const DetrConfig& c, const ModelOptions& options,
                              std::vector<Parameter>* dropped)
      : self_attn(builder.child("self_attn", "ConditionalDetrDecoderSelfAttention"), c, options, false, nullptr),
        self_attn_layer_norm(builder.child("self_attn_layer_norm", "LayerNorm"), c.d_model),
        encoder_attn(builder.child("encoder_attn", "ConditionalDetrDecoderCrossAttention"), c, options, true, dropped),
        encoder_attn_layer_norm(builder.child("encoder_attn_layer_norm", "LayerNorm"), c.d_model),
        mlp(builder.child("mlp", c.classes->mlp), c, c.decoder_ffn_dim),
        final_layer_norm(builder.child("final_layer_norm", "LayerNorm"), c.d_model),
        dropout_prob(c.dropout),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const DetrSources& sources, const Tensor& query_sine_embed,
                    bool is_first) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in;
    AttentionOutputs attended = self_attn(hidden_in, sources.object_queries_position_embeddings);
    Tensor hidden_states = std::move(attended.output);  // the weights stay in `_` until it is bound again
    const auto add_residual = [&] {
      hidden_states = dropout(hidden_states, dropout_prob);
      hidden_states = add(residual, hidden_states);
    };
    add_residual();
    hidden_states = self_attn_layer_norm(hidden_states);
    residual = hidden_states;
    AttentionOutputs crossed = encoder_attn(hidden_states, sources, query_sine_embed,
                                            is_first ? sources.object_queries_position_embeddings : Tensor());
    hidden_states = std::move(crossed.output);
    attended.weights = std::move(crossed.weights);
    add_residual();
    hidden_states = encoder_attn_layer_norm(hidden_states);
    residual = hidden_states;
    hidden_states = mlp(hidden_states);
    hidden_states = add(residual, hidden_states);
    return final_layer_norm(hidden_states);
  }

  ConditionalDetrAttention self_attn;
  LayerNorm self_attn_layer_norm;
  ConditionalDetrAttention encoder_attn;
  LayerNorm encoder_attn_layer_norm;
  DetrMLP mlp;
  LayerNorm final_layer_norm;
  double dropout_prob;
  ModuleId module;
};

/// encode_sinusoidal_position_embedding of [.., 2], each place with so many numbers.
Tensor encode_sinusoidal_position_embedding(const Tensor& pos_tensor, std::int64_t num_pos_feats) {
  Context& context = pos_tensor.context();
  const auto numbers = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::float32); };
  Tensor dim_t = numbers(Op::arange, {num_pos_feats});
  {
    const NoGrad no_grad(context);
    Tensor exponent = numbers(Op::div, dim_t.sizes());
    exponent = mul_scalar(exponent);
    exponent = div_scalar(exponent);
    const Tensor power = numbers(Op::pow, dim_t.sizes());
    { const Tensor base = empty(context, Op::fill, {}, DType::float64); }
    exponent.reset();
    dim_t = power;
  }
  const TensorList coords = unbind(pos_tensor, pos_tensor.ndim() - 1);
  TensorList embeddings;
  for (const Tensor& coord : coords) {
    Tensor scaled = mul_scalar(unsqueeze(coord, coord.ndim()));
    embeddings.push_back(div(scaled, dim_t));
  }
  TensorList encoded;
  for (const Tensor& one : embeddings) {
    Shape pairs = one.sizes();
    pairs[-1] /= 2;
    pairs.push_back(2);
    const auto every_second = [&](std::int64_t first) { return select(view(one, pairs), -1, first); };
    TensorList waves;
    const Tensor even = every_second(0);
    waves.push_back(sin(even));
    const Tensor odd = every_second(1);
    waves.push_back(cos(odd));
    encoded.push_back(reshape(stack(waves, waves[0].ndim()), one.sizes()));
  }
  embeddings.clear();
  const Tensor joined = cat({encoded[1], encoded[0]}, pos_tensor.ndim() - 1);
  return to(joined, pos_tensor.dtype());
}

class ConditionalDetr : public DetrBase {
 public:
  ConditionalDetr(Context& context, const DetrConfig& c, const DataConfig& data, const ModelOptions& options)
      : DetrBase(context, c, data, options), checkpointing_(options.checkpointing) {
    const Builder decoder = model_builder_.child("decoder", c.classes->decoder);
    decoder_ = decoder.module;
    blocks_ = BlockStack(decoder);
    blocks_.first_block = static_cast<std::size_t>(c.encoder_layers);
    layers_.reserve(static_cast<std::size_t>(c.decoder_layers));
    std::vector<Parameter> dropped;
    for (std::int32_t i = 0; i < c.decoder_layers; ++i) {
      layers_.emplace_back(decoder.child("layers", c.classes->decoder_layer, i), c, options,
                           i == 0 ? nullptr : &dropped);
      blocks_.add_block(decoder);
    }
    layernorm_ = LayerNorm(decoder.child("layernorm", "LayerNorm"), c.d_model);
    query_scale_ = DetectionHead(decoder.child("query_scale", c.classes->head), c.d_model, c.d_model, c.d_model, 2);
    ref_point_head_ = DetectionHead(decoder.child("ref_point_head", c.classes->head), c.d_model, c.d_model, 2, 2);
    dropped.clear();
    for (std::size_t i = 1; i < layers_.size(); ++i) layers_[i].encoder_attn.q_pos_proj = {};
    if (!c.detects) return;
    class_labels_classifier_ = Linear(root_.child("class_labels_classifier", "Linear"), c.d_model, c.num_labels, true);
    bbox_predictor_ = DetectionHead(root_.child("bbox_predictor", c.classes->head), c.d_model, c.d_model, 4, 3);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    ModelOutputs outputs;
    Hidden hidden = model_forward(inputs.pixel_values);
    if (!own_.detects) {
      outputs.others.push_back(std::move(hidden.last));
      if (hidden.intermediate) outputs.others.push_back(std::move(hidden.intermediate));
      outputs.others.push_back(std::move(hidden.encoder_last));
      outputs.others.push_back(std::move(hidden.reference_points));
      return outputs;
    }
    Predictions predictions, intermediate;
    predictions.logits = class_labels_classifier_(hidden.last);
    const Tensor reference_before_sigmoid = transpose(inverse_sigmoid(hidden.reference_points), 0, 1);
    Tensor tmp;
    const auto boxes_of = [&](const Tensor& hidden_states) {
      tmp = bbox_predictor_(hidden_states);
      const Tensor places = slice(tmp, 2, 0, 2);
      const Tensor moved = add_in_place(places, reference_before_sigmoid);
      copy_in_place(slice(tmp, 2, 0, 2), moved);
      return sigmoid(tmp);
    };
    predictions.boxes = boxes_of(hidden.last);
    if (!inputs.others.empty()) {
      if (own_.auxiliary_loss) {
        intermediate.logits = class_labels_classifier_(hidden.intermediate);
        TensorList coords;
        for (std::int64_t level = 0; level < hidden.intermediate.size(0); ++level)
          coords.push_back(boxes_of(select(hidden.intermediate, 0, level)));
        intermediate.boxes = stack(coords);
      }
      DetectionLoss loss =
          object_detection_loss(predictions, inputs.others, own_.num_labels, intermediate, ClassLoss::focal);
      outputs.loss = std::move(loss.loss);
      for (Tensor& one : loss.loss_dict) outputs.others.push_back(std::move(one));
    }
    for (Tensor* one : {&predictions.logits, &predictions.boxes, &intermediate.logits, &intermediate.boxes})
      if (*one) outputs.others.push_back(std::move(*one));
    outputs.others.push_back(std::move(hidden.last));
    outputs.others.push_back(std::move(hidden.encoder_last));
    return outputs;
  }

 private:
  struct Hidden {
    Tensor last, encoder_last, intermediate, reference_points;
  };

  // ConditionalDetrModel.forward
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

  // ConditionalDetrDecoder.forward
  void decode(const Tensor& argument, const Tensor& encoder_attention_mask, const DetrSources& sources,
              Hidden& result) const {
    ModuleCall call(context_, decoder_);
    Tensor hidden_states = call.keyword(argument);
    create_bidirectional_mask(hidden_states, {{}, encoder_attention_mask}, masked_);
    TensorList intermediate;
    const Tensor reference_points_before_sigmoid = ref_point_head_(sources.object_queries_position_embeddings);
    result.reference_points = transpose(sigmoid(reference_points_before_sigmoid), 0, 1);
    const Tensor obj_center = transpose(slice(result.reference_points, 2, 0, 2), 0, 1);
    const Tensor before_transformation = encode_sinusoidal_position_embedding(obj_center, own_.d_model / 2);
    Tensor pos_transformation, query_sine_embed;
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers_[i], sources, query_sine_embed, is_first = i == 0](const Tensor& hidden) {
        return layer(hidden, sources, query_sine_embed, is_first);
      };
    };
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (i > 0) pos_transformation = query_scale_(hidden_states);
      query_sine_embed = i == 0 ? mul_scalar(before_transformation) : mul(before_transformation, pos_transformation);
      hidden_states = blocks_.run(i, i + 1, std::move(hidden_states), checkpointing_, block);
      if (!own_.auxiliary_loss) continue;
      hidden_states = layernorm_(hidden_states);
      intermediate.push_back(hidden_states);
    }
    hidden_states = layernorm_(hidden_states);
    if (own_.auxiliary_loss) result.intermediate = stack(intermediate);
    result.last = call.result(hidden_states);
  }

  CheckpointingConfig checkpointing_;
  BlockStack blocks_;
  std::vector<ConditionalDetrDecoderLayer> layers_;
  LayerNorm layernorm_;
  DetectionHead query_scale_, ref_point_head_, bbox_predictor_;
  Linear class_labels_classifier_;
  ModuleId decoder_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_conditional_detr(Context& context, const DetrConfig& config, const DataConfig& data,
                                              const ModelOptions& options) {
  return std::make_unique<ConditionalDetr>(context, config, data, options);
}

}  // namespace oometer
