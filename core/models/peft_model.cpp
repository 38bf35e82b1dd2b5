#include "models/peft_model.h"

#include <utility>

#include "ops/ops.h"
#include "peft/prompt.h"

namespace oometer {

namespace {

/// The DynamicCache that begins with a prefix's keys and values, [2, b, heads, tokens, head_dim] of each layer.
class PrefixCache : public KvCache {
 public:
  explicit PrefixCache(const TensorList& past_key_values) : length_(past_key_values.front().size(3)) {
    for (const Tensor& layer : past_key_values) {
      const Tensor both = slice(layer, 0, 0, 2);
      const TensorList states = unbind(both, 0);
      layers_.push_back({cat({states[0]}, 2), cat({states[1]}, 2)});
    }
  }

  States update(std::size_t layer, const Tensor& keys, const Tensor& values) override {
    States& states = layers_[layer];
    states.keys = cat({states.keys, keys}, 2);
    states.values = cat({states.values, values}, 2);
    return states;
  }
  std::int64_t length() const override { return length_; }
  std::int64_t mask_length(std::int64_t queries, std::int64_t) const override { return length_ + queries; }
  bool takes_padding() const override { return true; }

 private:
  std::vector<States> layers_;
  std::int64_t length_;
};

}  // namespace

ModelOutputs PeftModel::with_prompt(const ModelInputs& given) {
  const PromptLearning& prompt = *tuner_.prompt();
  Context& context = given.input_ids.context();
  const std::int64_t batch = given.input_ids.size(0), tokens = prompt.virtual_tokens();
  ModelInputs inputs = given;
  inputs.input_ids = {};
  // torch.cat((prefix_attention_mask, attention_mask), dim=1), in the first one's type; both names stay bound.
  const Tensor prefix_attention_mask =
      given.attention_mask ? empty(context, Op::to_copy, {batch, tokens}, DType::float32) : Tensor();
  if (given.attention_mask)
    inputs.attention_mask = empty(context, Op::cat, {batch, tokens + given.attention_mask.size(1)}, DType::float32);
  Tensor inputs_embeds = model_.embed(given.input_ids);
  Tensor prefix_labels;
  if (given.labels) {
    prefix_labels = empty(context, Op::to_copy, {batch, tokens}, DType::int64);
    inputs.labels = empty(context, Op::cat, {batch, tokens + given.labels.size(1)}, DType::int64);
  }
  Tensor prompts = prompt.prompts(batch);
  prompts = to(prompts, inputs_embeds.dtype());
  inputs_embeds = cat({prompts, inputs_embeds}, 1);
  inputs.inputs_embeds = inputs_embeds;
  return model_.forward(inputs);
}

ModelOutputs PeftModel::with_prefix(const ModelInputs& given) {
  const PromptLearning& prompt = *tuner_.prompt();
  Context& context = given.input_ids.context();
  const std::int64_t batch = given.input_ids.size(0), tokens = prompt.virtual_tokens();
  ModelInputs inputs = given;
  const Tensor prefix_attention_mask =
      given.attention_mask ? empty(context, Op::to_copy, {batch, tokens}, DType::float32) : Tensor();
  if (given.attention_mask)
    inputs.attention_mask = empty(context, Op::cat, {batch, tokens + given.attention_mask.size(1)}, DType::float32);
  PrefixCache cache(prompt.past_key_values(batch, model_.parameters.front().tensor.dtype()));
  const Scoped<KvCache*> with_cache(context.past_key_values, &cache);
  return model_.forward(inputs);
}

ModelOutputs PeftModel::operator()(const ModelInputs& given) {
  const PromptLearning* const prompt = tuner_.prompt();
  if (!prompt) {
    ModelOutputs outputs = model_.forward(given);
    if (outputs.loss) tuner_.after_forward(outputs.loss);
    return outputs;
  }
  ModelInputs inputs = given;
  if (given.rows) {
    rows_ = *given.rows;
    for (std::vector<std::int64_t>& row : rows_.documents)
      if (!row.empty()) row.front() += prompt->virtual_tokens();
    inputs.rows = &rows_;
  }
  return prompt->kind() == PromptKind::prefix_tuning ? with_prefix(inputs) : with_prompt(inputs);
}

}  // namespace oometer
