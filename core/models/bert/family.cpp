#include "models/bert/family.h"

#include <algorithm>

#include "models/bert/bert.h"
#include "models/sizes.h"

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
                                   {"bert", kNames.token_classification}};
constexpr const char* kBlocks[] = {kNames.layer, kNames.embeddings};

}  // namespace

ModelTraits bert_traits(const FamilyConfig& config) {
  const auto& c = config.as<BertConfig>();
  ModelTraits t = transformers_traits(c.class_name());
  t.takes_text = true;
  t.oldest_transformers = {5, 23, 0};
  t.allow({Feature::finetune, Feature::lengths});
  t.has_pad_token = c.has_pad_token;
  t.ties_embeddings = c.head == EncoderHead::masked_lm && c.tie_word_embeddings;
  t.hidden_size = c.hidden_size;
  t.language = c.head == EncoderHead::none ? "" : c.names->base;
  t.max_sequence_length = c.longest();
  t.default_sequence_length = std::min<std::int64_t>(512, c.longest());
  t.text.max_position_embeddings = t.max_sequence_length;
  t.text.num_key_value_heads = c.num_attention_heads;
  t.text.head_dim = c.hidden_size / c.num_attention_heads;
  if (c.head == EncoderHead::none) {
    t.has_loss = false;
    t.losses = {"last_hidden_state"};
  }
  // peft 0.21, utils/constants.py
  t.lora_targets = {"query", "value"};
  t.ia3_targets = {"key", "value", "output.dense"};
  t.ia3_feedforward = {"output.dense"};
  t.no_split_modules = {c.names->embeddings, c.names->layer};
  for (const Feature feature : {Feature::zero3, Feature::fsdp, Feature::packing, Feature::flash_attention_2,
                                Feature::quantization, Feature::liger, Feature::chunked_cross_entropy})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor_of_bert(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<BertConfig>();
  const std::int64_t batch = data.micro_batch_size, length = data.sequence_length;
  return std::max({bytes_of_layer(batch, length, c.hidden_size, c.intermediate_size, c.num_attention_heads),
                   bytes_of({batch, length, std::max(c.vocab_size, c.num_labels)}),
                   bytes_of({std::max(c.vocab_size, c.max_position_embeddings), c.hidden_size}),
                   bytes_of({c.num_labels, c.hidden_size})});
}

std::unique_ptr<Model> build_bert_family(Context& context, const FamilyConfig& config, const DataConfig& data,
                                         const ModelOptions& options) {
  return build_bert(context, config.as<BertConfig>(), data, options);
}

namespace family {
extern const Family bert = bert_family<kNames>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
