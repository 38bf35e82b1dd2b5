#include "models/bert/family.h"

/// transformers 5.23, models/camembert/modeling_camembert.py.
namespace oometer {

namespace {

constexpr BertClassNames kNames{.base = "roberta",
                                .model = "CamembertModel",
                                .embeddings = "CamembertEmbeddings",
                                .encoder = "CamembertEncoder",
                                .layer = "CamembertLayer",
                                .attention = "CamembertAttention",
                                .self_attention = "CamembertSelfAttention",
                                .self_output = "CamembertSelfOutput",
                                .intermediate = "CamembertIntermediate",
                                .output = "CamembertOutput",
                                .pooler = "CamembertPooler",
                                .masked_lm = "CamembertForMaskedLM",
                                .sequence_classification = "CamembertForSequenceClassification",
                                .token_classification = "CamembertForTokenClassification",
                                .is_roberta = true,
                                .has_roberta_heads = true,
                                .lm_head = "CamembertLMHead",
                                .classification_head = "CamembertClassificationHead",
                                .head_first = true,
                                .vocab_size = 30522,
                                .pad_token_id = 1};
constexpr ModelClass kClasses[] = {{"camembert", kNames.masked_lm},
                                   {"camembert", kNames.model},
                                   {"camembert", kNames.sequence_classification},
                                   {"camembert", kNames.token_classification},
                                   {"camembert", "CamembertForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.layer, kNames.embeddings};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = own_encoder_traits(config);
  if (config.as<BertConfig>().head == EncoderHead::masked_lm) t.allow({Feature::quantization});
  return t;
}

}  // namespace

namespace family {
extern const Family camembert = bert_family<kNames>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
