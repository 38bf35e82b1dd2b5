#pragma once

#include <cstdint>
#include <vector>

#include "tensor/context.h"
#include "tensor/tensor.h"
#include "tensor/tensor_list.h"

/// Operators of convolutional networks and their kin (PyTorch 2.15 on CUDA), as ops.h has those of transformers.
namespace oometer {

/// Memory in which the channel is the fastest dimension: [n, c], and images laid out so.
inline bool is_channels_last(const Tensor& x) {
  return x.strides()[1] == 1 && x.size(1) > 1 && x.is_non_overlapping_and_dense();
}

/// A tensor like x with `sizes`, in one of the two orders in which kernels of images work.
Tensor in_order_of(const Tensor& x, Op op, const Shape& sizes, bool channels_last);
/// x.contiguous(memory_format), for the call.
Tensor ordered(const Tensor& x, Op op, bool channels_last);

struct ConvolutionOptions {
  Shape stride, padding, dilation, output_padding;  ///< one a spatial dimension
  std::int64_t groups = 1;
  bool transposed = false;
};
/// at::convolution: x [n, c, spatial...], weight [out, in / groups, kernel...] (transposed: [in, out / groups, ...]).
/// With cuDNN its plans take workspaces; without it PyTorch unfolds one sample at a time into a matrix.
Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionOptions& options);
/// What a plan of cuDNN asks for, in PyTorch's order of dimensions; PyTorch allocates it around the call
/// (cudnn/Conv_v8.cpp, run_conv_plan). Tensor cores work channels last, so a plan copies what it reads into that order,
/// and what it writes unless it is a forward in float32. That is what the heuristics of cuDNN 9.26 choose first for
/// most convolutions of timm's models, asked without a device (tools/cudnn_workspaces.py, tests/reference/cudnn.jsonl):
/// a weight's gradient may take up to a sixth more, for parts that are summed, and some forwards take none. Float32
/// runs on tensor cores, as TF32, from sm_80 on (torch.backends.cudnn.allow_tf32 is on unless turned off); few channels
/// with a small kernel have kernels of their own.
std::int64_t cudnn_workspace(const Device& device, DType dtype, const Shape& x, const Shape& weight, const Shape& y,
                             bool backward);
/// The sizes that it gives; a dimension is 0 or less where the kernel does not fit.
Shape convolution_sizes(const Shape& x, const Shape& weight, const ConvolutionOptions& options);

/// weight and bias may be null.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, bool training);
Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias);
/// Over the last `dims` dimensions.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, int dims);
/// F.rms_norm over the last `dims` dimensions; `weight` may be null.
Tensor rms_norm(const Tensor& x, const Tensor& weight, int dims);

/// An operator whose backward makes one tensor like its input and needs the input (`keeps_input`), or its shape.
Tensor pool(Op forward, Op backward, const Tensor& x, const Shape& sizes, bool keeps_input);
/// avg_pool2d, which keeps images laid out channels last so.
Tensor avg_pool(const Tensor& x, const Shape& sizes);
/// F.unfold and F.fold (im2col, col2im), each the other's backward: the result of `sizes` begins as a tensor as large
/// as the operand and keeps its memory where it needs less.
Tensor im2col(const Tensor& x, const Shape& sizes);
Tensor col2im(const Tensor& x, const Shape& sizes);
/// adaptive_avg_pool2d to one value a channel; in channels-last order the result is, too, by as_strided.
Tensor mean_of_images(const Tensor& x);
/// With indices, which the backward needs.
Tensor max_pool(const Tensor& x, const Shape& sizes);

/// Activations whose backward needs the input (in place: a copy of it), or the result.
Tensor activation_of_input(Op forward, Op backward, const Tensor& x, bool in_place);
Tensor activation_of_result(Op forward, Op backward, const Tensor& x, bool in_place);

class Record;
/// The result of an operator in place: x's memory, with the operator as its history. `other` (or null) is read.
Tensor in_place(Record& record, Op op, const Tensor& x, const Tensor& other = {});
/// x with arithmetic in place: `x.add_(other)` and kin. Null `other`: a number.
Tensor add_in_place(const Tensor& x, const Tensor& other);
Tensor add_multiple_in_place(const Tensor& x, const Tensor& other);  ///< x.add_(other, alpha=2)
Tensor mul_in_place(const Tensor& x, const Tensor& other);
/// input.mul_(empty_like(input).bernoulli_(1 - p).div_(1 - p)): what dropout_ is.
Tensor dropout_in_place(const Tensor& x, double p);

Tensor permute(const Tensor& x, const Shape& order);
Tensor mean(const Tensor& x, const std::vector<int>& dims, bool keepdim);
Tensor var(const Tensor& x, const std::vector<int>& dims, bool keepdim);
Tensor standard_deviation(const Tensor& x, const std::vector<int>& dims, bool keepdim);
/// The variance, then the mean.
TensorList var_mean(const Tensor& x, const std::vector<int>& dims, bool keepdim);
/// x.max(dim) or x.min(dim): the values, then their indices.
TensorList max(const Tensor& x, int dim, bool keepdim);
/// torch.maximum or torch.minimum, by its name.
Tensor maximum(Op op, const Tensor& a, const Tensor& b);
/// `index` of one dimension.
Tensor index_select(const Tensor& x, int dim, const Tensor& index);
/// x[index] along one dimension: `index` int64 of any shape.
Tensor index(const Tensor& x, int dim, const Tensor& index);
/// self + tensor1 * tensor2
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b);
/// Between numbers, of which the lower may be absent, or the upper.
Tensor clamp(const Tensor& x, bool both);
Tensor sqrt(const Tensor& x);
/// x.repeat: as many dimensions as `times`, each so often.
Tensor repeat(const Tensor& x, const Shape& times);
/// x.repeat_interleave(times, dim): a copy of x, expanded.
Tensor repeat_interleave(const Tensor& x, std::int64_t times, int dim);
/// x.unfold(dim, size, step): windows that may overlap, a view with their elements as its last dimension.
Tensor unfold(const Tensor& x, int dim, std::int64_t size, std::int64_t step);
Tensor masked_fill(const Tensor& x, const Tensor& mask);
/// F.log_softmax over the last dimension.
Tensor log_softmax(const Tensor& x);

}  // namespace oometer
