#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "models/data.h"
#include "models/registry.h"
#include "nn/attention.h"
#include "nn/checkpointing.h"
#include "nn/components.h"
#include "nn/kv_cache.h"
#include "nn/module.h"
#include "nn/quantizer.h"
#include "ops/liger.h"
#include "result.h"
#include "tensor/tensor_list.h"

namespace oometer {

/// What a model's forward hands back. HF Trainer drops all but the loss when the loss is there.
struct ModelOutputs {
  Tensor loss;
  Tensor pooler_output;
  TensorList others;  ///< logits and what else there is, in the class's order

  /// Every tensor of them, in the class's order.
  std::vector<Tensor*> all() {
    std::vector<Tensor*> tensors;
    if (loss) tensors.push_back(&loss);
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
  std::int64_t cross_entropy_chunks = 0;
  Components components;           ///< `no_grad` is the model's to heed
  bool return_loss = true;         ///< labels are passed
  Wrapping* wrapping = nullptr;    ///< who wraps modules of the model, if anyone
  Quantizer* quantizer = nullptr;  ///< who quantises some, if anyone
};

/// What generate() passes to forward, beside the cache (Context::past_key_values).
struct GenerationInputs {
  Tensor input_ids, position_ids;      ///< [b, s], new tokens only; positions as Model::prepare_position_ids has them
  Tensor mm_token_type_ids{};          ///< [b, s], where the class has them
  CausalMasks attention_mask{};        ///< 4-D, of a cache that has one size; as a model meets them: KvCache::masks
  const TensorList* images = nullptr;  ///< Model::encoded_images; null where no image comes
  std::int64_t logits_to_keep = 0;     ///< 0: all
};

/// A model that can be trained: built once, run in every iteration.
class Model {
 public:
  virtual ~Model() = default;
  /// Makes the batch on the device, as a data loader would have.
  virtual void make_inputs() = 0;
  virtual ModelOutputs forward() = 0;
  /// The images of the batch alone, so many a sample.
  virtual void make_images([[maybe_unused]] std::int64_t images_per_sample) {}
  /// The batch's images as generate() encodes them before its prefill: mm_encoder_outputs, which it holds until it
  /// returns; the features come first.
  virtual TensorList encoded_images() { return {}; }
  /// _prepare_position_ids_for_generation, of the text's own [b, s]: what forward gets, of which the last dimension is
  /// the tokens'. `continues`: the cache holds an earlier turn.
  virtual Tensor prepare_position_ids(Tensor text_positions, [[maybe_unused]] bool continues) { return text_positions; }
  /// The batch's mm_token_type_ids, which grow with the answer.
  virtual Tensor mm_token_type_ids() { return {}; }
  /// forward() as generate() calls it, without labels: the logits are the first of `others`. Nothing: the class does
  /// not generate, or that is not modelled.
  virtual ModelOutputs forward([[maybe_unused]] const GenerationInputs& inputs) { return {}; }
  /// A class's own generate(), greedy, with its batch and its phases: of `new_tokens`, `executed` are run in full.
  /// False: it has none, and transformers' is run.
  virtual bool generate([[maybe_unused]] std::int64_t new_tokens, [[maybe_unused]] std::int64_t executed) {
    return false;
  }
  /// The batch's floating-point tensors: what a wrapper that casts its inputs replaces while forward runs.
  virtual std::vector<Tensor*> floating_inputs() { return {}; }

  bool has_pad_token = false;  ///< its config's pad_token_id, which generate() takes to the device
  /// Why its forward could not run, if it could not: known when it has been called.
  std::optional<Error> refusal;
  std::vector<Parameter> parameters;  ///< in the order of construction
  std::vector<Tensor> buffers;        ///< likewise
  std::vector<Parameter> tied;        ///< parameters that another module has too, and that module

 protected:
  /// tie_weights: `head`, which was made last, takes the embeddings' weight in place of its own.
  void tie(Linear& head, const Embedding& embeddings) {
    head.weight = embeddings.weight;
    parameters.pop_back();
    tied.push_back({head.weight, head.module});
  }
};

/// Builds the class that a config stands for, on the device.
std::unique_ptr<Model> build_model(Context& context, const ModelConfig& config, const DataConfig& data,
                                   const ModelOptions& options);

}  // namespace oometer
