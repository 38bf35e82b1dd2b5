#include "models/nomic_bert/nomic_bert.h"

#include <tuple>
#include <utility>

#include "models/kit/text_attention.h"
#include "nn/wrapped_call.h"
#include "ops/ops.h"

namespace oometer {

NomicBertEmbeddings::NomicBertEmbeddings(const Builder& builder, const BertConfig& c, const ModelOptions& options,
                                         const NomicBertVariant& its)
    : word_embeddings(builder.child("word_embeddings", "Embedding"), c.vocab_size, c.hidden_size),
      token_type_embeddings(builder.child("token_type_embeddings", "Embedding"), c.type_vocab_size, c.hidden_size),
      layer_norm(builder.child("LayerNorm", "LayerNorm"), c.hidden_size),
      hidden_dropout_prob(c.hidden_dropout_prob),
      names_type_embeddings(its.names_type_embeddings),
      checkpointing(options.checkpointing),
      module(builder.module) {
  for (int i = 0; its.keeps_buffers && i < 2; ++i) builder.buffer({1, c.max_position_embeddings}, DType::int64);
}

Tensor NomicBertEmbeddings::operator()(const Tensor& input_ids) const {
  Context& context = input_ids.context();
  ModuleCall call(context, module);
  Tensor embeddings = word_embeddings(
      input_ids, [&](Tensor& embedded) { require_input_grad(checkpointing, embedded, word_embeddings.module); });
  const Tensor token_type_ids = empty(context, Op::zeros, input_ids.sizes(), DType::int64);
  Tensor its_token_type_embeddings = token_type_embeddings(token_type_ids);
  embeddings = add(embeddings, its_token_type_embeddings);
  if (!names_type_embeddings) its_token_type_embeddings.reset();
  embeddings = layer_norm(embeddings);
  return call.result(dropout(embeddings, hidden_dropout_prob));
}

NomicBertLayer::NomicBertLayer(const Builder& builder, const BertConfig& c, const ModelOptions& options,
                               const NomicBertVariant& its)
    : post_attention_layernorm(builder.child("post_attention_layernorm", "LayerNorm"), c.hidden_size),
      mlp(its.make_mlp(builder.child("mlp", c.names->intermediate), c)),
      head_dim(c.head_dim()),
      hidden_dropout(c.hidden_dropout_prob),
      call{.kind = options.attention, .dropout = c.attention_probs_dropout_prob},
      module(builder.module) {
  const Builder attn = builder.child("self_attn", c.names->attention);
  self_attn = attn.module;
  for (auto [projection, name] : {std::pair{&q_proj, "q_proj"}, std::pair{&k_proj, "k_proj"},
                                  std::pair{&v_proj, "v_proj"}, std::pair{&o_proj, "o_proj"}})
    *projection = Linear(attn.child(name, "Linear"), c.hidden_size, c.hidden_size, its.has_bias);
  post_mlp_layernorm = LayerNorm(builder.child("post_mlp_layernorm", "LayerNorm"), c.hidden_size);
}

AttentionOutputs NomicBertLayer::attend_to(const Tensor& argument, const PositionEmbeddings& positions,
                                           const Tensor& attention_mask) const {
  ModuleCall self(argument.context(), self_attn);
  AttentionInputs states = project(self.argument(argument), q_proj, k_proj, v_proj, head_dim, false);
  std::tie(states.query, states.key) = rotate_halves(states.query, states.key, positions);
  AttentionOutputs attention = attend(call, 0, states, positions, attention_mask, eager_in_own_type);
  attention.output = self.result(o_proj(attention.output));
  return attention;
}

Tensor NomicBertLayer::operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                                  const Tensor& attention_mask) const {
  const ModuleScope scope(hidden_in.context(), module);
  Tensor residual = hidden_in, hidden_states;
  const AttentionOutputs attention = attend_to(hidden_in, positions, attention_mask);
  {
    const Tensor dropped = dropout(attention.output, hidden_dropout);
    hidden_states = add(residual, dropped);
  }
  hidden_states = post_attention_layernorm(hidden_states);
  residual = hidden_states;
  hidden_states = mlp(hidden_states);
  {
    const Tensor dropped = dropout(hidden_states, hidden_dropout);
    hidden_states = add(residual, dropped);
  }
  return post_mlp_layernorm(hidden_states);
}

NomicBertModel::NomicBertModel(const Builder& builder, const BertConfig& c, const ModelOptions& options,
                               bool add_pooling_layer, const NomicBertVariant& its)
    : embeddings(builder.child("embeddings", c.names->embeddings), c, options, its),
      hands_positions(its.hands_positions),
      masked(masked_by(options.attention)),
      checkpointing(options.checkpointing),
      module(builder.module) {
  if (add_pooling_layer) pooler = BertPooler(builder.child("pooler", c.names->pooler), c);
  LlamaConfig rotated;
  rotated.head_dim = c.head_dim();
  rotary_emb = LlamaRotaryEmbedding(builder.child("rotary_emb", its.rotary_embedding), rotated);
  blocks = BlockStack(builder);
  layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
  for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
    layers.emplace_back(builder.child("layers", c.names->layer, i), c, options, its);
    blocks.add_block(builder);
  }
}

NomicBertModel::Output NomicBertModel::operator()(const ModelInputs& inputs) const {
  Context& context = inputs.input_ids.context();
  ModuleCall call(context, module);
  Tensor position_ids = inputs.position_ids;
  if (!position_ids) position_ids = unsqueeze(empty(context, Op::arange, {inputs.input_ids.size(1)}, DType::int64), 0);
  const Tensor embedding_output =
      wrapped_call(inputs.input_ids, embeddings.module, [&](const Tensor& input_ids) { return embeddings(input_ids); });
  const Tensor attention_mask =
      create_bidirectional_mask(embedding_output, {{}, inputs.attention_mask, inputs.rows}, masked);
  PositionEmbeddings positions = rotary_emb(embedding_output, position_ids);
  if (hands_positions) positions.position_ids = position_ids;
  positions.rows = inputs.rows;
  const auto block = [&](std::size_t i) -> BlockStack::Forward {
    return [&layer = layers[i], attention_mask, positions](const Tensor& hidden) {
      return layer(hidden, positions, attention_mask);
    };
  };
  Output out;
  out.last_hidden_state = blocks.run(0, layers.size(), embedding_output, checkpointing, block);
  if (pooler.dense.weight) out.pooler_output = pooler(out.last_hidden_state);
  out.last_hidden_state = call.result(out.last_hidden_state);
  return out;
}

}  // namespace oometer
