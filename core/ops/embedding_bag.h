#pragma once

#include "tensor/tensor.h"

namespace oometer {

/// F.embedding_bag(indices, weight, per_sample_weights=..., mode="sum") of indices [bags, rows of the weight in each]
/// (PyTorch 2.15 on CUDA: ATen/native/cuda/EmbeddingBag.cu). The rows' own weights get no gradient.
Tensor embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& per_sample_weights);

}  // namespace oometer
