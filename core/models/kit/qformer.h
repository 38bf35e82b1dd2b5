#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/activation.h"
#include "models/kit/post_norm_output.h"
#include "models/masking.h"
#include "models/model.h"
#include "nn/block_stack.h"
#include "nn/module.h"

/// The Q-Former: BERT's layers, in which trained queries look at what an encoder gives (transformers 5.23,
/// models/blip_2/modeling_blip_2.py and its copies). Names and order of steps are that file's.
namespace oometer {

class ConfigReader;

struct QFormerClassNames {
  const char *model, *encoder, *layer, *attention, *self_attention, *self_output, *intermediate, *output, *embeddings;
  bool reads_text = false;  ///< its layers see text beside the queries (InstructBLIP)
};
inline constexpr QFormerClassNames kBlip2QFormer{"Blip2QFormerModel",
                                                 "Blip2QFormerEncoder",
                                                 "Blip2QFormerLayer",
                                                 "Blip2QFormerAttention",
                                                 "Blip2QFormerMultiHeadAttention",
                                                 "Blip2QFormerSelfOutput",
                                                 "Blip2QFormerIntermediate",
                                                 "Blip2QFormerOutput",
                                                 ""};
inline constexpr QFormerClassNames kInstructBlipQFormer{"InstructBlipQFormerModel",
                                                        "InstructBlipQFormerEncoder",
                                                        "InstructBlipQFormerLayer",
                                                        "InstructBlipQFormerAttention",
                                                        "InstructBlipQFormerMultiHeadAttention",
                                                        "InstructBlipQFormerSelfOutput",
                                                        "InstructBlipQFormerIntermediate",
                                                        "InstructBlipQFormerOutput",
                                                        "InstructBlipQFormerEmbeddings",
                                                        true};

/// class Blip2QFormerConfig: the fields that decide memory. Sizes are elements.
struct QFormerConfig {
  const QFormerClassNames* names = &kBlip2QFormer;
  std::int64_t vocab_size = 30522;
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  std::int64_t max_position_embeddings = 512;
  std::int64_t cross_attention_frequency = 2;
  std::int64_t encoder_hidden_size = 1408;
  Activation hidden_act = Activation::gelu;
  double hidden_dropout_prob = 0.1, attention_probs_dropout_prob = 0.1;
  bool has_text_layers = false;  ///< use_qformer_text_input

  bool operator==(const QFormerConfig&) const = default;
};

QFormerConfig read_qformer_config(ConfigReader& reader, const QFormerClassNames& names);

/// What a Q-Former's layers share beside the hidden states.
struct QFormerStates {
  Tensor attention_mask{}, encoder_hidden_states{}, encoder_attention_mask{};
  std::int64_t query_length = 0;
};

struct QFormerAttention {
  QFormerAttention() = default;
  QFormerAttention(const Builder& builder, const QFormerConfig& config, const ModelOptions& options,
                   bool is_cross_attention);
  /// `encoder_hidden_states`: null in self-attention.
  Tensor operator()(const Tensor& hidden_states, const Tensor& mask, const Tensor& encoder_hidden_states) const;

  struct {
    Linear query, key, value;
    std::int64_t attention_head_size = 0;
    AttentionCall call;
    ModuleId module = 0;
  } attention;
  PostNormOutput output;
  ModuleId module = 0;
};

struct QFormerLayer {
  struct FeedForward {
    struct {
      Linear dense;
      ModuleId module = 0;
    } intermediate;
    PostNormOutput output;
  };

  QFormerLayer(const Builder& builder, const QFormerConfig& config, const ModelOptions& options, std::int64_t index);
  Tensor operator()(const Tensor& hidden_states, const QFormerStates& states) const;
  Tensor feed_forward_chunk(const FeedForward& of, const Tensor& attention_output) const;

  QFormerAttention attention;
  std::optional<QFormerAttention> crossattention;
  std::optional<FeedForward> text;
  FeedForward query;
  Activation intermediate_act_fn;
  ModuleId module = 0;
};

struct QFormerEmbeddings {
  QFormerEmbeddings() = default;
  QFormerEmbeddings(const Builder& builder, const QFormerConfig& config, const ModelOptions& options);
  Tensor operator()(const Tensor& input_ids, const Tensor& query_embeds) const;

  Embedding word_embeddings, position_embeddings;
  LayerNorm layernorm;
  Tensor position_ids;  ///< a buffer
  double hidden_dropout_prob = 0;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

struct QFormerModel {
  struct Output {
    Tensor last_hidden_state, pooler_output;
  };
  /// Of one that reads text.
  struct Text {
    Tensor input_ids{}, attention_mask{};  ///< the mask: of queries and text
    const Rows* rows = nullptr;
  };

  QFormerModel() = default;
  QFormerModel(const Builder& builder, const QFormerConfig& config, const ModelOptions& options);
  /// `encoder_attention_mask`: [b, tokens of the encoder], of which none is padding; null: it was not passed.
  Output operator()(const Tensor& query_embeds, const Tensor& encoder_hidden_states,
                    const Tensor& encoder_attention_mask, const Text& text) const;
  Output operator()(const Tensor& query_embeds, const Tensor& encoder_hidden_states,
                    const Tensor& encoder_attention_mask) const {
    return (*this)(query_embeds, encoder_hidden_states, encoder_attention_mask, Text());
  }

  QFormerEmbeddings embeddings;  ///< of one that reads text
  LayerNorm layernorm;           ///< of the others
  std::vector<QFormerLayer> layers;
  BlockStack blocks;
  double hidden_dropout_prob = 0;
  bool reads_text = false;
  std::int64_t cross_attention_frequency = 1;
  MaskedBy masked = MaskedBy::sdpa;
  CheckpointingConfig checkpointing;
  ModuleId encoder = 0, module = 0;
};

/// For Family::largest_tensor: bytes of its largest tensor, for so many rows of queries, text and encoder's states.
double largest_tensor_of_qformer(const QFormerConfig& config, std::int64_t batch, std::int64_t tokens,
                                 std::int64_t encoder_tokens);

}  // namespace oometer
