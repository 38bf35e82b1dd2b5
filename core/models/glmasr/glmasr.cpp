#include "models/glmasr/glmasr.h"

#include <utility>
#include <vector>

#include "models/kit/audio_input.h"
#include "models/kit/hearing.h"
#include "models/kit/text_attention.h"
#include "models/llama/llama.h"
#include "models/voxtral/voxtral.h"
#include "models/whisper/whisper.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/integers.h"
#include "ops/ops.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

/// apply_rotary_pos_emb
std::pair<Tensor, Tensor> apply_rotary_pos_emb(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions) {
  const Tensor cos = unsqueeze(positions.cos, 1), sin = unsqueeze(positions.sin, 1);
  const std::int64_t rotary_dim = cos.size(-1), rest = q.size(-1) - rotary_dim;
  const Tensor q_rot = slice(q, 3, 0, rotary_dim), q_pass = slice(q, 3, rotary_dim, rest);
  const Tensor k_rot = slice(k, 3, 0, rotary_dim), k_pass = slice(k, 3, rotary_dim, rest);
  Tensor q_embed = rotate(q_rot, cos, sin), k_embed = rotate(k_rot, cos, sin);
  q_embed = cat({q_embed, q_pass}, -1);
  k_embed = cat({k_embed, k_pass}, -1);
  return {std::move(q_embed), std::move(k_embed)};
}

struct GlmAsrAttention {
  GlmAsrAttention(const Builder& builder, const GlmAsrEncoderConfig& c, const ModelOptions& options)
      : head_dim(c.head_dim), call{.kind = options.attention, .dropout = c.attention_dropout}, module(builder.module) {
    const std::int64_t queries = c.num_attention_heads * head_dim, keys = c.num_key_value_heads * head_dim;
    q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, queries, true);
    k_proj = Linear(builder.child("k_proj", "Linear"), c.hidden_size, keys, false);
    v_proj = Linear(builder.child("v_proj", "Linear"), c.hidden_size, keys, true);
    o_proj = Linear(builder.child("o_proj", "Linear"), queries, c.hidden_size, true);
  }

  AttentionOutputs operator()(const Tensor& argument, const PositionEmbeddings& position_embeddings) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    AttentionInputs states = project(hidden_states, q_proj, k_proj, v_proj, head_dim, false);
    {
      auto [query, key] = apply_rotary_pos_emb(states.query, states.key, position_embeddings);
      states.query = std::move(query);
      states.key = std::move(key);
    }
    AttentionOutputs attention = attend(call, 0, states, {}, {});
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  std::int64_t head_dim;
  Linear q_proj, k_proj, v_proj, o_proj;
  AttentionCall call;
  ModuleId module;
};

struct GlmAsrMLP {
  GlmAsrMLP(const Builder& builder, const GlmAsrEncoderConfig& c)
      : fc1(builder.child("fc1", "Linear"), c.hidden_size, c.intermediate_size, true),
        fc2(builder.child("fc2", "Linear"), c.intermediate_size, c.hidden_size, true),
        act_fn(c.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = fc1(call.argument(argument));
    hidden_states = activate(act_fn, hidden_states);
    return call.result(fc2(hidden_states));
  }

  Linear fc1, fc2;
  Activation act_fn;
  ModuleId module;
};

struct GlmAsrEncoderLayer {
  GlmAsrEncoderLayer(const Builder& builder, const GlmAsrEncoderConfig& c, const ModelOptions& options)
      : self_attn(builder.child("self_attn", "GlmAsrAttention"), c, options),
        mlp(builder.child("mlp", "GlmAsrMLP"), c),
        input_layernorm(builder.child("input_layernorm", "LayerNorm"), c.hidden_size),
        post_attention_layernorm(builder.child("post_attention_layernorm", "LayerNorm"), c.hidden_size),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& position_embeddings) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in;
    Tensor hidden_states = input_layernorm(hidden_in);
    AttentionOutputs attended = self_attn(hidden_states, position_embeddings);
    hidden_states = std::move(attended.output);  // the weights stay in `_` until the layer returns
    hidden_states = add(residual, hidden_states);
    residual = hidden_states;
    hidden_states = post_attention_layernorm(hidden_states);
    hidden_states = mlp(hidden_states);
    return add(residual, hidden_states);
  }

  GlmAsrAttention self_attn;
  GlmAsrMLP mlp;
  LayerNorm input_layernorm, post_attention_layernorm;
  ModuleId module;
};

struct GlmAsrEncoder {
  GlmAsrEncoder() = default;
  GlmAsrEncoder(const Builder& builder, const GlmAsrEncoderConfig& c, const ModelOptions& options)
      : conv1(builder.child("conv1", "Conv1d"), c.num_mel_bins, c.hidden_size, 1),
        conv2(builder.child("conv2", "Conv1d"), c.hidden_size, c.hidden_size, 2),
        blocks(builder),
        checkpointing(options.checkpointing),
        module(builder.module) {
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(builder.child("layers", "GlmAsrEncoderLayer", i), c, options);
      blocks.add_block(builder);
    }
    norm = LayerNorm(builder.child("norm", "LayerNorm"), c.hidden_size);
    LlamaConfig of_rotary;
    of_rotary.head_dim = c.rotary_dim;
    rotary_emb = LlamaRotaryEmbedding(builder.child("rotary_emb", "GlmAsrRotaryEmbedding"), of_rotary);
  }

  Tensor operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Scoped<KvCache*> has_no_cache(context.past_key_values, nullptr);
    Tensor inputs_embeds;
    {
      const Tensor input_features = call.argument(argument);
      check_audio_input(context, input_features, conv1.weight);
      const Tensor convolved = conv1(input_features);
      inputs_embeds = activate(Activation::gelu, convolved);
    }
    {
      const Tensor convolved = conv2(inputs_embeds);
      inputs_embeds = activate(Activation::gelu, convolved);
    }
    inputs_embeds = transpose(inputs_embeds, 1, 2);
    Tensor hidden_states = inputs_embeds;
    PositionEmbeddings position_embeddings;
    {
      const Tensor position_ids = integers(context, Op::arange, {1, hidden_states.size(1)});
      position_embeddings = rotary_emb(hidden_states, position_ids);
    }
    position_embeddings.position_ids.reset();
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], position_embeddings](const Tensor& hidden) {
        return layer(hidden, position_embeddings);
      };
    };
    hidden_states = blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block);
    hidden_states = norm(hidden_states);
    return call.result(hidden_states);
  }

  SpectrogramConv conv1, conv2;
  std::vector<GlmAsrEncoderLayer> layers;
  BlockStack blocks;
  LayerNorm norm;
  LlamaRotaryEmbedding rotary_emb;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

class GlmAsr final : public HearingModel {
 public:
  GlmAsr(Context& context, const GlmAsrConfig& config, const DataConfig& data, const ModelOptions& options)
      : HearingModel(context, "GlmAsrForConditionalGeneration", Modality::none, data, options), config_(config) {
    const Builder model = root_.child("model", "GlmAsrModel");
    model_ = model.module;
    audio_tower_ = GlmAsrEncoder(model.child("audio_tower", "GlmAsrEncoder", Modality::vision), config.audio, options);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options);
    language_model_.blocks.first_block = audio_tower_.layers.size();
    const Builder projector = model.child("multi_modal_projector", "GlmAsrMultiModalProjector", Modality::projector);
    projector_.linear_1 = Linear(projector.child("linear_1", "Linear"), config.audio.intermediate_size,
                                 2 * config.text.hidden_size, true);
    projector_.linear_2 =
        Linear(projector.child("linear_2", "Linear"), 2 * config.text.hidden_size, config.text.hidden_size, true);
    projector_.act = config.projector_hidden_act;
    projector_.module = projector.module;
    make_head(root_, config.text, config.tie_word_embeddings);
  }

  void make_audios(ModelInputs& batch) override {
    if (data_.audios() == 0) return;
    const std::int64_t windows = checked_product(data_.audios(), config_.windows(data_.audio_seconds));
    batch.input_features =
        input({windows, config_.audio.num_mel_bins, config_.audio.frames()}, data_.pixel_dtype.value_or(dtype_));
    batch.pixel_attention_mask = input({windows, config_.audio.frames()}, DType::int32);  // input_features_mask
  }

 private:
  Tensor audio_features(const ModelInputs& inputs) const override {
    const Tensor& input_features_mask = inputs.pixel_attention_mask;
    const Shape windows{input_features_mask.size(0)};
    // Python's locals, and what get_audio_features returns
    Tensor audio_hidden_states = audio_tower_(inputs.input_features);
    audio_hidden_states =
        reshape(audio_hidden_states, {windows[0], config_.audio.rows(), config_.audio.intermediate_size});
    const Tensor audio_embeds = projector_(audio_hidden_states);
    Tensor audio_lengths = integers(context_, Op::sum, windows);
    { const Tensor widened = to(input_features_mask, DType::int64); }
    for (int convolution = 0; convolution < 2; ++convolution) {
      Tensor step = integers(context_, Op::add, windows);
      for (const Op op : {Op::sub, Op::sub, Op::floor_divide}) step = integers(context_, op, windows);
      audio_lengths = integers(context_, Op::add, windows);
    }
    Tensor post_lengths = integers(context_, Op::sub, windows);
    for (const Op op : {Op::floor_divide, Op::add}) post_lengths = integers(context_, op, windows);
    Tensor valid_mask;
    {
      const Tensor positions = integers(context_, Op::arange, {config_.audio.rows()});
      valid_mask = empty(context_, Op::lt, {windows[0], config_.audio.rows()}, DType::boolean);
    }
    return index_mask(audio_embeds, valid_mask, checked_product(data_.audios(), config_.tokens(data_.audio_seconds)));
  }

  GlmAsrConfig config_;
  GlmAsrEncoder audio_tower_;
  VoxtralMultiModalProjector projector_;
};

}  // namespace

std::unique_ptr<Model> build_glmasr(Context& context, const GlmAsrConfig& config, const DataConfig& data,
                                    const ModelOptions& options) {
  return std::make_unique<GlmAsr>(context, config, data, options);
}

}  // namespace oometer
