#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nn/module.h"

/// Rows of the embeddings that train, after peft 0.21 (tuners/trainable_tokens/layer.py): by a method of their own, or
/// beside LoRA's adapters (TrainableTokensWrapper in utils/other.py).
namespace oometer {

/// TrainableTokensLayer around an Embedding. Each forward makes the whole matrix anew, with the trained rows in it.
class TrainableTokens : public EmbeddingWrapper {
 public:
  /// `inner`: the layer stands under that name in its wrapper; null: there is none. `builder` moves on to the base
  /// layer.
  TrainableTokens(Builder& builder, const char* inner, std::int64_t rows, std::int64_t size);
  /// update_layer: from the base layer's rows.
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied);
  void cast_parameters() const;

  Tensor operator()(const Embedding& base_layer, const Tensor& indices, const ForwardHook& hook) const override;
  /// The embeddings' weight with the trained rows.
  Tensor merged_weights(const Tensor& weight) const;

 private:
  std::int64_t rows_, size_;
  Builder delta_, original_;
  Tensor trainable_tokens_delta_, trainable_tokens_original_;
  ModuleId module_, base_layer_;
};

/// The same around the head that has the embeddings' weight: it has their rows, too.
class TiedTrainableTokens : public LinearWrapper {
 public:
  TiedTrainableTokens(Builder& builder, const char* inner, std::shared_ptr<const TrainableTokens> embeddings);
  Tensor operator()(const Linear& base_layer, const Tensor& x) const override;

 private:
  std::shared_ptr<const TrainableTokens> embeddings_;
  ModuleId module_;
};

}  // namespace oometer
