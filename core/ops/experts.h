#pragma once

#include <cstdint>

#include "tensor/tensor.h"

/// Operators that mixtures of experts need (PyTorch 2.15 on CUDA). What they allocate depends on how many tokens and
/// experts there are, not on which token goes where.
namespace oometer {

struct TopK {
  Tensor values, indices;
};
/// x.topk(k, dim=-1), of few values in a row.
TopK topk(const Tensor& x, std::int64_t k);
/// x.max(dim=-1, keepdim=True).
TopK max(const Tensor& x);
/// x.gather(-1, indices).
Tensor gather(const Tensor& x, const Tensor& indices);
/// base.scatter_(-1, indices, source) of a base without a gradient: the memory is the base's.
Tensor scatter_into(const Tensor& base, const Tensor& indices, const Tensor& source);
/// x /= other: the memory is x's; a copy of x is kept where other wants a gradient.
Tensor div_in_place(Tensor x, const Tensor& other);

/// x.index_add_(0, index, source) of a matrix: the memory is x's.
Tensor index_add_(Tensor x, const Tensor& index, const Tensor& source);

/// torch.sort of one dimension of int64: the values, and the order.
TopK sort(const Tensor& x);

/// F.grouped_mm(x, weight.transpose(-2, -1), offs): x [tokens, k] in groups, weight [groups, n, k]; [tokens, n].
Tensor grouped_mm(const Tensor& x, const Tensor& weight, const Tensor& offsets);

/// F.grouped_mm(x, weight, offs): weight [groups, k, n].
Tensor grouped_mm_by_rows(const Tensor& x, const Tensor& weight, const Tensor& offsets);

/// base[..., a:b].copy_(source): the base, whose history the copy becomes (CopySlices, torch/csrc/autograd/functions/
/// tensor.cpp), where anything wants a gradient.
Tensor copy_into(Tensor base, const Tensor& source);

/// x * y of complex numbers, pairs of the last dimension: x [b, heads, s, d / 2, 2], which is a view, y [1, 1, s, d /
/// 2, 2] without a gradient; and view_as_real of it.
Tensor mul_complex(const Tensor& x, const Tensor& y);

}  // namespace oometer
