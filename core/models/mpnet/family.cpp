#include "models/bert/family.h"

#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/bert/bert.h"
#include "models/bert/heads.h"
#include "models/kit/post_norm_output.h"
#include "nn/activation.h"
#include "nn/wrapped_call.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, models/mpnet/modeling_mpnet.py: BERT's layers with a bias of relative positions, RoBERTa's
/// positions and heads.
namespace oometer {

namespace {

constexpr BertClassNames kNames{.base = "mpnet",
                                .model = "MPNetModel",
                                .embeddings = "MPNetEmbeddings",
                                .encoder = "MPNetEncoder",
                                .layer = "MPNetLayer",
                                .attention = "MPNetAttention",
                                .self_attention = "MPNetSelfAttention",
                                .self_output = "",
                                .intermediate = "MPNetIntermediate",
                                .output = "MPNetOutput",
                                .pooler = "MPNetPooler",
                                .masked_lm = "MPNetForMaskedLM",
                                .sequence_classification = "MPNetForSequenceClassification",
                                .token_classification = "MPNetForTokenClassification",
                                .is_roberta = true,
                                .has_roberta_heads = true,
                                .lm_head = "MPNetLMHead",
                                .classification_head = "MPNetClassificationHead",
                                .vocab_size = 30527,
                                .pad_token_id = 1};
constexpr ModelClass kClasses[] = {{"mpnet", kNames.masked_lm},
                                   {"mpnet", kNames.model},
                                   {"mpnet", kNames.sequence_classification},
                                   {"mpnet", kNames.token_classification},
                                   {"mpnet", "MPNetForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.layer, kNames.embeddings};
/// MPNetConfig.relative_attention_num_buckets; compute_position_bias has its own number of them, which is the same.
constexpr std::int64_t kBuckets = 32;

struct MPNetEmbeddings {
  MPNetEmbeddings() = default;
  MPNetEmbeddings(const Builder& builder, const BertConfig& c)
      : word_embeddings(builder.child("word_embeddings", "Embedding"), c.vocab_size, c.hidden_size),
        position_embeddings(builder.child("position_embeddings", "Embedding"), c.max_position_embeddings,
                            c.hidden_size),
        layer_norm(builder.child("LayerNorm", "LayerNorm"), c.hidden_size),
        hidden_dropout_prob(c.hidden_dropout_prob),
        module(builder.module) {
    builder.buffer({1, c.max_position_embeddings}, DType::int64);  // position_ids
  }

  Tensor operator()(const Tensor& input_ids, const Tensor& given_positions) const {
    ModuleCall call(input_ids.context(), module);
    const Tensor position_ids = given_positions ? given_positions : create_position_ids(input_ids);
    const Tensor inputs_embeds = word_embeddings(input_ids);
    const Tensor its_position_embeddings = position_embeddings(position_ids);
    Tensor embeddings = add(inputs_embeds, its_position_embeddings);
    embeddings = layer_norm(embeddings);
    return call.result(dropout(embeddings, hidden_dropout_prob));
  }

  Embedding word_embeddings, position_embeddings;
  LayerNorm layer_norm;
  double hidden_dropout_prob = 0;
  ModuleId module = 0;
};

struct MPNetLayer {
  MPNetLayer(const Builder& builder, const BertConfig& c)
      : head_size(c.head_dim()),
        attention_dropout(c.attention_probs_dropout_prob),
        hidden_dropout(c.hidden_dropout_prob),
        intermediate_act_fn(c.hidden_act),
        module(builder.module) {
    const std::int64_t hidden = c.hidden_size;
    const Builder its_attention = builder.child("attention", kNames.attention);
    attention = its_attention.module;
    const Builder attn = its_attention.child("attn", kNames.self_attention);
    self_attention = attn.module;
    for (auto [projection, name] : {std::pair{&q, "q"}, std::pair{&k, "k"}, std::pair{&v, "v"}, std::pair{&o, "o"}})
      *projection = Linear(attn.child(name, "Linear"), hidden, hidden, true);
    layer_norm = LayerNorm(its_attention.child("LayerNorm", "LayerNorm"), hidden);
    const Builder its_intermediate = builder.child("intermediate", kNames.intermediate);
    intermediate = its_intermediate.module;
    dense = Linear(its_intermediate.child("dense", "Linear"), hidden, c.intermediate_size, true);
    output = PostNormOutput(builder.child("output", kNames.output), c.intermediate_size, hidden, hidden_dropout);
  }

  /// MPNetSelfAttention.forward.
  Tensor attend(const Tensor& argument, const Tensor& attention_mask, const Tensor& position_bias) const {
    Context& context = argument.context();
    ModuleCall self(context, self_attention);
    const AttentionInputs states = project(self.argument(argument), q, k, v, head_size, false);
    Tensor attention_scores = matmul(states.query, transpose(states.key, 2, 3));
    attention_scores = div_scalar(attention_scores);
    attention_scores = add_in_place(attention_scores, position_bias);
    if (attention_mask) attention_scores = add(attention_scores, attention_mask);
    Tensor attention_probs =
        softmax(attention_scores, context.autocast.enabled ? DType::float32 : attention_scores.dtype());
    attention_probs = dropout(attention_probs, attention_dropout);
    Tensor c = matmul(attention_probs, states.value);
    c = contiguous(transpose(c, 1, 2));
    c = view(c, {c.size(0), c.size(1), c.size(2) * c.size(3)});
    return self.result(o(c));
  }

  Tensor operator()(const Tensor& hidden_in, const Tensor& attention_mask, const Tensor& position_bias) const {
    Context& context = hidden_in.context();
    const ModuleScope scope(context, module);
    Tensor attention_output;
    {
      ModuleCall call(context, attention);
      const Tensor hidden_states = call.argument(hidden_in);
      const Tensor self_outputs = attend(hidden_states, attention_mask, position_bias);
      Tensor sum = dropout(self_outputs, hidden_dropout);
      sum = add(sum, hidden_states);
      attention_output = call.result(layer_norm(sum));
    }
    Tensor intermediate_output;
    {
      ModuleCall call(context, intermediate);
      Tensor hidden_states = dense(call.argument(attention_output));
      hidden_states = activate(intermediate_act_fn, hidden_states);
      intermediate_output = call.result(hidden_states);
    }
    return output(intermediate_output, attention_output);
  }

  Linear q, k, v, o, dense;
  LayerNorm layer_norm;
  PostNormOutput output;
  std::int64_t head_size;
  double attention_dropout, hidden_dropout;
  Activation intermediate_act_fn;
  ModuleId attention = 0, self_attention = 0, intermediate = 0, module;
};

/// relative_position_bucket of [q, k].
Tensor relative_position_bucket(const Tensor& relative_position) {
  Context& context = relative_position.context();
  const Shape& pairs = relative_position.sizes();
  const auto made = [&](Op op, DType dtype = DType::int64) { return empty(context, op, pairs, dtype); };
  Tensor n = made(Op::neg), ret;
  {
    Tensor is_behind = made(Op::lt, DType::boolean);
    is_behind = made(Op::to_copy);
    is_behind = made(Op::mul);
    ret = made(Op::add);
  }
  n = made(Op::abs);
  const Tensor is_small = made(Op::lt, DType::boolean);
  Tensor val_if_large;
  {
    Tensor large = made(Op::to_copy, DType::float32);
    for (const Op op : {Op::div, Op::log, Op::div, Op::mul}) large = made(op, DType::float32);
    large = made(Op::to_copy);
    val_if_large = made(Op::add);
  }
  {
    const Tensor last = made(Op::full_like);
    val_if_large = made(Op::maximum);
  }
  const Tensor chosen = made(Op::where);
  return ret;
}

struct MPNetModel {
  using Output = BertModel::Output;

  MPNetModel() = default;
  MPNetModel(const Builder& builder, const BertConfig& c, const ModelOptions& options, bool add_pooling_layer)
      : embeddings(builder.child("embeddings", kNames.embeddings), c),
        masked(masked_by(options.attention)),
        module(builder.module) {
    const Builder encoder_builder = builder.child("encoder", kNames.encoder);
    encoder = encoder_builder.module;
    blocks = BlockStack(encoder_builder);
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(encoder_builder.child("layer", kNames.layer, i), c);
      blocks.add_block(encoder_builder);
    }
    relative_attention_bias =
        Embedding(encoder_builder.child("relative_attention_bias", "Embedding"), kBuckets, c.num_attention_heads);
    if (add_pooling_layer) pooler = BertPooler(builder.child("pooler", kNames.pooler), c);
  }

  Tensor compute_position_bias(const Tensor& x) const {
    Context& context = x.context();
    const std::int64_t batch = x.size(0), length = x.size(1);
    const Tensor context_position = empty(context, Op::arange, {length}, DType::int64);
    const Tensor memory_position = empty(context, Op::arange, {length}, DType::int64);
    const Tensor relative_position = empty(context, Op::sub, {length, length}, DType::int64);
    const Tensor rp_bucket = relative_position_bucket(relative_position);
    Tensor values = relative_attention_bias(rp_bucket);
    values = unsqueeze(permute(values, {2, 0, 1}), 0);
    return contiguous(expand(values, {batch, values.size(1), length, length}));
  }

  Output operator()(const ModelInputs& inputs) const {
    Context& context = inputs.input_ids.context();
    ModuleCall call(context, module);
    const Tensor embedding_output = wrapped_call(inputs.input_ids, embeddings.module, [&](const Tensor& input_ids) {
      return embeddings(input_ids, inputs.position_ids);
    });
    const Tensor attention_mask =
        create_bidirectional_mask(embedding_output, {{}, inputs.attention_mask, inputs.rows}, masked);
    Output out;
    {
      ModuleCall encode(context, encoder);
      const Tensor hidden_states = encode.argument(embedding_output);
      const Tensor position_bias = compute_position_bias(hidden_states);
      const auto block = [&](std::size_t i) -> BlockStack::Forward {
        return [&layer = layers[i], attention_mask, position_bias](const Tensor& hidden) {
          return layer(hidden, attention_mask, position_bias);
        };
      };
      out.last_hidden_state =
          encode.result(blocks.run(0, layers.size(), hidden_states, {}, block, {.positional = true}));
    }
    if (pooler.dense.weight) out.pooler_output = pooler(out.last_hidden_state);
    out.last_hidden_state = call.result(out.last_hidden_state);
    return out;
  }

  MPNetEmbeddings embeddings;
  std::vector<MPNetLayer> layers;
  BlockStack blocks;
  Embedding relative_attention_bias;
  BertPooler pooler;
  MaskedBy masked = MaskedBy::eager;
  ModuleId encoder = 0, module = 0;
};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = own_encoder_traits(config);
  t.refuse(Feature::sdpa, "inconsistent", "MPNet has attention of its own, not SDPA: expected eager");
  t.refuse(Feature::flash_attention_2, "inconsistent", "transformers has no flash attention for MPNet: expected eager");
  t.refuse(Feature::checkpointing, "inconsistent", "transformers does not checkpoint MPNet's layers: expected none");
  return t;
}

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  BertConfig c = read_bert_config(reader, kNames, of);
  if (reader.integer("relative_attention_num_buckets", kBuckets) != kBuckets)
    reader.fail_found("relative_attention_num_buckets", "not-modelled",
                      "another number of them is not supported yet: expected 32");
  return c;
}

constexpr Family make_family() {
  Family family = own_encoder_family<kNames, MPNetModel>(kClasses, kBlocks, traits);
  family.read = read;
  return family;
}

}  // namespace

namespace family {
extern const Family mpnet = make_family();
}  // namespace family

}  // namespace oometer
