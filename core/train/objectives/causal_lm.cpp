#include "train/objectives/causal_lm.h"

#include <algorithm>
#include <iterator>

#include "ops/cut_cross_entropy.h"
#include "ops/ops.h"

namespace oometer {

namespace {

class ForCausalLMLoss : public LossFunction {
 public:
  explicit ForCausalLMLoss(const TrainingConfig& training)
      : liger_(training.liger), chunks_(training.cross_entropy_chunks), cuts_(training.cut_cross_entropy) {
    wants_plain_head = cuts_ || liger_.fused_linear_cross_entropy;
  }

  Tensor operator()(const Tensor& logits, const Tensor& labels, const Tensor&) const override {
    return chunks_ > 0 ? chunked_causal_lm_loss(logits, labels, chunks_)
                       : causal_lm_loss(logits, labels, liger_.cross_entropy, num_items_in_batch);
  }

  Tensor of_hidden_states(const Tensor& hidden_states, const Linear& lm_head, const Tensor& labels) const override {
    if (!cuts_ && !liger_.fused_linear_cross_entropy) return {};
    Context& context = hidden_states.context();
    if (context.modules) context.modules->read(lm_head.weight);  // lm_head itself is not called
    return cuts_ ? cut_loss(hidden_states, lm_head, labels) : liger_loss(hidden_states, lm_head, labels);
  }

 private:
  // apply_lce (axolotl-ai-cloud/ml-cross-entropy at 5f0c7a7, cut_cross_entropy/transformers/utils.py)
  Tensor cut_loss(const Tensor& hidden_states, const Linear& lm_head, const Tensor& labels) const {
    const std::int64_t all = checked_product(labels.size(0), labels.size(1) - 1);
    const Tensor loss = oometer::cut_cross_entropy(hidden_states, lm_head.weight, labels, scored > 0 ? scored : all);
    return num_items_in_batch ? div(loss, num_items_in_batch) : loss;
  }

  // LigerForCausalLMLoss, liger-kernel 0.8.5, transformers/model/loss_utils.py
  Tensor liger_loss(const Tensor& hidden_in, const Linear& lm_head, const Tensor& labels_in) const {
    const Tensor labels = pad_last(labels_in);
    const Tensor shift_labels = contiguous(slice(labels, -1, 1, labels_in.size(-1)));
    const std::int64_t tokens = labels_in.numel();
    const Tensor hidden_states = view(hidden_in, {tokens, hidden_in.size(-1)});
    Tensor loss = liger_fused_linear_cross_entropy(hidden_states, lm_head.weight, view(shift_labels, {tokens}), liger_);
    if (num_items_in_batch) loss = div(loss, num_items_in_batch);
    return loss;
  }

  LigerConfig liger_;
  std::int64_t chunks_;
  bool cuts_;
};

}  // namespace

Tensor shifted_loss(const Tensor& logits, const Tensor& labels) {
  const std::int64_t shorter = labels.size(-1) - 1;
  Tensor shift_logits = contiguous(slice(logits, 1, 0, shorter));
  const Tensor shift_labels = contiguous(slice(labels, -1, 1, shorter));
  const std::int64_t tokens = shift_labels.numel();
  shift_logits = view(shift_logits, {tokens, logits.size(-1)});
  return cross_entropy(shift_logits, view(shift_labels, {tokens}));
}

Tensor causal_lm_loss(const Tensor& logits_in, const Tensor& labels_in, bool liger, const Tensor& num_items_in_batch) {
  Tensor logits = to(logits_in, DType::float32);
  if (logits.context().behaviours.loss_shift == LossShift::shift_logits_copy) return shifted_loss(logits, labels_in);
  const Tensor labels = pad_last(labels_in);
  const Tensor shift_labels = contiguous(slice(labels, -1, 1, labels_in.size(-1)));
  const std::int64_t tokens = labels_in.numel();
  logits = view(logits, {tokens, logits.size(-1)});
  const Tensor target = view(shift_labels, {tokens});
  Tensor loss = liger ? liger_cross_entropy(logits, target) : cross_entropy(logits, target);
  if (num_items_in_batch) loss = div(loss, num_items_in_batch);
  return loss;
}

Tensor ShiftedLoss::operator()(const Tensor& logits, const Tensor& labels, const Tensor& attention_mask) const {
  if (!attention_mask) return shifted_loss(logits, labels);
  const std::int64_t shorter = labels.size(1) - 1, tokens = checked_product(labels.size(0), shorter);
  const Tensor shift_attention_mask = slice(attention_mask, 1, 1, shorter);
  const auto shift = [&](const Tensor& x, std::int64_t start) {
    const Tensor shifted = slice(x, 1, start, shorter);
    const Tensor attended = pointwise(Op::ne, {&shift_attention_mask}, DType::boolean);
    return index_mask(shifted, attended, tokens);
  };
  const Tensor shift_logits = shift(logits, 0), shift_labels = shift(labels, 1);
  return cross_entropy(shift_logits, shift_labels);
}

// No first answer asks: the names stay out of the module's first part.
[[gnu::noinline]] bool has_cut_cross_entropy(std::string_view class_name) {
  constexpr std::string_view kCompared[] = {
      "AfmoeForCausalLM",
      "ApertusForCausalLM",
      "ArceeForCausalLM",
      "Cohere2ForCausalLM",
      "Cohere2MoeForCausalLM",
      "CohereForCausalLM",
      "DeepseekV3ForCausalLM",
      "DeepseekV4ForCausalLM",
      "Exaone4ForCausalLM",
      "ExaoneMoeForCausalLM",
      "Gemma2ForCausalLM",
      "Gemma3ForCausalLM",
      "Gemma3ForConditionalGeneration",
      "Gemma4ForCausalLM",
      "Gemma4ForConditionalGeneration",
      "Gemma4UnifiedForCausalLM",
      "Gemma4UnifiedForConditionalGeneration",
      "GemmaForCausalLM",
      "Glm4ForCausalLM",
      "Glm4MoeForCausalLM",
      "Glm4MoeLiteForCausalLM",
      "GlmForCausalLM",
      "GlmMoeDsaForCausalLM",
      "GptOssForCausalLM",
      "GraniteForCausalLM",
      "GraniteMoeForCausalLM",
      "GraniteMoeHybridForCausalLM",
      "HunYuanDenseV1ForCausalLM",
      "HunYuanMoEV1ForCausalLM",
      "InternVLForConditionalGeneration",
      "KimiLinearForCausalLM",
      "Lfm2ForCausalLM",
      "Lfm2MoeForCausalLM",
      "Lfm2VlForConditionalGeneration",
      "Llama4ForCausalLM",
      "LlamaForCausalLM",
      "MiniMaxForCausalLM",
      "MiniMaxM2ForCausalLM",
      "Ministral3ForCausalLM",
      "MinistralForCausalLM",
      "Mistral3ForConditionalGeneration",
      "Mistral4ForCausalLM",
      "MistralForCausalLM",
      "MixtralForCausalLM",
      "MllamaForConditionalGeneration",
      "NemotronHForCausalLM",
      "Olmo2ForCausalLM",
      "Olmo3ForCausalLM",
      "OlmoeForCausalLM",
      "Phi3ForCausalLM",
      "Qwen2ForCausalLM",
      "Qwen2MoeForCausalLM",
      "Qwen3ForCausalLM",
      "Qwen3MoeForCausalLM",
      "Qwen3NextForCausalLM",
      "Qwen3_5ForCausalLM",
      "Qwen3_5MoeForCausalLM",
      "SeedOssForCausalLM",
      "SmolLM3ForCausalLM",
      "VoxtralForConditionalGeneration",
  };
  return std::find(std::begin(kCompared), std::end(kCompared), class_name) != std::end(kCompared);
}

std::unique_ptr<LossFunction> make_causal_lm_loss(const TrainingConfig& training) {
  return std::make_unique<ForCausalLMLoss>(training);
}

}  // namespace oometer
