#include "models/videomae/videomae.h"

#include <optional>
#include <utility>
#include <vector>

#include "models/videomae/everest.h"
#include "models/vit/self_attention.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "nn/checkpointing.h"
#include "ops/losses.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

/// get_sinusoid_encoding_table's, in host memory: a copy on the device, and a second one (copy=True).
Tensor copied_from_host(Context& context, const Shape& sizes, DType dtype) {
  Tensor positions = empty(context, Op::to_copy, sizes, dtype);
  return empty(context, Op::to_copy, sizes, dtype);
}

struct VideoMaeEmbeddings {
  VideoMaeEmbeddings() = default;
  VideoMaeEmbeddings(const Builder& builder, const VideoMaeConfig& c, const ModelOptions& options)
      : config(c), checkpointing(options.checkpointing), module(builder.module) {
    const Builder patches = builder.child("patch_embeddings", c.names->patch_embeddings);
    patch_embeddings = patches.module;
    const Builder conv = patches.child("projection", "Conv3d");
    projection = conv.module;
    weight = conv.parameter("weight", {c.hidden_size, c.num_channels, c.tubelet_size, c.patch_size, c.patch_size});
    bias = conv.parameter("bias", {c.hidden_size});
  }

  Tensor embed_patches(const Tensor& argument) const {
    ModuleCall call(argument.context(), patch_embeddings);
    Tensor pixel_values = call.argument(argument);
    check_pixels(pixel_values, weight);
    pixel_values = permute(pixel_values, {0, 2, 1, 3, 4});
    const Tensor projected = [&] {
      ModuleCall conv(argument.context(), projection);
      const Shape kernel{config.tubelet_size, config.patch_size, config.patch_size};
      return conv.result(
          convolution(conv.argument(pixel_values), weight, bias,
                      {.stride = kernel, .padding = {0, 0, 0}, .dilation = {1, 1, 1}, .output_padding = {0, 0, 0}}));
    }();
    return call.result(
        transpose(reshape(projected, {projected.size(0), config.hidden_size, config.num_patches()}), 1, 2));
  }

  /// `masks`: given, or chosen here.
  Tensor operator()(const Tensor& argument, TokenMasks& masks) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor pixel_values = call.argument(argument), masked = masks.input ? call.argument(masks.input) : Tensor();
    Tensor embeddings = embed_patches(pixel_values);
    if (checkpointing.input_require_grads) require_input_grad(checkpointing, embeddings, patch_embeddings);
    if (config.drops_redundant) masks = choose_tokens(embeddings, config);
    {
      const Tensor positions =
          copied_from_host(context, {1, config.num_patches(), config.hidden_size}, embeddings.dtype());
      embeddings = add(embeddings, positions);
    }
    if (masks.input) {
      const std::int64_t batch = embeddings.size(0), visible = config.num_visible;
      {
        const Tensor& hidden = masked ? masked : masks.input;
        const Tensor is_visible = pointwise(Op::bitwise_not, {&hidden}, DType::boolean);
        embeddings = index_mask(embeddings, is_visible, checked_product(batch, visible));
      }
      embeddings = reshape(embeddings, {batch, visible, config.hidden_size});
    }
    return call.result(embeddings);
  }

  VideoMaeConfig config;
  Tensor weight, bias;
  CheckpointingConfig checkpointing;
  ModuleId module = 0, patch_embeddings = 0, projection = 0;
};

/// VideoMAESelfOutput, VideoMAEIntermediate and VideoMAEOutput: a Linear called `dense`, and what comes behind it.
struct VideoMaeDense {
  VideoMaeDense(const Builder& builder, std::int64_t in, std::int64_t out)
      : dense(builder.child("dense", "Linear"), in, out, true), module(builder.module) {}

  template <class After>
  Tensor operator()(const Tensor& argument, const After& after) const {
    ModuleCall call(argument.context(), module);
    return call.result(after(dense(call.argument(argument))));
  }

  Linear dense;
  ModuleId module;
};

struct VideoMaeLayer {
  VideoMaeLayer(const Builder& builder, const VitConfig& c, const ModelOptions& options)
      : attention_builder(builder.child("attention", c.names->attention)),
        attention(attention_builder.child("attention", "VideoMAESelfAttention"), c, options, false),
        attention_output(attention_builder.child("output", "VideoMAESelfOutput"), c.hidden_size, c.hidden_size),
        intermediate(builder.child("intermediate", "VideoMAEIntermediate"), c.hidden_size, c.intermediate_size),
        output(builder.child("output", "VideoMAEOutput"), c.intermediate_size, c.hidden_size),
        layernorm_before(builder.child("layernorm_before", "LayerNorm"), c.hidden_size),
        layernorm_after(builder.child("layernorm_after", "LayerNorm"), c.hidden_size),
        hidden_act(c.hidden_act),
        dropout_prob(c.hidden_dropout_prob),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in) const {
    const ModuleScope scope(hidden_in.context(), module);
    const Tensor hidden_states_norm = layernorm_before(hidden_in);
    const Tensor attended = attend(hidden_states_norm);
    const Tensor hidden_states = add(attended, hidden_in);
    Tensor layer_output = layernorm_after(hidden_states);
    layer_output = intermediate(layer_output, [&](const Tensor& x) { return activate(hidden_act, x); });
    layer_output = output(layer_output, [&](Tensor x) {
      x = dropout(x, dropout_prob);
      return add(x, hidden_states);
    });
    return layer_output;
  }

  // VideoMAEAttention.forward
  Tensor attend(const Tensor& argument) const {
    ModuleCall call(argument.context(), attention_builder.module);
    const AttentionOutputs self_attention = attention(call.argument(argument));
    return call.result(
        attention_output(self_attention.output, [&](const Tensor& x) { return dropout(x, dropout_prob); }));
  }

  Builder attention_builder;
  VitSelfAttention attention;
  VideoMaeDense attention_output, intermediate, output;
  LayerNorm layernorm_before, layernorm_after;
  Activation hidden_act;
  double dropout_prob;
  ModuleId module;
};

/// A list of layers, of the encoder or of the decoder.
struct VideoMaeLayers {
  VideoMaeLayers() = default;
  VideoMaeLayers(const Builder& builder, const char* name, const VitConfig& c, const ModelOptions& options)
      : blocks(builder), checkpointing(options.checkpointing) {
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(builder.child(name, c.names->layer, i), c, options);
      blocks.add_block(builder);
    }
  }

  Tensor operator()(const Tensor& hidden_states) const {
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i]](const Tensor& hidden) { return layer(hidden); };
    };
    return blocks.run(0, layers.size(), hidden_states, checkpointing, block, {.positional = true});
  }

  std::vector<VideoMaeLayer> layers;
  BlockStack blocks;
  CheckpointingConfig checkpointing;
};

struct VideoMaeDecoder {
  VideoMaeDecoder(const Builder& builder, const VideoMaeConfig& c, const ModelOptions& options)
      : layers(builder, "decoder_layers", config_of(c), options),
        norm(builder.child("norm", "LayerNorm"), c.decoder_hidden_size),
        head(builder.child("head", "Linear"), c.decoder_hidden_size, c.patch_elements(), true),
        module(builder.module) {
    layers.blocks.first_block = static_cast<std::size_t>(c.num_hidden_layers);
  }

  static VitConfig config_of(VitConfig decoder_config, const VideoMaeConfig& c) {
    decoder_config.hidden_size = c.decoder_hidden_size;
    decoder_config.num_hidden_layers = c.decoder_num_hidden_layers;
    decoder_config.num_attention_heads = c.decoder_num_attention_heads;
    decoder_config.intermediate_size = c.decoder_intermediate_size;
    return decoder_config;
  }
  static VitConfig config_of(const VideoMaeConfig& c) { return config_of(c, c); }

  Tensor operator()(const Tensor& argument, std::int64_t return_token_num) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = layers(call.argument(argument));
    hidden_states = slice(hidden_states, 1, hidden_states.size(1) - return_token_num, return_token_num);
    hidden_states = norm(hidden_states);
    return call.result(head(hidden_states));
  }

  VideoMaeLayers layers;
  LayerNorm norm;
  Linear head;
  ModuleId module;
};

class VideoMae : public ImageModel {
 public:
  VideoMae(Context& context, const VideoMaeConfig& c, const DataConfig& data, const ModelOptions& options)
      : ImageModel(context, c, data, options), config_(c) {
    const Builder model = c.classifies || c.pretrains ? root_.child("videomae", c.names->model) : root_;
    model_ = model.module;
    embeddings_ = VideoMaeEmbeddings(model.child("embeddings", c.names->embeddings), c, options);
    const Builder encoder = model.child("encoder", "VideoMAEEncoder");
    encoder_ = encoder.module;
    layers_ = VideoMaeLayers(encoder, "layer", c, options);
    if (!c.use_mean_pooling) layernorm_.emplace(model.child("layernorm", "LayerNorm"), c.hidden_size);
    if (c.classifies) {
      if (c.use_mean_pooling) fc_norm_.emplace(root_.child("fc_norm", "LayerNorm", Modality::none), c.hidden_size);
      classifier_ = Linear(root_.child("classifier", "Linear", Modality::none), c.hidden_size, c.num_labels, true);
    }
    if (c.pretrains) {
      encoder_to_decoder_ =
          Linear(root_.child("encoder_to_decoder", "Linear"), c.hidden_size, c.decoder_hidden_size, false);
      root_.children_are_through();
      mask_token_ = root_.parameter("mask_token", {1, 1, c.decoder_hidden_size});
      decoder_.emplace(root_.child("decoder", "VideoMAEDecoder"), c, options);
    }
  }

  ModelInputs make_inputs(bool with_labels) override {
    ModelInputs batch;
    const auto input = [&](const Shape& sizes, DType dtype) {
      return empty(context_, Op::input, sizes, dtype, Role::input);
    };
    batch.pixel_values =
        input({data_.images(), config_.num_frames, config_.num_channels, config_.image_size, config_.image_size},
              data_.pixel_dtype.value_or(dtype_));
    if (config_.pretrains && !config_.drops_redundant)  // bool_masked_pos
      batch.pixel_attention_mask = input({data_.images(), config_.num_patches()}, DType::boolean);
    if (with_labels && config_.classifies) batch.labels = input({data_.micro_batch_size}, DType::int64);
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    if (config_.pretrains) return pretrain(inputs.pixel_values, inputs.pixel_attention_mask);
    TokenMasks masks;
    Tensor sequence_output = model_forward(inputs.pixel_values, masks);
    if (!config_.classifies) return {{}, {}, {std::move(sequence_output)}};
    Tensor output;
    if (fc_norm_) {
      output = mean(sequence_output, 1, false);
      output = (*fc_norm_)(output);
    } else {
      output = select(sequence_output, 1, 0);
    }
    return classified(classifier_(output), inputs);
  }

 private:
  // VideoMAEModel.forward
  Tensor model_forward(const Tensor& argument, TokenMasks& masks) const {
    ModuleCall call(context_, model_);
    const Tensor embedding_output = embeddings_(call.argument(argument), masks);
    Tensor sequence_output;
    {
      ModuleCall encoder(context_, encoder_);
      sequence_output = encoder.result(layers_(encoder.argument(embedding_output)));
    }
    if (layernorm_) sequence_output = (*layernorm_)(sequence_output);
    return call.result(sequence_output);
  }

  // VideoMAEForPreTraining.forward
  ModelOutputs pretrain(const Tensor& pixel_values, const Tensor& bool_masked_pos) const {
    TokenMasks masks{bool_masked_pos, {}};
    const Tensor last_hidden_state = model_forward(pixel_values, masks);
    const Tensor sequence_output = encoder_to_decoder_(last_hidden_state);
    const std::int64_t batch = sequence_output.size(0), dim = sequence_output.size(2), masked = config_.num_masked;
    const Tensor positions = copied_from_host(context_, {batch, config_.num_patches(), dim}, pixel_values.dtype());
    const auto inverse_of = [](const Tensor& mask) { return pointwise(Op::bitwise_not, {&mask}, DType::boolean); };
    const auto positions_of = [&](const Tensor& mask, std::int64_t count) {
      return reshape(index_mask(positions, mask, checked_product(batch, count)), {batch, count, dim});
    };
    const Tensor pos_emb_visible = positions_of(inverse_of(masks.input), config_.num_visible);
    const Tensor pos_emb_mask = positions_of(masks.target ? inverse_of(masks.target) : masks.input, masked);
    const Tensor x_full = [&] {
      const Tensor of_visible = add(sequence_output, pos_emb_visible), of_masked = add(mask_token_, pos_emb_mask);
      return cat({of_visible, of_masked}, 1);
    }();
    Tensor logits = (*decoder_)(x_full, masked);
    const Labels its = labels_of(pixel_values, masks);
    Tensor loss = mse_loss(logits, its.labels);
    return {std::move(loss), {}, {std::move(logits)}};
  }

  /// The locals of that forward from `with torch.no_grad()` on, in their order.
  struct Labels {
    Tensor mean, std, frames, frames_norm, labels;
  };
  Labels labels_of(const Tensor& pixel_values, const TokenMasks& masks) const {
    const NoGrad no_grad(context_);
    Labels its;
    const std::int64_t batch = pixel_values.size(0), patches = config_.num_patches(), channels = config_.num_channels;
    its.frames = pixel_values;
    if (channels == 3) {
      its.mean = empty(context_, Op::to_copy, {1, 1, 3, 1, 1}, pixel_values.dtype());
      its.std = empty(context_, Op::to_copy, {1, 1, 3, 1, 1}, pixel_values.dtype());
      const Tensor scaled = mul(pixel_values, its.std);
      its.frames = add(scaled, its.mean);
    }
    // view, permute(...).contiguous(), view
    its.frames =
        empty(context_, Op::clone, {batch, patches, config_.patch_elements() / channels, channels}, its.frames.dtype());
    Tensor videos_patch = its.frames;
    if (config_.norm_pix_loss) {
      const Tensor centred = [&] {
        const Tensor average = mean(its.frames, -2, true);
        return sub(its.frames, average);
      }();
      Tensor deviation = var(its.frames, {-2}, true);
      deviation = sqrt(deviation);
      deviation = add_scalar(deviation);
      its.frames_norm = div(centred, deviation);
      videos_patch = its.frames_norm;
    }
    videos_patch = view(videos_patch, {batch, patches, config_.patch_elements()});
    const std::int64_t selected = checked_product(batch, config_.num_masked);
    const Tensor made = masks.target ? pointwise(Op::bitwise_not, {&masks.target}, DType::boolean) : masks.input;
    its.labels =
        reshape(index_mask(videos_patch, made, selected), {batch, config_.num_masked, config_.patch_elements()});
    return its;
  }

  VideoMaeConfig config_;
  VideoMaeEmbeddings embeddings_;
  VideoMaeLayers layers_;
  std::optional<LayerNorm> layernorm_, fc_norm_;
  Linear classifier_, encoder_to_decoder_;
  Tensor mask_token_;
  std::optional<VideoMaeDecoder> decoder_;
  ModuleId model_ = 0, encoder_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_videomae(Context& context, const VideoMaeConfig& config, const DataConfig& data,
                                      const ModelOptions& options) {
  return std::make_unique<VideoMae>(context, config, data, options);
}

}  // namespace oometer
