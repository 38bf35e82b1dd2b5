#include "models/bert/pre_norm.h"

#include <memory>
#include <utility>

#include "models/kit/text_attention.h"
#include "nn/activation.h"
#include "nn/wrapped_call.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

PreNormEmbeddings::PreNormEmbeddings(const Builder& builder, const BertConfig& c, const ModelOptions& options,
                                     PreNorms its_norms)
    : norms(its_norms),
      hidden_dropout_prob(c.hidden_dropout_prob),
      checkpointing(options.checkpointing),
      module(builder.module) {
  const auto positions = [&] {
    return Embedding(builder.child("position_embeddings", "Embedding"), c.max_position_embeddings, c.hidden_size);
  };
  const bool is_megatron = norms == PreNorms::megatron;
  word_embeddings = Embedding(builder.child("word_embeddings", "Embedding"), c.vocab_size, c.hidden_size);
  if (is_megatron) position_embeddings = positions();
  token_type_embeddings =
      Embedding(builder.child("token_type_embeddings", "Embedding"), c.type_vocab_size, c.hidden_size);
  if (norms == PreNorms::roberta) layer_norm = LayerNorm(builder.child("LayerNorm", "LayerNorm"), c.hidden_size);
  position_ids = builder.buffer({1, c.max_position_embeddings}, DType::int64);
  if (is_megatron) return;
  builder.buffer({1, c.max_position_embeddings}, DType::int64);  // token_type_ids
  position_embeddings = positions();
}

Tensor PreNormEmbeddings::operator()(const Tensor& input_ids, const Tensor& given_positions,
                                     const Tensor& given_types) const {
  Context& context = input_ids.context();
  ModuleCall call(context, module);
  const bool is_megatron = norms == PreNorms::megatron;
  Tensor positions = given_positions;
  if (!positions)
    positions = is_megatron ? slice(position_ids, 1, 0, input_ids.size(1)) : create_position_ids(input_ids);
  Tensor types = given_types, buffered_token_type_ids;
  if (!types) {
    buffered_token_type_ids = empty(context, Op::gather, positions.sizes(), DType::int64);
    types = expand(buffered_token_type_ids, input_ids.sizes());
  }
  const Tensor inputs_embeds = word_embeddings(
      input_ids, [&](Tensor& embeddings) { require_input_grad(checkpointing, embeddings, word_embeddings.module); });
  const Tensor type_embeddings = token_type_embeddings(types);
  Tensor embeddings = add(inputs_embeds, type_embeddings);
  const Tensor its_position_embeddings = position_embeddings(positions);
  if (is_megatron)
    embeddings = add_in_place(embeddings, its_position_embeddings);
  else
    embeddings = add(embeddings, its_position_embeddings);
  if (layer_norm.weight) embeddings = layer_norm(embeddings);
  return call.result(dropout(embeddings, hidden_dropout_prob));
}

PreNormBertLayer::PreNormBertLayer(const Builder& builder, const BertConfig& c, const ModelOptions& options,
                                   PreNorms its_norms)
    : norms(its_norms), intermediate_act_fn(c.hidden_act), module(builder.module) {
  const auto norm = [&](const Builder& at, const char* name) {
    return LayerNorm(at.child(name, "LayerNorm"), c.hidden_size);
  };
  const auto make_output = [&](const Builder& at, std::int64_t in_features, double dropout_prob) {
    return Output{Linear(at.child("dense", "Linear"), in_features, c.hidden_size, true), dropout_prob, at.module};
  };
  const Builder attention_at = builder.child("attention", c.names->attention);
  attention = attention_at.module;
  if (norms == PreNorms::megatron) attention_norm = norm(attention_at, "ln");
  self = BertSelfAttention(attention_at.child("self", c.names->self_attention), c, options);
  self_output = make_output(attention_at.child("output", c.names->self_output), c.hidden_size, c.hidden_dropout_prob);
  if (norms != PreNorms::megatron)
    attention_norm = norm(attention_at, norms == PreNorms::roberta ? "LayerNorm" : "self_attn_layer_norm");
  if (norms == PreNorms::megatron) mlp_norm = norm(builder, "ln");
  const Builder intermediate_at = builder.child("intermediate", c.names->intermediate);
  intermediate = intermediate_at.module;
  if (norms == PreNorms::roberta) mlp_norm = norm(intermediate_at, "LayerNorm");
  dense = Linear(intermediate_at.child("dense", "Linear"), c.hidden_size, c.intermediate_size, true);
  output = make_output(builder.child("output", c.names->output), c.intermediate_size,
                       norms == PreNorms::xlm_roberta_xl ? 0 : c.hidden_dropout_prob);
  if (norms == PreNorms::xlm_roberta_xl) mlp_norm = norm(builder, "LayerNorm");
}

Tensor PreNormBertLayer::Output::operator()(const Tensor& hidden_in, const Tensor& input_in) const {
  ModuleCall call(hidden_in.context(), module);
  Tensor hidden_states = call.argument(hidden_in);
  const Tensor input_tensor = call.argument(input_in);
  hidden_states = dense(hidden_states);
  hidden_states = dropout(hidden_states, dropout_prob);
  return call.result(add(hidden_states, input_tensor));
}

namespace {

/// MegatronBertSelfAttention.forward: the scores keep a name of their own.
AttentionOutputs megatron_attention(const BertSelfAttention& self, const Tensor& hidden_in,
                                    const Tensor& attention_mask) {
  Context& context = hidden_in.context();
  ModuleCall call(context, self.module);
  const Tensor hidden_states = call.argument(hidden_in);
  const AttentionInputs layer =
      project(hidden_states, self.query, self.key, self.value, self.attention_head_size, false);
  Tensor attention_scores = matmul(layer.query, transpose(layer.key, 2, 3));
  attention_scores = div_scalar(attention_scores);
  if (attention_mask) attention_scores = add(attention_scores, attention_mask);
  AttentionOutputs attention;
  attention.weights = softmax(attention_scores, context.autocast.enabled ? DType::float32 : attention_scores.dtype());
  attention.weights = dropout(attention.weights, self.call.dropout);
  Tensor context_layer = matmul(attention.weights, layer.value);
  context_layer = contiguous(transpose(context_layer, 1, 2));
  const Shape& heads = context_layer.sizes();
  context_layer = view(context_layer, {heads[0], heads[1], heads[2] * heads[3]});
  attention.output = call.result(context_layer);
  return attention;
}

}  // namespace

Tensor PreNormBertLayer::operator()(const Tensor& hidden_in, const Tensor& attention_mask, const Rows* rows,
                                    Tensor& weights) const {
  Context& context = hidden_in.context();
  const ModuleScope scope(context, module);
  const bool is_megatron = norms == PreNorms::megatron;
  AttentionOutputs its;  // the weights stay in `_` until the layer returns
  {
    ModuleCall call(context, attention);
    const Tensor hidden_states = call.argument(hidden_in), normed = attention_norm(hidden_states);
    its = is_megatron ? megatron_attention(self, normed, attention_mask) : self(normed, attention_mask, rows);
    its.output = call.result(self_output(its.output, hidden_states));
  }
  const Tensor& attention_output = its.output;
  Tensor ln_output, intermediate_output;
  if (norms != PreNorms::roberta) ln_output = mlp_norm(attention_output);
  {
    ModuleCall call(context, intermediate);
    Tensor hidden_states = call.argument(norms == PreNorms::roberta ? attention_output : ln_output);
    if (norms == PreNorms::roberta) hidden_states = mlp_norm(hidden_states);
    hidden_states = dense(hidden_states);
    hidden_states = activate(intermediate_act_fn, hidden_states);
    intermediate_output = call.result(hidden_states);
  }
  if (!is_megatron) ln_output.reset();  // the name is bound to what follows
  Tensor layer_output = output(intermediate_output, attention_output);
  if (is_megatron && !context.recomputing) weights = std::move(its.weights);
  return layer_output;
}

PreNormBert::PreNormBert(const Builder& builder, const BertConfig& c, const ModelOptions& options,
                         bool add_pooling_layer, PreNorms its_norms)
    : embeddings(builder.child("embeddings", c.names->embeddings), c, options, its_norms),
      norms(its_norms),
      masked(masked_by(options.attention)),
      checkpointing(options.checkpointing),
      module(builder.module) {
  const Builder encoder_builder = builder.child("encoder", c.names->encoder);
  encoder = encoder_builder.module;
  blocks = BlockStack(encoder_builder);
  layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
  for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
    layers.emplace_back(encoder_builder.child("layer", c.names->layer, i), c, options, norms);
    blocks.add_block(encoder_builder);
  }
  const Builder& norm_at = norms == PreNorms::roberta ? builder : encoder_builder;
  layer_norm = LayerNorm(norm_at.child(norms == PreNorms::megatron ? "ln" : "LayerNorm", "LayerNorm"), c.hidden_size);
  if (add_pooling_layer) pooler = BertPooler(builder.child("pooler", c.names->pooler), c);
  // Its backward would make zeros for the weights that a layer returns.
  if (norms == PreNorms::megatron && checkpointing.mode == CheckpointMode::reentrant)
    builder.context->refusal = Error{"not-modelled", "/training/activation_checkpointing",
                                     "found \"reentrant\", which is not supported yet with layers that return their "
                                     "weights; expected \"non-reentrant\""};
}

PreNormBert::Output PreNormBert::operator()(const ModelInputs& inputs) const {
  Context& context = inputs.input_ids.context();
  ModuleCall call(context, module);
  Tensor mask_in = inputs.attention_mask, token_type_ids;
  if (norms == PreNorms::megatron) {
    if (!mask_in) mask_in = empty(context, Op::ones_like, inputs.input_ids.sizes(), DType::float32);
    token_type_ids = empty(context, Op::zeros, inputs.input_ids.sizes(), DType::int64);
  }
  const Tensor embedding_output = wrapped_call(inputs.input_ids, embeddings.module, [&](const Tensor& input_ids) {
    return embeddings(input_ids, inputs.position_ids, token_type_ids);
  });
  const Tensor attention_mask = create_bidirectional_mask(embedding_output, {{}, mask_in, inputs.rows}, masked);
  if (norms == PreNorms::megatron) mask_in.reset();  // the name is bound to the other mask
  Output out;
  Tensor encoder_output;  // of encoder_outputs
  {
    ModuleCall encode(context, encoder);
    const auto weights = std::make_shared<Tensor>();  // of layer_outputs, until the next layer has returned
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], attention_mask, rows = inputs.rows, weights](const Tensor& hidden) {
        return layer(hidden, attention_mask, rows, *weights);
      };
    };
    const Tensor hidden_states = encode.argument(embedding_output);
    encoder_output = blocks.run(0, layers.size(), hidden_states, checkpointing, block, {.positional = true});
    if (norms != PreNorms::roberta) encoder_output = layer_norm(encoder_output);
    encoder_output = encode.result(encoder_output);
    weights->reset();
  }
  out.last_hidden_state = norms == PreNorms::roberta ? layer_norm(encoder_output) : encoder_output;
  if (pooler.dense.weight) out.pooler_output = pooler(out.last_hidden_state);
  out.last_hidden_state = call.result(out.last_hidden_state);
  return out;
}

}  // namespace oometer
