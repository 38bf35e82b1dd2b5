#include "models/modernbert/modernbert.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "nn/activation.h"
#include "ops/ops.h"

namespace oometer {

ModernBertEncoderLayer::ModernBertEncoderLayer(const Builder& builder, const ModernBertConfig& c,
                                               const ModelOptions& options, bool is_first)
    : call_{.kind = options.attention, .dropout = c.attention_dropout},
      head_dim_(c.head_dim()),
      module_(builder.module) {
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, "LayerNorm"), torch_layer_norm, {c.hidden_size}, c.norm_bias);
  };
  if (!is_first) attn_norm_ = norm("attn_norm");
  const Builder attn = builder.child("attn", "ModernBertAttention");
  attn_module_ = attn.module;
  qkv_ = Linear(attn.child("Wqkv", "Linear"), c.hidden_size, 3 * c.hidden_size, c.attention_bias);
  attn_out_ = Linear(attn.child("Wo", "Linear"), c.hidden_size, c.hidden_size, c.attention_bias);
  mlp_norm_ = norm("mlp_norm");
  mlp_.emplace(builder.child("mlp", "ModernBertMLP"), c.hidden_size, c.intermediate_size, c.mlp_bias);
  mlp_->dropout = c.mlp_dropout;
  mlp_->act = c.hidden_act;
}

namespace {

/// (x.float() * cos) + (rotate_half(x.float()) * sin)
Tensor rotate_in_float32(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  Tensor straight = to(x, DType::float32);
  straight = mul(straight, cos);
  Tensor turned = to(x, DType::float32);
  turned = rotate_half(turned);
  turned = mul(turned, sin);
  return add(straight, turned);
}

}  // namespace

std::pair<Tensor, Tensor> rotate_as_modernbert(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions) {
  const Tensor cos = unsqueeze(positions.cos, 1), sin = unsqueeze(positions.sin, 1);
  const Tensor q_embed = rotate_in_float32(q, cos, sin), k_embed = rotate_in_float32(k, cos, sin);
  Tensor query = to(q_embed, q.dtype()), key = to(k_embed, k.dtype());
  return {std::move(query), std::move(key)};
}

Tensor ModernBertEncoderLayer::attn(const Tensor& argument, const PositionEmbeddings& positions,
                                    const Tensor& attention_mask, Tensor& weights) const {
  ModuleCall self(argument.context(), attn_module_);
  const Tensor hidden_states = self.argument(argument);
  const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1), hidden = hidden_states.size(2);
  Tensor qkv = qkv_(hidden_states);
  qkv = view(qkv, {batch, length, 3, hidden / head_dim_, head_dim_});
  AttentionInputs states;
  {
    const TensorList parts = unbind(qkv, 2);
    states = {parts[0], parts[1], parts[2]};
  }
  for (Tensor* heads : {&states.query, &states.key, &states.value}) *heads = transpose(*heads, 1, 2);
  std::tie(states.query, states.key) = rotate_as_modernbert(states.query, states.key, positions);
  AttentionOutputs attention = attend(call_, 0, states, {.cos = {}, .sin = {}, .rows = positions.rows}, attention_mask);
  const Tensor projected = attn_out_(attention.output);
  weights = std::move(attention.weights);
  return self.result(dropout(projected, call_.dropout));
}

ModernBertMLP::ModernBertMLP(const Builder& builder, std::int64_t hidden_size, std::int64_t intermediate_size,
                             bool bias)
    : in(builder.child("Wi", "Linear"), hidden_size, 2 * intermediate_size, bias),
      out(builder.child("Wo", "Linear"), intermediate_size, hidden_size, bias),
      module(builder.module) {}

Tensor ModernBertMLP::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor input, gate;
  {
    const Tensor joined = in(call.argument(argument));
    const std::int64_t half = joined.size(-1) / 2;
    const TensorList halves = split(joined, {half, half}, -1);
    input = halves[0];
    gate = halves[1];
  }
  Tensor activated = activate(act, input);
  activated = mul(activated, gate);
  activated = oometer::dropout(activated, dropout);
  return call.result(out(activated));
}

Tensor ModernBertEncoderLayer::operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                                          const Tensor& attention_mask) const {
  const ModuleScope scope(hidden_in.context(), module_);
  Tensor weights;  // `_`
  Tensor attn_output = attn_norm_ ? attn_norm_(hidden_in) : hidden_in;
  attn_output = attn(attn_output, positions, attention_mask, weights);
  const Tensor hidden_states = add(hidden_in, attn_output);
  Tensor mlp_output = mlp_norm_(hidden_states);
  mlp_output = (*mlp_)(mlp_output);
  return add(hidden_states, mlp_output);
}

ModernBertModel::ModernBertModel(const Builder& builder, const ModernBertConfig& c, const ModelOptions& options)
    : slides(c.slides),
      sliding_window(c.sliding_window),
      embedding_dropout(c.embedding_dropout),
      masked(masked_by(options.attention)),
      checkpointing(options.checkpointing),
      module(builder.module) {
  const Builder embeddings_builder = builder.child("embeddings", "ModernBertEmbeddings");
  embeddings = embeddings_builder.module;
  tok_embeddings = Embedding(embeddings_builder.child("tok_embeddings", "Embedding"), c.vocab_size, c.hidden_size);
  norm = Norm(embeddings_builder.child("norm", "LayerNorm"), torch_layer_norm, {c.hidden_size}, c.norm_bias);
  blocks = BlockStack(builder);
  layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
  for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
    layers.emplace_back(builder.child("layers", "ModernBertEncoderLayer", i), c, options, i == 0);
    blocks.add_block(builder);
  }
  final_norm = Norm(builder.child("final_norm", "LayerNorm"), torch_layer_norm, {c.hidden_size}, c.norm_bias);
  LlamaConfig rotated;
  rotated.head_dim = c.head_dim();
  const Builder rotary = builder.child("rotary_emb", "ModernBertRotaryEmbedding");
  if (std::find(slides.begin(), slides.end(), false) != slides.end())
    full_rotary = LlamaRotaryEmbedding(rotary, rotated);
  if (std::find(slides.begin(), slides.end(), true) != slides.end())
    sliding_rotary = LlamaRotaryEmbedding(rotary, rotated);
}

Tensor ModernBertModel::operator()(const ModelInputs& inputs) const {
  Context& context = inputs.input_ids.context();
  ModuleCall call(context, module);
  Tensor position_ids = empty(context, Op::arange, {inputs.input_ids.size(1)}, DType::int64);
  position_ids = unsqueeze(position_ids, 0);
  Tensor hidden_states;
  {
    ModuleCall embed(context, embeddings);
    hidden_states = tok_embeddings(inputs.input_ids, [&](Tensor& embedded) {
      require_input_grad(checkpointing, embedded, tok_embeddings.module);
    });
    hidden_states = norm(hidden_states);
    hidden_states = embed.result(dropout(hidden_states, embedding_dropout));
  }
  const Tensor inputs_embeds = hidden_states;  // of mask_kwargs
  const MaskArguments given{{}, inputs.attention_mask, inputs.rows};
  const Tensor full_attention = create_bidirectional_mask(hidden_states, given, masked);
  const Tensor sliding_attention = create_bidirectional_mask(hidden_states, given, masked, sliding_window);
  const auto embed_positions = [&](const LlamaRotaryEmbedding& rotary) {
    PositionEmbeddings made = rotary.inv_freq ? rotary(hidden_states, position_ids) : PositionEmbeddings();
    made.rows = inputs.rows;
    return made;
  };
  const PositionEmbeddings full_positions = embed_positions(full_rotary);
  const PositionEmbeddings sliding_positions = embed_positions(sliding_rotary);
  const auto block = [&](std::size_t i) -> BlockStack::Forward {
    return [&layer = layers[i], attention_mask = slides[i] ? sliding_attention : full_attention,
            positions = slides[i] ? sliding_positions : full_positions](const Tensor& hidden) {
      return layer(hidden, positions, attention_mask);
    };
  };
  const auto kind = [&](std::size_t i) { return i == 0 ? 2 : int{slides[i]}; };  // the first has no norm
  hidden_states = blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block, {.kind = kind});
  return call.result(final_norm(hidden_states));
}

ModernBertPredictionHead::ModernBertPredictionHead(const Builder& builder, std::int64_t hidden_size, bool bias,
                                                   bool norm_bias, Activation its_act)
    : dense(builder.child("dense", "Linear"), hidden_size, hidden_size, bias),
      norm(builder.child("norm", "LayerNorm"), torch_layer_norm, {hidden_size}, norm_bias),
      act(its_act),
      module(builder.module) {}

Tensor ModernBertPredictionHead::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor hidden_states = dense(call.argument(argument));
  hidden_states = activate(act, hidden_states);
  return call.result(norm(hidden_states));
}

namespace {

class ModernBertFor : public EncoderModel {
 public:
  ModernBertFor(Context& context, const ModernBertConfig& c, const DataConfig& data, const ModelOptions& options)
      : EncoderModel(context, c, data, options),
        pools_mean_(c.pools_mean),
        classifier_dropout_(c.classifier_dropout),
        model_(head_ == EncoderHead::none ? root_ : root_.child("model", "ModernBertModel"), c, options) {
    if (head_ == EncoderHead::none) return;
    head_module_ = ModernBertPredictionHead(root_.child("head", "ModernBertPredictionHead"), c.hidden_size,
                                            c.classifier_bias, c.norm_bias, c.classifier_activation);
    if (head_ == EncoderHead::masked_lm) {
      loss_type = LossType::masked_lm;
      decoder_ = Linear(root_.child("decoder", "Linear"), c.hidden_size, c.vocab_size, c.decoder_bias);
      if (c.tie_word_embeddings) tie_decoder(decoder_, model_.tok_embeddings);
    } else {
      decoder_ = Linear(root_.child("classifier", "Linear"), c.hidden_size, c.num_labels, true);
    }
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const Tensor outputs = model_(inputs);
    if (head_ == EncoderHead::none) return {{}, {}, {outputs}};
    Tensor last_hidden_state = outputs, pooled_output, attention_mask = inputs.attention_mask;
    if (head_ == EncoderHead::masked_lm) return outputs_of(decoder_(head_module_(last_hidden_state)), inputs);
    if (head_ == EncoderHead::sequence_classification)
      last_hidden_state = pools_mean_ ? mean_of(last_hidden_state, attention_mask) : select(last_hidden_state, 1, 0);
    Tensor& headed = head_ == EncoderHead::sequence_classification ? pooled_output : last_hidden_state;
    headed = head_module_(last_hidden_state);
    headed = dropout(headed, classifier_dropout_);
    return outputs_of(decoder_(headed), inputs);
  }

 private:
  /// (last_hidden_state * attention_mask.unsqueeze(-1)).sum(dim=1) / attention_mask.sum(dim=1, keepdim=True)
  Tensor mean_of(const Tensor& last_hidden_state, Tensor& attention_mask) const {
    const Shape tokens{last_hidden_state.size(0), last_hidden_state.size(1)};
    if (!attention_mask) attention_mask = empty(context_, Op::ones_like, tokens, DType::boolean);
    Tensor total;
    {
      const Tensor attended = mul(last_hidden_state, unsqueeze(attention_mask, -1));
      total = sum(attended, {1}, false);
    }
    const Tensor count = reduce(Op::sum, attention_mask, {1}, true, DType::int64);
    return div(total, count);
  }

  bool pools_mean_ = false;
  double classifier_dropout_ = 0;
  ModernBertModel model_;
  ModernBertPredictionHead head_module_;
  Linear decoder_;  ///< or the classifier
};

}  // namespace

std::unique_ptr<Model> build_modernbert(Context& context, const ModernBertConfig& config, const DataConfig& data,
                                        const ModelOptions& options) {
  return std::make_unique<ModernBertFor>(context, config, data, options);
}

}  // namespace oometer
