#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "models/data.h"
#include "models/family.h"
#include "models/loss_function.h"
#include "nn/attention.h"
#include "nn/checkpointing.h"
#include "nn/kv_cache.h"
#include "nn/module.h"
#include "nn/quantizer.h"
#include "ops/liger.h"
#include "peft/prompt.h"
#include "result.h"
#include "tensor/tensor_list.h"

namespace oometer {

/// What a model's forward hands back. HF Trainer drops all but the loss when the loss is there.
struct ModelOutputs {
  Tensor loss;
  Tensor pooler_output;
  TensorList others;  ///< logits and what else there is, in the class's order
  Tensor aux_loss{};  ///< of a mixture of experts: what balances them, a part of the loss already

  /// Every tensor of them, in the class's order.
  std::vector<Tensor*> all() {
    std::vector<Tensor*> tensors;
    if (loss) tensors.push_back(&loss);
    if (aux_loss) tensors.push_back(&aux_loss);
    for (Tensor& other : others) tensors.push_back(&other);
    if (pooler_output) tensors.push_back(&pooler_output);
    return tensors;
  }
};

/// How a model is run, beside its own config.
struct ModelOptions {
  DType dtype = DType::bfloat16;
  AttentionKind attention = AttentionKind::sdpa;
  CheckpointingConfig checkpointing;
  LigerConfig liger;
  Wrapping* wrapping = nullptr;                ///< who wraps modules of the model, if anyone
  Quantizer* quantizer = nullptr;              ///< who quantises some, if anyone
  std::int64_t temporal_stride = 0;            ///< tokens that share an entry of MTLA's cache; 0: another cache
  std::optional<bool> output_router_logits{};  ///< a trainer's word in place of the config's: a loss balances experts
};

/// What forward is called with, by its arguments' names; null: not passed. A batch, or what generate() makes of one
/// beside the cache (Context::past_key_values).
struct ModelInputs {
  Tensor inputs_embeds{};             ///< [b, s, hidden], in place of input_ids
  Tensor input_ids, position_ids;     ///< [b, s]; generate(): new tokens, as Model::prepare_position_ids has them
  Tensor mm_token_type_ids{};         ///< [b, s], where the class has them
  CausalMasks causal_masks{};         ///< 4-D, of a cache that has one size; as a model meets them: KvCache::masks
  Tensor attention_mask{}, labels{};  ///< [b, s]
  // Of a batch of preferences; no forward takes them.
  Tensor completion_mask{};                            ///< [b, s]
  Tensor ref_chosen_logps{}, ref_rejected_logps{};     ///< [b / 2]
  TensorList others{};                                 ///< what only the trainer that made the batch knows
  Tensor cu_seq_lens_q{}, cu_seq_lens_k{}, seq_idx{};  ///< [documents + 1], [1, s]: where the documents of a row begin
  const Rows* rows = nullptr;                          ///< what stands in input_ids, attention_mask and position_ids
  Tensor pixel_values{}, pixel_attention_mask{}, image_grid_thw{}, second_per_grid_ts{};
  Tensor image_position_ids{};         ///< [images, patches, 2]: column and row of each; -1 where one is padding
  Tensor input_features{};             ///< of audio; wav2vec2's input_values
  const TensorList* images = nullptr;  ///< Model::encoded_images, in place of pixel_values; null: there are none
  std::int64_t logits_to_keep = 0;     ///< 0: all

  /// Every tensor that may be among them.
  std::vector<Tensor*> all() {
    std::vector<Tensor*> tensors = {
        &input_ids,          &position_ids,         &mm_token_type_ids, &attention_mask,     &labels,
        &pixel_values,       &pixel_attention_mask, &image_grid_thw,    &second_per_grid_ts, &image_position_ids,
        &cu_seq_lens_q,      &cu_seq_lens_k,        &seq_idx,           &completion_mask,    &ref_chosen_logps,
        &ref_rejected_logps, &input_features};
    for (Tensor& other : others) tensors.push_back(&other);
    return tensors;
  }

  /// What a wrapper that casts its inputs replaces while forward runs.
  std::vector<Tensor*> floating() {
    std::vector<Tensor*> given;
    for (Tensor* one : {&pixel_values, &input_features})
      if (*one) given.push_back(one);
    return given;
  }
};

/// A model that can be trained: built once, run in every iteration.
class Model {
 public:
  virtual ~Model() = default;
  ModuleId root = kModel;  ///< of its module tree
  /// What the next batches are like; unless it is called, as they were when the model was built.
  virtual void set_data([[maybe_unused]] const DataConfig& data) {}
  /// The batch on the device, as a data loader would have made it.
  virtual ModelInputs make_inputs(bool with_labels) = 0;
  /// With labels, their loss by `loss_function`, too. What generate() calls, of a class that has it: the logits are the
  /// first of `others` then.
  virtual ModelOutputs forward(const ModelInputs& inputs) = 0;
  /// Puts the images of a batch into it, so many a sample.
  virtual void make_images([[maybe_unused]] ModelInputs& batch, [[maybe_unused]] std::int64_t images_per_sample) {}
  /// Puts the audio of a batch into it, which generate() hands on as it is.
  virtual void make_audios([[maybe_unused]] ModelInputs& batch) {}
  /// The batch's images as generate() encodes them before its prefill: mm_encoder_outputs, which it holds until it
  /// returns; the features come first.
  virtual TensorList encoded_images([[maybe_unused]] const ModelInputs& batch) { return {}; }
  /// _prepare_position_ids_for_generation, of the text's own [b, s]: what forward gets, of which the last dimension is
  /// the tokens'. `continues`: the cache holds an earlier turn.
  virtual Tensor prepare_position_ids([[maybe_unused]] const ModelInputs& batch, Tensor text_positions,
                                      [[maybe_unused]] bool continues) {
    return text_positions;
  }
  /// A class's own create_masks_for_generate, for a cache of one size: the masks of what forward will be called with.
  /// False: it has none, and transformers' is run.
  virtual bool create_masks_for_generate([[maybe_unused]] const ModelInputs& inputs,
                                         [[maybe_unused]] CausalMasks& masks) {
    return false;
  }
  /// What a class's own prepare_inputs_for_generation does to what transformers' has prepared.
  virtual void prepare_inputs_for_generation([[maybe_unused]] ModelInputs& inputs,
                                             [[maybe_unused]] bool is_first_iteration) {}
  /// What its _update_model_kwargs_for_generation does behind transformers'. `before`: the token types without
  /// those of the token that was just made.
  virtual void update_model_kwargs_for_generation([[maybe_unused]] const Tensor& before,
                                                  [[maybe_unused]] Tensor& token_type_ids) {}
  /// A class's own generate(), greedy, with its batch and its phases: of `new_tokens`, `executed` are run in full.
  /// False: it has none, and transformers' is run.
  virtual bool generate([[maybe_unused]] std::int64_t new_tokens, [[maybe_unused]] std::int64_t executed) {
    return false;
  }
  /// `model(...)`: forward, with what a library around the model does.
  ModelOutputs operator()(const ModelInputs& inputs) { return around ? around(inputs) : forward(inputs); }
  std::function<ModelOutputs(const ModelInputs& inputs)> around;  ///< null: nothing is around it
  /// get_input_embeddings()(input_ids), of a model that has prompt_shape.
  virtual Tensor embed([[maybe_unused]] const Tensor& input_ids) const { return {}; }
  /// activate_neftune (transformers 5.23, integrations/neftune.py): from now on what get_input_embeddings() gives gets
  /// noise while it is trained. False: not modelled for this class.
  virtual bool activate_neftune() { return false; }
  PromptShape prompt_shape;                     ///< of one that takes inputs_embeds
  LossType loss_type = LossType::causal_lm;     ///< its own; what `loss_function` is by default
  const LossFunction* loss_function = nullptr;  ///< transformers' property; null: forward gives no loss
  /// The class attribute of that name (transformers 5.23), which Trainer.__init__ reads: nearly all have none, and
  /// their forward takes any keywords. False: no labels are counted, and the loss is a mean.
  bool accepts_loss_kwargs = true;
  bool is_causal_lm = false;  ///< of MODEL_FOR_CAUSAL_LM_MAPPING_NAMES: its loss shifts the labels
  /// Its mm_token_type_ids are called token_type_ids, of which generate() repeats the last one.
  bool has_token_type_ids = false;
  bool takes_position_ids = true;  ///< forward does: else generate() makes none
  bool has_pad_token = false;      ///< its config's pad_token_id, which generate() takes to the device
  /// Why its forward could not run, if it could not: known when it has been called.
  std::optional<Error> refusal;
  std::vector<Parameter> parameters;  ///< in the order of construction
  std::vector<Buffer> buffers;        ///< the same
  std::vector<Parameter> tied;        ///< parameters that another module has too, and that module

 protected:
  /// tie_weights: `head`, which was made last, takes the embeddings' weight in place of its own.
  void tie(Linear& head, const Embedding& embeddings) {
    head.weight = embeddings.weight;
    parameters.erase(parameters.end() - (head.bias ? 2 : 1));
    tied.push_back({head.weight, head.module});
  }
};

/// Builds the class that a config stands for, on the device.
std::unique_ptr<Model> build_model(Context& context, const ModelConfig& config, const DataConfig& data,
                                   const ModelOptions& options);

}  // namespace oometer
