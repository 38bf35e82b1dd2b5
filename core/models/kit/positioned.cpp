#include "models/kit/positioned.h"

#include <utility>

#include "config/reader.h"

namespace oometer {

PositionedLM::PositionedLM(Context& context, const TextConfig& config, const DataConfig& data,
                           const ModelOptions& options)
    : LanguageModel(context, config.classifier ? config.classifier.class_name : config.names->causal_lm,
                    Modality::language, data, options) {
  is_causal_lm = !config.classifier;
}

PositionedLM::PositionedLM(Context& context, const char* class_name, const DataConfig& data,
                           const ModelOptions& options)
    : LanguageModel(context, class_name, Modality::none, data, options) {}

void PositionedLM::begin_decoder(const Builder& decoder, const TextConfig& config, const ModelOptions& options) {
  language_model_.module = decoder.module;
  language_model_.checkpointing = options.checkpointing;
  language_model_.masked = masked_by(options.attention);
  language_model_.layers.reserve(static_cast<std::size_t>(config.num_hidden_layers));
}

void PositionedLM::make_head(const Builder& parent, const LlamaConfig& config) {
  if (!config.classifier) return LanguageModel::make_head(parent, config, config.tie_word_embeddings);
  classifier_ = ClassifierHead(parent, config.classifier, config.hidden_size);
  has_pad_token = config.has_pad_token;
  loss_type = classifier_.loss_type();
  if (classifier_.answers()) accepts_loss_kwargs = false;  // as in make_classifier
}

Tensor PositionedLM::make_labels() {
  return classifier_ ? classifier_.make_labels(context_, data_) : LanguageModel::make_labels();
}

void PositionedLM::complete(ModelInputs& batch) {
  if (classifier_.answers() && batch.labels) batch.others.push_back(classifier_.make_labels(context_, data_));
}

void PositionedLM::make_layers(const Builder& decoder, const char* name, const TextConfig& config,
                               const std::function<std::unique_ptr<DecoderLayer>(const Builder& layer)>& make_layer) {
  language_model_.blocks = BlockStack(decoder);
  for (std::int32_t i = 0; i < config.num_hidden_layers; ++i) {
    language_model_.layers.push_back(make_layer(decoder.child(name, config.names->decoder_layer, i)));
    language_model_.blocks.add_block(decoder);
  }
}

ModelOutputs PositionedLM::forward(const ModelInputs& inputs) {
  Tensor hidden_states;
  {
    ModuleCall call(context_, language_model_.module);
    const MaskArguments given{inputs.position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q};
    hidden_states = call.result(inputs.inputs_embeds ? decode(inputs.inputs_embeds, given)
                                                     : decode(embed(inputs.input_ids), given));
  }
  if (classifier_) return classifier_(hidden_states, inputs, has_pad_token, loss_function);
  return causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function);
}

Tensor PositionedLM::run_text_decoder(const Tensor& inputs_embeds, const MaskArguments& given) const {
  ModuleCall call(context_, language_model_.module);
  return call.result(decode(inputs_embeds, given));
}

Tensor PositionedLM::causal_mask(const Tensor& inputs_embeds, const MaskArguments& given) const {
  return create_causal_mask(inputs_embeds, given, language_model_.masked);
}

Tensor PositionedLM::run_layers(Tensor hidden_states, const PositionEmbeddings& positions,
                                const Tensor& causal_mask) const {
  const auto block = [&](std::size_t i) -> BlockStack::Forward {
    return [&layer = *language_model_.layers[i], positions, causal_mask](const Tensor& hidden) {
      return layer(hidden, positions, causal_mask);
    };
  };
  return language_model_.blocks.run(0, language_model_.layers.size(), std::move(hidden_states),
                                    language_model_.checkpointing, block);
}

Tensor dropout_add(const Tensor& x, const Tensor& residual, double p) {
  const Tensor out = dropout(x, p);
  return add(residual, out);
}

Tensor gpt2_block(const TextLayer& layer, const Tensor& hidden_in, const PositionEmbeddings& positions,
                  const Tensor& attention_mask) {
  Tensor hidden_states = layer.input_norm(hidden_in);
  const AttentionOutputs attention = layer.self_attn(hidden_states, positions, attention_mask);
  hidden_states = add(attention.output, hidden_in);
  const Tensor residual = hidden_states;
  hidden_states = layer.feedforward_norm(hidden_states);
  const Tensor feed_forward_hidden_states = layer.mlp(hidden_states);
  return add(residual, feed_forward_hidden_states);
}

std::int64_t read_mapped(ConfigReader& reader, const char* mapped, const char* usual, std::int64_t fallback,
                         Range range) {
  return reader.has(usual) ? reader.integer(usual, fallback, range) : reader.integer(mapped, fallback, range);
}

}  // namespace oometer
