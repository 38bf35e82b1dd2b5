#pragma once

#include <cstdint>
#include <vector>

#include "ops/ops.h"

/// Operators that masks and recurrences are made of (PyTorch 2.15 on CUDA).
namespace oometer {

/// x.cumsum(dim), of integers and booleans as int64 unless `dtype` says otherwise.
Tensor cumsum(const Tensor& x, int dim, DType dtype);
/// torch.all or torch.any, by its name, over some dimensions: booleans.
Tensor all(Op op, const Tensor& x, const std::vector<int>& dims, bool keepdim);
/// torch.where(condition, a, b)
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
/// torch.tril or torch.triu: a copy of x with zeros on one side.
Tensor triangle(const Tensor& x);
Tensor abs(const Tensor& x);
/// x.flip(dims)
Tensor flip(const Tensor& x);
/// F.pad of one dimension, at one end: a copy even where `more` is 0.
Tensor pad(const Tensor& x, int dim, std::int64_t more);
Tensor masked_fill_in_place(const Tensor& x, const Tensor& mask);
/// x.clamp_(min, max), which keeps a copy of what x was.
Tensor clamp_in_place(const Tensor& x);
/// x.copy_(source)
Tensor copy_in_place(const Tensor& x, const Tensor& source);
/// x.to(dtype, memory_format=torch.contiguous_format)
Tensor to_contiguous(const Tensor& x, DType dtype);
/// torch.linalg.solve_triangular(a, b, upper=..., unitriangular=...): a [.., n, n], b [.., n, k].
Tensor solve_triangular(const Tensor& a, const Tensor& b);

}  // namespace oometer
