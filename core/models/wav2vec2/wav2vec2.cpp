#include "models/wav2vec2/wav2vec2.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "models/bert/bert.h"
#include "models/kit/audio_input.h"
#include "models/masking.h"
#include "models/wav2vec2/gated_attention.h"
#include "models/wav2vec2/parts.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

namespace oometer {

constexpr Wav2Vec2ClassNames kWav2Vec2{"wav2vec2",
                                       "Wav2Vec2ForCTC",
                                       "wav2vec2",
                                       "Wav2Vec2Model",
                                       "Wav2Vec2FeatureEncoder",
                                       "Wav2Vec2NoLayerNormConvLayer",
                                       "Wav2Vec2LayerNormConvLayer",
                                       "Wav2Vec2GroupNormConvLayer",
                                       "Wav2Vec2FeatureProjection",
                                       "Wav2Vec2Encoder",
                                       "Wav2Vec2EncoderStableLayerNorm",
                                       "Wav2Vec2PositionalConvEmbedding",
                                       "Wav2Vec2EncoderLayer",
                                       "Wav2Vec2EncoderLayerStableLayerNorm",
                                       "Wav2Vec2Attention",
                                       "Wav2Vec2FeedForward",
                                       true,
                                       true,
                                       true};
constexpr Wav2Vec2ClassNames kUniSpeech{"unispeech",
                                        "UniSpeechForCTC",
                                        "unispeech",
                                        "UniSpeechModel",
                                        "UniSpeechFeatureEncoder",
                                        "UniSpeechNoLayerNormConvLayer",
                                        "UniSpeechLayerNormConvLayer",
                                        "UniSpeechGroupNormConvLayer",
                                        "UniSpeechFeatureProjection",
                                        "UniSpeechEncoder",
                                        "UniSpeechEncoderStableLayerNorm",
                                        "UniSpeechPositionalConvEmbedding",
                                        "UniSpeechEncoderLayer",
                                        "UniSpeechEncoderLayerStableLayerNorm",
                                        "UniSpeechAttention",
                                        "UniSpeechFeedForward",
                                        true,
                                        true,
                                        true};
constexpr Wav2Vec2ClassNames kUniSpeechSat{"unispeech-sat",
                                           "UniSpeechSatForCTC",
                                           "unispeech_sat",
                                           "UniSpeechSatModel",
                                           "UniSpeechSatFeatureEncoder",
                                           "UniSpeechSatNoLayerNormConvLayer",
                                           "UniSpeechSatLayerNormConvLayer",
                                           "UniSpeechSatGroupNormConvLayer",
                                           "UniSpeechSatFeatureProjection",
                                           "UniSpeechSatEncoder",
                                           "UniSpeechSatEncoderStableLayerNorm",
                                           "UniSpeechSatPositionalConvEmbedding",
                                           "UniSpeechSatEncoderLayer",
                                           "UniSpeechSatEncoderLayerStableLayerNorm",
                                           "UniSpeechSatAttention",
                                           "UniSpeechSatFeedForward",
                                           true,
                                           true,
                                           true};
constexpr Wav2Vec2ClassNames kHubert{"hubert",
                                     "HubertForCTC",
                                     "hubert",
                                     "HubertModel",
                                     "HubertFeatureEncoder",
                                     "HubertNoLayerNormConvLayer",
                                     "HubertLayerNormConvLayer",
                                     "HubertGroupNormConvLayer",
                                     "HubertFeatureProjection",
                                     "HubertEncoder",
                                     "HubertEncoderStableLayerNorm",
                                     "HubertPositionalConvEmbedding",
                                     "HubertEncoderLayer",
                                     "HubertEncoderLayerStableLayerNorm",
                                     "HubertAttention",
                                     "HubertFeedForward",
                                     false,
                                     false,
                                     false};
constexpr Wav2Vec2ClassNames kWavLm{"wavlm",
                                    "WavLMForCTC",
                                    "wavlm",
                                    "WavLMModel",
                                    "WavLMFeatureEncoder",
                                    "WavLMNoLayerNormConvLayer",
                                    "WavLMLayerNormConvLayer",
                                    "WavLMGroupNormConvLayer",
                                    "WavLMFeatureProjection",
                                    "WavLMEncoder",
                                    "WavLMEncoderStableLayerNorm",
                                    "WavLMPositionalConvEmbedding",
                                    "WavLMEncoderLayer",
                                    "WavLMEncoderLayerStableLayerNorm",
                                    "WavLMAttention",
                                    "WavLMFeedForward",
                                    true,
                                    true,
                                    true,
                                    true};

std::int64_t Wav2Vec2Config::samples(double seconds) {
  return static_cast<std::int64_t>(std::llround(seconds * 16'000));
}

std::int64_t Wav2Vec2Config::states(std::int64_t length) const {
  for (std::size_t i = 0; i < conv_kernel.size(); ++i) {
    if (length < conv_kernel[i]) return 0;
    length = (length - conv_kernel[i]) / conv_stride[i] + 1;
  }
  return length;
}

std::int64_t Wav2Vec2Config::samples_of(std::int64_t length) const {
  for (std::size_t i = conv_kernel.size(); i-- > 0;) length = (length - 1) * conv_stride[i] + conv_kernel[i];
  return length;
}

std::int64_t Wav2Vec2Config::masked_states(std::int64_t length) const {
  return spec_augmented_states(length, mask_time_prob, mask_time_length, mask_time_min_masks);
}

namespace {

/// A convolution, a norm or none, an activation.
struct ConvLayer {
  ConvLayer(const Builder& builder, const Wav2Vec2Config& c, std::size_t i)
      : stride(c.conv_stride[i]), activation(c.feat_extract_activation), module(builder.module) {
    const Builder its = builder.child("conv", "Conv1d");
    conv = its.module;
    weight = its.parameter("weight", {c.conv_dim[i], i == 0 ? 1 : c.conv_dim[i - 1], c.conv_kernel[i]});
    if (c.conv_bias) bias = its.parameter("bias", {c.conv_dim[i]});
    if (c.norms_layers) {
      layer_norm.emplace(builder.child("layer_norm", "LayerNorm"), c.conv_dim[i]);
    } else if (i == 0) {
      Builder norm = builder.child("layer_norm", "GroupNorm");
      norm.in_norm = true;
      group_norm_module = norm.module;
      norm_weight = norm.parameter("weight", {c.conv_dim[i]});
      norm_bias = norm.parameter("bias", {c.conv_dim[i]});
    }
  }

  Tensor operator()(const Tensor& hidden_in) const {
    Context& context = hidden_in.context();
    const ModuleScope scope(context, module);
    Tensor hidden_states;
    {
      ModuleCall call(context, conv);
      hidden_states =
          call.result(convolution(call.argument(hidden_in), weight, bias,
                                  {.stride = {stride}, .padding = {0}, .dilation = {1}, .output_padding = {0}}));
    }
    if (layer_norm) {
      hidden_states = transpose(hidden_states, -2, -1);
      hidden_states = (*layer_norm)(hidden_states);
      hidden_states = transpose(hidden_states, -2, -1);
    } else if (norm_weight) {
      ModuleCall call(context, group_norm_module);
      const Tensor given = call.argument(hidden_states);
      hidden_states = call.result(group_norm(given, given.size(1), norm_weight, norm_bias));
    }
    return activate(activation, hidden_states);
  }

  std::int64_t stride;
  Activation activation;
  Tensor weight, bias, norm_weight, norm_bias;
  std::optional<LayerNorm> layer_norm;
  ModuleId conv = 0, group_norm_module = 0, module;
};

struct FeatureEncoder {
  FeatureEncoder() = default;
  FeatureEncoder(const Builder& builder, const Wav2Vec2Config& c, const ModelOptions& options)
      : blocks(builder), checkpointing(options.checkpointing), module(builder.module) {
    conv_layers.reserve(c.conv_dim.size());
    for (std::size_t i = 0; i < c.conv_dim.size(); ++i) {
      const char* type = c.norms_layers ? c.names->layer_norm_conv
                         : i == 0       ? c.names->group_norm_conv
                                        : c.names->plain_conv;
      conv_layers.emplace_back(builder.child("conv_layers", type, static_cast<std::int32_t>(i)), c, i);
      blocks.add_block(builder);
    }
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    check_audio_input(argument.context(), argument, conv_layers.front().weight);
    Tensor hidden_states = unsqueeze(call.argument(argument), 1);
    hidden_states->leaf_requires_grad = true;  // unless freeze_feature_encoder() was called, as under no_grad
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = conv_layers[i]](const Tensor& hidden) { return layer(hidden); };
    };
    hidden_states = blocks.run(0, conv_layers.size(), std::move(hidden_states), checkpointing, block,
                               {.positional = true, .kind = [](std::size_t i) { return static_cast<int>(i); }});
    return call.result(hidden_states);
  }

  std::vector<ConvLayer> conv_layers;
  BlockStack blocks;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

struct FeatureProjection {
  FeatureProjection() = default;
  FeatureProjection(const Builder& builder, const Wav2Vec2Config& c)
      : dropout_prob(c.feat_proj_dropout), module(builder.module) {
    if (c.feat_proj_layer_norm) layer_norm.emplace(builder.child("layer_norm", "LayerNorm"), c.conv_dim.back());
    projection = Linear(builder.child("projection", "Linear"), c.conv_dim.back(), c.hidden_size, true);
  }

  /// `norm_hidden_states`: what is projected.
  Tensor operator()(const Tensor& argument, Tensor& norm_hidden_states) const {
    ModuleCall call(argument.context(), module);
    norm_hidden_states = call.argument(argument);
    if (layer_norm) norm_hidden_states = (*layer_norm)(norm_hidden_states);
    const Tensor hidden_states = projection(norm_hidden_states);
    return call.result(dropout(hidden_states, dropout_prob));
  }

  std::optional<LayerNorm> layer_norm;
  Linear projection;
  double dropout_prob = 0;
  ModuleId module = 0;
};

/// torch._weight_norm over all but the last dimension (ATen 2.15, native/cuda/WeightNorm.cu): the norms stay.
Tensor weight_norm(const Tensor& v, const Tensor& g) {
  constexpr Op op = Op::linalg_vector_norm;
  Record record(op,
                [](Backward& b) {
                  const Tensor &direction = b.saved(0), &length = b.saved(1);
                  Tensor grad_v = empty(b.context, Op::linalg_vector_norm, direction.sizes(), direction.dtype());
                  Tensor grad_g = empty(b.context, Op::linalg_vector_norm, length.sizes(), length.dtype());
                  if (b.wants(0)) b.give(0, std::move(grad_v));
                  if (b.wants(1)) b.give(1, std::move(grad_g));
                },
                {&v, &g});
  record.save(v);
  record.save(g);
  Tensor w = empty(v.context(), op, v.sizes(), v.dtype());
  const Tensor norms = empty(v.context(), op, g.sizes(), DType::float32);
  record.save_output(norms);
  return record.output(std::move(w));
}

struct PositionalConvEmbedding {
  PositionalConvEmbedding() = default;
  PositionalConvEmbedding(const Builder& builder, const Wav2Vec2Config& c)
      : kernel(c.num_conv_pos_embeddings),
        groups(c.num_conv_pos_embedding_groups),
        activation(c.feat_extract_activation),
        module(builder.module) {
    const Builder its = builder.child("conv", "ParametrizedConv1d");
    conv = its.module;
    const Builder list = its.child("parametrizations.weight", "ParametrizationList");
    parametrizations = list.module;
    const std::size_t first = its.parameters->size();
    original1 = list.parameter("original1", {c.hidden_size, c.hidden_size / groups, kernel});
    bias = its.parameter("bias", {c.hidden_size});
    original0 = list.parameter("original0", {1, 1, kernel});
    // parametrizations.weight registers its norm first.
    if (its.parameters->size() == first + 3) std::swap((*its.parameters)[first], (*its.parameters)[first + 2]);
  }

  Tensor operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    Tensor hidden_states = transpose(call.argument(argument), 1, 2);
    {
      ModuleCall inner(context, conv);
      Tensor weight;
      {
        ModuleCall list(context, parametrizations);
        weight = list.result(weight_norm(original1, original0));
      }
      hidden_states = inner.result(convolution(
          inner.argument(hidden_states), weight, bias,
          {.stride = {1}, .padding = {kernel / 2}, .dilation = {1}, .output_padding = {0}, .groups = groups}));
    }
    if (kernel % 2 == 0) hidden_states = slice(hidden_states, 2, 0, hidden_states.size(2) - 1);
    hidden_states = activate(activation, hidden_states);
    return call.result(transpose(hidden_states, 1, 2));
  }

  std::int64_t kernel = 0, groups = 1;
  Activation activation = Activation::gelu;
  Tensor original0, original1, bias;
  ModuleId module = 0, conv = 0, parametrizations = 0;
};

struct Attention {
  Attention(const Builder& builder, const Wav2Vec2Config& c, const ModelOptions& options)
      : head_dim(c.head_dim()),
        call{.kind = options.attention, .dropout = c.attention_dropout},
        module(builder.module) {
    const auto projection = [&](const char* name) {
      return Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, true);
    };
    k_proj = projection("k_proj");
    v_proj = projection("v_proj");
    q_proj = projection("q_proj");
    out_proj = projection("out_proj");
  }

  AttentionOutputs operator()(const Tensor& argument) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    const AttentionInputs states = project(hidden_states, q_proj, k_proj, v_proj, head_dim, false);
    AttentionOutputs attention = call.kind == AttentionKind::eager
                                     ? eager_in_own_type(call, states, {})
                                     : attention_forward(call, states.query, states.key, states.value, {});
    attention.output = reshape(attention.output, hidden_states.sizes());
    attention.output = self.result(out_proj(attention.output));
    return attention;
  }

  std::int64_t head_dim;
  Linear k_proj, v_proj, q_proj, out_proj;
  AttentionCall call;
  ModuleId module;
};

/// The norms stand behind attention and MLP, or before them.
struct EncoderLayer {
  EncoderLayer(const Builder& builder, const Wav2Vec2Config& c, const ModelOptions& options, bool is_first)
      : is_stable(c.do_stable_layer_norm), hidden_dropout(c.hidden_dropout), module(builder.module) {
    const Builder attends = builder.child("attention", c.names->attention);
    if (c.names->has_gated_attention)
      gated_attention.emplace(attends, c, is_first);
    else
      attention.emplace(attends, c, options);
    layer_norm = LayerNorm(builder.child("layer_norm", "LayerNorm"), c.hidden_size);
    feed_forward = Wav2Vec2FeedForward(builder.child("feed_forward", c.names->feed_forward), c.hidden_size,
                                       c.intermediate_size, c.hidden_act, c.activation_dropout, c.hidden_dropout);
    final_layer_norm = LayerNorm(builder.child("final_layer_norm", "LayerNorm"), c.hidden_size);
  }

  /// `attention_mask`, `position_bias`: a gated attention's.
  Tensor operator()(const Tensor& attn_residual, const Tensor& attention_mask, Tensor& position_bias) const {
    const ModuleScope scope(attn_residual.context(), module);
    Tensor hidden_states = is_stable ? layer_norm(attn_residual) : attn_residual;
    AttentionOutputs attended =
        attention ? (*attention)(hidden_states) : (*gated_attention)(hidden_states, attention_mask, position_bias);
    hidden_states = std::move(attended.output);  // the weights stay in `_` until the layer returns
    hidden_states = dropout(hidden_states, hidden_dropout);
    hidden_states = add(attn_residual, hidden_states);
    if (!is_stable) hidden_states = layer_norm(hidden_states);
    {
      Tensor transformed;
      if (is_stable) {
        const Tensor normalised = final_layer_norm(hidden_states);
        transformed = feed_forward(normalised);
      } else {
        transformed = feed_forward(hidden_states);
      }
      hidden_states = add(hidden_states, transformed);
    }
    return is_stable ? hidden_states : final_layer_norm(hidden_states);
  }

  bool is_stable;
  std::optional<Attention> attention;
  std::optional<GatedAttention> gated_attention;
  double hidden_dropout;
  LayerNorm layer_norm;
  Wav2Vec2FeedForward feed_forward;
  LayerNorm final_layer_norm;
  ModuleId module;
};

struct SoundEncoder {
  SoundEncoder() = default;
  SoundEncoder(const Builder& builder, const Wav2Vec2Config& c, const ModelOptions& options)
      : is_stable(c.do_stable_layer_norm),
        pos_conv_embed(builder.child("pos_conv_embed", c.names->positional_conv), c),
        layer_norm(builder.child("layer_norm", "LayerNorm"), c.hidden_size),
        blocks(builder),
        hidden_dropout(c.hidden_dropout),
        masked(masked_by(options.attention)),
        checkpointing(options.checkpointing),
        module(builder.module) {
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(builder.child("layers", is_stable ? c.names->stable_layer : c.names->layer, i), c, options,
                          i == 0);
      blocks.add_block(builder);
    }
    has_gated_attention = c.names->has_gated_attention;
  }

  /// `all`: gets what each layer is given, and what the last one gives (output_hidden_states).
  Tensor operator()(const Tensor& argument, const Tensor& attention_mask, TensorList* all) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    Tensor hidden_states = call.argument(argument);
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor position_embeddings, expand_attention_mask;
    if (attention_mask) {
      expand_attention_mask = empty(context, Op::repeat, hidden_states.sizes(), DType::boolean);
      const Tensor padding = empty(context, Op::bitwise_not, hidden_states.sizes(), DType::boolean);
      hidden_states = masked_fill_in_place(hidden_states, padding);
      if (!has_gated_attention) {
        MaskArguments given;
        given.attention_mask = attention_mask;
        create_bidirectional_mask(hidden_states, given, masked);
      }
    }
    position_embeddings = pos_conv_embed(hidden_states);
    hidden_states = add(hidden_states, position_embeddings);
    if (!is_stable) hidden_states = layer_norm(hidden_states);
    hidden_states = dropout(hidden_states, hidden_dropout);
    // A layer that is run again, when this has returned, makes the bias again, or has the one that it was given.
    const auto position_bias = std::make_shared<Tensor>();
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], mask = has_gated_attention ? attention_mask : Tensor(), given = *position_bias,
              of_encoder = std::weak_ptr<Tensor>(position_bias)](const Tensor& hidden) {
        Tensor bias = given;
        Tensor output = layer(hidden, mask, bias);
        if (const std::shared_ptr<Tensor> made = of_encoder.lock()) *made = std::move(bias);
        return output;
      };
    };
    // Gated layers add their gradients of the bias to one another's, so that none does the same as another.
    const auto kind = [this](std::size_t i) { return has_gated_attention ? static_cast<int>(i) : 0; };
    const BlockTraits traits{.positional = !has_gated_attention, .kind = kind};
    if (all) all->push_back(hidden_states);
    for (std::size_t i = 0; all && i < layers.size(); ++i) {
      hidden_states = blocks.run(i, i + 1, std::move(hidden_states), checkpointing, block, traits);
      all->push_back(hidden_states);
    }
    if (!all) hidden_states = blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block, traits);
    if (is_stable) hidden_states = layer_norm(hidden_states);
    return call.result(hidden_states);
  }

  bool is_stable = false, has_gated_attention = false;
  PositionalConvEmbedding pos_conv_embed;
  LayerNorm layer_norm;
  std::vector<EncoderLayer> layers;
  BlockStack blocks;
  double hidden_dropout = 0;
  MaskedBy masked = MaskedBy::sdpa;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

/// XForCTC, XForSequenceClassification.
class ForCTC : public Model {
 public:
  ForCTC(Context& context, const Wav2Vec2Config& c, const DataConfig& data, const ModelOptions& options)
      : context_(context),
        data_(data),
        config_(c),
        dtype_(options.dtype),
        root_{&context,       &parameters,   &buffers,         context.add_root(c.class_name, Modality::none),
              Modality::none, options.dtype, options.wrapping, options.quantizer} {
    loss_type = LossType::cross_entropy;  // ForCTCLoss, which forward has itself
    const Builder model = root_.child(c.names->base, c.names->model);
    model_ = model.module;
    feature_extractor_ = FeatureEncoder(model.child("feature_extractor", c.names->feature_encoder), c, options);
    feature_projection_ = FeatureProjection(model.child("feature_projection", c.names->feature_projection), c);
    if (c.has_masked_spec_embed) masked_spec_embed_ = model.parameter("masked_spec_embed", {c.hidden_size});
    encoder_ = SoundEncoder(model.child("encoder", c.do_stable_layer_norm ? c.names->stable_encoder : c.names->encoder),
                            c, options);
    encoder_.blocks.first_block = feature_extractor_.conv_layers.size();
    if (!c.classifies) {
      lm_head_ = Linear(root_.child("lm_head", "Linear"), c.hidden_size, c.vocab_size, true);
      return;
    }
    if (c.use_weighted_layer_sum) {
      const Shape sizes{c.num_hidden_layers + 1};
      const Tensor ones = empty(context, Op::ones_like, sizes, options.dtype);
      layer_weights_ = root_.parameter("layer_weights", sizes);  // ones / num_layers
    }
    projector_ = Linear(root_.child("projector", "Linear"), c.hidden_size, c.classifier_proj_size, true);
    lm_head_ = Linear(root_.child("classifier", "Linear"), c.classifier_proj_size, c.num_labels, true);
  }

  void set_data(const DataConfig& data) override { data_ = data; }

  ModelInputs make_inputs(bool with_labels) override {
    // What is shorter than a state is refused by forward.
    const Shape samples{data_.micro_batch_size,
                        std::max(Wav2Vec2Config::samples(data_.audio_seconds), config_.samples_of(1))};
    ModelInputs batch;
    batch.input_features =  // input_values
        empty(context_, Op::input, samples, data_.pixel_dtype.value_or(dtype_), Role::input);
    // As the extractors' return_attention_mask is: models with a group norm take none.
    if (config_.norms_layers) batch.attention_mask = empty(context_, Op::input, samples, DType::int32, Role::input);
    const Shape labels = config_.classifies ? Shape{samples[0]} : Shape{samples[0], data_.sequence_length};
    if (with_labels) batch.labels = empty(context_, Op::input, labels, DType::int64, Role::input);
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    // Each layer's backward would go on through those before it, by the bias that they hand on.
    if (config_.names->has_gated_attention && encoder_.checkpointing.mode == CheckpointMode::reentrant)
      context_.refusal = Error{"not-modelled", "/training/activation_checkpointing",
                               "found \"reentrant\", which is not supported yet with WavLM; expected "
                               "\"non-reentrant\""};
    // _compute_mask_indices takes no fewer states than a span of its masks has.
    const std::int64_t least = config_.masks_states && context_.training ? config_.mask_time_length : 1;
    if (config_.states(Wav2Vec2Config::samples(data_.audio_seconds)) < least)
      context_.refusal = too_few_states(least, config_.samples_of(least));
    if (config_.classifies) return classify(inputs);
    if (inputs.labels) {
      const Tensor most = integers(context_, Op::max, {});
      const Tensor is_label = empty(context_, Op::ge, {}, DType::boolean);
    }
    Tensor extract_features;
    ModelOutputs outputs;
    Tensor last_hidden_state = model_forward(inputs, extract_features);
    const Tensor hidden_states = dropout(last_hidden_state, config_.final_dropout);
    Tensor logits = lm_head_(hidden_states);
    if (inputs.labels) outputs.loss = ctc(inputs, logits);
    outputs.others.push_back(std::move(logits));
    return outputs;
  }

 private:
  // torch.stack and the sum of Wav2Vec2ForSequenceClassification.forward
  Tensor weighted_layer_sum(const TensorList& all) const {
    Tensor hidden_states;
    {
      TensorList widest = all;  // autocast's promote list has it
      const bool has_float32 =
          std::any_of(all.begin(), all.end(), [](const Tensor& hidden) { return hidden.dtype() == DType::float32; });
      if (has_float32)
        for (Tensor& hidden : widest) hidden = autocast_float32(hidden);
      hidden_states = stack(widest, 1);
    }
    const Tensor norm_weights =
        softmax(layer_weights_, context_.autocast.enabled ? DType::float32 : layer_weights_.dtype());
    const Tensor weighted = mul(hidden_states, view(norm_weights, {norm_weights.size(0), 1, 1}));
    return sum(weighted, {1}, false);
  }

  // Wav2Vec2ForSequenceClassification.forward, whose filter_output_hidden_states asks for the states of all layers.
  ModelOutputs classify(const ModelInputs& inputs) {
    Tensor extract_features;
    TensorList all;
    const Tensor last_hidden_state = model_forward(inputs, extract_features, &all);
    Tensor hidden_states = config_.use_weighted_layer_sum ? weighted_layer_sum(all) : last_hidden_state;
    hidden_states = projector_(hidden_states);
    Tensor padding_mask, expand_padding_mask, pooled_output;
    if (inputs.attention_mask) {
      padding_mask = feature_vector_mask(inputs.attention_mask, hidden_states.size(1));
      expand_padding_mask = empty(context_, Op::repeat, hidden_states.sizes(), DType::boolean);
      {
        const Tensor padding = empty(context_, Op::bitwise_not, hidden_states.sizes(), DType::boolean);
        hidden_states = masked_fill_in_place(hidden_states, padding);
      }
      const Tensor total = sum(hidden_states, {1}, false);
      const Tensor count = reduce(Op::sum, padding_mask, {1}, false, DType::int64);
      pooled_output = div(total, view(count, {count.size(0), 1}));
    } else {
      pooled_output = mean(hidden_states, 1, false);
    }
    Tensor logits = lm_head_(pooled_output);
    ModelOutputs outputs;
    if (inputs.labels) outputs.loss = (*loss_function)(logits, inputs.labels);
    outputs.others.push_back(std::move(logits));
    return outputs;
  }

  // _get_feat_extract_output_lengths
  Tensor output_lengths(Tensor input_lengths) const {
    const Shape batch{data_.micro_batch_size};
    for (std::size_t i = 0; i < config_.conv_kernel.size(); ++i) {
      Tensor quotient;
      {
        const Tensor rest = integers(context_, Op::sub, batch);
        quotient = integers(context_, Op::div, batch);
      }
      Tensor lengths = integers(context_, Op::add, batch);
      quotient.reset();
      input_lengths = std::move(lengths);
    }
    return input_lengths;
  }

  // _get_feature_vector_attention_mask
  Tensor feature_vector_mask(const Tensor& attention_mask, std::int64_t states) const {
    const std::int64_t batch = data_.micro_batch_size;
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor result, mask, lengths, non_padded_lengths;
    const auto sums = [&](const Shape& sizes) {
      Tensor all = integers(context_, Op::cumsum, sizes);
      const Tensor wide = integers(context_, Op::to_copy, sizes);
      return all;
    };
    if (config_.names->counts_by_cumsum) {
      non_padded_lengths = sums(attention_mask.sizes());
      lengths = output_lengths(select(non_padded_lengths, 1, 0));
    } else {
      lengths = output_lengths(reduce(Op::sum, attention_mask, {1}, false, DType::int64));
    }
    mask = empty(context_, Op::zeros, {batch, states}, attention_mask.dtype());
    {
      const Tensor rows = integers(context_, Op::arange, {batch});
      const Tensor last = integers(context_, Op::sub, {batch});
      const Tensor one = empty(context_, Op::fill, {}, attention_mask.dtype());
    }
    Tensor flipped = empty(context_, Op::flip, {batch, states}, attention_mask.dtype());
    Tensor counted = sums({batch, states});
    flipped.reset();
    flipped = integers(context_, Op::flip, {batch, states});
    counted.reset();
    result = empty(context_, Op::to_copy, {batch, states}, DType::boolean);
    flipped.reset();
    mask.reset();
    return result;
  }

  // Wav2Vec2Model.forward
  Tensor model_forward(const ModelInputs& inputs, Tensor& extract_features, TensorList* all = nullptr) const {
    ModuleCall call(context_, model_);
    Tensor attention_mask, features;
    extract_features = feature_extractor_(call.argument(inputs.input_features));
    extract_features = transpose(extract_features, 1, 2);
    const std::int64_t states = extract_features.size(1);
    if (inputs.attention_mask) attention_mask = feature_vector_mask(inputs.attention_mask, states);
    Tensor hidden_states = feature_projection_(extract_features, features);
    if (config_.names->returns_features) extract_features = std::move(features);
    features.reset();
    if (config_.masks_states && context_.training) hidden_states = mask_hidden_states(hidden_states, attention_mask);
    hidden_states = encoder_(hidden_states, attention_mask, all);
    hidden_states = call.result(hidden_states);
    if (config_.names->returns_features)
      extract_features = call.result(extract_features);
    else
      extract_features.reset();
    return hidden_states;
  }

  // _mask_hidden_states
  Tensor mask_hidden_states(const Tensor& hidden_states, const Tensor& attention_mask) const {
    if (attention_mask && config_.names->spans_know_padding)
      const Tensor input_lengths = reduce(Op::sum, attention_mask, {1}, false, DType::int64);
    return apply_spec_augment(hidden_states, masked_spec_embed_, config_.masked_states(hidden_states.size(1)));
  }

  // What forward hands ForCTCLoss.
  Tensor ctc(const ModelInputs& inputs, const Tensor& logits) const {
    Tensor attention_mask = inputs.attention_mask;
    if (!attention_mask) attention_mask = integers(context_, Op::ones_like, inputs.input_features.sizes());
    const Tensor input_lengths = output_lengths(reduce(Op::sum, attention_mask, {1}, false, DType::int64));
    return for_ctc_loss(logits, inputs.labels, config_.ctc_mean, config_.ctc_zero_infinity);
  }

  Context& context_;
  DataConfig data_;
  Wav2Vec2Config config_;
  DType dtype_;
  Builder root_;
  FeatureEncoder feature_extractor_;
  FeatureProjection feature_projection_;
  Tensor masked_spec_embed_, layer_weights_;
  SoundEncoder encoder_;
  Linear lm_head_, projector_;  ///< the first also its classifier
  ModuleId model_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_wav2vec2(Context& context, const Wav2Vec2Config& config, const DataConfig& data,
                                      const ModelOptions& options) {
  return std::make_unique<ForCTC>(context, config, data, options);
}

}  // namespace oometer
