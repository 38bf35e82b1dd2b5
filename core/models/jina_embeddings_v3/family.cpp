#include "models/nomic_bert/nomic_bert.h"

/// transformers 5.23, models/jina_embeddings_v3/modeling_jina_embeddings_v3.py: Nomic BERT's layers with biases and a
/// plain MLP; XLM-RoBERTa's heads.
namespace oometer {

namespace {

constexpr BertClassNames kNames{.base = "roberta",
                                .model = "JinaEmbeddingsV3Model",
                                .embeddings = "JinaEmbeddingsV3Embeddings",
                                .encoder = "",
                                .layer = "JinaEmbeddingsV3Layer",
                                .attention = "JinaEmbeddingsV3Attention",
                                .self_attention = "",
                                .self_output = "",
                                .intermediate = "JinaEmbeddingsV3MLP",
                                .output = "",
                                .pooler = "JinaEmbeddingsV3Pooler",
                                .masked_lm = "JinaEmbeddingsV3ForMaskedLM",
                                .sequence_classification = "JinaEmbeddingsV3ForSequenceClassification",
                                .token_classification = "JinaEmbeddingsV3ForTokenClassification",
                                .has_roberta_heads = true,
                                .lm_head = "JinaEmbeddingsV3LMHead",
                                .classification_head = "JinaEmbeddingsV3ClassificationHead",
                                .head_first = true,
                                .vocab_size = 250'002,
                                .pad_token_id = 1,
                                .max_position_embeddings = 8194,
                                .type_vocab_size = 1,
                                .hidden_size = 1024,
                                .num_hidden_layers = 24,
                                .num_attention_heads = 16,
                                .intermediate_size = 4096};
constexpr ModelClass kClasses[] = {{"jina_embeddings_v3", kNames.masked_lm},
                                   {"jina_embeddings_v3", kNames.model},
                                   {"jina_embeddings_v3", kNames.sequence_classification},
                                   {"jina_embeddings_v3", kNames.token_classification},
                                   {"jina_embeddings_v3", "JinaEmbeddingsV3ForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.layer, kNames.embeddings};

TextLayer::MLP make_mlp(const Builder& builder, const BertConfig& c) {
  TextConfig text;
  text.hidden_size = c.hidden_size;
  text.intermediate_size = c.intermediate_size;
  text.hidden_act = c.hidden_act;
  return PlainMLP(builder, text, "fc1", "fc2", true);
}

constexpr NomicBertVariant kVariant{
    .rotary_embedding = "JinaEmbeddingsV3RotaryEmbedding", .make_mlp = make_mlp, .has_bias = true};

}  // namespace

namespace family {
extern const Family jina_embeddings_v3 = own_encoder_family<kNames, NomicBertModelOf<kVariant>>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
