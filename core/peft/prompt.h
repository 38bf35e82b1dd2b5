#pragma once

#include <cstdint>
#include <vector>

#include "nn/module.h"
#include "peft/tuner.h"

/// Prompt learning, after peft 0.21 (tuners/prompt_tuning, p_tuning, prefix_tuning): virtual tokens train before the
/// model's own, or keys and values that each layer has of them. What the model is called with is
/// PeftModelForCausalLM's (models/peft_model.h).
namespace oometer {

/// What a prompt encoder asks of the model (_prepare_prompt_learning_config: utils/other.py).
struct PromptShape {
  std::int64_t hidden_size = 0;  ///< 0: the model takes no prompts
  std::int64_t num_hidden_layers = 0, num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;
};

enum class PromptKind : std::uint8_t { prompt_tuning, p_tuning, prefix_tuning };

struct PromptConfig final : TunerConfig {
  PromptKind kind = PromptKind::prompt_tuning;
  std::int64_t num_virtual_tokens = 0;
  std::int64_t encoder_hidden_size = 0;  ///< 0: the tokens' own
  bool prefix_projection = false;
  bool begins_as_tokens = false;  ///< prompt_tuning_init: rows of the model's embeddings

  bool is_prompt_learning() const override { return true; }

  std::unique_ptr<Tuner> tuner(Context& context, const std::string& place,
                               std::span<const PeftAdapter> adapters) const override;
};

/// The prompt encoder of an adapter, in float32. No module of the model is wrapped.
class PromptLearning : public Tuner {
 public:
  PromptLearning(Context& context, const std::string& kind, const PromptConfig& config)
      : Tuner(context, kind, config.target_modules, config.modules_to_save), config_(config) {}

  void set_shape(const PromptShape& shape) override { shape_ = shape; }
  const PromptLearning* prompt() const override { return this; }

  PromptKind kind() const { return config_.kind; }
  std::int64_t virtual_tokens() const { return config_.num_virtual_tokens; }
  /// get_prompt: [b, tokens, hidden]; of prefix tuning, in `dtype`, keys and values [2, b, heads, tokens, head_dim] of
  /// each layer.
  Tensor prompts(std::int64_t batch) const;
  TensorList past_key_values(std::int64_t batch, DType dtype) const;

 protected:
  std::shared_ptr<const LinearWrapper> create(Builder&, std::int64_t, std::int64_t) override { return nullptr; }
  std::optional<Error> check_targets() override;
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                       std::size_t adapter) override;
  void cast_parameters(std::size_t) override {}

 private:
  Tensor encode(const Tensor& prompt_tokens) const;
  Tensor tokens(std::int64_t batch) const;

  const PromptConfig& config_;
  PromptShape shape_;
  ModuleId module_ = 0;
  Embedding embedding_;
  std::vector<Linear> head_;  ///< between them an activation
};

}  // namespace oometer
