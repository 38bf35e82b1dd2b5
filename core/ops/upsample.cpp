#include "ops/upsample.h"

#include <utility>

#include "ops/images.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

/// ATen/native/cuda/UpSampleBilinear2d.cu: the result lies in memory as the images do (suggest_memory_format), and so
/// does the gradient as its own.
namespace oometer {

namespace {

/// is_channels_last_strides_2d_s4 (c10/core/MemoryFormat.h): a view of one image may have a batch's stride of its own.
bool suggests_channels_last(const Tensor& x) {
  return !x.is_contiguous() && is_channels_last(x) && x.strides()[0] >= x.size(2) * x.strides()[2];
}

void upsample_bilinear2d_backward(Backward& b) {
  const Tensor& grad = b.grad();
  const bool channels_last = suggests_channels_last(grad);
  Tensor grad_input = in_order_of(grad, Op::upsample_backward, b.node.sizes, channels_last);
  // Between equal sizes it is a copy, of a gradient however it lies.
  const bool copies = grad.sizes() == b.node.sizes;
  const Tensor grad_output = copies ? grad : ordered(grad, Op::upsample_backward, channels_last);
  b.give(0, std::move(grad_input));
}

void upsample_nearest2d_backward(Backward& b) {
  const bool channels_last = suggests_channels_last(b.grad());
  Tensor grad_input = in_order_of(b.grad(), Op::upsample_backward, b.node.sizes, channels_last);
  { const Tensor grad_output = ordered(b.grad(), Op::upsample_backward, channels_last); }
  b.give(0, std::move(grad_input));
}

/// upsample_gen2d_aa_backward_out_cuda_template (ATen/native/cuda/UpSampleBilinear2d.cu)
void upsample_aa_backward(Backward& b) {
  Tensor grad_input = empty(b.context, Op::upsample_backward, b.node.sizes, b.grad().dtype());
  { const Tensor grad_output = contiguous(b.grad()); }
  b.give(0, std::move(grad_input));
}

}  // namespace

Tensor upsample_bilinear2d(const Tensor& x_in, std::int64_t height, std::int64_t width) {
  const Tensor x = autocast_float32(x_in);
  Record record(Op::upsample, upsample_bilinear2d_backward, {&x});
  if (record) record->sizes = x.sizes();
  return record.output(in_order_of(x, Op::upsample, {x.size(0), x.size(1), height, width}, suggests_channels_last(x)));
}

// UpSampleNearest2d.cu
Tensor upsample_nearest2d(const Tensor& x_in, std::int64_t height, std::int64_t width) {
  const Tensor x = autocast_float32(x_in);
  Record record(Op::upsample, upsample_nearest2d_backward, {&x});
  if (record) record->sizes = x.sizes();
  return record.output(in_order_of(x, Op::upsample, {x.size(0), x.size(1), height, width}, suggests_channels_last(x)));
}

// UpSampleBicubic2d.cu
Tensor upsample_bicubic2d(const Tensor& x_in, std::int64_t height, std::int64_t width) {
  const Tensor x = autocast_float32(x_in);
  Record record(Op::upsample, upsample_aa_backward, {&x});
  if (record) record->sizes = x.sizes();
  return record.output(in_order_of(x, Op::upsample, {x.size(0), x.size(1), height, width}, is_like_channels_last(x)));
}

// Its kernel knows one order: what lies in another is copied, before and behind.
Tensor upsample_bicubic2d_aa(const Tensor& x_in, std::int64_t height, std::int64_t width) {
  const Tensor x = autocast_float32(x_in);
  Record record(Op::upsample, upsample_aa_backward, {&x});
  if (record) record->sizes = x.sizes();
  const Shape sizes{x.size(0), x.size(1), height, width};
  const bool channels_last = suggests_channels_last(x);
  Tensor output = in_order_of(x, Op::upsample, sizes, channels_last);
  if (channels_last) {
    const Tensor in_usual_order = empty(x.context(), Op::upsample, sizes, x.dtype());
    const Tensor input = contiguous(x);
  }
  return record.output(std::move(output));
}

}  // namespace oometer
