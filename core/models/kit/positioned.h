#pragma once

#include <functional>
#include <memory>

#include "models/kit/classifier_head.h"
#include "models/kit/decoder.h"
#include "models/kit/text_family.h"
#include "models/llama/family.h"

/// Decoders that do not rotate queries and keys by tables made once for all layers: those of learned positions. What
/// stands before their layers is the family's own.
namespace oometer {

class PositionedLM : public LanguageModel {
 public:
  ModelOutputs forward(const ModelInputs& inputs) override;
  Tensor embed(const Tensor& input_ids) const override { return language_model_.embed(input_ids); }

 protected:
  PositionedLM(Context& context, const TextConfig& config, const DataConfig& data, const ModelOptions& options);
  /// Of a class that holds such a model.
  PositionedLM(Context& context, const char* class_name, const DataConfig& data, const ModelOptions& options);

  /// What the decoder's constructor begins with; its modules follow, made by the family in its class's order.
  void begin_decoder(const Builder& decoder, const TextConfig& config, const ModelOptions& options);
  using LanguageModel::make_head;
  /// What stands on the decoder: lm_head, or what classifies, as the config says.
  void make_head(const Builder& parent, const LlamaConfig& config);
  Tensor make_labels() override;
  void complete(ModelInputs& batch) override;
  /// The list of layers, called `name`.
  void make_layers(const Builder& decoder, const char* name, const TextConfig& config,
                   const std::function<std::unique_ptr<DecoderLayer>(const Builder& layer)>& make_layer);

  /// The decoder as a module that is called.
  Tensor run_text_decoder(const Tensor& inputs_embeds, const MaskArguments& given) const;
  /// The decoder's forward.
  virtual Tensor decode(const Tensor& inputs_embeds, const MaskArguments& given) const = 0;
  /// For it. `given.position_ids` as its class hands them to create_causal_mask.
  Tensor causal_mask(const Tensor& inputs_embeds, const MaskArguments& given) const;
  Tensor run_layers(Tensor hidden_states, const PositionEmbeddings& positions, const Tensor& causal_mask) const;

 private:
  ClassifierHead classifier_;
};

/// dropout_add of BLOOM and Falcon: `residual + F.dropout(x)`.
Tensor dropout_add(const Tensor& x, const Tensor& residual, double p);

/// GPT2Block.forward, GPTBigCodeBlock.forward: pre_norm, but what attention gives stays bound.
Tensor gpt2_block(const TextLayer& layer, const Tensor& hidden_states, const PositionEmbeddings& positions,
                  const Tensor& attention_mask);

/// A config's field under the name that the class's attribute_map gives it, or the usual one.
std::int64_t read_mapped(ConfigReader& reader, const char* mapped, const char* usual, std::int64_t fallback,
                         Range range = positive);

/// A family whose class is such a model.
template <typename Config, Config (*read)(ConfigReader&), typename Class>
constexpr Family positioned_family(std::span<const ModelClass> classes, std::span<const char* const> blocks,
                                   ModelTraits (*traits)(const FamilyConfig&),
                                   FamilyConfig (*without_dropout)(const FamilyConfig&) = nullptr) {
  return {.classes = classes,
          .blocks = blocks,
          .read = [](ConfigReader& reader, const ModelClass& of, Framework) -> FamilyConfig {
            Config config = read(reader);
            config.classifier = read_classifier(reader, of, config.classifier.dropout);
            return config;
          },
          .build = [](Context& context, const FamilyConfig& config, const DataConfig& data,
                      const ModelOptions& options) -> std::unique_ptr<Model> {
            return std::make_unique<Class>(context, config.as<Config>(), data, options);
          },
          .traits = traits,
          .largest_tensor = [](const FamilyConfig& config,
                               const DataConfig& data) { return largest_tensor_of(config.as<Config>(), data); },
          .without_dropout = without_dropout};
}

}  // namespace oometer
