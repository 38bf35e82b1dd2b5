#include "models/bert/family.h"

#include <algorithm>

#include "models/bert/bert.h"

namespace oometer {

namespace {

constexpr BertClassNames kNames{.base = "bert",
                                .model = "BertModel",
                                .embeddings = "BertEmbeddings",
                                .encoder = "BertEncoder",
                                .layer = "BertLayer",
                                .attention = "BertAttention",
                                .self_attention = "BertSelfAttention",
                                .self_output = "BertSelfOutput",
                                .intermediate = "BertIntermediate",
                                .output = "BertOutput",
                                .pooler = "BertPooler",
                                .masked_lm = "BertForMaskedLM",
                                .sequence_classification = "BertForSequenceClassification",
                                .token_classification = "BertForTokenClassification"};
constexpr ModelClass kClasses[] = {{"bert", kNames.masked_lm},
                                   {"bert", kNames.model},
                                   {"bert", kNames.sequence_classification},
                                   {"bert", kNames.token_classification},
                                   {"bert", "BertForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.layer, kNames.embeddings};

}  // namespace

ModelTraits bert_traits(const FamilyConfig& config) {
  const auto& c = config.as<BertConfig>();
  ModelTraits t = encoder_traits(c, c.names->base);
  t.max_sequence_length = t.text.max_position_embeddings = c.longest();
  t.default_sequence_length = std::min<std::int64_t>(512, c.longest());
  // peft 0.21, utils/constants.py
  t.lora_targets = {"query", "value"};
  t.ia3_targets = {"key", "value", "output.dense"};
  t.ia3_feedforward = {"output.dense"};
  t.no_split_modules = {c.names->embeddings, c.names->layer};
  // Where zero.Init cuts the bias that a head shares with its decoder was not found but in these.
  const bool has_compared_head = c.names->is_electra || (c.names->has_roberta_heads && !c.names->head_first);
  if (c.head != EncoderHead::masked_lm || has_compared_head) t.allow({Feature::zero3});
  if (c.head == EncoderHead::masked_lm || c.head == EncoderHead::question_answering) t.allow({Feature::fsdp});
  if (!c.names->is_electra && (c.head == EncoderHead::masked_lm || c.head == EncoderHead::sequence_classification))
    t.allow({Feature::quantization});
  return t;
}

ModelTraits own_encoder_traits(const FamilyConfig& config) {
  ModelTraits t = bert_traits(config);
  t.lora_targets = t.ia3_targets = t.ia3_feedforward = {};
  for (const Feature feature : {Feature::fsdp, Feature::quantization})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor_of_bert(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of_encoder(config.as<BertConfig>(), data);
}

std::unique_ptr<Model> build_bert_family(Context& context, const FamilyConfig& config, const DataConfig& data,
                                         const ModelOptions& options) {
  return build_bert(context, config.as<BertConfig>(), data, options);
}

namespace family {
extern const Family bert = bert_family<kNames>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
