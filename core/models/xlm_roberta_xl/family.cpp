#include "models/bert/heads.h"
#include "models/bert/pre_norm.h"

/// transformers 5.23, models/xlm_roberta_xl/modeling_xlm_roberta_xl.py.
namespace oometer {

namespace {

constexpr BertClassNames kNames{.base = "roberta",
                                .model = "XLMRobertaXLModel",
                                .embeddings = "XLMRobertaXLEmbeddings",
                                .encoder = "XLMRobertaXLEncoder",
                                .layer = "XLMRobertaXLLayer",
                                .attention = "XLMRobertaXLAttention",
                                .self_attention = "XLMRobertaXLSelfAttention",
                                .self_output = "XLMRobertaXLSelfOutput",
                                .intermediate = "XLMRobertaXLIntermediate",
                                .output = "XLMRobertaXLOutput",
                                .pooler = "XLMRobertaXLPooler",
                                .masked_lm = "XLMRobertaXLForMaskedLM",
                                .sequence_classification = "XLMRobertaXLForSequenceClassification",
                                .token_classification = "XLMRobertaXLForTokenClassification",
                                .is_roberta = true,
                                .has_roberta_heads = true,
                                .lm_head = "XLMRobertaXLLMHead",
                                .classification_head = "XLMRobertaXLClassificationHead",
                                .vocab_size = 250880,
                                .pad_token_id = 1,
                                .max_position_embeddings = 514,
                                .type_vocab_size = 1,
                                .hidden_size = 2560,
                                .num_hidden_layers = 36,
                                .num_attention_heads = 32,
                                .intermediate_size = 10240};
constexpr ModelClass kClasses[] = {{"xlm-roberta-xl", kNames.masked_lm},
                                   {"xlm-roberta-xl", kNames.model},
                                   {"xlm-roberta-xl", kNames.sequence_classification},
                                   {"xlm-roberta-xl", kNames.token_classification},
                                   {"xlm-roberta-xl", "XLMRobertaXLForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.layer, kNames.embeddings};

}  // namespace

namespace family {
extern const Family xlm_roberta_xl =
    own_encoder_family<kNames, PreNormBertOf<PreNorms::xlm_roberta_xl>>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
