#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/context.h"
#include "tensor/tensor.h"
#include "tensor/tensor_list.h"

/// The operators: what each allocates, what it hands autograd, what its backward allocates. Names and behaviour are
/// ATen's on CUDA (PyTorch 2.15). Every function works in grad mode and without; backward formulas call these same
/// functions with grad mode off, as PyTorch's do.
namespace oometer {

class Backward;

// views.cpp: no memory, but a view keeps its base's storage alive.
/// A view without history of its own: it holds its base (VariableTypeUtils.h, as_view).
Tensor make_view(const Tensor& x, const Shape& sizes, const Shape& strides);
Tensor view(const Tensor& x, const Shape& sizes);
Tensor reshape(const Tensor& x, const Shape& sizes);  ///< a view where strides allow it, else a copy
/// What matmul gives back: the same storage, without the view relation (at::_unsafe_view).
Tensor unsafe_view(Tensor x, const Shape& sizes);
Tensor transpose(const Tensor& x, int dim0, int dim1);
Tensor unsqueeze(const Tensor& x, int dim);
Tensor expand(const Tensor& x, const Shape& sizes);
/// x[..., start:start+length, ...] along one dimension.
Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t length);
Tensor select(const Tensor& x, int dim, std::int64_t index);
Tensor contiguous(const Tensor& x);

// pointwise.cpp
Tensor to(const Tensor& x, DType dtype);  ///< x itself if it has that type
Tensor clone(const Tensor& x);
/// A copy in `layout`'s memory order (AccumulateGrad's clone_obey_contract).
Tensor copy_to_layout(Op op, const Tensor& x, const Tensor& layout);
Tensor add(const Tensor& a, const Tensor& b);
Tensor add_scalar(const Tensor& x);
void add_(Tensor& a, const Tensor& b);
/// A linear layer's `output.add_(bias)`: in place, recorded.
Tensor add_bias_(Tensor output, const Tensor& bias);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor mul_scalar(const Tensor& x);
Tensor div(const Tensor& a, const Tensor& b);
void div_backward(Backward& call);  ///< saved: the dividend where the divisor wants a gradient, the divisor
Tensor div_scalar(const Tensor& x);
/// `x / cap`, tanh, `* cap`, each bound to the name of the one before: Gemma 2's attention weights, and its logits.
Tensor softcap(Tensor x);
Tensor mul_scalar_(Tensor x);  ///< in place, recorded
Tensor neg(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor pow(const Tensor& x, double exponent);
Tensor rsqrt(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor silu(const Tensor& x);
Tensor gelu(const Tensor& x);  ///< erf or tanh: the same memory
Tensor relu(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor dropout(const Tensor& x, double p);  ///< training mode; p = 0: x itself
/// A pointwise result that autograd does not follow (comparisons, cos, sin, masks).
Tensor pointwise(Op op, std::initializer_list<const Tensor*> operands, DType dtype);

// reduce.cpp
Tensor sum(const Tensor& x, const std::vector<int>& dims, bool keepdim);
Tensor sum_all(const Tensor& x);  ///< to a scalar; integers and booleans sum to int64
/// x.norm(p=2, dim=-1, keepdim=...).
Tensor linalg_vector_norm(const Tensor& x, bool keepdim = true);
Tensor linalg_vector_norm(const Tensor& x, const std::vector<int>& dims, bool keepdim);
Tensor amax(const Tensor& x, const std::vector<int>& dims, bool keepdim);
Tensor mean(const Tensor& x, int dim, bool keepdim);
Tensor mean_all(const Tensor& x);
/// Sums a broadcast operand's gradient back to its shape (at::sum_to).
Tensor sum_to(const Tensor& x, const Shape& sizes);
/// A reduction without autograd: its result and, while it runs, its staging buffers (Reduce.cuh).
Tensor reduce(Op op, const Tensor& x, const std::vector<int>& dims, bool keepdim, DType dtype);

// matmul.cpp
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);  ///< bias may be null
Tensor matmul(const Tensor& a, const Tensor& b);
Tensor mm(const Tensor& a, const Tensor& b);
Tensor bmm(const Tensor& a, const Tensor& b);
/// input.baddbmm(batch1, batch2, beta, alpha), of an input [n, 1, m] or [n, k, m] that wants no gradient. `scales`:
/// alpha is not 1.
Tensor baddbmm(const Tensor& input, const Tensor& batch1, const Tensor& batch2, bool scales = true);
/// torch.einsum("a,b->out"), each letter once in each: one batched product (Linear.cpp, einsum and sumproduct_pair),
/// with the second operand first where the result has all of its own letters before the first one's.
Tensor einsum(std::string a, std::string b, const std::string& out, const Tensor& first, const Tensor& second);

// normalization.cpp
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias);

// softmax.cpp
/// softmax over the last dimension, computed and returned in `dtype` (F.softmax(x, dim=-1, dtype=...)).
Tensor softmax(const Tensor& x, DType dtype);
/// F.cross_entropy(logits [n, classes], target [n]), mean.
Tensor cross_entropy(const Tensor& logits, const Tensor& target);

// embedding.cpp
Tensor embedding(const Tensor& weight, const Tensor& indices);

// convolution.cpp
/// nn.Conv2d or nn.Conv3d whose kernel does not overlap (patch embedding): stride = kernel, no padding.
Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias);

// joining.cpp
Tensor cat(const std::vector<Tensor>& tensors, int dim);
/// torch.stack(tensors, dim): backward gives each a view of the gradient.
Tensor stack(const TensorList& tensors, int dim = 0);
/// torch.split(x, sizes): the pieces, which one tensor stands for, since what takes them (cat) needs their sum only.
Tensor split(const Tensor& x);
/// The pieces themselves, views; backward joins their gradients.
TensorList split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dim);
/// torch.unbind(x, dim): views, x[0], x[1], ... for the first; backward stacks their gradients.
TensorList unbind(const Tensor& x, int dim = 0);
/// torch.cat(list(x), dim=0): the batch's items end to end; backward stacks their gradients again.
Tensor cat_unbound(const Tensor& x);

// indexing.cpp
/// x.masked_scatter(mask, source): as many True as source has elements, or rows where mask is [.., 1].
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source);
/// x[row, column] with index tensors of one dimension.
Tensor index(const Tensor& x, const Tensor& rows, const Tensor& columns);
/// x[indices] with an index tensor of one dimension.
Tensor index(const Tensor& x, const Tensor& indices);
/// flash_attn.bert_padding.IndexPutFirstAxis: zeros of `rows` rows, into which x's go.
Tensor index_put_first_axis(const Tensor& x, const Tensor& indices, std::int64_t rows);
/// x.index_copy(0, index, source): a copy of x with other rows.
Tensor index_copy(const Tensor& x, const Tensor& index, const Tensor& source);
/// x[indices] with an index tensor of `count` rows in host memory: each use of it copies it to the device.
Tensor index_from_host(const Tensor& x, std::int64_t count);
/// The indices of a mask's `selected` True elements, [selected, dimensions].
Tensor nonzero(const Tensor& mask, std::int64_t selected);
/// x[mask] with a boolean mask over x's first dimensions, `selected` of whose elements are True.
Tensor index_mask(const Tensor& x, const Tensor& mask, std::int64_t selected);
/// x[rows, columns] = values and x[mask] = values, in place: the result takes x's name.
Tensor index_put_(Tensor x, const Tensor& rows, const Tensor& columns, const Tensor& values);
Tensor index_put_mask_(Tensor x, const Tensor& mask, const Tensor& values);
/// F.pad(x, (0, 1), value): one more column.
Tensor pad_last(const Tensor& x);

// attention.cpp
enum class AttentionKernel : std::uint8_t { flash, efficient, math, cudnn };
struct AttentionOptions {
  bool causal = false;
  bool enable_gqa = false;
  double dropout = 0;
};
/// F.scaled_dot_product_attention(query [b, heads, s, d], key, value [b, kv_heads, s, d], mask or null).
Tensor scaled_dot_product_attention(AttentionKernel kernel, const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& mask, const AttentionOptions& options);

// flash_attention.cpp: the packages flash-attn 2 and 3
struct FlashOptions {
  bool causal = false;
  double dropout = 0;
  int version = 2;
  std::int64_t longest = 0;  ///< tokens of a sequence
  std::int64_t pairs = 0;    ///< of a query and a key of the same sequence, masked ones too, over all sequences
};
/// query [b, s, heads, d], key and value [b, s, kv_heads, d], in half precision.
Tensor flash_attn_func(const Tensor& query, const Tensor& key, const Tensor& value, const FlashOptions& options);
/// query [tokens, heads, d], key and value [tokens, kv_heads, d]; cu_seqlens [sequences + 1].
Tensor flash_attn_varlen_func(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& cu_seqlens,
                              const FlashOptions& options);

/// cuBLAS's scratch memory around one GEMM (CublasHandlePool.cpp): see Behaviours.
class GemmWorkspace {
 public:
  explicit GemmWorkspace(Context& context);
  /// One of so many bytes, for the call alone or kept among `workspaces`.
  GemmWorkspace(Context& context, Op op, std::int64_t bytes, bool per_call, std::vector<Storage>& workspaces);

 private:
  Storage storage_;
};

// Autocast (ATen/autocast_mode.h): what an operator of each list does to its operands first.
Tensor autocast_lower(const Tensor& x);    ///< lower_precision_fp list
Tensor autocast_float32(const Tensor& x);  ///< fp32 list

}  // namespace oometer
