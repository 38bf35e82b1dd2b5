#pragma once

#include <cstdint>
#include <span>

#include "config/activation.h"
#include "models/family.h"
#include "models/model.h"
#include "nn/module.h"

/// Encoders of text, as BERT is one: what stands on top of them, their batch and their loss.
namespace oometer {

class ConfigReader;

enum class EncoderHead : std::uint8_t {
  none,
  masked_lm,
  sequence_classification,
  token_classification,
  question_answering
};

/// What every encoder's config says in some way. Sizes are elements.
struct EncoderConfig {
  const char* class_name = "";
  EncoderHead head = EncoderHead::none;
  std::int64_t vocab_size = 30522;
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  std::int64_t max_position_embeddings = 512;
  std::int64_t num_labels = 2;
  LossType problem = LossType::cross_entropy;  ///< of a sequence's labels, as problem_type says
  Activation hidden_act = Activation::gelu;
  bool has_pad_token = true;
  bool tie_word_embeddings = true;

  std::int64_t head_dim() const { return hidden_size / num_attention_heads; }
  bool operator==(const EncoderConfig&) const = default;
};

/// The classes of a family: ForMaskedLM, Model, ForSequenceClassification, ForTokenClassification,
/// ForQuestionAnswering.
using EncoderClasses = std::span<const ModelClass>;
/// What the `of`-th of them has on top.
EncoderHead head_of(const ModelClass& of);

/// num_labels, or as many as id2label names (PreTrainedConfig).
std::int64_t read_num_labels(ConfigReader& reader);
/// Reads the fields that are called the same in all: vocab_size, max_position_embeddings, labels, tokens, ties.
void read_encoder(ConfigReader& reader, const ModelClass& of, EncoderConfig& config);
/// Heads that divide the hidden size. `key`: what the config calls that.
void check_encoder_heads(ConfigReader& reader, const EncoderConfig& config, const char* key = "hidden_size");

/// `base`: the attribute that holds the encoder.
ModelTraits encoder_traits(const EncoderConfig& config, const char* base);
/// Tokens of the longer of its texts: what it reads, or a decoder's targets.
std::int64_t longest_text(const DataConfig& data);
double largest_tensor_of_encoder(const EncoderConfig& config, const DataConfig& data);

/// An encoder and its head.
class EncoderModel : public Model {
 public:
  void set_data(const DataConfig& data) override { data_ = data; }
  ModelInputs make_inputs(bool with_labels) override;

 protected:
  EncoderModel(Context& context, const EncoderConfig& config, const DataConfig& data, const ModelOptions& options);

  /// The loss, if there are labels, and the logits.
  ModelOutputs outputs_of(Tensor logits, const ModelInputs& inputs) const;
  /// The decoder of masked tokens takes the embeddings' weight (_tied_weights_keys) and, where it is not null, `bias`.
  void tie_decoder(Linear& decoder, const Embedding& embeddings, const Tensor& bias = {});
  /// A weight of `module` goes; it takes `source` in its place.
  void tie_weight(Tensor& weight, ModuleId module, const Tensor& source, const char* name = "weight");

  Context& context_;
  DataConfig data_;
  EncoderHead head_;
  Builder root_;

 private:
  Tensor make_labels() const;
  /// The loss of where an answer begins and ends, and the logits of both. logits: [b, s, 2].
  ModelOutputs spans_of(const Tensor& logits, const ModelInputs& inputs) const;

  std::int64_t num_labels_;
};

}  // namespace oometer
