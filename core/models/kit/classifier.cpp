#include "models/kit/classifier.h"

#include <utility>

#include "models/kit/classifier_head.h"

namespace oometer {

namespace {

class Classifier : public LanguageModel {
 public:
  Classifier(Context& context, const LlamaConfig& config, const DataConfig& data, const ModelOptions& options,
             DecoderParts parts)
      : LanguageModel(context, config.classifier.class_name, Modality::language, data, options) {
    const char* const name = base_of_classifier(config.classifier, parts.model);
    make_decoder(root_.child(name, config.names->model), config, options, std::move(parts));
    head_ = ClassifierHead(root_, config.classifier, config.hidden_size);
    has_pad_token = config.has_pad_token;
    loss_type = head_.loss_type();
    // Trainer counts the labels of a batch that are called "labels".
    if (head_.answers()) accepts_loss_kwargs = false;
    prompt_shape = {config.hidden_size, config.num_hidden_layers, config.num_attention_heads,
                    config.num_key_value_heads, config.head_dim};
  }

  Tensor embed(const Tensor& input_ids) const override { return language_model_.embed(input_ids); }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const Tensor hidden_states = run_text_model(inputs);
    return head_(hidden_states, inputs, has_pad_token, loss_function);
  }

 private:
  Tensor make_labels() override { return head_.make_labels(context_, data_); }
  void complete(ModelInputs& batch) override {
    if (head_.answers() && batch.labels) batch.others.push_back(head_.make_labels(context_, data_));  // end_positions
  }

  ClassifierHead head_;
};

}  // namespace

std::unique_ptr<Model> make_classifier(Context& context, const LlamaConfig& config, const DataConfig& data,
                                       const ModelOptions& options, DecoderParts parts) {
  return std::make_unique<Classifier>(context, config, data, options, std::move(parts));
}

}  // namespace oometer
