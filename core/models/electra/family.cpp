#include "models/bert/family.h"

/// transformers 5.23, models/electra/modeling_electra.py.
namespace oometer {

namespace {

constexpr BertClassNames kNames{.base = "electra",
                                .model = "ElectraModel",
                                .embeddings = "ElectraEmbeddings",
                                .encoder = "ElectraEncoder",
                                .layer = "ElectraLayer",
                                .attention = "ElectraAttention",
                                .self_attention = "ElectraSelfAttention",
                                .self_output = "ElectraSelfOutput",
                                .intermediate = "ElectraIntermediate",
                                .output = "ElectraOutput",
                                .pooler = "",
                                .masked_lm = "ElectraForMaskedLM",
                                .sequence_classification = "ElectraForSequenceClassification",
                                .token_classification = "ElectraForTokenClassification",
                                .is_electra = true,
                                .lm_head = "ElectraGeneratorPredictions",
                                .classification_head = "ElectraClassificationHead",
                                .hidden_size = 256,
                                .num_attention_heads = 4,
                                .intermediate_size = 1024};
constexpr ModelClass kClasses[] = {{"electra", kNames.masked_lm},
                                   {"electra", kNames.model},
                                   {"electra", kNames.sequence_classification},
                                   {"electra", kNames.token_classification},
                                   {"electra", "ElectraForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.layer};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = bert_traits(config);
  t.no_split_modules = {};
  t.refuse(Feature::fsdp, "not-modelled", "this is not supported yet with " + t.class_name);
  if (config.as<BertConfig>().head == EncoderHead::sequence_classification) t.allow({Feature::quantization});
  t.ia3_targets = t.ia3_feedforward = {};  // peft 0.21 does not know it
  return t;
}

}  // namespace

namespace family {
extern const Family electra = bert_family<kNames>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
