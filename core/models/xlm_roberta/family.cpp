#include "models/bert/family.h"

/// transformers 5.23, models/xlm_roberta/modeling_xlm_roberta.py.
namespace oometer {

namespace {

constexpr BertClassNames kNames{.base = "roberta",
                                .model = "XLMRobertaModel",
                                .embeddings = "XLMRobertaEmbeddings",
                                .encoder = "XLMRobertaEncoder",
                                .layer = "XLMRobertaLayer",
                                .attention = "XLMRobertaAttention",
                                .self_attention = "XLMRobertaSelfAttention",
                                .self_output = "XLMRobertaSelfOutput",
                                .intermediate = "XLMRobertaIntermediate",
                                .output = "XLMRobertaOutput",
                                .pooler = "XLMRobertaPooler",
                                .masked_lm = "XLMRobertaForMaskedLM",
                                .sequence_classification = "XLMRobertaForSequenceClassification",
                                .token_classification = "XLMRobertaForTokenClassification",
                                .is_roberta = true,
                                .has_roberta_heads = true,
                                .lm_head = "XLMRobertaLMHead",
                                .classification_head = "XLMRobertaClassificationHead",
                                .head_first = true,
                                .vocab_size = 30522,
                                .pad_token_id = 1};
constexpr ModelClass kClasses[] = {{"xlm-roberta", kNames.masked_lm},
                                   {"xlm-roberta", kNames.model},
                                   {"xlm-roberta", kNames.sequence_classification},
                                   {"xlm-roberta", kNames.token_classification},
                                   {"xlm-roberta", "XLMRobertaForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.layer, kNames.embeddings};

}  // namespace

namespace family {
extern const Family xlm_roberta = bert_family<kNames>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
