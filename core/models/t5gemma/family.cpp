#include "models/family.h"

#include <algorithm>

#include "config/reader.h"
#include "models/gemma2/gemma2.h"
#include "models/llama/family.h"
#include "models/sizes.h"
#include "models/t5gemma/t5gemma.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"t5gemma", "T5GemmaForConditionalGeneration"}};
constexpr const char* kBlocks[] = {"T5GemmaEncoderLayer", "T5GemmaDecoderLayer"};

/// class T5GemmaModuleConfig, which is Gemma2Config.
TextConfig read_module(ConfigReader& reader, const char* key, double attention_dropout) {
  ConfigReader module = reader.object(key);
  TextConfig c = read_gemma2_config(module);
  c.attention_dropout = attention_dropout;
  module.ignore({"dropout_rate", "is_decoder", "cross_attention_hidden_size", "tie_word_embeddings"});
  module.finish();
  return c;
}

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  T5GemmaConfig c;
  c.class_name = of.class_name;
  c.head = EncoderHead::masked_lm;  // a label for each token
  c.dropout_rate = reader.number("dropout_rate", 0, 0, 1);
  const double attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.encoder = read_module(reader, "encoder", attention_dropout);
  c.decoder = read_module(reader, "decoder", attention_dropout);
  c.vocab_size = c.decoder.vocab_size;
  c.hidden_size = c.decoder.hidden_size;
  c.num_hidden_layers = c.decoder.num_hidden_layers;
  c.num_attention_heads = c.decoder.num_attention_heads;
  c.intermediate_size = c.decoder.intermediate_size;
  c.max_position_embeddings = std::min(c.encoder.max_position_embeddings, c.decoder.max_position_embeddings);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  reader.ignore({"vocab_size", "classifier_dropout_rate", "is_encoder_decoder"});
  return c;
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<T5GemmaConfig>();
  ModelTraits t = encoder_traits(c, "model");
  t.allow({Feature::quantization, Feature::zero3, Feature::fsdp});
  if (c.dropout_rate != 0)
    t.refuse(Feature::zero3, "not-modelled", "dropout_rate is not 0, which is not supported yet with ZeRO-3");
  t.takes_targets = true;
  t.no_split_modules = {kBlocks[0], kBlocks[1]};
  t.ties_embeddings = c.tie_word_embeddings;
  t.hidden_size = 0;          // the config has none of its own
  t.max_sequence_length = 0;  // positions are angles
  t.has_no_peft_targets();
  t.refuse(Feature::sdpa, "inconsistent", "T5Gemma caps its attention weights, which SDPA cannot: expected eager");
  t.refuse(Feature::inference, "not-modelled",
           "inference, for which the decoder makes a cache, is not supported yet with T5GemmaForConditionalGeneration");
  t.refuse(
      Feature::lengths, "not-modelled",
      "samples of different lengths are not supported yet with T5GemmaForConditionalGeneration, whose decoder masks "
      "what is padding of its targets");
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<T5GemmaConfig>();
  DataConfig longest = data;
  longest.sequence_length = longest_text(data);
  return std::max(largest_tensor_of(c.encoder, longest), largest_tensor_of(c.decoder, longest));
}

}  // namespace

namespace family {
extern const Family t5gemma{
    .classes = kClasses,
    .blocks = kBlocks,
    .read = read,
    .build =
        [](Context& context, const FamilyConfig& config, const DataConfig& data, const ModelOptions& options) {
          return build_t5gemma(context, config.as<T5GemmaConfig>(), data, options);
        },
    .traits = traits,
    .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
