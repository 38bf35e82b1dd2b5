#include "peft/prompt.h"

#include <utility>

#include "ops/ops.h"
#include "ops/vision.h"
#include "peft/methods.h"

namespace oometer {

std::unique_ptr<Tuner> PromptConfig::tuner(Context& context, const std::string& place,
                                           std::span<const PeftAdapter>) const {
  return std::make_unique<PromptLearning>(context, place, *this);
}

std::optional<Error> PromptLearning::check_targets() {
  if (shape_.hidden_size > 0) return std::nullopt;
  return Error{"not-modelled", "/training/peft/peft_type",
               "found a prompt for a model other than a decoder with a head, which is not supported yet; expected "
               "LORA or another method that adapts layers"};
}

void PromptLearning::make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>, std::size_t) {
  const std::int64_t tokens = config_.num_virtual_tokens;
  Builder builder;
  builder.context = &context_;
  builder.parameters = &parameters;
  builder.module = 0;
  builder = builder.child("prompt_encoder.default", config_.kind == PromptKind::prompt_tuning ? "PromptEmbedding"
                                                    : config_.kind == PromptKind::p_tuning    ? "PromptEncoder"
                                                                                              : "PrefixEncoder");
  module_ = builder.module;
  const std::int64_t kv_dim = shape_.num_key_value_heads * shape_.head_dim;
  const std::int64_t all_states = 2 * shape_.num_hidden_layers * kv_dim;
  const bool is_prefix = config_.kind == PromptKind::prefix_tuning;
  const std::int64_t token_dim = is_prefix ? kv_dim : shape_.hidden_size;
  const bool projects = is_prefix && config_.prefix_projection;
  if (config_.begins_as_tokens) {
    const ModuleScope scope(context_, module_);
    const DType dtype = parameters.front().tensor.dtype();
    const Tensor ids = empty(context_, Op::to_copy, {tokens}, DType::int64);
    Tensor weights = empty(context_, Op::embedding, {tokens, token_dim}, dtype);
    weights = clone(weights);
    embedding_ = Embedding(builder.child("embedding", "Embedding"), tokens, token_dim);
  } else {
    embedding_ =
        Embedding(builder.child("embedding", "Embedding"), tokens, is_prefix && !projects ? all_states : token_dim);
  }
  const std::int64_t hidden = config_.encoder_hidden_size > 0 ? config_.encoder_hidden_size : token_dim;
  std::vector<std::int64_t> sizes;
  if (config_.kind == PromptKind::p_tuning) sizes = {token_dim, hidden, hidden, token_dim};
  if (projects) sizes = {token_dim, hidden, all_states};
  const Builder head = sizes.empty() ? builder : builder.child(projects ? "transform" : "mlp_head", "Sequential");
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    constexpr const char* kNames[] = {"0", "2", "4"};
    head_.emplace_back(head.child(kNames[i], "Linear"), sizes[i], sizes[i + 1], true);
  }
}

Tensor PromptLearning::tokens(std::int64_t batch) const {
  return empty(context_, Op::to_copy, {batch, config_.num_virtual_tokens}, DType::int64);
}

Tensor PromptLearning::encode(const Tensor& prompt_tokens) const {
  Tensor states = embedding_(prompt_tokens);
  for (std::size_t i = 0; i < head_.size(); ++i) {
    if (i > 0) states = config_.kind == PromptKind::prefix_tuning ? tanh(states) : relu(states);
    states = head_[i](states);
  }
  return states;
}

Tensor PromptLearning::prompts(std::int64_t batch) const {
  const ModuleScope scope(context_, module_);
  // One sample is encoded, and what it gives repeated.
  const Tensor prompt_tokens = slice(tokens(batch), 0, 0, 1);
  const Tensor encoded = encode(prompt_tokens);
  return repeat(encoded, {batch, 1, 1});
}

TensorList PromptLearning::past_key_values(std::int64_t batch, DType dtype) const {
  const ModuleScope scope(context_, module_);
  const Tensor prompt_tokens = tokens(batch);
  Tensor states = encode(prompt_tokens);
  states = to(states, dtype);
  states = view(states, {batch, config_.num_virtual_tokens, 2 * shape_.num_hidden_layers, shape_.num_key_value_heads,
                         shape_.head_dim});
  return split(permute(states, {2, 0, 3, 1, 4}),
               std::vector<std::int64_t>(static_cast<std::size_t>(shape_.num_hidden_layers), 2), 0);
}

namespace {

std::shared_ptr<PromptConfig> read_prompt(ConfigReader& reader, PromptKind kind) {
  const auto config = std::make_shared<PromptConfig>();
  config->kind = kind;
  config->num_virtual_tokens = reader.integer("num_virtual_tokens", 0, {1, 1 << 20});
  if (config->num_virtual_tokens == 0)
    reader.fail("num_virtual_tokens", "missing", "found nothing; expected the number of virtual tokens");
  for (const char* key : {"token_dim", "num_attention_heads", "num_layers", "modules_to_save"})
    reader.refuse(key, "other than the model's own it is not supported yet: leave it out");
  if (reader.integer("num_transformer_submodules", 1) != 1)
    reader.fail_found("num_transformer_submodules", "not-modelled", "a decoder has 1: leave it out");
  return config;
}

}  // namespace

std::shared_ptr<const PeftMethod> read_prompt_tuning(ConfigReader& reader, const PeftDefaults&) {
  const auto config = read_prompt(reader, PromptKind::prompt_tuning);
  config->begins_as_tokens =
      reader.choice("prompt_tuning_init", false, {{"RANDOM", false}, {"SAMPLE_VOCAB", true}, {"TEXT", true}});
  reader.ignore({"prompt_tuning_init_text", "tokenizer_name_or_path", "tokenizer_kwargs"});
  return config;
}

std::shared_ptr<const PeftMethod> read_p_tuning(ConfigReader& reader, const PeftDefaults&) {
  const auto config = read_prompt(reader, PromptKind::p_tuning);
  config->encoder_hidden_size = reader.integer("encoder_hidden_size", 0);
  if (reader.text("encoder_reparameterization_type", "MLP") != "MLP")
    reader.fail_found("encoder_reparameterization_type", "not-modelled",
                      "an LSTM is not supported yet; expected \"MLP\"");
  reader.ignore({"encoder_num_layers", "encoder_dropout"});
  return config;
}

std::shared_ptr<const PeftMethod> read_prefix_tuning(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = read_prompt(reader, PromptKind::prefix_tuning);
  config->encoder_hidden_size = reader.integer("encoder_hidden_size", 0);
  config->prefix_projection = reader.boolean("prefix_projection", false);
  if (defaults.checkpoints)
    reader.fail_found("peft_type", "inconsistent", "PREFIX_TUNING does not work with gradient checkpointing.");
  reader.ignore({"init_weights"});
  return config;
}

}  // namespace oometer
