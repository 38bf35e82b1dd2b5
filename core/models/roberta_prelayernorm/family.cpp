#include "models/bert/heads.h"
#include "models/bert/pre_norm.h"

/// transformers 5.23, models/roberta_prelayernorm/modeling_roberta_prelayernorm.py.
namespace oometer {

namespace {

constexpr BertClassNames kNames{.base = "roberta_prelayernorm",
                                .model = "RobertaPreLayerNormModel",
                                .embeddings = "RobertaPreLayerNormEmbeddings",
                                .encoder = "RobertaPreLayerNormEncoder",
                                .layer = "RobertaPreLayerNormLayer",
                                .attention = "RobertaPreLayerNormAttention",
                                .self_attention = "RobertaPreLayerNormSelfAttention",
                                .self_output = "RobertaPreLayerNormSelfOutput",
                                .intermediate = "RobertaPreLayerNormIntermediate",
                                .output = "RobertaPreLayerNormOutput",
                                .pooler = "RobertaPreLayerNormPooler",
                                .masked_lm = "RobertaPreLayerNormForMaskedLM",
                                .sequence_classification = "RobertaPreLayerNormForSequenceClassification",
                                .token_classification = "RobertaPreLayerNormForTokenClassification",
                                .is_roberta = true,
                                .has_roberta_heads = true,
                                .lm_head = "RobertaPreLayerNormLMHead",
                                .classification_head = "RobertaPreLayerNormClassificationHead",
                                .vocab_size = 50265,
                                .pad_token_id = 1};
constexpr ModelClass kClasses[] = {{"roberta-prelayernorm", kNames.masked_lm},
                                   {"roberta-prelayernorm", kNames.model},
                                   {"roberta-prelayernorm", kNames.sequence_classification},
                                   {"roberta-prelayernorm", kNames.token_classification},
                                   {"roberta-prelayernorm", "RobertaPreLayerNormForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.layer, kNames.embeddings};

}  // namespace

namespace family {
extern const Family roberta_prelayernorm =
    own_encoder_family<kNames, PreNormBertOf<PreNorms::roberta>>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
