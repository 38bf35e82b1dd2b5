#include "models/bert/family.h"

/// transformers 5.23, models/roberta/modeling_roberta.py.
namespace oometer {

namespace {

constexpr BertClassNames kNames{.base = "roberta",
                                .model = "RobertaModel",
                                .embeddings = "RobertaEmbeddings",
                                .encoder = "RobertaEncoder",
                                .layer = "RobertaLayer",
                                .attention = "RobertaAttention",
                                .self_attention = "RobertaSelfAttention",
                                .self_output = "RobertaSelfOutput",
                                .intermediate = "RobertaIntermediate",
                                .output = "RobertaOutput",
                                .pooler = "RobertaPooler",
                                .masked_lm = "RobertaForMaskedLM",
                                .sequence_classification = "RobertaForSequenceClassification",
                                .token_classification = "RobertaForTokenClassification",
                                .is_roberta = true,
                                .has_roberta_heads = true,
                                .lm_head = "RobertaLMHead",
                                .classification_head = "RobertaClassificationHead",
                                .vocab_size = 50265,
                                .pad_token_id = 1};
constexpr ModelClass kClasses[] = {{"roberta", kNames.masked_lm},
                                   {"roberta", kNames.model},
                                   {"roberta", kNames.sequence_classification},
                                   {"roberta", kNames.token_classification},
                                   {"roberta", "RobertaForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.layer, kNames.embeddings};

}  // namespace

namespace family {
extern const Family roberta = bert_family<kNames>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
