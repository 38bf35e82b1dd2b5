#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "models/kit/encoder.h"
#include "models/kit/post_norm_output.h"
#include "nn/block_stack.h"
#include "nn/module.h"

/// transformers 5.23, models/deberta_v2/modeling_deberta_v2.py (DeBERTa-v2 and v3). Names and order of steps are that
/// file's.
namespace oometer {

struct DebertaClasses;

/// class DebertaV2Config: the fields that decide memory. Sizes are elements.
struct DebertaV2Config : EncoderConfig {
  double hidden_dropout_prob = 0.1, attention_probs_dropout_prob = 0.1, pooler_dropout = 0, cls_dropout = 0.1;
  std::int64_t type_vocab_size = 0;
  bool relative_attention = false, position_biased_input = true, share_att_key = false;
  bool normalises_positions = false;  ///< norm_rel_ebd has "layer_norm"
  bool c2p = false, p2c = false;      ///< of pos_att_type
  std::int64_t position_buckets = 0;  ///< 0: none
  std::int64_t max_relative_positions = 512;
  Activation pooler_hidden_act = Activation::gelu;
  bool names_problem = false;  ///< problem_type is given
  const DebertaClasses* classes = nullptr;

  /// Relative positions on either side that have an embedding.
  std::int64_t span() const { return position_buckets > 0 ? position_buckets : max_relative_positions; }
  bool operator==(const DebertaV2Config&) const = default;
};

/// What a layer gets beside the hidden states.
struct DebertaV2Positions {
  Tensor attention_mask;  ///< [b, 1, s, s]
  Tensor relative_pos;    ///< [1, s, s]
  Tensor rel_embeddings;  ///< [2 * span, hidden]
};

/// What the two versions do not share.
struct DebertaClasses {
  using SelfAttention = std::function<Tensor(const Tensor& hidden_states, const DebertaV2Positions& positions)>;
  using Output = std::function<Tensor(const Tensor& hidden_states, const Tensor& input_tensor)>;

  const char *model, *embeddings, *encoder, *layer, *attention, *self_output, *intermediate, *output;
  const char *head, *predictions, *transform;  ///< of masked tokens
  SelfAttention (*make_self)(const Builder& builder, const DebertaV2Config& config);
  Output (*make_output)(const Builder& builder, std::int64_t in_features, const DebertaV2Config& config);
  std::function<Tensor(const Tensor&)> (*make_norm)(const Builder& builder, std::int64_t hidden_size);
  bool repeats_keys = false;  ///< build_relative_position makes a copy of the keys' positions for each query
};

struct DisentangledSelfAttention {
  DisentangledSelfAttention() = default;
  DisentangledSelfAttention(const Builder& builder, const DebertaV2Config& config);
  Tensor operator()(const Tensor& hidden_states, const DebertaV2Positions& positions) const;

 private:
  Tensor transpose_for_scores(const Tensor& x) const;
  Tensor disentangled_attention_bias(const Tensor& query_layer, const Tensor& key_layer, const Tensor& relative_pos,
                                     const Tensor& rel_embeddings) const;

  Linear query_proj_, key_proj_, value_proj_, pos_key_proj_, pos_query_proj_;
  std::int64_t heads_ = 0, span_ = 0;
  bool relative_attention_ = false, share_att_key_ = false, c2p_ = false, p2c_ = false;
  double hidden_dropout_ = 0, dropout_ = 0;
  ModuleId module_ = 0;
};

struct DebertaV2Layer {
  DebertaV2Layer(const Builder& builder, const DebertaV2Config& config);
  Tensor operator()(const Tensor& hidden_states, const DebertaV2Positions& positions) const;

  DebertaClasses::SelfAttention self;
  DebertaClasses::Output attention_output, output;
  Linear intermediate;
  Activation act = Activation::gelu;
  ModuleId attention_module = 0, intermediate_module = 0, module = 0;
};

struct DebertaV2Model {
  DebertaV2Model() = default;
  DebertaV2Model(const Builder& builder, const DebertaV2Config& config, const ModelOptions& options);
  Tensor operator()(const ModelInputs& inputs) const;

  Tensor embed(const Tensor& input_ids, const Tensor& token_type_ids, const Tensor& mask) const;

  Embedding word_embeddings, position_embeddings, token_type_embeddings, rel_embeddings;
  std::function<Tensor(const Tensor&)> layer_norm;
  LayerNorm rel_layer_norm;
  Tensor position_ids;
  std::vector<DebertaV2Layer> layers;
  BlockStack blocks;
  CheckpointingConfig checkpointing;
  double hidden_dropout = 0;
  bool buckets = false, has_pad_token = true, repeats_keys = false;
  ModuleId embeddings = 0, encoder = 0, module = 0;
};

/// Reads what both versions have; `c` has the class's defaults.
void read_deberta_config(ConfigReader& reader, const ModelClass& of, DebertaV2Config& c);

std::unique_ptr<Model> build_deberta_v2(Context& context, const DebertaV2Config& config, const DataConfig& data,
                                        const ModelOptions& options);

}  // namespace oometer
