#include "models/bert/family.h"

#include <tuple>
#include <utility>
#include <vector>

#include "models/bert/bert.h"
#include "models/bert/heads.h"
#include "models/kit/norms.h"
#include "models/kit/text_attention.h"
#include "models/llama/llama.h"
#include "nn/wrapped_call.h"
#include "ops/ops.h"

/// transformers 5.23, models/nomic_bert/modeling_nomic_bert.py: norms behind what they follow, as BERT has them, around
/// Llama's attention and MLP; BERT's heads.
namespace oometer {

namespace {

constexpr BertClassNames kNames{.base = "nomic_bert",
                                .model = "NomicBertModel",
                                .embeddings = "NomicBertEmbeddings",
                                .encoder = "",
                                .layer = "NomicBertLayer",
                                .attention = "NomicBertAttention",
                                .self_attention = "",
                                .self_output = "",
                                .intermediate = "NomicBertMLP",
                                .output = "",
                                .pooler = "NomicBertPooler",
                                .masked_lm = "NomicBertForMaskedLM",
                                .sequence_classification = "NomicBertForSequenceClassification",
                                .token_classification = "NomicBertForTokenClassification",
                                .lm_head = "NomicBertOnlyMLMHead",
                                .model_pools = false,
                                .vocab_size = 30528,
                                .max_position_embeddings = 2048,
                                .hidden_act = Activation::silu,
                                .dropout = 0};
constexpr ModelClass kClasses[] = {{"nomic_bert", kNames.masked_lm},
                                   {"nomic_bert", kNames.model},
                                   {"nomic_bert", kNames.sequence_classification},
                                   {"nomic_bert", kNames.token_classification}};
constexpr const char* kBlocks[] = {kNames.layer, kNames.embeddings};

struct NomicBertEmbeddings {
  NomicBertEmbeddings() = default;
  NomicBertEmbeddings(const Builder& builder, const BertConfig& c, const ModelOptions& options)
      : word_embeddings(builder.child("word_embeddings", "Embedding"), c.vocab_size, c.hidden_size),
        token_type_embeddings(builder.child("token_type_embeddings", "Embedding"), c.type_vocab_size, c.hidden_size),
        layer_norm(builder.child("LayerNorm", "LayerNorm"), c.hidden_size),
        hidden_dropout_prob(c.hidden_dropout_prob),
        checkpointing(options.checkpointing),
        module(builder.module) {
    for (int i = 0; i < 2; ++i)  // position_ids and token_type_ids, which nothing reads
      builder.buffer({1, c.max_position_embeddings}, DType::int64);
  }

  Tensor operator()(const Tensor& input_ids) const {
    Context& context = input_ids.context();
    ModuleCall call(context, module);
    Tensor embeddings = word_embeddings(
        input_ids, [&](Tensor& embedded) { require_input_grad(checkpointing, embedded, word_embeddings.module); });
    const Tensor token_type_ids = empty(context, Op::zeros, input_ids.sizes(), DType::int64);
    const Tensor its_token_type_embeddings = token_type_embeddings(token_type_ids);
    embeddings = add(embeddings, its_token_type_embeddings);
    embeddings = layer_norm(embeddings);
    return call.result(dropout(embeddings, hidden_dropout_prob));
  }

  Embedding word_embeddings, token_type_embeddings;
  LayerNorm layer_norm;
  double hidden_dropout_prob = 0;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

struct NomicBertLayer {
  NomicBertLayer(const Builder& builder, const BertConfig& c, const ModelOptions& options)
      : post_attention_layernorm(builder.child("post_attention_layernorm", "LayerNorm"), c.hidden_size),
        head_dim(c.head_dim()),
        hidden_dropout(c.hidden_dropout_prob),
        call{.kind = options.attention, .dropout = c.attention_probs_dropout_prob},
        module(builder.module) {
    LlamaConfig llama;
    llama.hidden_size = c.hidden_size;
    llama.intermediate_size = c.intermediate_size;
    llama.hidden_act = c.hidden_act;
    mlp = LlamaMLP(builder.child("mlp", kNames.intermediate), llama);
    const Builder attn = builder.child("self_attn", kNames.attention);
    self_attn = attn.module;
    for (auto [projection, name] : {std::pair{&q_proj, "q_proj"}, std::pair{&k_proj, "k_proj"},
                                    std::pair{&v_proj, "v_proj"}, std::pair{&o_proj, "o_proj"}})
      *projection = Linear(attn.child(name, "Linear"), c.hidden_size, c.hidden_size, false);
    post_mlp_layernorm = LayerNorm(builder.child("post_mlp_layernorm", "LayerNorm"), c.hidden_size);
  }

  AttentionOutputs attend_to(const Tensor& argument, const PositionEmbeddings& positions,
                             const Tensor& attention_mask) const {
    ModuleCall self(argument.context(), self_attn);
    AttentionInputs states = project(self.argument(argument), q_proj, k_proj, v_proj, head_dim, false);
    std::tie(states.query, states.key) = rotate_halves(states.query, states.key, positions);
    AttentionOutputs attention = attend(call, 0, states, positions, attention_mask, eager_in_own_type);
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions, const Tensor& attention_mask) const {
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

  LayerNorm post_attention_layernorm, post_mlp_layernorm;
  LlamaMLP mlp;
  Linear q_proj, k_proj, v_proj, o_proj;
  std::int64_t head_dim;
  double hidden_dropout;
  AttentionCall call;
  ModuleId self_attn = 0, module;
};

struct NomicBertModel {
  using Output = BertModel::Output;

  NomicBertModel() = default;
  NomicBertModel(const Builder& builder, const BertConfig& c, const ModelOptions& options, bool add_pooling_layer)
      : embeddings(builder.child("embeddings", kNames.embeddings), c, options),
        masked(masked_by(options.attention)),
        checkpointing(options.checkpointing),
        module(builder.module) {
    if (add_pooling_layer) pooler = BertPooler(builder.child("pooler", kNames.pooler), c);
    LlamaConfig rotated;
    rotated.head_dim = c.head_dim();
    rotary_emb = LlamaRotaryEmbedding(builder.child("rotary_emb", "NomicBertRotaryEmbedding"), rotated);
    blocks = BlockStack(builder);
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(builder.child("layers", kNames.layer, i), c, options);
      blocks.add_block(builder);
    }
  }

  Output operator()(const ModelInputs& inputs) const {
    Context& context = inputs.input_ids.context();
    ModuleCall call(context, module);
    Tensor position_ids = inputs.position_ids;
    if (!position_ids)
      position_ids = unsqueeze(empty(context, Op::arange, {inputs.input_ids.size(1)}, DType::int64), 0);
    const Tensor embedding_output = wrapped_call(inputs.input_ids, embeddings.module,
                                                 [&](const Tensor& input_ids) { return embeddings(input_ids); });
    const Tensor attention_mask =
        create_bidirectional_mask(embedding_output, {{}, inputs.attention_mask, inputs.rows}, masked);
    PositionEmbeddings positions = rotary_emb(embedding_output, position_ids);
    positions.position_ids = position_ids;
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

  NomicBertEmbeddings embeddings;
  BertPooler pooler;
  LlamaRotaryEmbedding rotary_emb;
  std::vector<NomicBertLayer> layers;
  BlockStack blocks;
  MaskedBy masked = MaskedBy::sdpa;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

}  // namespace

namespace family {
extern const Family nomic_bert = own_encoder_family<kNames, NomicBertModel>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
