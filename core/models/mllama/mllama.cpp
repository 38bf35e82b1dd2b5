#include "models/mllama/mllama.h"

#include <utility>

#include "models/kit/decoder.h"
#include "models/llama/llama.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

/// What layers see of images. `full_text_row_masked_out_mask`: [b, 1, s, 1], 0 where a token sees none.
struct CrossAttentionStates {
  Tensor states, mask, full_text_row_masked_out_mask;
};

/// MllamaTextCrossAttention
struct MllamaTextCrossAttention {
  MllamaTextCrossAttention() = default;
  MllamaTextCrossAttention(const Builder& builder, const LlamaConfig& config, AttentionKind kind)
      : head_dim(config.head_dim), call{kind, false, config.attention_dropout}, module(builder.module) {
    const std::int64_t width = config.hidden_size, of_queries = config.num_attention_heads * head_dim,
                       of_keys = config.num_key_value_heads * head_dim;
    q_proj = Linear(builder.child("q_proj", "Linear"), width, of_queries, false);
    k_proj = Linear(builder.child("k_proj", "Linear"), width, of_keys, false);
    v_proj = Linear(builder.child("v_proj", "Linear"), width, of_keys, false);
    o_proj = Linear(builder.child("o_proj", "Linear"), of_queries, width, false);
    q_norm = LlamaRMSNorm(builder.child("q_norm", config.names->rms_norm), head_dim);
    k_norm = LlamaRMSNorm(builder.child("k_norm", config.names->rms_norm), head_dim);
  }

  AttentionOutputs operator()(const Tensor& given, const CrossAttentionStates& cross) const {
    ModuleCall self(given.context(), module);
    const Tensor hidden_states = self.keyword(given);
    const std::int64_t bsz = hidden_states.size(0), q_len = hidden_states.size(1);
    Tensor query_states = q_proj(hidden_states);
    query_states = heads_of(query_states, head_dim);
    query_states = q_norm(query_states);
    const Tensor cross_attention_states = self.keyword(cross.states);
    Tensor key_states = k_proj(cross_attention_states), value_states = v_proj(cross_attention_states);
    const auto of_samples = [&](const Tensor& states) {
      const std::int64_t tokens = checked_product(states.size(0), states.size(1)) / bsz;
      return transpose(view(states, {bsz, tokens, states.size(2) / head_dim, head_dim}), 1, 2);
    };
    key_states = of_samples(key_states);
    value_states = of_samples(value_states);
    key_states = k_norm(key_states);
    AttentionOutputs attention = attention_forward(call, query_states, key_states, value_states, cross.mask);
    attention.output = reshape(attention.output, {bsz, q_len, q_proj.weight.size(0)});
    attention.output = o_proj(attention.output);
    return {self.result(attention.output), attention.weights};
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  LlamaRMSNorm q_norm, k_norm;
  std::int64_t head_dim = 0;
  AttentionCall call;
  ModuleId module = 0;
};

/// MllamaCrossAttentionDecoderLayer
struct MllamaCrossAttentionDecoderLayer {
  MllamaCrossAttentionDecoderLayer(const Builder& builder, const LlamaConfig& config, const ModelOptions& options)
      : cross_attn(builder.child("cross_attn", "MllamaTextCrossAttention"), config, options.attention),
        input_layernorm(builder.child("input_layernorm", config.names->rms_norm), config.hidden_size),
        module(builder.module) {
    builder.children_are_through();
    cross_attn_attn_gate = builder.parameter("cross_attn_attn_gate", {1});
    mlp = LlamaMLP(builder.child("mlp", config.names->mlp), config);
    post_attention_layernorm =
        LlamaRMSNorm(builder.child("post_attention_layernorm", config.names->rms_norm), config.hidden_size);
    builder.children_are_through();
    cross_attn_mlp_gate = builder.parameter("cross_attn_mlp_gate", {1});
  }

  Tensor operator()(const Tensor& hidden_in, const CrossAttentionStates& cross) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor hidden_states = input_layernorm(hidden_in);
    AttentionOutputs attention = cross_attn(hidden_states, cross);  // the weights stay until the layer returns
    hidden_states = std::move(attention.output);
    const auto add_gated = [&](const Tensor& residual, const Tensor& gate) {
      Tensor gated;
      {
        const Tensor opened = tanh(gate);
        gated = mul(opened, hidden_states);
      }
      hidden_states = add(residual, gated);
    };
    add_gated(hidden_in, cross_attn_attn_gate);
    const Tensor residual = hidden_states;
    hidden_states = post_attention_layernorm(hidden_states);
    hidden_states = mlp(hidden_states);
    hidden_states = mul(select(cross.full_text_row_masked_out_mask, 1, 0), hidden_states);
    add_gated(residual, cross_attn_mlp_gate);
    return hidden_states;
  }

  MllamaTextCrossAttention cross_attn;
  LlamaRMSNorm input_layernorm, post_attention_layernorm;
  Tensor cross_attn_attn_gate, cross_attn_mlp_gate;
  LlamaMLP mlp;
  ModuleId module = 0;
};

// _prepare_cross_attention_mask, of [b, s, images, tiles]: null states, the masks.
CrossAttentionStates prepare_cross_attention_mask(const Tensor& given, std::int64_t num_vision_tokens, DType dtype) {
  Context& context = given.context();
  const std::int64_t batch_size = given.size(0), length = given.size(1);
  Tensor mask = repeat_interleave(given, num_vision_tokens, 3);
  mask = unsqueeze(view(mask, {batch_size, length, checked_product(mask.size(2), mask.size(3))}), 1);
  // invert the mask
  Tensor inverted;
  {
    inverted = empty(context, Op::sub, mask.sizes(), DType::float32);
    inverted = to(inverted, dtype);
  }
  {
    const Tensor hidden = empty(context, Op::to_copy, inverted.sizes(), DType::boolean);
    mask = empty(context, Op::masked_fill, inverted.sizes(), dtype);
  }
  // apply full-row bias
  Tensor rows;
  {
    Tensor is_seen = pointwise(Op::ne, {&mask}, DType::boolean);
    is_seen = all(Op::any, is_seen, {3}, false);
    rows = unsqueeze(to(is_seen, dtype), 3);
  }
  return {{}, mask, rows};
}

/// What only this class is called with, by the names in a batch that say nearly the same: how an image's tiles lie,
/// which of them are none, and which tiles of the images a token sees.
template <typename Inputs>
auto& aspect_ratio_ids(Inputs& inputs) {
  return inputs.image_grid_thw;
}
template <typename Inputs>
auto& aspect_ratio_mask(Inputs& inputs) {
  return inputs.pixel_attention_mask;
}
template <typename Inputs>
auto& cross_attention_mask(Inputs& inputs) {
  return inputs.mm_token_type_ids;
}

/// MllamaForConditionalGeneration
class Mllama : public LanguageModel {
 public:
  Mllama(Context& context, const MllamaConfig& config, const DataConfig& data, const ModelOptions& options)
      : LanguageModel(context, config.text.names->causal_lm, Modality::none, data, options), config_(config) {
    const Builder model = root_.child("model", "MllamaModel");
    model_ = model.module;
    vision_model_ =
        MllamaVisionModel(model.child("vision_model", "MllamaVisionModel", Modality::vision), config.vision, options);
    make_text_model(model.child("language_model", config.text.names->model, Modality::language), options);
    multi_modal_projector_ = Linear(model.child("multi_modal_projector", "Linear", Modality::projector),
                                    config.vision.output_dim(), config.text.hidden_size, true);
    make_head(root_, config.text, false);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const Tensor hidden_states = model_forward(inputs);
    return causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function);
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    data_.images_per_sample = images_per_sample;
    if (data_.images() == 0) return;
    const MllamaVisionConfig& v = config_.vision;
    const std::int64_t samples = data_.micro_batch_size;
    batch.pixel_values =
        input({samples, images_per_sample, v.max_num_tiles, v.num_channels, v.image_size, v.image_size},
              data_.pixel_dtype.value_or(dtype_));
    aspect_ratio_ids(batch) = input({samples, images_per_sample});
    aspect_ratio_mask(batch) = input({samples, images_per_sample, v.max_num_tiles});
    cross_attention_mask(batch) = input({samples, data_.sequence_length, images_per_sample, v.max_num_tiles});
  }

 private:
  void complete(ModelInputs& batch) override { make_images(batch, data_.images_per_sample); }

  // MllamaTextModel.__init__
  void make_text_model(const Builder& builder, const ModelOptions& options) {
    const LlamaConfig& c = config_.text;
    Decoder& decoder = language_model_;
    decoder.module = builder.module;
    decoder.checkpointing = options.checkpointing;
    decoder.masked = masked_by(options.attention);
    decoder.embed_tokens = Embedding(builder.child("embed_tokens", "Embedding"), c.vocab_size + 8, c.hidden_size);
    decoder.blocks = BlockStack(builder);
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      const bool crosses = config_.has_cross_attention[static_cast<std::size_t>(i)];
      const Builder layer =
          builder.child("layers", crosses ? "MllamaCrossAttentionDecoderLayer" : c.names->decoder_layer, i);
      decoder.layers.push_back(crosses ? nullptr : std::make_unique<LlamaDecoderLayer>(layer, c, options));
      cross_layers_.push_back(crosses ? std::make_unique<MllamaCrossAttentionDecoderLayer>(layer, c, options)
                                      : nullptr);
      decoder.blocks.add_block(builder);
    }
    decoder.norm = [norm = LlamaRMSNorm(builder.child("norm", c.names->rms_norm), c.hidden_size)](const Tensor& x) {
      return norm(x);
    };
    decoder.rotary_emb = LlamaRotaryEmbedding(builder.child("rotary_emb", c.names->rotary_embedding), c);
  }

  // MllamaModel.forward
  Tensor model_forward(const ModelInputs& inputs) const {
    ModuleCall call(context_, model_);
    const Tensor vision_outputs =
        vision_model_(inputs.pixel_values, aspect_ratio_ids(inputs), aspect_ratio_mask(inputs));
    Tensor cross_attention_states = multi_modal_projector_(vision_outputs);
    cross_attention_states =
        reshape(cross_attention_states, {checked_product(data_.images(), config_.vision.max_num_tiles),
                                         config_.vision.num_patches(), config_.text.hidden_size});
    CrossAttentionStates cross =
        prepare_cross_attention_mask(cross_attention_mask(inputs), config_.vision.num_patches(), dtype_);
    cross.states = std::move(cross_attention_states);
    return call.result(text_forward(inputs, cross));
  }

  // MllamaTextModel.forward
  Tensor text_forward(const ModelInputs& inputs, const CrossAttentionStates& cross) const {
    const Decoder& decoder = language_model_;
    ModuleCall call(context_, decoder.module);
    // Each layer's recomputation would run backward through the tower, which the first one frees.
    if (decoder.checkpointing.mode == CheckpointMode::reentrant)
      context_.refusal = Error{"inconsistent", "/training/activation_checkpointing",
                               "found \"reentrant\", with which several layers cannot see the same images; expected "
                               "\"non-reentrant\""};
    const Tensor inputs_embeds = decoder.embed(inputs.input_ids);
    Tensor hidden_states = inputs_embeds;
    MaskArguments given{inputs.position_ids, inputs.attention_mask, inputs.rows};
    if (!given.position_ids) given.position_ids = decoder.positions(context_, inputs_embeds.size(1));
    const Tensor causal_mask = create_causal_mask(inputs_embeds, given, decoder.masked);
    PositionEmbeddings positions = decoder.rotary_emb(hidden_states, given.position_ids);
    positions.position_ids = given.position_ids;
    // Each layer gets all of it, whichever it is.
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [layer = decoder.layers[i].get(), cross_layer = cross_layers_[i].get(), positions, causal_mask,
              cross](const Tensor& hidden) {
        return cross_layer ? (*cross_layer)(hidden, cross) : (*layer)(hidden, positions, causal_mask);
      };
    };
    const auto kind = [&](std::size_t i) { return int{cross_layers_[i] != nullptr}; };
    hidden_states = decoder.blocks.run(0, decoder.layers.size(), std::move(hidden_states), decoder.checkpointing, block,
                                       {.kind = kind});
    return call.result(decoder.norm(hidden_states));
  }

  MllamaConfig config_;
  ModuleId model_ = 0;
  MllamaVisionModel vision_model_;
  std::vector<std::unique_ptr<MllamaCrossAttentionDecoderLayer>> cross_layers_;  ///< by layer; null: it has another
  Linear multi_modal_projector_;
};

}  // namespace

std::unique_ptr<Model> build_mllama(Context& context, const MllamaConfig& config, const DataConfig& data,
                                    const ModelOptions& options) {
  return std::make_unique<Mllama>(context, config, data, options);
}

}  // namespace oometer
