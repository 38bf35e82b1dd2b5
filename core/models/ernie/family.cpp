#include "models/bert/family.h"

#include "config/reader.h"

/// transformers 5.23, models/ernie/modeling_ernie.py: BERT, to whose embeddings those of a task may be added.
namespace oometer {

namespace {

constexpr BertClassNames kNames{.base = "ernie",
                                .model = "ErnieModel",
                                .embeddings = "ErnieEmbeddings",
                                .encoder = "ErnieEncoder",
                                .layer = "ErnieLayer",
                                .attention = "ErnieAttention",
                                .self_attention = "ErnieSelfAttention",
                                .self_output = "ErnieSelfOutput",
                                .intermediate = "ErnieIntermediate",
                                .output = "ErnieOutput",
                                .pooler = "ErniePooler",
                                .masked_lm = "ErnieForMaskedLM",
                                .sequence_classification = "ErnieForSequenceClassification",
                                .token_classification = "ErnieForTokenClassification",
                                .lm_head = "ErnieOnlyMLMHead"};
constexpr ModelClass kClasses[] = {{"ernie", kNames.masked_lm},
                                   {"ernie", kNames.model},
                                   {"ernie", kNames.sequence_classification},
                                   {"ernie", kNames.token_classification},
                                   {"ernie", "ErnieForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.layer};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = own_encoder_traits(config);
  t.no_split_modules = {kNames.layer};
  return t;
}

}  // namespace

namespace family {
extern const Family ernie = [] {
  Family its = bert_family<kNames>(kClasses, kBlocks, traits);
  its.read = [](ConfigReader& reader, const ModelClass& of, Framework) -> FamilyConfig {
    const bool has_tasks = reader.boolean("use_task_id", false);
    const std::int64_t tasks = reader.integer("task_type_vocab_size", 3);
    BertConfig c = read_bert_config(reader, kNames, of);
    c.task_type_vocab_size = has_tasks ? tasks : 0;
    return c;
  };
  return its;
}();
}  // namespace family

}  // namespace oometer
