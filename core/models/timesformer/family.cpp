#include "models/family.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "config/reader.h"
#include "models/sizes.h"
#include "models/vit/vit.h"
#include "nn/activation.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, models/timesformer/modeling_timesformer.py. Names and order of steps are that file's.
namespace oometer {

namespace {

constexpr VitClassNames kTimesformer{"TimesformerModel",
                                     "TimesformerEmbeddings",
                                     "TimesformerPatchEmbeddings",
                                     "TimesformerLayer",
                                     "TimeSformerAttention",
                                     "TimesformerIntermediate",
                                     "timesformer",
                                     false};
constexpr ModelClass kClasses[] = {{"timesformer", "TimesformerForVideoClassification"},
                                   {"timesformer", "TimesformerModel"}};
constexpr const char* kBlocks[] = {kTimesformer.layer};

/// class TimesformerConfig (models/timesformer/configuration_timesformer.py)
struct TimesformerConfig : VitConfig {
  std::int64_t num_frames = 8;
  bool divided = true;  ///< attention_type: divided_space_time, or joint_space_time
};

struct TimesformerEmbeddings {
  TimesformerEmbeddings() = default;
  TimesformerEmbeddings(const Builder& builder, const TimesformerConfig& c)
      : dropout_prob(c.hidden_dropout_prob), module(builder.module) {
    const Builder patches = builder.child("patch_embeddings", c.names->patch_embeddings);
    patch_embeddings = patches.module;
    projection = Conv2d(patches.child("projection", "Conv2d"), c.num_channels, c.hidden_size, c.patch_size, true);
    builder.children_are_through();
    cls_token = builder.parameter("cls_token", {1, 1, c.hidden_size});
    position_embeddings = builder.parameter("position_embeddings", {1, c.num_positions(), c.hidden_size});
    time_embeddings = builder.parameter("time_embeddings", {1, c.num_frames, c.hidden_size});
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor pixel_values = call.argument(argument);
    const std::int64_t batch_size = pixel_values.size(0), num_frames = pixel_values.size(1), dim = cls_token.size(2);
    Tensor embeddings = embed_patches(pixel_values);
    const std::int64_t patches = embeddings.size(1);
    Tensor cls_tokens = expand(cls_token, {embeddings.size(0), 1, dim});
    embeddings = cat({cls_tokens, embeddings}, 1);
    embeddings = add(embeddings, position_embeddings);
    embeddings = dropout(embeddings, dropout_prob);
    cls_tokens = unsqueeze(select(slice(embeddings, 0, 0, batch_size), 1, 0), 1);
    embeddings = slice(embeddings, 1, 1, patches);
    embeddings = permute(reshape(embeddings, {batch_size, num_frames, patches, dim}), {0, 2, 1, 3});
    embeddings = reshape(embeddings, {batch_size * patches, num_frames, dim});
    embeddings = add(embeddings, time_embeddings);
    embeddings = dropout(embeddings, dropout_prob);
    embeddings = view(embeddings, {batch_size, patches * num_frames, dim});
    return call.result(cat({cls_tokens, embeddings}, 1));
  }

  Tensor embed_patches(const Tensor& argument) const {
    ModuleCall call(argument.context(), patch_embeddings);
    Tensor pixel_values = call.argument(argument);
    const Shape& sizes = pixel_values.sizes();
    pixel_values = reshape(pixel_values, {sizes[0] * sizes[1], sizes[2], sizes[3], sizes[4]});
    check_pixels(pixel_values, projection.weight);
    const Tensor projected = projection(pixel_values);
    const std::int64_t patches = checked_product(projected.size(2), projected.size(3));
    return call.result(transpose(reshape(projected, {projected.size(0), projected.size(1), patches}), 1, 2));
  }

  Tensor cls_token, position_embeddings, time_embeddings;
  Conv2d projection;
  double dropout_prob = 0;
  ModuleId module = 0, patch_embeddings = 0;
};

struct TimesformerSelfAttention {
  TimesformerSelfAttention(const Builder& builder, const VitConfig& c)
      : qkv(builder.child("qkv", "Linear"), c.hidden_size, 3 * c.hidden_size, c.qkv_bias),
        heads(c.num_attention_heads),
        dropout_prob(c.attention_probs_dropout_prob),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = call.argument(argument);
    const std::int64_t batch_size = hidden_states.size(0), tokens = hidden_states.size(1),
                       channels = hidden_states.size(2);
    Tensor projected = qkv(hidden_states);
    projected = permute(reshape(projected, {batch_size, tokens, 3, heads, channels / heads}), {2, 0, 3, 1, 4});
    const Tensor query = select(projected, 0, 0), key = select(projected, 0, 1), value = select(projected, 0, 2);
    Tensor attention_probs;
    {
      const Tensor scores = matmul(query, transpose(key, 2, 3));
      attention_probs = mul_scalar(scores);
    }
    attention_probs =
        softmax(attention_probs, attention_probs.context().autocast.enabled ? DType::float32 : attention_probs.dtype());
    attention_probs = dropout(attention_probs, dropout_prob);
    Tensor context_layer = matmul(attention_probs, value);
    context_layer = transpose(context_layer, 1, 2);
    return call.result(reshape(context_layer, hidden_states.sizes()));
  }

  Linear qkv;
  std::int64_t heads;
  double dropout_prob;
  ModuleId module;
};

/// A linear layer with a dropout behind it, and perhaps an activation between them: TimesformerSelfOutput,
/// TimesformerIntermediate, TimesformerOutput.
struct TimesformerDense {
  TimesformerDense(const Builder& builder, std::int64_t in, std::int64_t out, double dropout,
                   std::optional<Activation> act = {})
      : dense(builder.child("dense", "Linear"), in, out, true),
        dropout_prob(dropout),
        activation(act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = dense(call.argument(argument));
    if (activation) hidden_states = activate(*activation, hidden_states);
    return call.result(dropout(hidden_states, dropout_prob));
  }

  Linear dense;
  double dropout_prob;
  std::optional<Activation> activation;
  ModuleId module;
};

struct TimesformerAttention {
  TimesformerAttention(const Builder& builder, const VitConfig& c)
      : attention(builder.child("attention", "TimesformerSelfAttention"), c),
        output(builder.child("output", "TimesformerSelfOutput"), c.hidden_size, c.hidden_size, c.hidden_dropout_prob),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor context_layer = attention(call.argument(argument));
    return call.result(output(context_layer));
  }

  TimesformerSelfAttention attention;
  TimesformerDense output;
  ModuleId module;
};

struct TimesformerLayer {
  TimesformerLayer(const Builder& builder, const TimesformerConfig& c)
      : attention((builder.child("drop_path", "Identity"), builder.child("attention", c.names->attention)), c),
        intermediate(builder.child("intermediate", c.names->mlp), c.hidden_size, c.intermediate_size,
                     c.hidden_dropout_prob, c.hidden_act),
        output(builder.child("output", "TimesformerOutput"), c.intermediate_size, c.hidden_size, c.hidden_dropout_prob),
        layernorm_before(builder.child("layernorm_before", "LayerNorm"), c.hidden_size),
        layernorm_after(builder.child("layernorm_after", "LayerNorm"), c.hidden_size),
        num_frames(c.num_frames) {
    if (!c.divided) return;
    temporal_layernorm = LayerNorm(builder.child("temporal_layernorm", "LayerNorm"), c.hidden_size);
    temporal_attention.emplace(builder.child("temporal_attention", c.names->attention), c);
    temporal_dense = Linear(builder.child("temporal_dense", "Linear"), c.hidden_size, c.hidden_size, true);
  }

  Tensor operator()(const Tensor& hidden_states) const {
    return temporal_attention ? divided(hidden_states) : joint(hidden_states);
  }

  Tensor joint(const Tensor& hidden_in) const {
    Tensor hidden_states = layernorm_before(hidden_in);
    const Tensor attention_output = attention(hidden_states);
    hidden_states = add(hidden_in, attention_output);
    return mlp(hidden_states);
  }

  Tensor divided(const Tensor& hidden_in) const {
    const std::int64_t batch_size = hidden_in.size(0), patches = (hidden_in.size(1) - 1) / num_frames,
                       tokens = patches * num_frames, dim = hidden_in.size(2);
    Tensor temporal_embedding = slice(hidden_in, 1, 1, tokens);
    temporal_embedding = reshape(temporal_embedding, {batch_size * patches, num_frames, dim});
    Tensor normed = temporal_layernorm(temporal_embedding);
    const Tensor temporal_attention_output = (*temporal_attention)(normed);
    normed.reset();
    Tensor residual_temporal = reshape(temporal_attention_output, {batch_size, tokens, dim});
    residual_temporal = temporal_dense(residual_temporal);
    temporal_embedding = add(slice(hidden_in, 1, 1, tokens), residual_temporal);

    const Tensor init_cls_token = unsqueeze(select(hidden_in, 1, 0), 1);
    Tensor cls_token = repeat(init_cls_token, {1, num_frames, 1});
    cls_token = reshape(cls_token, {batch_size * num_frames, 1, dim});
    Tensor spatial_embedding =
        permute(reshape(temporal_embedding, {batch_size, patches, num_frames, dim}), {0, 2, 1, 3});
    spatial_embedding = reshape(spatial_embedding, {batch_size * num_frames, patches, dim});
    spatial_embedding = cat({cls_token, spatial_embedding}, 1);
    normed = layernorm_before(spatial_embedding);
    const Tensor spatial_attention_output = attention(normed);
    normed.reset();

    cls_token = reshape(select(spatial_attention_output, 1, 0), {batch_size, num_frames, dim});
    cls_token = mean(cls_token, 1, true);
    Tensor residual_spatial = slice(spatial_attention_output, 1, 1, patches);
    residual_spatial = permute(reshape(residual_spatial, {batch_size, num_frames, patches, dim}), {0, 2, 1, 3});
    residual_spatial = reshape(residual_spatial, {batch_size, tokens, dim});
    Tensor hidden_states;
    {
      const Tensor states = cat({init_cls_token, temporal_embedding}, 1),
                   residuals = cat({cls_token, residual_spatial}, 1);
      hidden_states = add(states, residuals);
    }
    return mlp(hidden_states);
  }

  Tensor mlp(const Tensor& hidden_states) const {
    Tensor layer_output = layernorm_after(hidden_states);
    layer_output = intermediate(layer_output);
    layer_output = output(layer_output);
    return add(hidden_states, layer_output);
  }

  TimesformerAttention attention;
  TimesformerDense intermediate, output;
  LayerNorm layernorm_before, layernorm_after, temporal_layernorm;
  std::optional<TimesformerAttention> temporal_attention;  ///< none: all frames attend to one another together
  Linear temporal_dense;
  std::int64_t num_frames;
};

class Timesformer : public ImageModel {
 public:
  Timesformer(Context& context, const TimesformerConfig& c, const DataConfig& data, const ModelOptions& options)
      : ImageModel(context, c, data, options), num_frames_(c.num_frames), checkpointing_(options.checkpointing) {
    const Builder model = c.classifies ? root_.child("timesformer", c.names->model) : root_;
    model_ = model.module;
    embeddings_ = TimesformerEmbeddings(model.child("embeddings", c.names->embeddings), c);
    const Builder encoder = model.child("encoder", "TimesformerEncoder");
    encoder_ = encoder.module;
    blocks_ = BlockStack(encoder);
    layers_.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      const Builder layer = encoder.child("layer", c.names->layer, i);
      layers_.push_back({TimesformerLayer(layer, c), layer.module});
      blocks_.add_block(encoder);
    }
    layernorm_ = LayerNorm(model.child("layernorm", "LayerNorm"), c.hidden_size);
    if (c.classifies)
      classifier_ = Linear(root_.child("classifier", "Linear", Modality::none), c.hidden_size, c.num_labels, true);
  }

  ModelInputs make_inputs(bool with_labels) override {
    ModelInputs batch;
    batch.pixel_values =
        empty(context_, Op::input,
              {data_.images(), num_frames_, config_.num_channels, config_.image_size, config_.image_size},
              data_.pixel_dtype.value_or(dtype_), Role::input);
    if (with_labels && config_.classifies)
      batch.labels = empty(context_, Op::input, {data_.micro_batch_size}, DType::int64, Role::input);
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    if (checkpointing_.mode != CheckpointMode::none && checkpointing_.input_require_grads)
      context_.refusal = Error{"inconsistent", "/training/activation_checkpointing",
                               "TimesformerPatchEmbeddings returns a tuple, of which enable_input_require_grads() "
                               "cannot ask for gradients: expected none with adapters"};
    Tensor sequence_output = model_forward(inputs.pixel_values);
    if (!config_.classifies) return {{}, {}, {std::move(sequence_output)}};
    sequence_output = select(sequence_output, 1, 0);
    return classified(classifier_(sequence_output), inputs);
  }

 private:
  struct Layer {
    TimesformerLayer forward;
    ModuleId module;
  };

  // TimesformerModel.forward
  Tensor model_forward(const Tensor& argument) const {
    ModuleCall call(context_, model_);
    const Tensor embedding_output = embeddings_(call.argument(argument));
    Tensor sequence_output;
    {
      ModuleCall encoder(context_, encoder_);
      const auto block = [&](std::size_t i) -> BlockStack::Forward {
        return [&layer = layers_[i]](const Tensor& hidden) {
          const ModuleScope scope(hidden.context(), layer.module);
          return layer.forward(hidden);
        };
      };
      sequence_output = encoder.result(blocks_.run(0, layers_.size(), encoder.argument(embedding_output),
                                                   checkpointing_, block, {.positional = true}));
    }
    return call.result(layernorm_(sequence_output));
  }

  std::int64_t num_frames_;
  CheckpointingConfig checkpointing_;
  TimesformerEmbeddings embeddings_;
  std::vector<Layer> layers_;
  BlockStack blocks_;
  LayerNorm layernorm_;
  Linear classifier_;
  ModuleId model_ = 0, encoder_ = 0;
};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  TimesformerConfig c;
  c.names = &kTimesformer;
  read_vit_sizes(reader, of, c);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.num_frames = reader.integer("num_frames", c.num_frames);
  const std::string attention_type = reader.text("attention_type", "divided_space_time");
  c.divided = attention_type == "divided_space_time";
  if (!c.divided && attention_type != "joint_space_time")
    reader.fail_found("attention_type", "not-modelled",
                      "this is not supported yet: expected divided_space_time or joint_space_time");
  if (reader.number("drop_path_rate", 0, 0, 1) != 0)
    reader.fail_found("drop_path_rate", "not-modelled", "this is not supported yet with TimeSformer: expected 0");
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return std::make_unique<Timesformer>(context, config.as<TimesformerConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<TimesformerConfig>();
  ModelTraits t = vit_traits(c);
  t.images_why = "the model reads one video a sample";
  t.no_split_modules = {c.names->layer};
  if (!c.classifies) t.losses = {"last_hidden_state"};
  for (const Feature feature : {Feature::sdpa, Feature::flash_attention, Feature::flash_attention_2})
    t.refuse(feature, "inconsistent", "TimeSformer computes its attention itself: expected eager");
  for (const Feature feature : {Feature::fsdp, Feature::deepspeed, Feature::zero3})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<TimesformerConfig>();
  const std::int64_t videos = std::max<std::int64_t>(data.images(), 1), patches = c.patches(c.image_size, c.image_size),
                     frames = checked_product(videos, c.num_frames);
  const double attention =
      c.divided
          ? std::max(bytes_of({frames, c.num_attention_heads, patches + 1, patches + 1}),
                     bytes_of({checked_product(videos, patches), c.num_attention_heads, c.num_frames, c.num_frames}))
          : bytes_of({videos, c.num_attention_heads, c.num_frames * patches + 1, c.num_frames * patches + 1});
  return std::max({attention, bytes_of({frames, patches + 1, std::max(c.intermediate_size, 3 * c.hidden_size)}),
                   bytes_of({frames, c.num_channels, c.image_size, c.image_size}),
                   bytes_of({c.hidden_size, std::max({c.intermediate_size, 3 * c.hidden_size, c.num_labels})}),
                   bytes_of({c.hidden_size, c.num_channels, c.patch_size, c.patch_size}),
                   bytes_of({patches + 1, c.hidden_size})});
}

}  // namespace

namespace family {
extern const Family timesformer{.classes = kClasses,
                                .blocks = kBlocks,
                                .read = read,
                                .build = build,
                                .traits = traits,
                                .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
