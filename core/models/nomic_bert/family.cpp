#include "models/bert/heads.h"
#include "models/llama/llama.h"
#include "models/nomic_bert/nomic_bert.h"

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

/// NomicBertMLP.
TextLayer::MLP make_mlp(const Builder& builder, const BertConfig& c) {
  LlamaConfig llama;
  llama.hidden_size = c.hidden_size;
  llama.intermediate_size = c.intermediate_size;
  llama.hidden_act = c.hidden_act;
  return LlamaMLP(builder, llama);
}

constexpr NomicBertVariant kVariant{
    .rotary_embedding = "NomicBertRotaryEmbedding", .make_mlp = make_mlp, .hands_positions = true};

}  // namespace

namespace family {
extern const Family nomic_bert = own_encoder_family<kNames, NomicBertModelOf<kVariant>>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
