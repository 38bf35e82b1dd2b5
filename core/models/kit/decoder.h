#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "models/kit/decoder_layer.h"
#include "models/llama/llama.h"
#include "models/model.h"
#include "nn/block_stack.h"

/// What every decoder is made of, whatever its layers are: LlamaModel and LlamaForCausalLM (transformers 5.23,
/// models/llama/modeling_llama.py).
namespace oometer {

/// What a family's decoder has of its own; all of it left out: Llama's.
struct DecoderParts {
  std::function<std::unique_ptr<DecoderLayer>(const Builder& layer, std::size_t index)> layer;
  /// rotary_emb.forward.
  std::function<PositionEmbeddings(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids)> rotary;
  std::size_t first_of_second_kind = 0;  ///< layers before it are of another kind than it and those after it; 0: none
  bool makes_masks = true;
};

/// Embeddings, layers, a norm.
struct Decoder {
  Decoder() = default;
  Decoder(const Builder& builder, const LlamaConfig& config, const ModelOptions& options, DecoderParts parts = {});
  /// `position_ids`: null where the caller passes none. `with_padding_mask`: it passes a 2-D attention_mask.
  Tensor operator()(const Tensor& inputs_embeds, const Tensor& position_ids = {}, bool with_padding_mask = false) const;
  Tensor positions(Context& context, std::int64_t length) const;
  /// get_input_embeddings()(input_ids), with the hook that checkpointing puts there.
  Tensor embed(const Tensor& input_ids) const;

  Embedding embed_tokens;
  std::vector<std::unique_ptr<DecoderLayer>> layers;
  BlockStack blocks;
  LlamaRMSNorm norm;
  LlamaRotaryEmbedding rotary_emb;
  DecoderParts parts;
  CheckpointingConfig checkpointing;
  bool eager = false;
  std::int64_t sliding_window = 0;
  std::vector<std::int64_t> windows;  ///< by layer
  bool makes_full_mask = true;        ///< whether or not a layer needs it
  ModuleId module = 0;
};

/// input_ids and, `with_labels`, labels of so many tokens a row.
ModelInputs token_inputs(Context& context, std::int64_t rows, std::int64_t tokens, bool with_labels);

/// What a ForCausalLM's forward returns of hidden states: the loss if there are labels, and the logits
/// (`logits_to_keep` as slice_logits_to_keep has it: transformers 5.23, modeling_utils.py).
ModelOutputs causal_lm_outputs(const Tensor& hidden_states, const Linear& lm_head, const ModelInputs& inputs,
                               const LossFunction* loss_function);

/// A decoder and its head.
class CausalLM : public Model {
 public:
  CausalLM(Context& context, const LlamaConfig& config, const DataConfig& data, const ModelOptions& options,
           DecoderParts parts = {});
  ModelInputs make_inputs(bool with_labels) override;
  ModelOutputs forward(const ModelInputs& inputs) override;

 private:
  Context& context_;
  DataConfig data_;
  Decoder model_;
  Linear lm_head_;
};

}  // namespace oometer
