#include "models/bert/bert.h"

#include <utility>

#include "models/bert/heads.h"
#include "models/kit/text_attention.h"
#include "nn/activation.h"
#include "nn/wrapped_call.h"
#include "ops/cub.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

BertEmbeddings::BertEmbeddings(const Builder& builder, const BertConfig& c, const ModelOptions& options)
    : hidden_dropout_prob(c.hidden_dropout_prob),
      counts_tokens(c.names->is_roberta),
      checkpointing(options.checkpointing),
      module(builder.module) {
  const auto positions = [&] {
    return Embedding(builder.child("position_embeddings", "Embedding"), c.max_position_embeddings,
                     c.width_of_embeddings());
  };
  word_embeddings = Embedding(builder.child("word_embeddings", "Embedding"), c.vocab_size, c.width_of_embeddings());
  if (!counts_tokens) position_embeddings = positions();
  token_type_embeddings =
      Embedding(builder.child("token_type_embeddings", "Embedding"), c.type_vocab_size, c.width_of_embeddings());
  layer_norm = LayerNorm(builder.child("LayerNorm", "LayerNorm"), c.width_of_embeddings());
  position_ids = builder.buffer({1, c.max_position_embeddings}, DType::int64);
  token_type_ids = builder.buffer({1, c.max_position_embeddings}, DType::int64);
  if (counts_tokens) position_embeddings = positions();
  if (c.task_type_vocab_size != 0)
    task_type_embeddings =
        Embedding(builder.child("task_type_embeddings", "Embedding"), c.task_type_vocab_size, c.hidden_size);
}

Tensor create_position_ids(const Tensor& input_ids) {
  Context& context = input_ids.context();
  const Shape& sizes = input_ids.sizes();
  const Tensor mask = to(pointwise(Op::ne, {&input_ids}, DType::boolean), DType::int32);
  Tensor incremental_indices;
  {
    Tensor counted = empty(context, Op::cumsum, sizes, DType::int64);
    {
      const Tensor widened = empty(context, Op::cumsum, sizes, DType::int64);
      if (sizes[0] == 1) const Workspace scan(context, Op::cumsum, cub_scan_bytes(sizes[1]));
    }
    counted = to(counted, DType::int32);
    counted = add_scalar(counted);
    incremental_indices = mul(counted, mask);
  }
  const Tensor as_long = to(incremental_indices, DType::int64);
  return add_scalar(as_long);
}

AttentionOutputs eager_in_own_type(const AttentionCall& call, const AttentionInputs& states, const Tensor& mask) {
  const Context& context = states.query.context();
  const std::int64_t heads = states.query.size(1);
  const Tensor key_states = repeat_kv(states.key, heads), value_states = repeat_kv(states.value, heads);
  Tensor attn_weights = matmul(states.query, transpose(key_states, 2, 3));
  attn_weights = mul_scalar(attn_weights);
  if (mask) attn_weights = add(attn_weights, mask);
  attn_weights = softmax(attn_weights, context.autocast.enabled ? DType::float32 : attn_weights.dtype());
  attn_weights = dropout(attn_weights, call.dropout);
  const Tensor attn_output = matmul(attn_weights, value_states);
  return {contiguous(transpose(attn_output, 1, 2)), attn_weights};
}

Tensor BertEmbeddings::operator()(const Tensor& input_ids, const Tensor& given_positions) const {
  Context& context = input_ids.context();
  ModuleCall call(context, module);
  const std::int64_t length = input_ids.size(1);
  Tensor positions = given_positions;
  if (!positions) positions = counts_tokens ? create_position_ids(input_ids) : slice(position_ids, 1, 0, length);
  const Tensor buffered_token_type_ids = empty(context, Op::gather, positions.sizes(), DType::int64);
  const Tensor types = expand(buffered_token_type_ids, input_ids.sizes());
  const Tensor inputs_embeds = word_embeddings(
      input_ids, [&](Tensor& embeddings) { require_input_grad(checkpointing, embeddings, word_embeddings.module); });
  const Tensor type_embeddings = token_type_embeddings(types);
  Tensor embeddings = add(inputs_embeds, type_embeddings);
  const Tensor its_position_embeddings = position_embeddings(positions);
  embeddings = add(embeddings, its_position_embeddings);
  Tensor task_type_ids, task_embeddings;
  if (task_type_embeddings.weight) {
    task_type_ids = empty(context, Op::zeros, input_ids.sizes(), DType::int64);
    task_embeddings = task_type_embeddings(task_type_ids);
    embeddings = add_in_place(embeddings, task_embeddings);
  }
  embeddings = layer_norm(embeddings);
  return call.result(dropout(embeddings, hidden_dropout_prob));
}

BertSelfAttention::BertSelfAttention(const Builder& builder, const BertConfig& c, const ModelOptions& options)
    : query(builder.child("query", "Linear"), c.hidden_size, c.hidden_size, true),
      key(builder.child("key", "Linear"), c.hidden_size, c.hidden_size, true),
      value(builder.child("value", "Linear"), c.hidden_size, c.hidden_size, true),
      attention_head_size(c.hidden_size / c.num_attention_heads),
      call{.kind = options.attention, .dropout = c.attention_probs_dropout_prob},
      module(builder.module) {}

AttentionOutputs BertSelfAttention::operator()(const Tensor& hidden_in, const Tensor& attention_mask,
                                               const Rows* rows) const {
  ModuleCall self(hidden_in.context(), module);
  const Tensor hidden_states = self.argument(hidden_in);
  AttentionInputs states = project(hidden_states, query, key, value, attention_head_size, false);
  AttentionOutputs attention =
      attend(call, 0, states, {.cos = {}, .sin = {}, .rows = rows}, attention_mask, eager_in_own_type);
  attention.output = self.result(attention.output);
  return attention;
}

BertLayer::BertLayer(const Builder& builder, const BertConfig& c, const ModelOptions& options)
    : intermediate_act_fn(c.hidden_act), module(builder.module) {
  const Builder attention_builder = builder.child("attention", c.names->attention);
  attention = {BertSelfAttention(attention_builder.child("self", c.names->self_attention), c, options),
               PostNormOutput(attention_builder.child("output", c.names->self_output), c.hidden_size, c.hidden_size,
                              c.hidden_dropout_prob),
               attention_builder.module};
  const Builder intermediate_builder = builder.child("intermediate", c.names->intermediate);
  intermediate = {Linear(intermediate_builder.child("dense", "Linear"), c.hidden_size, c.intermediate_size, true),
                  intermediate_builder.module};
  output = PostNormOutput(builder.child("output", c.names->output), c.intermediate_size, c.hidden_size,
                          c.hidden_dropout_prob);
}

Tensor BertLayer::operator()(const Tensor& hidden_in, const Tensor& attention_mask, const Rows* rows) const {
  Context& context = hidden_in.context();
  const ModuleScope scope(context, module);
  AttentionOutputs self_attention;  // the weights stay in `_` until the layer returns
  {
    ModuleCall call(context, attention.module);
    const Tensor hidden_states = call.argument(hidden_in);
    self_attention = attention.self(hidden_states, attention_mask, rows);
    self_attention.output = call.result(attention.output(self_attention.output, hidden_states));
  }
  const Tensor& attention_output = self_attention.output;
  Tensor intermediate_output;
  {
    ModuleCall call(context, intermediate.module);
    Tensor hidden_states = intermediate.dense(call.argument(attention_output));
    hidden_states = activate(intermediate_act_fn, hidden_states);
    intermediate_output = call.result(hidden_states);
  }
  return output(intermediate_output, attention_output);
}

BertPooler::BertPooler(const Builder& builder, const BertConfig& c)
    : dense(builder.child("dense", "Linear"), c.hidden_size, c.hidden_size, true), module(builder.module) {}

Tensor BertPooler::operator()(const Tensor& hidden_states) const {
  ModuleCall call(hidden_states.context(), module);
  const Tensor first_token_tensor = select(call.argument(hidden_states), 1, 0);
  Tensor pooled_output = dense(first_token_tensor);
  pooled_output = tanh(pooled_output);
  return call.result(pooled_output);
}

BertModel::BertModel(const Builder& builder, const BertConfig& c, const ModelOptions& options, bool add_pooling_layer)
    : embeddings(builder.child("embeddings", c.names->embeddings), c, options),
      masked(masked_by(options.attention)),
      checkpointing(options.checkpointing),
      module(builder.module) {
  if (c.width_of_embeddings() != c.hidden_size)
    embeddings_project =
        Linear(builder.child("embeddings_project", "Linear"), c.width_of_embeddings(), c.hidden_size, true);
  const Builder encoder_builder = builder.child("encoder", c.names->encoder);
  encoder = encoder_builder.module;
  blocks = BlockStack(encoder_builder);
  layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
  for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
    layers.emplace_back(encoder_builder.child("layer", c.names->layer, i), c, options);
    blocks.add_block(encoder_builder);
  }
  if (add_pooling_layer) pooler = BertPooler(builder.child("pooler", c.names->pooler), c);
}

BertModel::Output BertModel::operator()(const ModelInputs& inputs) const {
  Context& context = inputs.input_ids.context();
  ModuleCall call(context, module);
  Tensor embedding_output = wrapped_call(inputs.input_ids, embeddings.module, [&](const Tensor& input_ids) {
    return embeddings(input_ids, inputs.position_ids);
  });
  if (embeddings_project.weight) embedding_output = embeddings_project(embedding_output);
  const Tensor attention_mask =
      create_bidirectional_mask(embedding_output, {{}, inputs.attention_mask, inputs.rows}, masked);
  Output out;
  {
    ModuleCall encode(context, encoder);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], attention_mask, rows = inputs.rows](const Tensor& hidden) {
        return layer(hidden, attention_mask, rows);
      };
    };
    const Tensor hidden_states = encode.argument(embedding_output);
    out.last_hidden_state =
        encode.result(blocks.run(0, layers.size(), hidden_states, checkpointing, block, {.positional = true}));
  }
  if (pooler.dense.weight) out.pooler_output = pooler(out.last_hidden_state);
  out.last_hidden_state = call.result(out.last_hidden_state);
  return out;
}

std::unique_ptr<Model> build_bert(Context& context, const BertConfig& config, const DataConfig& data,
                                  const ModelOptions& options) {
  return std::make_unique<BertFor<BertModel>>(context, config, data, options);
}

}  // namespace oometer
