#include "models/nomic_bert/nomic_bert.h"
#include "nn/activation.h"
#include "ops/ops.h"

/// transformers 5.23, models/gte/modeling_gte.py: Nomic BERT's layers with biases.
namespace oometer {

namespace {

constexpr BertClassNames kNames{.base = "gte",
                                .model = "GteModel",
                                .embeddings = "GteEmbeddings",
                                .encoder = "",
                                .layer = "GteLayer",
                                .attention = "GteAttention",
                                .self_attention = "",
                                .self_output = "",
                                .intermediate = "GteMLP",
                                .output = "",
                                .pooler = "GtePooler",
                                .masked_lm = "GteForMaskedLM",
                                .sequence_classification = "GteForSequenceClassification",
                                .token_classification = "GteForTokenClassification",
                                .has_roberta_heads = true,
                                .lm_head = "GteLMHead",
                                .lm_head_bias = false,
                                .model_pools = false,
                                .vocab_size = 250'048,
                                .pad_token_id = 1,
                                .max_position_embeddings = 8192,
                                .type_vocab_size = 1,
                                .attention_dropout = 0};
constexpr ModelClass kClasses[] = {{"gte", kNames.masked_lm},
                                   {"gte", kNames.model},
                                   {"gte", kNames.sequence_classification},
                                   {"gte", kNames.token_classification}};
constexpr const char* kBlocks[] = {kNames.layer, kNames.embeddings};

struct GteMLP {
  GteMLP(const Builder& builder, const BertConfig& c)
      : gate_proj(builder.child("gate_proj", "Linear"), c.hidden_size, c.intermediate_size, false),
        up_proj(builder.child("up_proj", "Linear"), c.hidden_size, c.intermediate_size, false),
        down_proj(builder.child("down_proj", "Linear"), c.intermediate_size, c.hidden_size, true),
        act_fn(c.hidden_act),
        hidden_dropout(c.hidden_dropout_prob),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor x = call.argument(argument);
    Tensor hidden_states;
    {
      const Tensor gate = [&] {
        const Tensor projected = gate_proj(x);
        return activate(act_fn, projected);
      }();
      const Tensor up = up_proj(x);
      hidden_states = mul(gate, up);
    }
    hidden_states = dropout(hidden_states, hidden_dropout);
    return call.result(down_proj(hidden_states));
  }

  Linear gate_proj, up_proj, down_proj;
  Activation act_fn;
  double hidden_dropout;
  ModuleId module;
};

TextLayer::MLP make_mlp(const Builder& builder, const BertConfig& c) { return GteMLP(builder, c); }

constexpr NomicBertVariant kVariant{.rotary_embedding = "GteRotaryEmbedding",
                                    .make_mlp = make_mlp,
                                    .has_bias = true,
                                    .keeps_buffers = false,
                                    .names_type_embeddings = false};

}  // namespace

namespace family {
extern const Family gte = own_encoder_family<kNames, NomicBertModelOf<kVariant>>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
