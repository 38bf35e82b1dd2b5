#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "models/kit/decoder_layer.h"
#include "models/llama/llama.h"
#include "models/masking.h"
#include "models/model.h"
#include "nn/block_stack.h"
#include "ops/ops.h"

/// What every decoder is made of, whatever its layers are: LlamaModel and LlamaForCausalLM (transformers 5.23,
/// models/llama/modeling_llama.py).
namespace oometer {

/// Embeddings that each layer gets of its own: of the tokens, from a table for all layers, and of their embeddings
/// (Gemma4TextModel).
class PerLayerInputs {
 public:
  virtual ~PerLayerInputs() = default;
  /// get_per_layer_inputs: [b, s, layers, width].
  virtual Tensor get(const Tensor& input_ids) const = 0;
  /// project_per_layer_inputs, of the same sizes.
  virtual Tensor project(const Tensor& inputs_embeds, const Tensor& per_layer_inputs) const = 0;
};

/// Several states of a token, which layers hand on in place of one (hyper-connections, AltUp).
class Streams {
 public:
  virtual ~Streams() = default;
  /// What the first layer gets of the embeddings. `names`: of forward's, which live until it returns.
  virtual Tensor open(const Tensor& inputs_embeds, TensorList& names) const = 0;
  /// One state again, of what the last layer gave: forward's name of it, which may be bound anew. The norm comes next.
  virtual Tensor close(Tensor& hidden_states, TensorList& names) const = 0;
};

/// What a family's decoder has of its own; all of it left out: Llama's.
struct DecoderParts {
  std::function<std::unique_ptr<DecoderLayer>(const Builder& layer, std::size_t index)> layer;
  /// rotary_emb.forward; `dtype`: that of the hidden states.
  std::function<PositionEmbeddings(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids, DType dtype)>
      rotary;
  using MakeNorm = std::function<std::function<Tensor(const Tensor&)>(const Builder& norm, std::int64_t hidden_size)>;
  MakeNorm norm;                                          ///< makes the last norm; its forward
  std::function<Tensor(const Tensor& embeddings)> scale;  ///< of what embed_tokens gives, before anything else
  std::function<Tensor(Tensor logits)> logits;            ///< of what lm_head gives, before the loss
  /// Of what a loss that wants_plain_head gets in the logits' place, where `logits` scales these. Null: nothing.
  std::function<Tensor(const Tensor& hidden_states)> fused_states;
  std::function<int(std::size_t layer)> kind;  ///< layers of one do the same; none: those with the same window
  /// What the layers get of the embeddings, which stay bound (AfmoeModel); null: they themselves.
  std::function<Tensor(const Tensor& inputs_embeds)> first_states;
  bool norms_first = false;          ///< the last norm stands before the layers, too (NanoChatModel)
  bool scales_behind_masks = false;  ///< `scale` comes once masks are made
  bool scales_embeddings = false;  ///< embed_tokens multiplies what it gives by a buffer (GemmaTextScaledWordEmbedding)
  bool rotary_by_type = false;     ///< layers that slide have rotary embeddings of their own (Gemma3RotaryEmbedding)
  std::int64_t rotary_dim = 0;     ///< elements of a head that are rotated; 0: all; of layers that slide always all
  bool float32_frequencies = false;  ///< of rotary_emb: LlamaConfig's, where layers that slide have none
  std::function<std::unique_ptr<PerLayerInputs>(const Builder& decoder)> per_layer;  ///< null: there are none
  std::function<std::unique_ptr<Streams>(const Builder& decoder)> streams;           ///< null: one state a token
  std::function<void(const Builder& decoder)> rest;  ///< makes modules that its class has behind rotary_emb
  std::size_t first_shared_layer = 0;  ///< from here on layers take keys and values of those before; 0: none does
  double dropout = 0;                  ///< of the embeddings, once masks are made
  bool head_bias = false;              ///< lm_head's
  /// What forward does behind its loss where another one balances experts; `is_fused`: TRL's head stands for forward.
  std::function<void(ModelOutputs&, const ModelInputs&, bool is_fused)> add_auxiliary_loss;
  const char *embed_tokens = "embed_tokens", *layers = "layers", *last_norm = "norm", *model = "model";  ///< names
  std::function<bool(std::size_t layer)> rotates;       ///< it gets the angles; null: each does
  std::function<bool(std::size_t layer)> is_recurrent;  ///< it gets the mask of padding itself; null: none
  bool positions_by_sample = false;                     ///< position_ids are expanded to as many rows as the batch has
  bool offsets_positions = true;                        ///< by what the cache holds, even nothing; BambaModel does not
  bool makes_masks = true;
  bool masks_know_positions = true;
  bool masks_chunks = false;          ///< a window is a chunk's size
  bool hands_bounds = true;           ///< layers hand cu_seq_lens on to their attention
  bool always_masks = false;          ///< SDPA gets a mask whatever the samples are
  bool shares_topk = false;           ///< layers take the tokens that an earlier one chose (GlmMoeDsaModel)
  bool masks_by_type = false;         ///< the windows' first: made `for layer_type in set(...)`, as angles are
  bool makes_both_masks = false;      ///< that of a window, too, where there is none (its size is 0 then)
  bool layers_choose_angles = false;  ///< each gets those of both types, and the window's mask (DeepseekV4Model)
};

/// Qwen3VLTextModel._deepstack_process: features that are added to the images' tokens behind the first layers.
struct Deepstack {
  Tensor visual_pos_masks;   ///< [b, s]
  TensorList visual_embeds;  ///< of a layer each
};

/// Embeddings, layers, a norm.
struct Decoder {
  Decoder() = default;
  Decoder(const Builder& builder, const LlamaConfig& config, const ModelOptions& options, DecoderParts parts = {});
  /// `given`: position_ids and a 2-D attention_mask, as the caller passes them.
  Tensor operator()(const Tensor& inputs_embeds, const MaskArguments& given = {},
                    const Deepstack* deepstack = nullptr) const {
    Tensor name = inputs_embeds;
    return run(name, given, deepstack);
  }
  /// The same with a name of inputs_embeds that forward may bind anew.
  /// `per_layer_inputs`: of the tokens, where there is `per_layer`. `logits_to_keep`: as the class that has the head is
  /// called with it; what it gives may have so many tokens already.
  Tensor run(Tensor& inputs_embeds, const MaskArguments& given, const Deepstack* deepstack = nullptr,
             Tensor per_layer_inputs = {}, std::int64_t logits_to_keep = 0) const;
  Tensor positions(Context& context, std::int64_t length) const;
  /// get_input_embeddings()(input_ids), with the hook that checkpointing puts there.
  Tensor embed(const Tensor& input_ids) const;

  Embedding embed_tokens;
  std::vector<std::unique_ptr<DecoderLayer>> layers;
  BlockStack blocks;
  Tensor embed_scale;
  std::function<Tensor(const Tensor&)> norm;
  LlamaRotaryEmbedding rotary_emb, sliding_rotary_emb;  ///< the second where rotary_by_type
  std::unique_ptr<PerLayerInputs> per_layer;
  std::unique_ptr<Streams> streams;
  DecoderParts parts;
  CheckpointingConfig checkpointing;
  MaskedBy masked = MaskedBy::sdpa;
  std::int64_t sliding_window = 0;
  std::vector<std::int64_t> windows;  ///< by layer
  bool makes_full_mask = true;        ///< whether or not a layer needs it
  bool is_llama = true;               ///< LlamaModel itself
  bool adds_noise = false;            ///< Model::activate_neftune
  ModuleId module = 0;
};

/// What a ForCausalLM's forward returns of hidden states: the loss if there are labels, and the logits
/// (`logits_to_keep` as slice_logits_to_keep has it: transformers 5.23, modeling_utils.py). `of_logits`: see
/// DecoderParts::logits.
ModelOutputs causal_lm_outputs(const Tensor& hidden_states, const Linear& lm_head, const ModelInputs& inputs,
                               const LossFunction* loss_function,
                               const std::function<Tensor(Tensor)>& of_logits = nullptr);

/// A class whose hidden states go from a decoder through a head: XForCausalLM, XForConditionalGeneration. Its
/// constructor makes the modules in their order, from `root_` on.
class LanguageModel : public Model {
 public:
  ModelInputs make_inputs(bool with_labels) override;
  void set_data(const DataConfig& data) override { data_ = data; }
  bool activate_neftune() override { return language_model_.adds_noise = true; }

 protected:
  LanguageModel(Context& context, const char* class_name, Modality modality, const DataConfig& data,
                const ModelOptions& options);
  void make_decoder(const Builder& builder, const LlamaConfig& text, const ModelOptions& options,
                    DecoderParts parts = {}) {
    language_model_ = Decoder(builder, text, options, std::move(parts));
  }
  void make_head(const Builder& parent, const LlamaConfig& text, bool ties_embeddings);
  /// The decoder as a module that is called.
  Tensor run_decoder(const Tensor& inputs_embeds, const MaskArguments& given,
                     const Deepstack* deepstack = nullptr) const;
  /// The same of a model that takes text only, called with its inputs.
  Tensor run_text_model(const ModelInputs& inputs) const;

  /// Of a sample, as the tokenizer gives them.
  virtual std::int64_t text_length() const { return data_.sequence_length; }
  virtual Tensor make_labels() { return input({data_.micro_batch_size, text_length()}); }
  /// What a batch has beside input_ids and labels.
  virtual void complete([[maybe_unused]] ModelInputs& batch) {}
  static bool has_images(const ModelInputs& inputs) { return inputs.images || inputs.pixel_values; }

  Tensor input(const Shape& sizes, DType dtype = DType::int64) const {
    return empty(context_, Op::input, sizes, dtype, Role::input);
  }

  Context& context_;
  DataConfig data_;
  DType dtype_;
  Builder root_;
  Decoder language_model_;
  Linear lm_head_;
};

/// A decoder and its head.
class CausalLM : public LanguageModel {
 public:
  CausalLM(Context& context, const LlamaConfig& config, const DataConfig& data, const ModelOptions& options,
           DecoderParts parts = {});
  ModelOutputs forward(const ModelInputs& inputs) override;
  Tensor embed(const Tensor& input_ids) const override { return language_model_.embed(input_ids); }
};

/// A causal LM, or what classifies with the same decoder, as the config says.
std::unique_ptr<Model> make_language_model(Context& context, const LlamaConfig& config, const DataConfig& data,
                                           const ModelOptions& options, DecoderParts parts = {});

}  // namespace oometer
