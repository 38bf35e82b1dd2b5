// Convolutions.
#include "graph/operators/table.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {
namespace {

void k_convolution(GraphCall& c, int dims, bool transposed) {
  const Tensor x = c.tensor(0), weight = c.tensor(1), bias = c.tensor(2);
  if (!has_dims(c, x, dims + 2, dims + 2) || !has_dims(c, weight, dims + 2, dims + 2)) return;
  ConvolutionOptions o;
  o.transposed = transposed;
  o.stride = spatial(c, 3, dims, 1, 1);
  if (const std::string_view padding = c.text(4); !padding.empty()) {
    // conv2d.padding: "valid" is none, "same" is half of what the kernel reaches over.
    o.dilation = spatial(c, 5, dims, 1, 1);
    for (int i = 0; i < dims; ++i) {
      const std::int64_t reach = checked_product(o.dilation[i], weight.size(i + 2) - 1);
      if (padding == "same" && reach % 2 != 0) return c.fail("padding \"same\" with a kernel of even size");
      o.padding.push_back(padding == "same" ? reach / 2 : 0);
    }
  } else {
    o.padding = spatial(c, 4, dims, 0, 0);
  }
  o.groups = c.integer(6, 1);
  o.output_padding = spatial(c, transposed ? 5 : kAbsent, dims, 0, 0);
  o.dilation = spatial(c, transposed ? 7 : 5, dims, 1, 1);
  if (!c.ok()) return;
  const std::int64_t in = transposed ? weight.size(0) : checked_product(weight.size(1), o.groups);
  if (o.groups < 1 || x.size(1) != in || weight.size(0) % o.groups != 0 || x.size(1) % o.groups != 0 ||
      (o.groups > 65536 && !c.context.behaviours.cudnn))
    return c.fail("an input of " + text_of(x.sizes()) + ", a weight of " + text_of(weight.sizes()) + " and " +
                  std::to_string(o.groups) + " groups");
  const Shape sizes = convolution_sizes(x.sizes(), weight.sizes(), o);
  for (int i = 2; i < sizes.ndim(); ++i)
    if (sizes[i] < 1) return c.fail("a kernel that is larger than its input of " + text_of(x.sizes()));
  if (bias && (bias.ndim() != 1 || bias.size(0) != sizes[1])) return c.fail("a bias of " + text_of(bias.sizes()));
  if (!c.context.behaviours.cudnn && x.size(0) > 65536) return c.fail("more than 65,536 samples without cuDNN");
  c.give(convolution(x, weight, bias, o));
}

void k_conv1d(GraphCall& c) { k_convolution(c, 1, false); }

void k_conv2d(GraphCall& c) { k_convolution(c, 2, false); }

void k_conv3d(GraphCall& c) { k_convolution(c, 3, false); }

void k_conv_transpose1d(GraphCall& c) { k_convolution(c, 1, true); }

void k_conv_transpose2d(GraphCall& c) { k_convolution(c, 2, true); }

// In alphabetical order.
constexpr AtenOperator kConvolution[] = {
    {"conv1d", "tt!oI_Ii", k_conv1d},
    {"conv2d", "tt!oI_Ii", k_conv2d},
    {"conv3d", "tt!oI_Ii", k_conv3d},
    {"conv_transpose1d", "tt!oIIIiI", k_conv_transpose1d},
    {"conv_transpose2d", "tt!oIIIiI", k_conv_transpose2d},
};

}  // namespace

const std::span<const AtenOperator> convolution_operators(kConvolution);

}  // namespace oometer
