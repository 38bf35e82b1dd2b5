#include "models/deformable_detr/deformable_detr.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/kit/deformable_attention.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

constexpr std::int64_t kGroups = 32;

/// nn.Sequential of a convolution and nn.GroupNorm.
struct InputProjection {
  InputProjection(const Builder& builder, std::int64_t in, std::int64_t out, bool halves)
      : conv(builder.child("", "Conv2d", 0), in, out,
             halves ? AnyConv2d::Options{.kernel = 3, .stride = 2, .padding = 1} : AnyConv2d::Options{}),
        module(builder.module) {
    const Builder norm = builder.child("", "GroupNorm", 1);
    norm_module = norm.module;
    weight = norm.parameter("weight", {out});
    bias = norm.parameter("bias", {out});
  }

  Tensor operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor projected = conv(call.argument(argument));
    ModuleCall norm(context, norm_module);
    return call.result(norm.result(group_norm(norm.argument(projected), kGroups, weight, bias)));
  }

  AnyConv2d conv;
  Tensor weight, bias;
  ModuleId module, norm_module = 0;
};

DeformableAttention attention_of(const Builder& parent, const char* name, const DeformableDetrConfig& c,
                                 std::int64_t heads, std::int64_t points) {
  return DeformableAttention(parent.child(name, "DeformableDetrMultiscaleDeformableAttention"),
                             {.d_model = c.d_model, .heads = heads, .levels = c.num_feature_levels, .points = points});
}

/// What layers read beside their hidden states.
struct LayerInputs {
  FeatureLevels encoder;
  Tensor positions, reference_points, attention_mask;
};

/// DeformableDetrEncoderLayer, DeformableDetrDecoderLayer: the second has queries of its own.
struct Layer {
  Layer(const Builder& builder, const DeformableDetrConfig& c, const ModelOptions& options, bool is_decoder)
      : dropout_prob(c.dropout), module(builder.module) {
    if (is_decoder) {
      query_attn.emplace(builder.child("self_attn", c.classes->self_attention), c, c.decoder_attention_heads, options);
      query_norm = LayerNorm(builder.child("self_attn_layer_norm", "LayerNorm"), c.d_model);
      attn.emplace(attention_of(builder, "encoder_attn", c, c.decoder_attention_heads, c.decoder_n_points));
      attn_norm = LayerNorm(builder.child("encoder_attn_layer_norm", "LayerNorm"), c.d_model);
    } else {
      attn.emplace(attention_of(builder, "self_attn", c, c.encoder_attention_heads, c.encoder_n_points));
      attn_norm = LayerNorm(builder.child("self_attn_layer_norm", "LayerNorm"), c.d_model);
    }
    mlp.emplace(builder.child("mlp", c.classes->mlp), c, is_decoder ? c.decoder_ffn_dim : c.encoder_ffn_dim);
    final_layer_norm = LayerNorm(builder.child("final_layer_norm", "LayerNorm"), c.d_model);
  }

  Tensor operator()(const Tensor& hidden_in, const LayerInputs& its) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in, hidden_states = hidden_in, weights;
    const auto add_residual = [&] {
      hidden_states = dropout(hidden_states, dropout_prob);
      hidden_states = add(residual, hidden_states);
    };
    if (query_attn) {
      AttentionOutputs attended = (*query_attn)(hidden_in, its.positions);
      hidden_states = std::move(attended.output);
      weights = std::move(attended.weights);  // in `_` until it is bound again
      add_residual();
      hidden_states = query_norm(hidden_states);
      residual = hidden_states;
    }
    Tensor others;
    FeatureLevels encoder = its.encoder;
    if (!query_attn) encoder.flattened = hidden_in;
    hidden_states = (*attn)(hidden_states, its.positions, encoder, its.reference_points, others, its.attention_mask);
    encoder = {};
    weights = std::move(others);
    add_residual();
    hidden_states = attn_norm(hidden_states);
    residual = hidden_states;
    hidden_states = (*mlp)(hidden_states);
    hidden_states = add(residual, hidden_states);
    hidden_states = final_layer_norm(hidden_states);
    if (!query_attn && hidden_states.context().training) check_finite(hidden_states);
    return hidden_states;
  }

  std::optional<DetrAttention> query_attn;
  LayerNorm query_norm;
  std::optional<DeformableAttention> attn;
  LayerNorm attn_norm;
  std::optional<DetrMLP> mlp;
  LayerNorm final_layer_norm;
  double dropout_prob;
  ModuleId module;
};

/// DeformableDetrEncoder, DeformableDetrDecoder
struct Stack {
  Stack(const Builder& builder, const DeformableDetrConfig& c, const ModelOptions& options, bool is_decoder)
      : blocks(builder), checkpointing(options.checkpointing), module(builder.module) {
    const std::int64_t count = is_decoder ? c.decoder_layers : c.encoder_layers;
    layers.reserve(static_cast<std::size_t>(count));
    for (std::int32_t i = 0; i < count; ++i) {
      layers.emplace_back(builder.child("layers", is_decoder ? c.classes->decoder_layer : c.classes->encoder_layer, i),
                          c, options, is_decoder);
      blocks.add_block(builder);
    }
    if (is_decoder) blocks.first_block = static_cast<std::size_t>(c.encoder_layers);
  }

  Tensor run(std::size_t begin, std::size_t end, Tensor hidden_states, const LayerInputs& its) const {
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], its](const Tensor& hidden) { return layer(hidden, its); };
    };
    return blocks.run(begin, end, std::move(hidden_states), checkpointing, block);
  }

  std::vector<Layer> layers;
  BlockStack blocks;
  CheckpointingConfig checkpointing;
  ModuleId module;
};

class DeformableDetr : public ImageModel {
 public:
  DeformableDetr(Context& context, const DeformableDetrConfig& c, const DataConfig& data, const ModelOptions& options)
      : ImageModel(context, c, data, options),
        own_(c),
        builder_(c.detects ? root_.child("model", c.classes->model) : root_),
        backbone_(builder_.child("backbone", c.classes->conv_encoder), c),
        position_embedding_(builder_.child("position_embedding", c.classes->position_embedding), c.d_model / 2, true) {
    std::int64_t in = 0;
    for (std::int32_t i = 0; i < c.num_feature_levels; ++i) {
      const auto level = static_cast<std::size_t>(i);
      const bool is_own = level < c.features.size();
      if (is_own) in = c.backbone.hidden_sizes[c.features[level] - 1];
      input_proj_.emplace_back(builder_.child("input_proj", "Sequential", i), in, c.d_model, !is_own);
      if (!is_own) in = c.d_model;
    }
    query_position_embeddings_ =
        Embedding(builder_.child("query_position_embeddings", "Embedding"), c.num_queries, 2 * c.d_model);
    encoder_.emplace(builder_.child("encoder", c.classes->encoder), c, options, false);
    decoder_.emplace(builder_.child("decoder", c.classes->decoder), c, options, true);
    reference_points_ = Linear(builder_.child("reference_points", "Linear"), c.d_model, 2, true);
    if (c.detects) make_heads();
    level_embed_ = builder_.parameter("level_embed", {c.num_feature_levels, c.d_model});
    if (options.checkpointing.mode == CheckpointMode::reentrant)
      context.refusal = Error{"not-modelled", "/training/activation_checkpointing",
                              "reentrant checkpoints of layers that read several tensors with gradients are not "
                              "supported yet with " +
                                  std::string(c.class_name) + ": expected non-reentrant"};
  }

  ModelInputs make_inputs(bool with_labels) override {
    ModelInputs batch = ImageModel::make_inputs(with_labels);
    if (with_labels && own_.detects) batch.others = make_detection_labels(context_, data_);
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    ModelOutputs outputs;
    Hidden hidden;
    model_forward(inputs.pixel_values, hidden);
    if (own_.detects) predict(hidden, inputs, outputs);
    if (!own_.detects) outputs.others.push_back(hidden.init_reference_points);
    outputs.others.push_back(std::move(hidden.last));
    outputs.others.push_back(std::move(hidden.intermediate));
    outputs.others.push_back(std::move(hidden.intermediate_reference_points));
    outputs.others.push_back(std::move(hidden.encoder_last));
    outputs.others.push_back(std::move(hidden.init_reference_points));
    return outputs;
  }

 private:
  struct Hidden {
    Tensor last, encoder_last, intermediate, init_reference_points, intermediate_reference_points;
  };

  /// tie_weights (transformers 5.23, modeling_utils.py): the heads of all layers are the first one's, whose biases are
  /// padded anew each time that one is tied.
  void make_heads() {
    std::vector<Parameter> dropped;
    Builder other = root_;
    other.parameters = &dropped;
    const auto builder = [&](std::int32_t i) -> const Builder& { return i == 0 ? root_ : other; };
    for (std::int32_t i = 0; i < own_.decoder_layers; ++i)
      class_embed_.emplace_back(builder(i).child("class_embed", "Linear", i), own_.d_model, own_.num_labels, true);
    for (std::int32_t i = 0; i < own_.decoder_layers; ++i)
      bbox_embed_.emplace_back(builder(i).child("bbox_embed", own_.classes->head, i), own_.d_model, own_.d_model, 4, 3);
    dropped.clear();
    const auto tie_one = [&](Linear& head, const Linear& first) {
      for (const auto member : {&Linear::bias, &Linear::weight}) {
        head.*member = first.*member;
        const NoGrad no_grad(context_);
        replace_data(first.bias, empty_like(Op::clone, first.bias));
        context_.set_role(first.bias, Role::parameter, first.module);
      }
    };
    for (std::size_t i = 1; i < bbox_embed_.size(); ++i)
      for (std::size_t k = 0; k < bbox_embed_[i].layers.size(); ++k)
        tie_one(bbox_embed_[i].layers[k], bbox_embed_[0].layers[k]);
    for (std::size_t i = 1; i < class_embed_.size(); ++i) tie_one(class_embed_[i], class_embed_[0]);
  }

  // DeformableDetrForObjectDetection.forward, behind its model
  void predict(const Hidden& hidden, const ModelInputs& inputs, ModelOutputs& outputs) const {
    TensorList outputs_classes, outputs_coords;
    Tensor reference, outputs_class, delta_bbox, outputs_coord_logits, outputs_coord;
    for (std::size_t level = 0; level < class_embed_.size(); ++level) {
      const auto i = static_cast<std::int64_t>(level);
      reference = level == 0 ? hidden.init_reference_points : select(hidden.intermediate_reference_points, 1, i - 1);
      reference = inverse_sigmoid(reference);
      outputs_class = class_embed_[level](select(hidden.intermediate, 1, i));
      delta_bbox = bbox_embed_[level](select(hidden.intermediate, 1, i));
      {
        const Tensor places = slice(delta_bbox, 2, 0, 2);
        const Tensor moved = add_in_place(places, reference);
        copy_in_place(slice(delta_bbox, 2, 0, 2), moved);
      }
      outputs_coord_logits = delta_bbox;
      outputs_coord = sigmoid(outputs_coord_logits);
      outputs_classes.push_back(outputs_class);
      outputs_coords.push_back(outputs_coord);
    }
    outputs_class = stack(outputs_classes);
    outputs_coord = stack(outputs_coords);
    const std::int64_t last = own_.decoder_layers - 1;
    Predictions predictions{select(outputs_class, 0, last), select(outputs_coord, 0, last)}, intermediate;
    if (!inputs.others.empty()) {
      if (own_.auxiliary_loss) intermediate = {outputs_class, outputs_coord};
      DetectionLoss loss =
          object_detection_loss(predictions, inputs.others, own_.num_labels, intermediate, ClassLoss::focal);
      outputs.loss = std::move(loss.loss);
      for (Tensor& one : loss.loss_dict) outputs.others.push_back(std::move(one));
    }
    outputs.others.push_back(std::move(predictions.logits));
    outputs.others.push_back(std::move(predictions.boxes));
  }

  // get_valid_ratio
  Tensor valid_ratio(const Tensor& mask) const {
    const auto count = [&](const Tensor& line) { return sum(line, std::vector<int>{1}, false); };
    const Tensor valid_height = count(select(mask, 2, 0));
    const Tensor valid_width = count(select(mask, 1, 0));
    const auto ratio = [&] {
      const Tensor number = empty(context_, Op::to_copy, {mask.size(0)}, DType::float32);
      return div_scalar(number);
    };
    const Tensor valid_ratio_height = ratio();
    const Tensor valid_ratio_width = ratio();
    return stack({valid_ratio_width, valid_ratio_height}, 1);
  }

  // DeformableDetrModel.forward
  void model_forward(const Tensor& argument, Hidden& result) {
    ModuleCall call(context_, builder_.module);
    const Tensor pixel_values = call.argument(argument);
    const std::int64_t batch = pixel_values.size(0);
    const Tensor pixel_mask = integers(context_, Op::fill, {batch, pixel_values.size(2), pixel_values.size(3)});
    const List<DetrFeatures> features = backbone_(pixel_values, pixel_mask);
    TensorList sources, masks, position_embeddings;
    const auto add_level = [&](const Tensor& source, const Tensor& mask) {
      const Tensor pos = position_embedding_(pixel_values.dtype(), mask);
      masks.push_back(mask);
      position_embeddings.push_back(to(pos, source.dtype()));
    };
    for (std::size_t i = 0; i < features.size(); ++i) {
      sources.push_back(input_proj_[i](features[i].feature_map));
      add_level(features[i].feature_map, features[i].mask);
    }
    for (std::size_t i = features.size(); i < input_proj_.size(); ++i) {
      const Tensor source = input_proj_[i](i == features.size() ? features.back().feature_map : sources.back());
      Tensor mask;
      {
        const Tensor numbers = empty(context_, Op::to_copy, pixel_mask.sizes(), pixel_values.dtype());
        mask = empty(context_, Op::upsample, {batch, source.size(2), source.size(3)}, pixel_values.dtype());
      }
      mask = to(mask, DType::boolean);
      add_level(source, mask);
      sources.push_back(source);
    }
    LayerInputs inputs;
    Tensor lvl_pos_embed;
    flatten(sources, masks, position_embeddings, lvl_pos_embed, inputs);
    const Tensor valid_ratios = [&] {
      TensorList ratios;
      for (const Tensor& mask : masks) ratios.push_back(valid_ratio(mask));
      return stack(ratios, 1);
    }();
    result.encoder_last = encode(inputs, valid_ratios);
    const TensorList parts = split(query_position_embeddings_.weight, {own_.d_model, own_.d_model}, 1);
    const auto spread = [&](const Tensor& x) {
      return expand(unsqueeze(x, 0), {batch, own_.num_queries, own_.d_model});
    };
    const Tensor query_embed = spread(parts[0]), target = spread(parts[1]);
    {
      const Tensor places = reference_points_(query_embed);
      result.init_reference_points = sigmoid(places);
    }
    LayerInputs of_decoder = inputs;
    of_decoder.positions = query_embed;
    of_decoder.encoder.flattened = result.encoder_last;
    decode(target, of_decoder, valid_ratios, result);
    result.last = call.result(result.last);
  }

  void flatten(const TensorList& sources, const TensorList& masks, const TensorList& position_embeddings,
               Tensor& lvl_pos_embed, LayerInputs& inputs) const {
    std::vector<Tensor> flat_sources, flat_masks;
    TensorList positions;
    const auto flat = [](const Tensor& x) {
      return transpose(reshape(x, {x.size(0), x.size(1), checked_product(x.size(2), x.size(3))}), 1, 2);
    };
    FeatureLevels& levels = inputs.encoder;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      levels.sizes.push_back({sources[i].size(2), sources[i].size(3)});
      const Tensor pos_embed = flat(position_embeddings[i]);
      const Tensor embed = view(select(level_embed_, 0, static_cast<std::int64_t>(i)), {1, 1, own_.d_model});
      lvl_pos_embed = add(pos_embed, embed);
      positions.push_back(lvl_pos_embed);
      flat_sources.push_back(flat(sources[i]));
      flat_masks.push_back(reshape(masks[i], {masks[i].size(0), levels.sizes.back().places()}));
    }
    levels.flattened = cat(flat_sources, 1);
    flat_sources.clear();
    inputs.attention_mask = cat(flat_masks, 1);
    inputs.positions = cat(std::vector<Tensor>(positions.begin(), positions.end()), 1);
    positions.clear();
    levels.spatial_shapes =
        integers(context_, Op::to_copy, {static_cast<std::int64_t>(sources.size()), std::int64_t{2}});
    levels.level_start_index = level_starts(levels.spatial_shapes);
  }

  // DeformableDetrEncoder.forward
  Tensor encode(const LayerInputs& inputs, const Tensor& valid_ratios) const {
    ModuleCall call(context_, encoder_->module);
    const Tensor inputs_embeds = call.keyword(inputs.encoder.flattened);
    Tensor hidden_states = dropout(inputs_embeds, own_.dropout);
    LayerInputs its = inputs;
    its.encoder.flattened.reset();  // it is each layer's own
    its.reference_points = get_reference_points(inputs.encoder, valid_ratios);
    return call.result(encoder_->run(0, encoder_->layers.size(), std::move(hidden_states), its));
  }

  // DeformableDetrDecoder.forward
  void decode(const Tensor& inputs_embeds, LayerInputs& inputs, const Tensor& valid_ratios, Hidden& result) const {
    ModuleCall call(context_, decoder_->module);
    Tensor hidden_states = call.keyword(inputs_embeds);
    TensorList intermediate, intermediate_reference_points;
    const Tensor& reference_points = result.init_reference_points;
    for (std::size_t i = 0; i < decoder_->layers.size(); ++i) {
      inputs.reference_points = mul(unsqueeze(reference_points, 2), unsqueeze(valid_ratios, 1));
      hidden_states = decoder_->run(i, i + 1, std::move(hidden_states), inputs);
      intermediate.push_back(hidden_states);
      intermediate_reference_points.push_back(reference_points);
    }
    const auto stacked = [](TensorList& parts) {
      const Tensor all = stack(parts, 1);
      parts.clear();
      return all;
    };
    result.intermediate = stacked(intermediate);
    result.intermediate_reference_points = stacked(intermediate_reference_points);
    result.last = call.result(hidden_states);
    inputs.reference_points.reset();
  }

  DeformableDetrConfig own_;
  Builder builder_;
  DetrConvEncoder backbone_;
  DetrSinePositionEmbedding position_embedding_;
  std::vector<InputProjection> input_proj_;
  Embedding query_position_embeddings_;
  std::optional<Stack> encoder_, decoder_;
  Linear reference_points_;
  std::vector<Linear> class_embed_;
  std::vector<DetectionHead> bbox_embed_;
  Tensor level_embed_;
};

}  // namespace

std::unique_ptr<Model> build_deformable_detr(Context& context, const DeformableDetrConfig& config,
                                             const DataConfig& data, const ModelOptions& options) {
  return std::make_unique<DeformableDetr>(context, config, data, options);
}

}  // namespace oometer
