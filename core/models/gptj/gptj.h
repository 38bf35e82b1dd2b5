#pragma once

#include <functional>

#include "models/kit/positioned.h"

/// transformers 5.23, models/gptj/modeling_gptj.py: what CodeGen's file copies.
namespace oometer {

/// The fields of GPTJConfig, which are CodeGenConfig's, too. `parts`: into which heads are divided.
TextConfig read_gptj_config(ConfigReader& reader, const LlamaClassNames& names, std::int64_t parts);

/// create_sinusoidal_positions: in float32, whatever the model's type.
Tensor sinusoidal_positions(const Builder& builder, std::int64_t count, std::int64_t dim);

struct SinCos {
  Tensor sin, cos;
};
/// apply_rotary_pos_emb: both tables spread over pairs.
Tensor apply_rotary_pos_emb(const Tensor& tensor, const SinCos& tables);

/// The class's attention.
using GptjAttention = std::function<AttentionOutputs(const Tensor& hidden_states, const PositionEmbeddings& positions,
                                                     const Tensor& attention_mask)>;
using MakeGptjAttention = GptjAttention (*)(const Builder& builder, const TextConfig& c, const ModelOptions& options);

/// GPTJForCausalLM.
std::unique_ptr<Model> build_gptj(Context& context, const TextConfig& config, const DataConfig& data,
                                  const ModelOptions& options, MakeGptjAttention make_attention);
ModelTraits gptj_traits(const FamilyConfig& config);

/// A family whose class is GPT-J's with an attention of its own.
template <const LlamaClassNames& names, MakeGptjAttention make_attention, std::int64_t parts = 1>
constexpr Family gptj_family(std::span<const ModelClass> classes, std::span<const char* const> blocks,
                             ModelTraits (*traits)(const FamilyConfig&)) {
  return {.classes = classes,
          .blocks = blocks,
          .read = [](ConfigReader& reader, const ModelClass& of, Framework) -> FamilyConfig {
            TextConfig config = read_gptj_config(reader, names, parts);
            config.classifier = read_classifier(reader, of);
            return config;
          },
          .build =
              [](Context& context, const FamilyConfig& config, const DataConfig& data, const ModelOptions& options) {
                return build_gptj(context, config.as<TextConfig>(), data, options, make_attention);
              },
          .traits = traits,
          .largest_tensor = [](const FamilyConfig& config,
                               const DataConfig& data) { return largest_tensor_of(config.as<TextConfig>(), data); },
          .without_dropout = without_dropout<TextConfig, &TextConfig::residual_dropout, &TextConfig::embedding_dropout,
                                             &TextConfig::attention_dropout>};
}

}  // namespace oometer
