#include "models/canary/canary.h"

#include <utility>
#include <vector>

#include "models/cross_mask.h"
#include "models/kit/copied_states.h"
#include "models/kit/norms.h"
#include "models/kit/shift_tokens.h"
#include "models/kit/text_attention.h"
#include "models/masking.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "nn/checkpointing.h"
#include "ops/integers.h"
#include "ops/ops.h"

namespace oometer {

namespace {

/// CanarySelfAttention, CanaryCrossAttention: the first has its key_value_states from the decoder itself.
struct CanaryAttention {
  CanaryAttention(const Builder& builder, const CanaryConfig& c, const ModelOptions& options, bool is_causal)
      : head_dim(c.head_size),
        call{.kind = options.attention, .causal = is_causal, .dropout = c.attention_dropout},
        module(builder.module) {
    const std::int64_t width = c.num_attention_heads * head_dim, kv_width = c.num_key_value_heads * head_dim;
    q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, width, c.attention_bias);
    k_proj = Linear(builder.child("k_proj", "Linear"), c.hidden_size, kv_width, c.attention_bias);
    v_proj = Linear(builder.child("v_proj", "Linear"), c.hidden_size, kv_width, c.attention_bias);
    o_proj = Linear(builder.child("o_proj", "Linear"), width, c.hidden_size, c.attention_bias);
  }

  AttentionOutputs operator()(const Tensor& argument, const Tensor& encoder_hidden_states, const Tensor& mask) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.keyword(argument);
    AttentionInputs states;
    if (encoder_hidden_states) {
      states.query = heads_of(q_proj(hidden_states), head_dim);
      states.key = heads_of(k_proj(encoder_hidden_states), head_dim);
      states.value = heads_of(v_proj(encoder_hidden_states), head_dim);
    } else {
      states = project(hidden_states, q_proj, k_proj, v_proj, head_dim, true);
    }
    AttentionOutputs attention = attend(call, 0, states, {}, mask);
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  std::int64_t head_dim;
  Linear q_proj, k_proj, v_proj, o_proj;
  AttentionCall call;
  ModuleId module;
};

struct CanaryDecoderMLP {
  CanaryDecoderMLP(const Builder& builder, const CanaryConfig& c)
      : activation_fn(c.hidden_act),
        fc1(builder.child("fc1", "Linear"), c.hidden_size, c.intermediate_size, true),
        fc2(builder.child("fc2", "Linear"), c.intermediate_size, c.hidden_size, true),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = fc1(call.argument(argument));
    hidden_states = activate(activation_fn, hidden_states);
    hidden_states = fc2(hidden_states);
    return call.result(hidden_states);
  }

  Activation activation_fn;
  Linear fc1, fc2;
  ModuleId module;
};

struct CanaryDecoderLayer {
  CanaryDecoderLayer(const Builder& builder, const CanaryConfig& c, const ModelOptions& options)
      : self_attn(builder.child("self_attn", c.names->self_attention), c, options, true),
        encoder_attn(builder.child("encoder_attn", c.names->cross_attention), c, options, false),
        mlp(builder.child("mlp", c.names->mlp), c),
        input_layernorm(builder.child("input_layernorm", "LayerNorm"), c.hidden_size),
        post_attention_layernorm(builder.child("post_attention_layernorm", "LayerNorm"), c.hidden_size),
        final_layernorm(builder.child("final_layernorm", "LayerNorm"), c.hidden_size),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const Tensor& mask, const Tensor& encoder_hidden_states,
                    const Tensor& encoder_attention_mask) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in, weights;  // `_`
    Tensor hidden_states = input_layernorm(hidden_in);
    const auto attend_with = [&](const CanaryAttention& attention, const Tensor& keys, const Tensor& its_mask) {
      AttentionOutputs outputs = attention(hidden_states, keys, its_mask);
      hidden_states = std::move(outputs.output);
      weights = std::move(outputs.weights);
      hidden_states = add(residual, hidden_states);
      residual = hidden_states;
    };
    attend_with(self_attn, {}, mask);
    hidden_states = post_attention_layernorm(hidden_states);
    attend_with(encoder_attn, encoder_hidden_states, encoder_attention_mask);
    hidden_states = final_layernorm(hidden_states);
    hidden_states = mlp(hidden_states);
    return add(residual, hidden_states);
  }

  CanaryAttention self_attn, encoder_attn;
  CanaryDecoderMLP mlp;
  LayerNorm input_layernorm, post_attention_layernorm, final_layernorm;
  ModuleId module;
};

/// CanaryPositionalEmbedding.compute_default_singular_positional_embedding, on the device where the model is made.
Tensor make_sines(const Builder& builder, const CanaryConfig& c) {
  Context& context = *builder.context;
  const std::int64_t length = c.max_position_embeddings, half = c.hidden_size / 2;
  const auto floats = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::float32); };
  Tensor inv_timescales = integers(context, Op::arange, {half});
  for (const Op op : {Op::to_copy, Op::mul, Op::exp}) inv_timescales = floats(op, {half});
  Tensor scaled_time;
  {
    const Tensor positions = integers(context, Op::arange, {length});
    scaled_time = floats(Op::mul, {length, half});
  }
  const Tensor sin = floats(Op::sin, {length, half}), cos = floats(Op::cos, {length, half});
  return builder.buffer({length, 2 * half}, DType::float32);
}

struct CanaryDecoder {
  CanaryDecoder() = default;
  CanaryDecoder(const Builder& builder, const CanaryConfig& c, const ModelOptions& options)
      : embed_tokens(builder.child("embed_tokens", "Embedding"), c.vocab_size, c.hidden_size),
        blocks(builder),
        masked(masked_by(options.attention)),
        checkpointing(options.checkpointing),
        module(builder.module) {
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(builder.child("layers", c.names->decoder_layer, i), c, options);
      blocks.add_block(builder);
    }
    norm = LayerNorm(builder.child("norm", "LayerNorm"), c.hidden_size);
    // Its place is that of the embedding that CohereAsrDecoder has.
    const Builder positions = builder.child("pos_emb", c.names->sinusoids ? c.names->sinusoids : "Embedding");
    pos_emb = positions.module;
    if (c.names->sinusoids)
      sines = make_sines(positions, c);
    else
      learned = Embedding(positions, c.max_position_embeddings, c.hidden_size);
    embedding_layernorm = LayerNorm(builder.child("embedding_layernorm", "LayerNorm"), c.hidden_size);
    if (!c.names->sinusoids) proj = Linear(builder.child("proj", "Linear"), c.encoder.hidden_size, c.hidden_size, true);
  }

  Tensor operator()(const Tensor& input_ids, const Tensor& states, const MaskArguments& source) const {
    Context& context = input_ids.context();
    ModuleCall call(context, module);
    const Tensor encoder_hidden_states = sines ? states : proj(states);
    Tensor inputs_embeds = embed_tokens(
        input_ids, [&](Tensor& embeddings) { require_input_grad(checkpointing, embeddings, embed_tokens.module); });
    Tensor position_ids;
    {
      const Tensor range = integers(context, Op::arange, {input_ids.size(1)});
      position_ids = integers(context, Op::add, {1, input_ids.size(1)});
    }
    Tensor positions = embed_positions(view(position_ids, {input_ids.size(1)}));
    if (sines) positions = to(positions, inputs_embeds.dtype());
    {
      const Tensor with_positions = add(inputs_embeds, positions);
      inputs_embeds = embedding_layernorm(with_positions);
    }
    const Tensor causal_mask = create_causal_mask(inputs_embeds, {position_ids, {}}, masked);
    const Tensor encoder_attention_mask = create_cross_mask(inputs_embeds, encoder_hidden_states, source, masked);
    Tensor hidden_states = inputs_embeds;
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], causal_mask, encoder_hidden_states, encoder_attention_mask,
              position_ids](const Tensor& hidden) {
        return layer(hidden, causal_mask, encoder_hidden_states, encoder_attention_mask);
      };
    };
    hidden_states = blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block, {.positional = true});
    hidden_states = norm(hidden_states);
    return call.result(hidden_states);
  }

  Tensor embed_positions(const Tensor& position_ids) const {
    if (!sines) return learned(position_ids);
    Context& context = position_ids.context();
    ModuleCall call(context, pos_emb);
    const Shape sizes{position_ids.size(0), sines.size(1)};
    const Tensor rows = empty(context, Op::index, sizes, DType::float32);
    return call.result(empty(context, Op::div, sizes, DType::float32));
  }

  Embedding embed_tokens;
  std::vector<CanaryDecoderLayer> layers;
  BlockStack blocks;
  LayerNorm norm;
  ModuleId pos_emb = 0;
  Tensor sines;  ///< null: they are learned
  Embedding learned;
  LayerNorm embedding_layernorm;
  Linear proj;
  MaskedBy masked = MaskedBy::sdpa;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

class CanaryForConditionalGeneration : public EncoderModel {
 public:
  CanaryForConditionalGeneration(Context& context, const CanaryConfig& c, const DataConfig& data,
                                 const ModelOptions& options)
      : EncoderModel(context, c, data, options),
        config_(c),
        dtype_(options.dtype),
        is_reentrant_(options.checkpointing.mode == CheckpointMode::reentrant),
        use_cache_(c.use_cache && options.checkpointing.mode == CheckpointMode::none) {
    loss_type = LossType::masked_lm;  // ForCausalLMLoss with labels that are shifted already: the same
    ModelOptions its = options;
    if (is_reentrant_) its.checkpointing.mode = CheckpointMode::none;  // it is refused
    const Builder model = root_.child("model", c.names->model);
    model_ = model.module;
    encoder_ = make_parakeet_encoder(model.child("encoder", "ParakeetEncoder"), c.encoder, its);
    decoder_ = CanaryDecoder(model.child("decoder", c.names->decoder), c, its);
    decoder_.blocks.first_block = static_cast<std::size_t>(c.encoder.num_hidden_layers);
    proj_out_ = Linear(root_.child("proj_out", "Linear"), c.hidden_size, c.vocab_size, true);
    if (c.tie_word_embeddings) tie_decoder(proj_out_, decoder_.embed_tokens);
  }

  ModelInputs make_inputs(bool with_labels) override {
    const Shape frames{data_.micro_batch_size, ParakeetConfig::frames(data_.audio_seconds)};
    ModelInputs batch;
    batch.input_features = empty(context_, Op::input, {frames[0], frames[1], config_.encoder.num_mel_bins},
                                 data_.pixel_dtype.value_or(dtype_), Role::input);
    batch.attention_mask = empty(context_, Op::input, frames, DType::boolean, Role::input);
    Tensor& targets = with_labels ? batch.labels : batch.input_ids;
    targets = empty(context_, Op::input, {data_.micro_batch_size, data_.sequence_length}, DType::int64, Role::input);
    batch.rows = &data_.rows;
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    if (is_reentrant_)
      context_.refusal =
          Error{"not-modelled", "/training/activation_checkpointing",
                "found \"reentrant\", which is not supported yet with decoders that see an encoder's states; expected "
                "\"non-reentrant\""};
    if (!config_.names->sinusoids && data_.audio_seconds > 30)  // CohereAsrFeatureExtractor
      context_.refusal = Error{"not-modelled", "/data/audio_seconds",
                               "found audio that the processor cuts into clips of its own, which is not supported yet; "
                               "expected at most 30 seconds"};
    const Tensor decoder_input_ids = inputs.labels ? shift_tokens_right(inputs.labels) : inputs.input_ids;
    TensorList cached;
    Tensor encoder_states, output_mask, decoder_states;
    {
      ModuleCall call(context_, model_);
      encoder_states = (*encoder_)(inputs.input_features, inputs.attention_mask, output_mask);
      Rows rows;
      rows.has_mask = true;
      rows.documents.assign(static_cast<std::size_t>(output_mask.size(0)),
                            {config_.encoder.subsampled(ParakeetConfig::attended_frames(data_.audio_seconds))});
      MaskArguments source;
      source.attention_mask = output_mask;
      source.rows = &rows;
      CopiedStates cache(cached);
      const Scoped<KvCache*> with_cache(context_.past_key_values, use_cache_ ? &cache : context_.past_key_values);
      decoder_states = call.result(decoder_(decoder_input_ids, encoder_states, source));
    }
    output_mask.reset();
    ModelOutputs outputs = outputs_of(proj_out_(decoder_states), inputs);
    for (std::size_t i = 0; i < cached.size(); ++i) outputs.others.push_back(cached[i]);
    outputs.others.push_back(std::move(encoder_states));
    return outputs;
  }

 private:
  CanaryConfig config_;
  DType dtype_;
  bool is_reentrant_, use_cache_;
  ModuleId model_ = 0;
  std::unique_ptr<ParakeetStates> encoder_;
  CanaryDecoder decoder_;
  Linear proj_out_;
};

}  // namespace

std::unique_ptr<Model> build_canary(Context& context, const CanaryConfig& config, const DataConfig& data,
                                    const ModelOptions& options) {
  return std::make_unique<CanaryForConditionalGeneration>(context, config, data, options);
}

}  // namespace oometer
