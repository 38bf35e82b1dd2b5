#include "models/clap/clap.h"

#include <optional>
#include <utility>

#include "models/bert/bert.h"
#include "models/kit/audio_input.h"
#include "models/kit/batch_norm2d.h"
#include "models/swin/swin.h"
#include "models/vit/vit.h"
#include "nn/activation.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/upsample.h"
#include "ops/vision.h"

/// transformers 5.23, models/clap/modeling_clap.py. Names and order of steps are that file's.
namespace oometer {

namespace {

struct AudioSelfAttention {
  AudioSelfAttention(const Builder& builder, const ClapAudioConfig& c, std::int64_t dim, std::int64_t num_heads)
      : heads(num_heads),
        window_area(c.window_size * c.window_size),
        dropout_prob(c.attention_probs_dropout_prob),
        module(builder.module) {
    const std::int64_t distances = 2 * c.window_size - 1;
    relative_position_bias_table = builder.parameter("relative_position_bias_table", {distances * distances, heads});
    create_relative_position_index(builder, c.window_size);
    query = Linear(builder.child("query", "Linear"), dim, dim, c.qkv_bias);
    key = Linear(builder.child("key", "Linear"), dim, dim, c.qkv_bias);
    value = Linear(builder.child("value", "Linear"), dim, dim, c.qkv_bias);
  }

  void create_relative_position_index(const Builder& builder, std::int64_t window_size) {
    Context& context = *builder.context;
    const Tensor coords_h = integers(context, Op::arange, {window_size}),
                 coords_w = integers(context, Op::arange, {window_size}),
                 coords = integers(context, Op::stack, {2, window_size, window_size});
    Tensor differences = integers(context, Op::sub, {2, window_area, window_area});
    const Tensor relative_coords = integers(context, Op::clone, {window_area, window_area, 2});
    differences.reset();
    relative_position_index = builder.buffer({window_area, window_area}, DType::int64);
  }

  Tensor operator()(const Tensor& argument, const Tensor& attention_mask) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = call.argument(argument);
    const std::int64_t batch = hidden_states.size(0), dim = hidden_states.size(1), channels = hidden_states.size(2);
    const AttentionInputs states = project(hidden_states, query, key, value, channels / heads, false);
    Tensor attention_scores = matmul(states.query, transpose(states.key, 2, 3));
    attention_scores = div_scalar(attention_scores);
    Tensor relative_position_bias =
        index(relative_position_bias_table, view(relative_position_index, {window_area * window_area}));
    relative_position_bias = view(relative_position_bias, {window_area, window_area, heads});
    relative_position_bias = contiguous(permute(relative_position_bias, {2, 0, 1}));
    attention_scores = add(attention_scores, unsqueeze(relative_position_bias, 0));
    if (attention_mask) {
      const std::int64_t windows = attention_mask.size(0);
      attention_scores = view(attention_scores, {batch / windows, windows, heads, dim, dim});
      attention_scores = add(attention_scores, unsqueeze(unsqueeze(attention_mask, 1), 0));
      attention_scores = view(attention_scores, {batch, heads, dim, dim});
    }
    const bool autocasts = hidden_states.context().autocast.enabled;
    Tensor attention_probs = softmax(attention_scores, autocasts ? DType::float32 : attention_scores.dtype());
    attention_probs = dropout(attention_probs, dropout_prob);
    Tensor context_layer = matmul(attention_probs, states.value);
    context_layer = contiguous(permute(context_layer, {0, 2, 1, 3}));
    return call.result(view(context_layer, {batch, dim, channels}));
  }

  Tensor relative_position_bias_table, relative_position_index;
  Linear query, key, value;
  std::int64_t heads, window_area;
  double dropout_prob;
  ModuleId module;
};

/// ClapAudioSelfOutput, ClapAudioOutput
struct AudioOutput {
  AudioOutput(const Builder& builder, std::int64_t in_features, std::int64_t out_features, double dropout_rate)
      : dense(builder.child("dense", "Linear"), in_features, out_features, true),
        dropout_prob(dropout_rate),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = dense(call.argument(argument));
    hidden_states = dropout(hidden_states, dropout_prob);
    return call.result(hidden_states);
  }

  Linear dense;
  double dropout_prob;
  ModuleId module;
};

struct AudioAttention {
  AudioAttention(const Builder& builder, const ClapAudioConfig& c, std::int64_t dim, std::int64_t heads)
      : self(builder.child("self", "ClapAudioSelfAttention"), c, dim, heads),
        output(builder.child("output", "ClapAudioSelfOutput"), dim, dim, c.attention_probs_dropout_prob),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const Tensor& attention_mask) const {
    ModuleCall call(argument.context(), module);
    const Tensor self_outputs = self(call.argument(argument), attention_mask);
    return call.result(output(self_outputs));
  }

  AudioSelfAttention self;
  AudioOutput output;
  ModuleId module;
};

struct AudioLayer {
  AudioLayer(const Builder& builder, const ClapAudioConfig& c, std::int64_t dim, std::int64_t heads, std::int64_t shift,
             double drop_path_rate)
      : layernorm_before(builder.child("layernorm_before", "LayerNorm"), dim),
        attention(builder.child("attention", "ClapAudioAttention"), c, dim, heads),
        drop_prob(drop_path_rate),
        layernorm_after((builder.child("drop_path", drop_prob > 0 ? "ClapDropPath" : "Identity"),
                         builder.child("layernorm_after", "LayerNorm")),
                        dim),
        intermediate(builder.child("intermediate", "ClapAudioIntermediate").module),
        hidden_act(c.hidden_act),
        window_size(c.window_size),
        shift_size(shift),
        module(builder.module) {
    const auto wide = static_cast<std::int64_t>(c.mlp_ratio * static_cast<double>(dim));
    Builder its = builder;
    its.module = intermediate;
    intermediate_dense = Linear(its.child("dense", "Linear"), dim, wide, true);
    output.emplace(builder.child("output", "ClapAudioOutput"), wide, dim, c.hidden_dropout_prob);
  }

  Tensor operator()(const Tensor& argument, std::int64_t side) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor shortcut = call.argument(argument);
    const std::int64_t batch = shortcut.size(0), channels = shortcut.size(2);
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor layer_output, shifted_windows, attention_windows, attention_output, attn_mask, hidden_states_windows,
        shifted_hidden_states, hidden_states;
    hidden_states = layernorm_before(shortcut);
    hidden_states = view(hidden_states, {batch, side, side, channels});
    hidden_states = pad(hidden_states, 2, 0);  // maybe_pad: a copy all the same
    shifted_hidden_states = cyclic_shift(hidden_states, shift_size);
    hidden_states_windows = window_partition(shifted_hidden_states, window_size);
    hidden_states_windows =
        view(hidden_states_windows, {hidden_states_windows.size(0), window_size * window_size, channels});
    attn_mask = window_mask(hidden_states, {side, side}, window_size, shift_size);
    attention_output = attention(hidden_states_windows, attn_mask);
    attention_windows = view(attention_output, {attention_output.size(0), window_size, window_size, channels});
    shifted_windows = window_reverse(attention_windows, window_size, {side, side});
    attention_windows = cyclic_shift(shifted_windows, shift_size);
    attention_windows = view(attention_windows, {batch, side * side, channels});
    {
      const Tensor kept = drop_path(attention_windows, drop_prob);
      hidden_states = add(shortcut, kept);
    }
    layer_output = layernorm_after(hidden_states);
    {
      ModuleCall inner(context, intermediate);
      Tensor wide = intermediate_dense(inner.argument(layer_output));
      wide = activate(hidden_act, wide);
      layer_output = inner.result(wide);
    }
    {
      const Tensor its_output = (*output)(layer_output);
      layer_output = add(hidden_states, its_output);
    }
    return call.result(layer_output);
  }

  LayerNorm layernorm_before;
  AudioAttention attention;
  double drop_prob;
  LayerNorm layernorm_after;
  ModuleId intermediate;
  Linear intermediate_dense;
  std::optional<AudioOutput> output;
  Activation hidden_act;
  std::int64_t window_size, shift_size;
  ModuleId module;
};

struct AudioStage {
  AudioStage(const Builder& builder, const ClapAudioConfig& c, std::size_t stage, std::int64_t before, std::int64_t all)
      : side(c.side(stage)), module(builder.module) {
    const std::int64_t dim = c.dim(stage);
    blocks.reserve(static_cast<std::size_t>(c.depths[stage]));
    for (std::int32_t i = 0; i < c.depths[stage]; ++i) {
      // set_shift_and_window_size: one window is not shifted
      const std::int64_t shift = i % 2 == 0 || side <= c.window_size ? 0 : c.window_size / 2;
      blocks.emplace_back(builder.child("blocks", "ClapAudioLayer", i), c, dim, c.num_attention_heads[stage], shift,
                          before + i == 0 || all == 1 ? 0 : c.drop_path_rate);
    }
    if (stage + 1 == c.depths.size()) return;
    const Builder merging = builder.child("downsample", "ClapAudioPatchMerging");
    downsample = merging.module;
    reduction = Linear(merging.child("reduction", "Linear"), 4 * dim, 2 * dim, false);
    norm = LayerNorm(merging.child("norm", "LayerNorm"), 4 * dim);
  }

  /// Gives the hidden states; `before_downsampling` is the caller's until another stage's come.
  Tensor operator()(const Tensor& argument, Tensor& before_downsampling) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    Tensor hidden_states = call.argument(argument);
    for (const AudioLayer& layer : blocks) hidden_states = layer(hidden_states, side);
    before_downsampling = hidden_states;
    if (downsample != 0) {
      ModuleCall merging(context, downsample);
      Tensor input_feature = merge_patches(merging.argument(hidden_states), {side, side});
      input_feature = norm(input_feature);
      input_feature = reduction(input_feature);
      hidden_states = merging.result(input_feature);
    }
    return call.result(hidden_states);
  }

  std::vector<AudioLayer> blocks;
  ModuleId downsample = 0;
  Linear reduction;
  LayerNorm norm;
  std::int64_t side;
  ModuleId module;
};

struct AudioEncoder {
  AudioEncoder() = default;
  AudioEncoder(const Builder& builder, const ClapAudioConfig& c) : config(c), module(builder.module) {
    const Builder patches = builder.child("patch_embed", "ClapAudioPatchEmbed");
    patch_embed = patches.module;
    proj = Conv2d(patches.child("proj", "Conv2d"), 1, c.embed_dim, c.patch_size, true);
    if (c.has_patch_norm) patch_norm = LayerNorm(patches.child("norm", "LayerNorm"), c.embed_dim);
    std::int64_t all = 0, before = 0;
    for (const std::int64_t depth : c.depths) all += depth;
    layers.reserve(c.depths.size());
    for (std::size_t i = 0; i < c.depths.size(); ++i) {
      layers.emplace_back(builder.child("layers", "ClapAudioStage", static_cast<std::int32_t>(i)), c, i, before, all);
      before += c.depths[i];
    }
    batch_norm = BatchNorm2d(builder.child("batch_norm", "BatchNorm2d"), c.num_mel_bins);
    norm = LayerNorm(builder.child("norm", "LayerNorm"), c.hidden_size);
  }

  Tensor reshape_mel2img(const Tensor& normalized) const {
    const std::int64_t ratio = config.freq_ratio(), batch = normalized.size(0), freq = normalized.size(3);
    Tensor features = normalized;
    if (features.size(2) < config.spec_size * ratio)
      features = upsample_bicubic2d(features, config.spec_size * ratio, freq);
    features = reshape(features, {batch, ratio, config.spec_size, freq});
    features = contiguous(permute(features, {0, 1, 3, 2}));
    return reshape(features, {batch, 1, freq * ratio, config.spec_size});
  }

  Tensor embed_patches(const Tensor& argument) const {
    ModuleCall call(argument.context(), patch_embed);
    Tensor hidden_states = proj(call.argument(argument));
    hidden_states = transpose(
        reshape(hidden_states, {hidden_states.size(0), config.embed_dim, config.side(0) * config.side(0)}), 1, 2);
    if (patch_norm.weight) hidden_states = patch_norm(hidden_states);
    return call.result(hidden_states);
  }

  struct Output {
    Tensor last_hidden_state, pooler_output;
  };
  Output operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor input_features = transpose(call.keyword(argument), 1, 3);
    Tensor normalized_input_features = batch_norm(input_features);
    normalized_input_features = transpose(normalized_input_features, 1, 3);
    Tensor hidden_states = reshape_mel2img(normalized_input_features);
    hidden_states = embed_patches(hidden_states);
    TensorList layer_outputs;  // of a stage, until the next one has given its own
    for (const AudioStage& stage : layers) {
      Tensor before_downsampling;
      Tensor output = stage(hidden_states, before_downsampling);
      hidden_states = output;
      TensorList outputs;
      outputs.push_back(std::move(output));
      outputs.push_back(std::move(before_downsampling));
      layer_outputs = std::move(outputs);
    }
    const std::int64_t batch = hidden_states.size(0), channels = hidden_states.size(2), ratio = config.freq_ratio(),
                       side = config.side(layers.size() - 1), c_freq_bin = side / ratio;
    Tensor last_hidden_state = norm(hidden_states);
    last_hidden_state = contiguous(permute(last_hidden_state, {0, 2, 1}));
    last_hidden_state = view(last_hidden_state, {batch, channels, side / c_freq_bin, c_freq_bin, side});
    last_hidden_state = contiguous(transpose(last_hidden_state, 2, 3));
    last_hidden_state = view(last_hidden_state, {batch, channels, c_freq_bin, side / c_freq_bin * side});
    // AdaptiveAvgPool1d(1)
    Tensor latent_output = mean_of_images(
        unsqueeze(view(last_hidden_state, {batch, channels, c_freq_bin * (side / c_freq_bin * side)}), 2));
    latent_output = view(latent_output, {batch, channels});
    return {call.result(last_hidden_state), call.result(latent_output)};
  }

  ClapAudioConfig config;
  Conv2d proj;
  LayerNorm patch_norm, norm;
  std::vector<AudioStage> layers;
  BatchNorm2d batch_norm;
  ModuleId patch_embed = 0, module = 0;
};

struct ProjectionLayer {
  ProjectionLayer() = default;
  ProjectionLayer(const Builder& builder, std::int64_t hidden_size, const ClapConfig& c)
      : linear1(builder.child("linear1", "Linear"), hidden_size, c.projection_dim, true),
        linear2(builder.child("linear2", "Linear"), c.projection_dim, c.projection_dim, true),
        activation(c.projection_hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = linear1(call.argument(argument));
    hidden_states = activate(activation, hidden_states);
    hidden_states = linear2(hidden_states);
    return call.result(hidden_states);
  }

  Linear linear1, linear2;
  Activation activation = Activation::relu;
  ModuleId module = 0;
};

class Clap final : public Model {
 public:
  Clap(Context& context, const ClapConfig& config, const DataConfig& data, const ModelOptions& options)
      : context_(context), config_(config), data_(data), dtype_(options.dtype) {
    loss_type = LossType::contrastive;
    const Builder builder{&context,       &parameters,   &buffers,        context.add_root("ClapModel", Modality::none),
                          Modality::none, options.dtype, options.wrapping};
    logit_scale_a_ = builder.parameter("logit_scale_a", {});
    logit_scale_t_ = builder.parameter("logit_scale_t", {});
    text_model_ =
        BertModel(builder.child("text_model", "ClapTextModel", Modality::language), config.text, options, true);
    text_projection_ = ProjectionLayer(builder.child("text_projection", "ClapProjectionLayer", Modality::projector),
                                       config.text.hidden_size, config);
    const Builder audio = builder.child("audio_model", "ClapAudioModel", Modality::vision);
    audio_model_ = audio.module;
    audio_encoder_ = AudioEncoder(audio.child("audio_encoder", "ClapAudioEncoder"), config.audio);
    audio_projection_ = ProjectionLayer(builder.child("audio_projection", "ClapProjectionLayer", Modality::projector),
                                        config.audio.hidden_size, config);
  }

  ModelInputs make_inputs(bool) override {
    ModelInputs batch;
    batch.input_ids =
        empty(context_, Op::input, {data_.micro_batch_size, data_.sequence_length}, DType::int64, Role::input);
    batch.input_features =
        empty(context_, Op::input, {data_.audios(), 1, ClapAudioConfig::kFrames, config_.audio.num_mel_bins},
              data_.pixel_dtype.value_or(dtype_), Role::input);
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    check_audio_input(context_, inputs.input_features, audio_encoder_.batch_norm.weight);
    AudioEncoder::Output audio_outputs;
    {
      ModuleCall call(context_, audio_model_);
      audio_outputs = audio_encoder_(call.keyword(inputs.input_features));
      audio_outputs.last_hidden_state = call.result(audio_outputs.last_hidden_state);
      audio_outputs.pooler_output = call.result(audio_outputs.pooler_output);
    }
    const BertModel::Output text_outputs = run_text(inputs);
    Tensor audio_embeds = audio_projection_(audio_outputs.pooler_output);
    Tensor text_embeds = text_projection_(text_outputs.pooler_output);
    audio_embeds = div(audio_embeds, linalg_vector_norm(audio_embeds));
    text_embeds = div(text_embeds, linalg_vector_norm(text_embeds));
    const Tensor logit_scale_text = exp(logit_scale_t_), logit_scale_audio = exp(logit_scale_a_);
    const auto logits = [](const Tensor& of, const Tensor& others, const Tensor& scale) {
      const Tensor product = matmul(of, transpose(others, 0, 1));
      return mul(product, scale);
    };
    const Tensor logits_per_text = logits(text_embeds, audio_embeds, logit_scale_text);
    const Tensor logits_per_audio = logits(audio_embeds, text_embeds, logit_scale_audio);
    Tensor loss;  // return_loss=True
    if (loss_function) loss = (*loss_function)(logits_per_text, logits_per_audio);
    return {loss,
            {},
            {logits_per_audio, logits_per_text, text_embeds, audio_embeds, text_outputs.last_hidden_state,
             text_outputs.pooler_output, audio_outputs.last_hidden_state, audio_outputs.pooler_output}};
  }

 private:
  // ClapTextLayer.forward
  static Tensor text_layer(const BertLayer& layer, const Tensor& hidden_in, const Tensor& attention_mask) {
    Context& context = hidden_in.context();
    const ModuleScope scope(context, layer.module);
    Tensor hidden_states;
    {
      ModuleCall call(context, layer.attention.module);
      const Tensor residual = call.argument(hidden_in);
      AttentionOutputs attention;  // the weights stay in `_` until ClapTextAttention.forward returns
      {
        const BertSelfAttention& its = layer.attention.self;
        ModuleCall self(context, its.module);
        const Tensor own = self.argument(residual);
        const AttentionInputs states = project(own, its.query, its.key, its.value, its.attention_head_size, false);
        attention = attention_forward(its.call, states.query, states.key, states.value, attention_mask);
        attention.output = self.result(reshape(attention.output, own.sizes()));
      }
      attention.output = layer.attention.output(attention.output, residual);
      hidden_states = call.result(attention.output);
    }
    Tensor intermediate_output;
    {
      ModuleCall call(context, layer.intermediate.module);
      Tensor wide = layer.intermediate.dense(call.argument(hidden_states));
      wide = activate(layer.intermediate_act_fn, wide);
      intermediate_output = call.result(wide);
    }
    return layer.output(intermediate_output, hidden_states);
  }

  // ClapTextModel.forward
  BertModel::Output run_text(const ModelInputs& inputs) const {
    const BertModel& text = text_model_;
    ModuleCall call(context_, text.module);
    Tensor attention_mask = inputs.attention_mask;
    if (!attention_mask) attention_mask = empty(context_, Op::fill, inputs.input_ids.sizes(), DType::float32);
    const Tensor embedding_output = text.embeddings(inputs.input_ids, inputs.position_ids);
    attention_mask = create_bidirectional_mask(embedding_output, {{}, attention_mask, inputs.rows}, text.masked);
    BertModel::Output out;
    {
      ModuleCall encode(context_, text.encoder);
      const auto block = [&](std::size_t i) -> BlockStack::Forward {
        return [&layer = text.layers[i], attention_mask](const Tensor& hidden) {
          return text_layer(layer, hidden, attention_mask);
        };
      };
      const Tensor hidden_states = encode.argument(embedding_output);
      out.last_hidden_state = encode.result(
          text.blocks.run(0, text.layers.size(), hidden_states, text.checkpointing, block, {.positional = true}));
    }
    out.pooler_output = call.result(text.pooler(out.last_hidden_state));
    out.last_hidden_state = call.result(out.last_hidden_state);
    return out;
  }

  Context& context_;
  ClapConfig config_;
  DataConfig data_;
  DType dtype_;
  Tensor logit_scale_a_, logit_scale_t_;
  BertModel text_model_;
  AudioEncoder audio_encoder_;
  ProjectionLayer text_projection_, audio_projection_;
  ModuleId audio_model_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_clap(Context& context, const ClapConfig& config, const DataConfig& data,
                                  const ModelOptions& options) {
  return std::make_unique<Clap>(context, config, data, options);
}

}  // namespace oometer
