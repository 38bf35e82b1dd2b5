#include "models/kit/encoder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "config/reader.h"
#include "models/kit/classifier_head.h"
#include "models/sizes.h"
#include "ops/ops.h"

namespace oometer {

EncoderHead head_of(const ModelClass& of) {
  const std::string_view name = of.class_name;
  if (name.ends_with("ForMaskedLM")) return EncoderHead::masked_lm;
  if (name.ends_with("ForSequenceClassification")) return EncoderHead::sequence_classification;
  if (name.ends_with("ForTokenClassification")) return EncoderHead::token_classification;
  if (name.ends_with("ForQuestionAnswering")) return EncoderHead::question_answering;
  return EncoderHead::none;
}

std::int64_t read_num_labels(ConfigReader& reader) {
  const nlohmann::json* labels = reader.find("id2label");
  const std::int64_t named = labels && labels->is_object() ? static_cast<std::int64_t>(labels->size()) : 2;
  return reader.integer("num_labels", named);
}

void read_encoder(ConfigReader& reader, const ModelClass& of, EncoderConfig& c) {
  c.class_name = of.class_name;
  c.head = head_of(of);
  c.vocab_size = reader.integer("vocab_size", c.vocab_size);
  c.max_position_embeddings = reader.integer("max_position_embeddings", c.max_position_embeddings);
  c.num_labels = read_num_labels(reader);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.has_pad_token = !reader.is_null("pad_token_id");
  if (c.head == EncoderHead::question_answering && c.num_labels != 2)
    reader.fail_found("num_labels", "inconsistent",
                      "expected 2: an answer has a first and a last token, each with a logit");
  // PreTrainedConfig and the classes' forward: what they take the problem for where nobody says.
  if (c.head == EncoderHead::sequence_classification)
    c.problem = reader.choice("problem_type", c.num_labels == 1 ? LossType::mse : LossType::cross_entropy,
                              {{"regression", LossType::mse},
                               {"single_label_classification", LossType::cross_entropy},
                               {"multi_label_classification", LossType::binary_cross_entropy}});
}

void check_encoder_heads(ConfigReader& reader, const EncoderConfig& c, const char* key) {
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found(key, "inconsistent",
                      "expected a multiple of its attention heads (" + std::to_string(c.num_attention_heads) + ")");
}

ModelTraits encoder_traits(const EncoderConfig& c, const char* base) {
  ModelTraits t = transformers_traits(c.class_name);
  t.takes_text = true;
  t.oldest_transformers = {5, 23, 0};
  t.allow({Feature::finetune, Feature::lengths, Feature::flash_attention_2});
  t.has_pad_token = c.has_pad_token;
  t.ties_embeddings = c.head == EncoderHead::masked_lm && c.tie_word_embeddings;
  t.hidden_size = c.hidden_size;
  t.language = c.head == EncoderHead::none ? "" : base;
  t.max_sequence_length = c.max_position_embeddings;
  t.default_sequence_length = std::min<std::int64_t>(512, c.max_position_embeddings);
  t.text.max_position_embeddings = c.max_position_embeddings;
  t.text.num_key_value_heads = c.num_attention_heads;
  t.text.head_dim = c.head_dim();
  if (c.head == EncoderHead::none) {
    t.has_loss = false;
    t.losses = {"last_hidden_state"};
  }
  for (const Feature feature : {Feature::zero3, Feature::fsdp, Feature::packing, Feature::quantization})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::chunked_cross_entropy, "inconsistent",
           "this is for models that predict the next token, and " + t.class_name + " is none");
  t.has_no_liger();
  return t;
}

std::int64_t longest_text(const DataConfig& data) { return std::max(data.sequence_length, data.target_length); }

double largest_tensor_of_encoder(const EncoderConfig& c, const DataConfig& data) {
  const std::int64_t batch = data.micro_batch_size, length = longest_text(data);
  return std::max({bytes_of_layer(batch, length, c.hidden_size, c.intermediate_size, c.num_attention_heads),
                   bytes_of({batch, length, std::max(c.vocab_size, c.num_labels)}),
                   bytes_of({std::max(c.vocab_size, c.max_position_embeddings), c.hidden_size}),
                   bytes_of({c.num_labels, c.hidden_size})});
}

EncoderModel::EncoderModel(Context& context, const EncoderConfig& c, const DataConfig& data,
                           const ModelOptions& options)
    : context_(context),
      data_(data),
      head_(c.head),
      root_{&context,           &parameters,   &buffers,         context.add_root(c.class_name, Modality::language),
            Modality::language, options.dtype, options.wrapping, options.quantizer},
      num_labels_(c.num_labels) {
  loss_type = c.head == EncoderHead::none ? LossType::none : c.problem;
  // Trainer counts the labels of a batch that are called "labels".
  if (head_ == EncoderHead::question_answering) accepts_loss_kwargs = false;
  has_pad_token = c.has_pad_token;
}

Tensor EncoderModel::make_labels() const {
  const std::int64_t samples = data_.micro_batch_size;
  const auto input = [&](const Shape& sizes, DType dtype = DType::int64) {
    return empty(context_, Op::input, sizes, dtype, Role::input);
  };
  if (head_ == EncoderHead::question_answering) return input({samples});
  if (head_ != EncoderHead::sequence_classification)
    return input({samples, data_.target_length == 0 ? data_.sequence_length : data_.target_length});
  if (loss_type == LossType::cross_entropy) return input({samples});
  const bool is_number = loss_type == LossType::mse && num_labels_ == 1;
  return input(is_number ? Shape{samples} : Shape{samples, num_labels_}, DType::float32);
}

ModelInputs EncoderModel::make_inputs(bool with_labels) {
  const Shape tokens{data_.micro_batch_size, data_.sequence_length};
  const auto input = [&](const Shape& sizes) { return empty(context_, Op::input, sizes, DType::int64, Role::input); };
  ModelInputs batch;
  batch.input_ids = input(tokens);
  if (with_labels) batch.labels = make_labels();  // of spans: start_positions
  if (with_labels && head_ == EncoderHead::question_answering) batch.others.push_back(make_labels());  // end_positions
  if (data_.rows.has_mask) batch.attention_mask = input(tokens);
  batch.rows = &data_.rows;
  return batch;
}

ModelOutputs EncoderModel::spans_of(const Tensor& logits, const ModelInputs& inputs) const {
  return oometer::spans_of(logits, inputs, loss_function);
}

ModelOutputs EncoderModel::outputs_of(Tensor logits, const ModelInputs& inputs) const {
  if (head_ == EncoderHead::question_answering) return spans_of(logits, inputs);
  ModelOutputs outputs;
  if (inputs.labels && loss_type != LossType::cross_entropy && head_ == EncoderHead::sequence_classification)
    outputs.loss = (*loss_function)(logits, inputs.labels);
  else if (inputs.labels)
    outputs.loss = (*loss_function)(view(logits, {inputs.labels.numel(), logits.size(-1)}),
                                    view(inputs.labels, {inputs.labels.numel()}));
  outputs.others.push_back(std::move(logits));
  return outputs;
}

void EncoderModel::tie_weight(Tensor& weight, ModuleId module, const Tensor& source, const char* name) {
  parameters.erase(std::find_if(parameters.begin(), parameters.end(),
                                [&](const Parameter& one) { return one.tensor.get() == weight.get(); }));
  weight = source;
  tied.push_back({weight, module, name});
}

void EncoderModel::tie_decoder(Linear& decoder, const Embedding& embeddings, const Tensor& bias) {
  const auto adjust_bias = [&] {  // PreTrainedModel._adjust_bias, behind each tie: padded by nothing, it is a copy
    if (!decoder.bias) return;
    const Tensor padded = empty(context_, Op::clone, decoder.bias.sizes(), decoder.bias.dtype(), Role::parameter);
    oometer::set_data(decoder.bias, padded);
  };
  tie_weight(decoder.weight, decoder.module, embeddings.weight);
  adjust_bias();
  if (!bias) return;
  tie_weight(decoder.bias, decoder.module, bias, "bias");
  adjust_bias();
}

}  // namespace oometer
