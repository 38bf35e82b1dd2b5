#include "models/granite_speech/granite_speech.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "models/granite/granite.h"
#include "models/kit/attended_loss.h"
#include "models/kit/conv1d.h"
#include "models/kit/decoder.h"
#include "models/kit/image_text.h"
#include "models/kit/recurrent.h"
#include "ops/glu.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

struct FeedForward {
  FeedForward(const Builder& builder, const GraniteSpeechEncoderConfig& c)
      : pre_norm(builder.child("pre_norm", "LayerNorm"), c.hidden_dim),
        up_proj(builder.child("up_proj", "Linear"), c.hidden_dim, c.hidden_dim * c.feedforward_mult, true),
        down_proj(builder.child("down_proj", "Linear"), c.hidden_dim * c.feedforward_mult, c.hidden_dim, true),
        dropout_rate(c.dropout),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = pre_norm(call.argument(argument));
    hidden_states = up_proj(hidden_states);
    {
      const Tensor activated = silu(hidden_states);
      hidden_states = dropout(activated, dropout_rate);
    }
    hidden_states = down_proj(hidden_states);
    return call.result(dropout(hidden_states, dropout_rate));
  }

  LayerNorm pre_norm;
  Linear up_proj, down_proj;
  double dropout_rate;
  ModuleId module;
};

struct Attention {
  Attention(const Builder& builder, const GraniteSpeechEncoderConfig& c)
      : pre_norm(builder.child("pre_norm", "LayerNorm"), c.hidden_dim),
        to_q(builder.child("to_q", "Linear"), c.hidden_dim, c.dim_head * c.num_heads, false),
        to_kv(builder.child("to_kv", "Linear"), c.hidden_dim, 2 * c.dim_head * c.num_heads, false),
        to_out(builder.child("to_out", "Linear"), c.dim_head * c.num_heads, c.hidden_dim, true),
        rel_pos_emb(builder.child("rel_pos_emb", "Embedding"), 2 * c.max_pos_emb + 1, c.dim_head),
        context_size(c.context_size),
        num_heads(c.num_heads),
        dim_head(c.dim_head),
        dropout_rate(c.dropout),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const Tensor& attention_dists) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    Tensor hidden_states = pre_norm(call.argument(argument));
    const std::int64_t bsz = hidden_states.size(0), num_features = hidden_states.size(1),
                       num_blocks = (num_features + context_size - 1) / context_size,
                       remainder = num_features % context_size;
    if (remainder > 0) hidden_states = pad(hidden_states, 1, context_size - remainder);
    Tensor query_states = to_q(hidden_states), key_states, value_states;
    {
      const Tensor both = to_kv(hidden_states);
      const std::int64_t inner = num_heads * dim_head;
      const TensorList halves = split(both, {inner, inner}, -1);
      key_states = halves[0];
      value_states = halves[1];
    }
    const Shape by_block{checked_product(bsz, num_blocks), context_size, num_heads, dim_head};
    for (Tensor* states : {&query_states, &key_states, &value_states})
      *states = transpose(reshape(*states, by_block), 1, 2);
    const Tensor embedded = rel_pos_emb(attention_dists);
    Tensor pos_attn;
    {
      const Tensor product = einsum("bhcd", "crd", "bhcr", query_states, embedded);
      pos_attn = mul_scalar(product);
    }
    Tensor mask;
    if (remainder > 0) {
      mask = empty(context, Op::fill, {context_size, context_size}, DType::boolean);
      const Tensor blocks = view(pos_attn, {bsz, num_blocks, num_heads, context_size, context_size});
      masked_fill_in_place(select(blocks, 1, num_blocks - 1), mask);
    }
    Tensor out =
        scaled_dot_product_attention(AttentionKernel::math, query_states, key_states, value_states, pos_attn, {});
    out = reshape(transpose(out, 1, 2), {bsz, hidden_states.size(1), num_heads * dim_head});
    out = to_out(slice(out, 1, 0, num_features));
    return call.result(dropout(out, dropout_rate));
  }

  LayerNorm pre_norm;
  Linear to_q, to_kv, to_out;
  Embedding rel_pos_emb;
  std::int64_t context_size, num_heads, dim_head;
  double dropout_rate;
  ModuleId module;
};

struct ConvModule {
  ConvModule(const Builder& builder, const GraniteSpeechEncoderConfig& c, const GraniteSpeechNames& names)
      : norm(builder.child("norm", "LayerNorm"), c.hidden_dim),
        padding(2 * (c.conv_kernel_size / 2) - (c.conv_kernel_size + 1) % 2),
        dropout_rate(c.dropout),
        module(builder.module) {
    const std::int64_t inner = c.hidden_dim * c.conv_expansion_factor;
    up_conv = Conv1d(builder.child("up_conv", "Conv1d"), c.hidden_dim, 2 * inner, {});
    const Builder depth = builder.child("depth_conv", names.depthwise_conv);
    depth_module = depth.module;
    depth_conv = Conv1d(depth.child("conv", "Conv1d"), inner, inner,
                        {.kernel = c.conv_kernel_size, .groups = inner, .bias = false});
    batch_norm = BatchNorm1d(builder.child("batch_norm", "BatchNorm1d"), inner);
    down_conv = Conv1d(builder.child("down_conv", "Conv1d"), inner, c.hidden_dim, {});
  }

  Tensor operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    Tensor hidden_states = norm(call.argument(argument));
    hidden_states = up_conv(permute(hidden_states, {0, 2, 1}));
    hidden_states = glu(hidden_states);
    {
      ModuleCall depth(context, depth_module);
      const Tensor padded = pad(depth.argument(hidden_states), 2, padding);
      hidden_states = depth.result(depth_conv(padded));
    }
    {
      const Tensor normed = batch_norm(hidden_states);
      hidden_states = silu(normed);
    }
    hidden_states = permute(down_conv(hidden_states), {0, 2, 1});
    return call.result(dropout(hidden_states, dropout_rate));
  }

  LayerNorm norm;
  Conv1d up_conv, depth_conv, down_conv;
  BatchNorm1d batch_norm;
  std::int64_t padding;
  double dropout_rate;
  ModuleId depth_module = 0, module;
};

struct Block {
  Block(const Builder& builder, const GraniteSpeechEncoderConfig& c, const GraniteSpeechNames& names)
      : ff1(builder.child("ff1", names.feed_forward), c),
        attn(builder.child("attn", names.attention), c),
        conv(builder.child("conv", names.conv_module), c, names),
        ff2(builder.child("ff2", names.feed_forward), c),
        post_norm(builder.child("post_norm", "LayerNorm"), c.hidden_dim),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const Tensor& attention_dists) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = half_of(ff1, call.argument(argument));
    {
      const Tensor attended = attn(hidden_states, attention_dists);
      hidden_states = add(attended, hidden_states);
    }
    {
      const Tensor convolved = conv(hidden_states);
      hidden_states = add(convolved, hidden_states);
    }
    hidden_states = half_of(ff2, hidden_states);
    hidden_states = post_norm(hidden_states);
    return call.result(hidden_states);
  }

  static Tensor half_of(const FeedForward& feed_forward, const Tensor& hidden_states) {
    Tensor half;
    {
      const Tensor whole = feed_forward(hidden_states);
      half = mul_scalar(whole);
    }
    return add(half, hidden_states);
  }

  FeedForward ff1;
  Attention attn;
  ConvModule conv;
  FeedForward ff2;
  LayerNorm post_norm;
  ModuleId module;
};

struct Encoder {
  Encoder() = default;
  Encoder(const Builder& builder, const GraniteSpeechEncoderConfig& c, const GraniteSpeechNames& names)
      : cat_hidden_layers(c.cat_hidden_layers), module(builder.module) {
    // bound until __init__ returns
    const Tensor seq = integers(*builder.context, Op::arange, {c.context_size}),
                 relpos_dist = integers(*builder.context, Op::sub, {c.context_size, c.context_size});
    {
      const Tensor clamped = integers(*builder.context, Op::clamp, {c.context_size, c.context_size});
      attention_dists = builder.buffer({c.context_size, c.context_size}, DType::int64);
    }
    input_linear = Linear(builder.child("input_linear", "Linear"), c.input_dim, c.hidden_dim, true);
    layers.reserve(static_cast<std::size_t>(c.num_layers));
    for (std::int32_t i = 0; i < c.num_layers; ++i)
      layers.emplace_back(builder.child("layers", names.block, i), c, names);
    out = Linear(builder.child("out", "Linear"), c.hidden_dim, c.output_dim, true);
    out_mid = Linear(builder.child("out_mid", "Linear"), c.output_dim, c.hidden_dim, true);
  }

  Tensor operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    Tensor hidden_states = input_linear(call.argument(argument)), hidden_states_mid;
    const auto is_exported = [&](std::size_t index) {
      return std::count(cat_hidden_layers.begin(), cat_hidden_layers.end(), static_cast<std::int64_t>(index)) != 0;
    };
    TensorList exported_hidden_states;
    if (is_exported(0)) exported_hidden_states.push_back(hidden_states);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      hidden_states = layers[i](hidden_states, attention_dists);
      if (is_exported(i + 1)) exported_hidden_states.push_back(hidden_states);
      if (i + 1 != layers.size() / 2) continue;
      hidden_states_mid = clone(hidden_states);
      hidden_states_mid = out(hidden_states_mid);
      Tensor projected;
      {
        const DType dtype = context.autocast.enabled ? DType::float32 : hidden_states_mid.dtype();
        const Tensor probabilities = softmax(hidden_states_mid, dtype);
        projected = out_mid(probabilities);
      }
      hidden_states = add_in_place(hidden_states, projected);
      if (is_exported(i + 1)) exported_hidden_states.back() = hidden_states;  // the same tensor
    }
    if (!exported_hidden_states.empty()) {
      std::vector<Tensor> all(exported_hidden_states.begin(), exported_hidden_states.end());
      all.push_back(hidden_states);
      hidden_states = cat(all, -1);
    }
    return call.result(hidden_states);
  }

  Tensor attention_dists;
  Linear input_linear;
  std::vector<Block> layers;
  Linear out, out_mid;
  std::vector<std::int64_t> cat_hidden_layers;
  ModuleId module = 0;
};

struct Projector {
  Projector() = default;
  Projector(const Builder& builder, const GraniteSpeechConfig& c, const ModelOptions& options)
      : window_size(c.window_size), num_queries(c.queries()), module(builder.module) {
    query = builder.parameter("query", {1, c.queries(), c.projector.hidden_size});
    qformer = QFormerModel(builder.child("qformer", c.projector.names->model), c.projector, options);
    linear = Linear(builder.child("linear", "Linear"), c.projector.hidden_size, c.text.hidden_size, true);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = call.argument(argument);
    const std::int64_t batch_size = hidden_states.size(0), seq_len = hidden_states.size(1),
                       nblocks = (seq_len + window_size - 1) / window_size;
    hidden_states = pad(hidden_states, 1, nblocks * window_size - seq_len);
    hidden_states = view(hidden_states, {checked_product(batch_size, nblocks), window_size, hidden_states.size(2)});
    const QFormerModel::Output query_output = qformer(query, hidden_states, {});
    const Tensor& states = query_output.last_hidden_state;
    return call.result(linear(view(states, {batch_size, nblocks * num_queries, states.size(2)})));
  }

  Tensor query;
  QFormerModel qformer;
  Linear linear;
  std::int64_t window_size = 0, num_queries = 0;
  ModuleId module = 0;
};

DecoderParts text_parts(const GraniteSpeechConfig& config, const ModelOptions& options) {
  DecoderParts parts = granite_parts(config.text, options);
  complete_parts(parts, config.text);
  parts.scale = nullptr;  // of embeddings, once audio is in them
  parts.logits = nullptr;
  parts.fused_states = nullptr;
  return parts;
}

class GraniteSpeech final : public LanguageModel {
 public:
  GraniteSpeech(Context& context, const GraniteSpeechConfig& config, const DataConfig& data,
                const ModelOptions& options)
      : LanguageModel(context, config.names->conditional_generation, Modality::none, data, options), config_(config) {
    loss_type = LossType::shifted;
    const Builder model = root_.child("model", config.names->model);
    model_ = model.module;
    encoder_ = Encoder(model.child("encoder", config.names->encoder, Modality::vision), config.encoder, *config.names);
    projector_ = Projector(model.child("projector", config.names->projector, Modality::projector), config, options);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options,
                 text_parts(config, options));
    make_head(root_, config.text, config.tie_word_embeddings);
  }

  void make_audios(ModelInputs& batch) override {
    const std::int64_t audios = data_.audios();
    if (audios == 0) return;
    const std::int64_t states = GraniteSpeechConfig::states(data_.audio_seconds);
    batch.input_features = input({audios, states, config_.encoder.input_dim}, data_.pixel_dtype.value_or(dtype_));
    // input_features_mask, of tokens
    batch.pixel_attention_mask = input({audios, config_.tokens(data_.audio_seconds)}, DType::boolean);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    Tensor audio_embeds;
    const Tensor hidden_states = model_forward(inputs, audio_embeds);
    ModelOutputs outputs =
        inputs.labels && inputs.attention_mask
            ? attended_outputs(hidden_states, lm_head_, inputs, data_, config_.names->conditional_generation)
            : causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function);
    if (audio_embeds) outputs.others.push_back(audio_embeds);
    return outputs;
  }

 private:
  void complete(ModelInputs& batch) override { make_audios(batch); }

  // get_merged_audio_embeddings
  Tensor merge(const ModelInputs& inputs, const Tensor& audio_embeds) const {
    const Tensor& input_ids = inputs.input_ids;
    const Tensor is_audio_index = pointwise(Op::eq, {&input_ids}, DType::boolean);
    Tensor llm_input_ids;
    {
      const Tensor zero = integers(context_, Op::empty, {});
      llm_input_ids = integers(context_, Op::where, input_ids.sizes());
    }
    const Tensor inputs_embeds = language_model_.embed(llm_input_ids);
    Tensor audio_features = to(audio_embeds, inputs_embeds.dtype());
    const Tensor& input_features_mask = inputs.pixel_attention_mask;
    audio_features = index_mask(audio_features, input_features_mask, input_features_mask.numel());
    const Tensor special_audio_mask = checked_placeholder_mask(input_ids, inputs_embeds, audio_features);
    return masked_scatter(inputs_embeds, special_audio_mask, audio_features);
  }

  Tensor model_forward(const ModelInputs& inputs, Tensor& audio_embeds) const {
    ModuleCall call(context_, model_);
    const Tensor is_audio_idx = pointwise(Op::eq, {&inputs.input_ids}, DType::boolean);
    const Tensor llm_input_ids = integers(context_, Op::clone, inputs.input_ids.sizes());
    Tensor inputs_embeds = language_model_.embed(llm_input_ids);
    if (inputs.input_features) {
      const Tensor input_features = to(inputs.input_features, dtype_);
      {
        const Tensor last_hidden_state = encoder_(input_features);
        audio_embeds = projector_(last_hidden_state);
      }
      inputs_embeds = merge(inputs, audio_embeds);
    }
    Tensor scaled;
    {
      const ModuleScope scope(context_, language_model_.module);
      scaled = mul_scalar(inputs_embeds);  // embedding_multiplier
    }
    return call.result(
        run_decoder(scaled, {inputs.position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q}));
  }

  GraniteSpeechConfig config_;
  Encoder encoder_;
  Projector projector_;
  ModuleId model_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_granite_speech(Context& context, const GraniteSpeechConfig& config, const DataConfig& data,
                                            const ModelOptions& options) {
  return std::make_unique<GraniteSpeech>(context, config, data, options);
}

}  // namespace oometer
