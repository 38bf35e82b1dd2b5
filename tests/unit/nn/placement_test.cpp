#include "nn/placement.h"

#include <catch2/catch_test_macros.hpp>

#include "process.h"

namespace oometer {
namespace {

TEST_CASE("A model that is moved takes memory children first, then own parameters, then buffers", "[nn]") {
  Process p;
  p.context.stopped = true;  // on the host
  const Builder outer = p.builder().child("outer", "Outer");
  const Tensor own = outer.parameter("weight", {512});
  const Tensor buffer = outer.buffer({256}, DType::float32);
  const Linear inner(outer.child("inner", "Linear"), 64, 32, false);
  CHECK(p.log().events.empty());
  p.context.stopped = false;
  move_to_device(p.context, p.parameters, p.buffers);
  CHECK(p.allocations() == Bytes{64 * 32 * 2, 512 * 2, 256 * 4});
  CHECK(p.alive(Role::parameter) == 64 * 32 * 2 + 512 * 2);
  CHECK(p.alive(Role::buffer) == 1024);
}

TEST_CASE("A tied weight is moved once", "[nn]") {
  Process p;
  p.context.stopped = true;
  const Embedding embedding(p.builder().child("embed_tokens", "Embedding"), 64, 32);
  Linear head(p.builder().child("lm_head", "Linear"), 32, 64, false);
  head.weight = embedding.weight;
  p.parameters.pop_back();
  p.context.stopped = false;
  move_to_device(p.context, p.parameters, p.buffers);
  CHECK(p.allocations() == Bytes{64 * 32 * 2});
  CHECK(head.weight->storage == embedding.weight->storage);
}

}  // namespace
}  // namespace oometer
