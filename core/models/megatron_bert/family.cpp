#include "models/bert/heads.h"
#include "models/bert/pre_norm.h"

/// transformers 5.23, models/megatron_bert/modeling_megatron_bert.py.
namespace oometer {

namespace {

constexpr BertClassNames kNames{.base = "bert",
                                .model = "MegatronBertModel",
                                .embeddings = "MegatronBertEmbeddings",
                                .encoder = "MegatronBertEncoder",
                                .layer = "MegatronBertLayer",
                                .attention = "MegatronBertAttention",
                                .self_attention = "MegatronBertSelfAttention",
                                .self_output = "MegatronBertSelfOutput",
                                .intermediate = "MegatronBertIntermediate",
                                .output = "MegatronBertOutput",
                                .pooler = "MegatronBertPooler",
                                .masked_lm = "MegatronBertForMaskedLM",
                                .sequence_classification = "MegatronBertForSequenceClassification",
                                .token_classification = "MegatronBertForTokenClassification",
                                .lm_head = "MegatronBertOnlyMLMHead",
                                .vocab_size = 29056,
                                .hidden_size = 1024,
                                .num_hidden_layers = 24,
                                .num_attention_heads = 16,
                                .intermediate_size = 4096};
constexpr ModelClass kClasses[] = {{"megatron-bert", kNames.masked_lm},
                                   {"megatron-bert", kNames.model},
                                   {"megatron-bert", kNames.sequence_classification},
                                   {"megatron-bert", kNames.token_classification},
                                   {"megatron-bert", "MegatronBertForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.layer};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = own_encoder_traits(config);
  for (const Feature feature : {Feature::sdpa, Feature::flash_attention, Feature::flash_attention_2})
    t.refuse(feature, "inconsistent", "the class has attention of its own, not this one: expected eager");
  return t;
}

}  // namespace

namespace family {
extern const Family megatron_bert =
    own_encoder_family<kNames, PreNormBertOf<PreNorms::megatron>>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
