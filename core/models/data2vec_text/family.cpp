#include "models/bert/family.h"

/// transformers 5.23, models/data2vec/modeling_data2vec_text.py: RoBERTa's classes.
namespace oometer {

namespace {

constexpr BertClassNames kNames{.base = "data2vec_text",
                                .model = "Data2VecTextModel",
                                .embeddings = "Data2VecTextEmbeddings",
                                .encoder = "Data2VecTextEncoder",
                                .layer = "Data2VecTextLayer",
                                .attention = "Data2VecTextAttention",
                                .self_attention = "Data2VecTextSelfAttention",
                                .self_output = "Data2VecTextSelfOutput",
                                .intermediate = "Data2VecTextIntermediate",
                                .output = "Data2VecTextOutput",
                                .pooler = "Data2VecTextPooler",
                                .masked_lm = "Data2VecTextForMaskedLM",
                                .sequence_classification = "Data2VecTextForSequenceClassification",
                                .token_classification = "Data2VecTextForTokenClassification",
                                .is_roberta = true,
                                .has_roberta_heads = true,
                                .lm_head = "Data2VecTextLMHead",
                                .classification_head = "Data2VecTextClassificationHead",
                                .vocab_size = 30522,
                                .pad_token_id = 1};
constexpr ModelClass kClasses[] = {{"data2vec-text", kNames.masked_lm},
                                   {"data2vec-text", kNames.model},
                                   {"data2vec-text", kNames.sequence_classification},
                                   {"data2vec-text", kNames.token_classification}};
constexpr const char* kBlocks[] = {kNames.layer};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = own_encoder_traits(config);
  t.no_split_modules = {};
  t.refuse(Feature::zero3, "not-modelled", "this is not supported yet with " + t.class_name);
  if (config.as<BertConfig>().head == EncoderHead::masked_lm) t.allow({Feature::quantization});
  return t;
}

}  // namespace

namespace family {
extern const Family data2vec_text = bert_family<kNames>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
