#include "models/kit/qformer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "config/reader.h"
#include "models/bert/bert.h"
#include "models/cross_mask.h"
#include "models/sizes.h"
#include "nn/activation.h"
#include "nn/attention.h"
#include "ops/ops.h"

namespace oometer {

QFormerConfig read_qformer_config(ConfigReader& reader, const QFormerClassNames& names) {
  QFormerConfig c;
  c.names = &names;
  c.vocab_size = reader.integer("vocab_size", c.vocab_size);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.max_position_embeddings = reader.integer("max_position_embeddings", c.max_position_embeddings);
  c.cross_attention_frequency = reader.integer("cross_attention_frequency", c.cross_attention_frequency);
  c.encoder_hidden_size = reader.integer("encoder_hidden_size", c.encoder_hidden_size);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.hidden_dropout_prob = reader.number("hidden_dropout_prob", c.hidden_dropout_prob, 0, 1);
  c.attention_probs_dropout_prob = reader.number("attention_probs_dropout_prob", c.attention_probs_dropout_prob, 0, 1);
  c.has_text_layers = names.reads_text || reader.boolean("use_qformer_text_input", false);
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  if (reader.integer("chunk_size_feed_forward", 0, {0}) != 0)
    reader.fail_found("chunk_size_feed_forward", "not-modelled",
                      "feed-forward layers that run in chunks are not supported yet: expected 0");
  reader.ignore({"model_type", "layer_norm_eps", "initializer_range", "pad_token_id", "classifier_dropout",
                 "position_embedding_type"});
  return c;
}

QFormerAttention::QFormerAttention(const Builder& builder, const QFormerConfig& c, const ModelOptions& options,
                                   bool is_cross_attention)
    : module(builder.module) {
  const Builder self = builder.child("attention", c.names->self_attention);
  const std::int64_t seen = is_cross_attention ? c.encoder_hidden_size : c.hidden_size;
  attention.module = self.module;
  attention.attention_head_size = c.hidden_size / c.num_attention_heads;
  attention.call = {.kind = options.attention, .dropout = c.attention_probs_dropout_prob};
  attention.query = Linear(self.child("query", "Linear"), c.hidden_size, c.hidden_size, true);
  attention.key = Linear(self.child("key", "Linear"), seen, c.hidden_size, true);
  attention.value = Linear(self.child("value", "Linear"), seen, c.hidden_size, true);
  output = PostNormOutput(builder.child("output", c.names->self_output), c.hidden_size, c.hidden_size,
                          c.hidden_dropout_prob);
}

Tensor QFormerAttention::operator()(const Tensor& hidden_in, const Tensor& mask,
                                    const Tensor& encoder_hidden_states) const {
  Context& context = hidden_in.context();
  ModuleCall whole(context, module);
  const Tensor hidden_states = whole.keyword(hidden_in);
  AttentionOutputs attn;  // the weights stay in `_` until this returns
  {
    ModuleCall self(context, attention.module);
    const Tensor own = self.keyword(hidden_states);
    const Tensor current_states = encoder_hidden_states ? self.keyword(encoder_hidden_states) : own;
    AttentionInputs states;
    states.query = heads_of(attention.query(own), attention.attention_head_size);
    states.key = heads_of(attention.key(current_states), attention.attention_head_size);
    states.value = heads_of(attention.value(current_states), attention.attention_head_size);
    attn = attention.call.kind == AttentionKind::eager
               ? eager_in_own_type(attention.call, states, mask)
               : attention_forward(attention.call, states.query, states.key, states.value, mask);
    // Queries of one row are broadcast to those of keys.
    const std::int64_t width = hidden_states.size(2);
    attn.output = self.result(reshape(attn.output, {attn.output.size(0), attn.output.size(1), width}));
  }
  return whole.result(output(attn.output, hidden_states));
}

QFormerLayer::QFormerLayer(const Builder& builder, const QFormerConfig& c, const ModelOptions& options,
                           std::int64_t index)
    : attention(builder.child("attention", c.names->attention), c, options, false),
      intermediate_act_fn(c.hidden_act),
      module(builder.module) {
  if (index % c.cross_attention_frequency == 0)
    crossattention.emplace(builder.child("crossattention", c.names->attention), c, options, true);
  const auto feed_forward = [&](const char* intermediate, const char* output) {
    FeedForward made;
    const Builder widening = builder.child(intermediate, c.names->intermediate);
    made.intermediate = {Linear(widening.child("dense", "Linear"), c.hidden_size, c.intermediate_size, true),
                         widening.module};
    made.output = PostNormOutput(builder.child(output, c.names->output), c.intermediate_size, c.hidden_size,
                                 c.hidden_dropout_prob);
    return made;
  };
  if (c.has_text_layers) text = feed_forward("intermediate", "output");
  query = feed_forward("intermediate_query", "output_query");
}

Tensor QFormerLayer::feed_forward_chunk(const FeedForward& of, const Tensor& attention_output) const {
  Tensor intermediate_output;
  {
    ModuleCall call(attention_output.context(), of.intermediate.module);
    Tensor hidden_states = of.intermediate.dense(call.argument(attention_output));
    hidden_states = activate(intermediate_act_fn, hidden_states);
    intermediate_output = call.result(hidden_states);
  }
  return of.output(intermediate_output, attention_output);
}

Tensor QFormerLayer::operator()(const Tensor& hidden_in, const QFormerStates& states) const {
  const ModuleScope scope(hidden_in.context(), module);
  const Tensor attention_output = attention(hidden_in, states.attention_mask, {});
  const std::int64_t length = attention_output.size(1), queries = states.query_length;
  Tensor query_attention_output = length > queries ? slice(attention_output, 1, 0, queries) : attention_output;
  if (crossattention)
    query_attention_output =
        (*crossattention)(query_attention_output, states.encoder_attention_mask, states.encoder_hidden_states);
  Tensor layer_output = feed_forward_chunk(query, query_attention_output);
  if (length == queries) return layer_output;
  Tensor layer_output_text;
  {
    const Tensor of_text = slice(attention_output, 1, queries, length - queries);
    layer_output_text = feed_forward_chunk(*text, of_text);
  }
  layer_output = cat({layer_output, layer_output_text}, 1);
  return layer_output;
}

QFormerEmbeddings::QFormerEmbeddings(const Builder& builder, const QFormerConfig& c, const ModelOptions& options)
    : word_embeddings(builder.child("word_embeddings", "Embedding"), c.vocab_size, c.hidden_size),
      position_embeddings(builder.child("position_embeddings", "Embedding"), c.max_position_embeddings, c.hidden_size),
      layernorm(builder.child("layernorm", "LayerNorm"), c.hidden_size),
      position_ids(builder.buffer({1, c.max_position_embeddings}, DType::int64)),
      hidden_dropout_prob(c.hidden_dropout_prob),
      checkpointing(options.checkpointing),
      module(builder.module) {}

Tensor QFormerEmbeddings::operator()(const Tensor& input_ids, const Tensor& query_embeds) const {
  ModuleCall call(input_ids.context(), module);
  const Tensor positions = clone(slice(position_ids, 1, 0, input_ids.size(1)));
  // The main input of the class around it is pixels: checkpointing alone does not ask for gradients here.
  Tensor embeddings = word_embeddings(input_ids, [&](Tensor& output) {
    if (checkpointing.input_require_grads) require_input_grad(checkpointing, output, word_embeddings.module);
  });
  const Tensor its_position_embeddings = position_embeddings(positions);
  embeddings = add(embeddings, its_position_embeddings);
  embeddings = cat({query_embeds, embeddings}, 1);
  embeddings = to(embeddings, layernorm.weight.dtype());
  embeddings = layernorm(embeddings);
  return call.result(dropout(embeddings, hidden_dropout_prob));
}

QFormerModel::QFormerModel(const Builder& builder, const QFormerConfig& c, const ModelOptions& options)
    : hidden_dropout_prob(c.hidden_dropout_prob),
      reads_text(c.names->reads_text),
      cross_attention_frequency(c.cross_attention_frequency),
      masked(masked_by(options.attention)),
      checkpointing(options.checkpointing),
      module(builder.module) {
  if (reads_text)
    embeddings = QFormerEmbeddings(builder.child("embeddings", c.names->embeddings), c, options);
  else
    layernorm = LayerNorm(builder.child("layernorm", "LayerNorm"), c.hidden_size);
  const Builder encoder_builder = builder.child("encoder", c.names->encoder);
  encoder = encoder_builder.module;
  blocks = BlockStack(encoder_builder);
  layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
  for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
    layers.emplace_back(encoder_builder.child("layer", c.names->layer, i), c, options, i);
    blocks.add_block(encoder_builder);
  }
}

QFormerModel::Output QFormerModel::operator()(const Tensor& query_in, const Tensor& encoder_in,
                                              const Tensor& encoder_attention_mask, const Text& text) const {
  Context& context = query_in.context();
  ModuleCall call(context, module);
  const Tensor query_given = call.keyword(query_in), encoder_given = call.keyword(encoder_in);
  Tensor query_embeds = query_given, embedding_output, encoder_hidden_states = encoder_given;
  QFormerStates states;
  states.query_length = query_embeds.size(1);
  if (reads_text) {
    embedding_output = embeddings(text.input_ids, query_embeds);
    states.attention_mask = create_bidirectional_mask(embedding_output, {{}, text.attention_mask, text.rows}, masked);
  } else {
    query_embeds = to(query_embeds, layernorm.weight.dtype());
    embedding_output = layernorm(query_embeds);
    embedding_output = dropout(embedding_output, hidden_dropout_prob);
    encoder_hidden_states = to(encoder_hidden_states, query_embeds.dtype());
  }
  Tensor query_embedding_output;
  if (encoder_attention_mask) {
    query_embedding_output = reads_text ? slice(embedding_output, 1, 0, states.query_length) : embedding_output;
    states.encoder_attention_mask =
        create_cross_mask(query_embedding_output, encoder_hidden_states, {{}, encoder_attention_mask}, masked);
  }
  Output out;
  {
    ModuleCall encode(context, encoder);
    const Tensor hidden_states = encode.argument(embedding_output);
    const Tensor seen = encode.keyword(encoder_hidden_states);
    std::shared_ptr<Tensor> second;  // of the layer that is run
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      second = std::make_shared<Tensor>(seen);
      return [&layer = layers[i], second, attention_mask = states.attention_mask,
              encoder_attention_mask = states.encoder_attention_mask,
              query_length = states.query_length](const Tensor& hidden) {
        return layer(hidden, {attention_mask, *second, encoder_attention_mask, query_length});
      };
    };
    const auto kind = [&](std::size_t i) {
      return static_cast<int>(static_cast<std::int64_t>(i) % cross_attention_frequency == 0);
    };
    out.last_hidden_state = encode.result(
        blocks.run(0, layers.size(), hidden_states, checkpointing, block, {.kind = kind, .second = &second}));
  }
  out.pooler_output = select(out.last_hidden_state, 1, 0);
  for (Tensor* tensor : {&out.last_hidden_state, &out.pooler_output}) *tensor = call.result(*tensor);
  return out;
}

double largest_tensor_of_qformer(const QFormerConfig& c, std::int64_t batch, std::int64_t tokens,
                                 std::int64_t encoder_tokens) {
  return std::max({bytes_of_layer(batch, tokens, c.hidden_size, c.intermediate_size, c.num_attention_heads),
                   bytes_of({batch, c.num_attention_heads, tokens, encoder_tokens}),
                   bytes_of({batch, encoder_tokens, std::max(c.hidden_size, c.encoder_hidden_size)}),
                   bytes_of({c.hidden_size, c.encoder_hidden_size}),
                   bytes_of({std::max(c.vocab_size, c.max_position_embeddings), c.hidden_size})});
}

}  // namespace oometer
