#include "nn/quantizer.h"

#include <catch2/catch_test_macros.hpp>

#include "autograd/engine.h"
#include "process.h"

namespace oometer {
namespace {

/// A Linear of 256 to 1,000 features whose weight is loaded in 4 bits.
struct Quantised {
  Process p;
  QuantizationConfig config;
  Quantizer quantizer{p.context, config};
  Linear layer;

  explicit Quantised(const QuantizationConfig& given, bool bias = false) : config(given) {
    Builder builder = p.builder();
    builder.quantizer = &quantizer;
    p.context.stopped = true;
    layer = Linear(builder.child("q_proj", "Linear"), 256, 1000, bias);
    p.context.stopped = false;
    p.mark();
    quantizer.load(p.parameters, p.buffers);
  }
};

QuantizationConfig nf4(bool double_quant) {
  QuantizationConfig config;
  config.double_quant = double_quant;
  config.compute_dtype = DType::bfloat16;
  config.prepares = false;
  return config;
}

TEST_CASE("A weight is loaded, packed with its constants, and let go", "[nn]") {
  // As bitsandbytes 0.50.2 does it: room for all, the weight, absmax, packed, code and its largest.
  CHECK(Quantised(nf4(false)).p.allocations() == Bytes{128000, 512000, 16000, 128000, 64, 64, 4});
  CHECK(Quantised(nf4(true)).p.allocations() ==
        Bytes{128000, 512000, 16000, 128000, 64, 64, 4, 4, 16000, 1024, 64, 4000, 1024});
  Quantised q(nf4(false));
  CHECK(q.p.alive(Role::parameter) == 128000 + 16000 + 64);
  CHECK(q.quantizer.elements_of(q.p.parameters.front()) == 256000);
  CHECK(q.layer.weight.dtype() == DType::uint8);
}

TEST_CASE("A 4-bit layer makes its weight anew in forward and in backward, and keeps nothing", "[nn]") {
  Quantised q(nf4(true));
  const Tensor x = q.p.input({2, 2048, 256}, DType::bfloat16, true);
  q.p.mark();
  const Tensor y = q.layer(x);
  CHECK(q.p.allocations() == Bytes{16000, 16000, 512000, 8192000, kWorkspace});
  CHECK(q.p.saved().empty());
  const Tensor gradient = empty_like(Op::ones_like, y);
  q.p.mark();
  autograd::backward(y, gradient);
  CHECK(q.p.allocations() == Bytes{16000, 512000, 2097152, kWorkspace});
}

TEST_CASE("A 4-bit layer computes in its own type", "[nn]") {
  Quantised q(nf4(false));
  const Tensor x = q.p.input({2, 2048, 256}, DType::float32);
  q.p.mark();
  const Tensor y = q.layer(x);
  CHECK(y.dtype() == DType::float32);
  CHECK(q.p.allocations() == Bytes{2097152, 512000, 8192000, kWorkspace, 16384000});
}

TEST_CASE("What is not quantised becomes fp32 unless peft does not prepare it", "[nn]") {
  QuantizationConfig config = nf4(false);
  CHECK(Quantised(config, true).layer.bias.dtype() == DType::bfloat16);
  config.prepares = true;
  CHECK(Quantised(config, true).layer.bias.dtype() == DType::float32);
  config.skip_modules = {"q_proj"};
  const Quantised skipped(config);
  CHECK_FALSE(skipped.layer.quantized);
  CHECK(skipped.layer.weight.dtype() == DType::float32);
}

}  // namespace
}  // namespace oometer
