// Pooling, padding, resizing, windows of images.
#include "ops/vision.h"

#include <algorithm>

#include "graph/operators/table.h"
#include "ops/ops.h"

namespace oometer {
namespace {

/// Sizes after a window of `kernel` went over the last dimensions (pooling_output_shape).
Shape pooled(GraphCall& c, const Tensor& x, int dims, bool has_dilation, unsigned ceil_at) {
  Shape sizes = x.sizes();
  const Shape kernel = spatial(c, 1, dims, 1, 1), padding = spatial(c, 3, dims, 0, 0);
  Shape stride = spatial(c, c.length(2) > 0 || (c.has(2) && c.integers(2).ndim() == 1) ? 2 : 1, dims, 1, 1);
  const Shape dilation = has_dilation ? spatial(c, 4, dims, 1, 1) : spatial(c, kAbsent, dims, 1, 1);
  const bool ceil = c.boolean(ceil_at, false);
  if (!c.ok()) return sizes;
  for (int i = 0; i < dims; ++i) {
    const int at = x.ndim() - dims + i;
    const std::int64_t room = x.size(at) + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
    if (room < 0) c.fail("a window that is larger than its input of " + text_of(x.sizes()));
    std::int64_t size = (room + (ceil ? stride[i] - 1 : 0)) / stride[i] + 1;
    if (ceil && (size - 1) * stride[i] >= x.size(at) + padding[i]) --size;
    sizes[at] = size;
  }
  return sizes;
}

void k_max_pool2d(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 3, 4)) return;
  const Shape sizes = pooled(c, x, 2, true, 5);
  if (c.ok()) c.give(max_pool(x, sizes));
}

void k_avg_pool2d(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 3, 4)) return;
  const Shape sizes = pooled(c, x, 2, false, 4);
  if (c.ok()) c.give(avg_pool(x, sizes));
}

/// avg_pool2d of one row (Pooling.cpp)
void k_avg_pool1d(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 2, 3)) return;
  Shape sizes = pooled(c, x, 1, false, 4);
  if (!c.ok()) return;
  Shape images = sizes;
  images.insert(x.ndim() - 1, 1);
  c.give(reshape(avg_pool(unsqueeze(x, x.ndim() - 1), images), sizes));
}

/// Windows of a kernel over an image: [n, channels x kernel, places] (im2col_shape_check); `at`: where kernel,
/// dilation, padding and stride begin among the arguments. No places after an error.
struct Windows {
  std::int64_t kernel = 1, places = 0;
};

Windows windows_over(GraphCall& c, unsigned at, std::int64_t height, std::int64_t width) {
  const Shape kernel = spatial(c, at, 2, 1, 1), dilation = spatial(c, at + 1, 2, 1, 1),
              padding = spatial(c, at + 2, 2, 0, 0), stride = spatial(c, at + 3, 2, 1, 1);
  if (!c.ok()) return {};
  Windows windows{kernel[0] * kernel[1], 1};
  for (int i = 0; i < 2; ++i) {
    const std::int64_t room = (i == 0 ? height : width) + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
    if (room < 0) c.fail("a window that is larger than its input");
    windows.places = checked_product(windows.places, room / stride[i] + 1);
  }
  return windows;
}

void k_im2col(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 4, 4)) return;
  const Windows windows = windows_over(c, 1, x.size(2), x.size(3));
  if (c.ok()) c.give(im2col(x, {x.size(0), checked_product(x.size(1), windows.kernel), windows.places}));
}

void k_col2im(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 3, 3)) return;
  const Shape size = spatial(c, 1, 2, 1, 1);
  const Windows windows = windows_over(c, 2, size[0], size[1]);
  if (!c.ok() || x.size(1) % windows.kernel != 0 || x.size(2) != windows.places)
    return c.fail("windows of " + text_of(x.sizes()) + " for an image of " + text_of(size));
  c.give(col2im(x, {x.size(0), x.size(1) / windows.kernel, size[0], size[1]}));
}

Shape adapted(GraphCall& c, const Tensor& x) {
  Shape sizes = x.sizes();
  const Shape wanted = spatial(c, 1, 2, 1, 0);
  for (int i = 0; i < 2; ++i) sizes[x.ndim() - 2 + i] = wanted[i];
  return sizes;
}

void k_adaptive_avg_pool2d(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 3, 4)) return;
  const Shape sizes = adapted(c, x);
  if (!c.ok()) return;
  // adaptive_avg_pool2d, AdaptiveAveragePooling.cpp
  if (sizes[-1] == 1 && sizes[-2] == 1) return c.give(mean_of_images(x));
  c.give(pool(Op::adaptive_avg_pool2d, Op::adaptive_avg_pool2d_backward, x, sizes, true));
}

void k_adaptive_max_pool2d(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 3, 4)) return;
  const Shape sizes = adapted(c, x);
  if (c.ok()) c.give(max_pool(x, sizes));
}

void k_pad(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const std::size_t count = c.length(1);
  if (count % 2 != 0 || count / 2 > static_cast<std::size_t>(x.ndim())) return c.fail("a padding of other dimensions");
  const std::string_view mode = c.text(2);
  if (mode == "circular") return c.fail("padding that is circular");
  Shape sizes = x.sizes();
  bool changes = false;
  for (unsigned i = 0; i < count; ++i) {
    const auto by = static_cast<std::int64_t>(std::clamp(c.number_in(1, i), -0x1p40, 0x1p40));
    sizes[-1 - static_cast<int>(i / 2)] += by;
    changes |= by != 0;
  }
  if (!changes) return c.give(clone(x));
  // reflection_pad and replication_pad keep their input
  const bool keeps_input = !mode.empty() && mode != "constant";
  if (are_sizes(c, sizes)) c.give(pool(Op::constant_pad_nd, Op::constant_pad_nd, x, sizes, keeps_input));
}

void k_upsample(GraphCall& c) {
  // (self, output_size, align_corners or scale_factors, ...): where sizes are None, factors follow in a list
  const Tensor x = autocast_float32(c.tensor(0));
  const int dims = x.ndim() - 2;
  if (!has_dims(c, x, 3, 5)) return;
  Shape sizes = x.sizes();
  if (c.has(1)) {
    const Shape wanted = spatial(c, 1, dims, 1, 1);
    for (int i = 0; i < dims; ++i) sizes[2 + i] = wanted[i];
  } else {
    const unsigned factors = c.length(2) > 0 ? 2 : 3;
    for (int i = 0; i < dims; ++i)
      sizes[2 + i] = static_cast<std::int64_t>(
          std::clamp(static_cast<double>(x.size(2 + i)) * c.number_in(factors, static_cast<unsigned>(i)), 0.0, 0x1p40));
  }
  if (c.ok()) c.give(pool(Op::upsample, Op::upsample_backward, x, sizes, false));
}

void k_roll(GraphCall& c) {
  Tensor x = c.tensor(0);
  const std::size_t times = std::max<std::size_t>(c.length(1), 1);
  if (times > Shape::kMaxDims) return c.fail("a roll in more than six dimensions");
  for (std::size_t i = 0; i < times; ++i) x = pool(Op::roll, Op::roll, x, x.sizes(), false);
  c.give(std::move(x));
}

void k_flip(GraphCall& c) { c.give(pool(Op::flip, Op::flip, c.tensor(0), c.tensor(0).sizes(), false)); }

// In alphabetical order.
constexpr AtenOperator kVision[] = {
    {"_upsample_bicubic2d_aa", "t!____", k_upsample},
    {"_upsample_bilinear2d_aa", "t!____", k_upsample},
    {"adaptive_avg_pool2d", "tI!", k_adaptive_avg_pool2d},
    {"adaptive_max_pool2d", "tI!", k_adaptive_max_pool2d},
    {"avg_pool1d", "tI!IIbb", k_avg_pool1d},
    {"avg_pool2d", "tI!IIbb_", k_avg_pool2d},
    {"col2im", "tIIIII!", k_col2im},
    {"flip", "t!I", k_flip},
    {"im2col", "tIIII!", k_im2col},
    {"max_pool2d", "tI!III_", k_max_pool2d},
    {"pad", "tI!s_", k_pad},
    {"roll", "tI!I", k_roll},
    {"upsample_bicubic2d", "t!____", k_upsample},
    {"upsample_bilinear2d", "t!____", k_upsample},
    {"upsample_nearest2d", "t!____", k_upsample},
};

}  // namespace

const std::span<const AtenOperator> vision_operators(kVision);

}  // namespace oometer
