#include "tensor/tensor.h"

#include <catch2/catch_test_macros.hpp>

#include "process.h"

namespace oometer {
namespace {

TEST_CASE("A tensor's memory goes with its last handle", "[tensor]") {
  Process p;
  Tensor a = empty(p.context, Op::empty, {3, 5}, DType::float32);
  CHECK(p.events() == Bytes{60});
  Tensor b = a;
  a.reset();
  CHECK(p.events() == Bytes{60});
  b = Tensor();
  CHECK(p.events() == Bytes{60, -60});
  CHECK(p.log().storages[0].free_event == 1);
}

TEST_CASE("Assignment frees the old value after the new one is there, as Python's does", "[tensor]") {
  Process p;
  Tensor x = empty(p.context, Op::empty, {1}, DType::float32);
  x = empty(p.context, Op::empty, {2}, DType::float32);
  CHECK(p.events() == Bytes{4, 8, -4});
}

TEST_CASE("A handle assigned to itself keeps its tensor", "[tensor]") {
  Process p;
  Tensor x = empty(p.context, Op::empty, {1}, DType::float32);
  Tensor& same = x;
  x = same;
  x = std::move(same);
  REQUIRE(x);
  CHECK(p.events() == Bytes{4});
}

TEST_CASE("Views share the storage and keep it alive", "[tensor]") {
  Process p;
  Tensor x = empty(p.context, Op::empty, {4, 6}, DType::bfloat16);
  Tensor v = transpose(x, 0, 1), d = detach(x);
  CHECK(p.events() == Bytes{48});
  x.reset();
  v.reset();
  CHECK(p.events() == Bytes{48});
  d.reset();
  CHECK(p.events() == Bytes{48, -48});
}

TEST_CASE("A view holds its base, a detached tensor only the storage", "[tensor]") {
  Process p;
  Tensor x = empty(p.context, Op::empty, {4}, DType::float32);
  const Tensor v = view(x, {2, 2});
  CHECK(x->references == 2);
  const Tensor of_view = unsqueeze(v, 0);
  CHECK(of_view->base.get() == x.get());
  const Tensor d = detach(x);
  CHECK(x->references == 3);
}

TEST_CASE("Nothing is asked of the allocator for no elements", "[tensor]") {
  Process p;
  { const Tensor none = empty(p.context, Op::empty, {0, 7}, DType::float32); }
  CHECK(p.log().events.empty());
  CHECK(p.log().storages.empty());
}

TEST_CASE("Contiguity is about strides of dimensions larger than one", "[tensor]") {
  Process p;
  const Tensor x = empty(p.context, Op::empty, {2, 3, 1, 5}, DType::float32);
  CHECK(x.is_contiguous());
  CHECK(transpose(x, 1, 2).is_contiguous());
  const Tensor t = transpose(x, 1, 3);
  CHECK_FALSE(t.is_contiguous());
  CHECK(t.is_non_overlapping_and_dense());
  const Tensor part = slice(x, 1, 0, 2);
  CHECK_FALSE(part.is_contiguous());
  CHECK_FALSE(part.is_non_overlapping_and_dense());
  CHECK(slice(x, 0, 1, 1).is_contiguous());
  CHECK_FALSE(expand(select(x, 0, 0), {4, 3, 1, 5}).is_non_overlapping_and_dense());
}

TEST_CASE("empty_like keeps a dense tensor's order and closes a sparse one's gaps", "[tensor]") {
  Process p;
  const Tensor x = empty(p.context, Op::empty, {2, 3, 5}, DType::float32);
  CHECK(empty_like(Op::empty, transpose(x, 0, 2)).strides() == Shape{1, 5, 15});
  const Tensor part = transpose(slice(x, 2, 0, 4), 0, 1);
  CHECK(part.strides() == Shape{5, 15, 1});
  CHECK(empty_like(Op::empty, part).strides() == Shape{4, 12, 1});
  CHECK(empty_like(Op::empty, x, DType::bfloat16).nbytes() == 60);
}

TEST_CASE("Sizes beyond what is computed with mark the log and allocate nothing", "[tensor]") {
  Process p;
  const Tensor x = empty(p.context, Op::empty, {std::int64_t{1} << 40, std::int64_t{1} << 40}, DType::float32);
  CHECK(p.log().overflow);
  CHECK(p.log().events.empty());
  CHECK(x.numel() == kSizeLimit);
}

TEST_CASE("The sum of all that is alive overflows too", "[tensor]") {
  Process p;
  std::vector<Tensor> alive;
  alive.reserve(4);
  for (int i = 0; i < 4; ++i) alive.push_back(empty(p.context, Op::empty, {(kSizeLimit / 2) - 512}, DType::uint8));
  CHECK(p.log().overflow);
}

TEST_CASE("What is alive is counted in the allocator's 512 bytes", "[tensor]") {
  Process p;
  Tensor a = empty(p.context, Op::empty, {1}, DType::uint8), b = empty(p.context, Op::empty, {513}, DType::uint8);
  CHECK(p.context.allocated_bytes() == 512 + 1024);
  a.reset();
  CHECK(p.context.allocated_bytes() == 1024);
}

TEST_CASE("Bytes and storages know module, phase, stream and shape", "[tensor]") {
  Process p;
  p.context.begin_phase(PhaseName::forward, 1);
  const ModuleId child = p.context.add_module(p.root, "layers", 3, "Layer", Modality::language);
  Tensor x;
  {
    const ModuleScope scope(p.context, child);
    const Scoped<std::uint8_t> stream(p.context.stream, 2);
    x = empty(p.context, Op::mm, {4, 6}, DType::bfloat16);
  }
  p.context.begin_phase(PhaseName::backward, 1);
  x.reset();
  const Event &born = p.log().events[0], &gone = p.log().events[1];
  CHECK(born.module == child);
  CHECK(born.stream == 2);
  CHECK(std::string(p.log().ops[born.op]) == "mm");
  CHECK(gone.module == p.root);
  CHECK(p.log().phases[1].first_event == 1);
  const StorageRecord& record = p.log().storages[0];
  CHECK(record.ndim == 2);
  CHECK(p.log().dims[record.shape] == 4);
  CHECK(p.log().dims[record.shape + 1] == 6);
  CHECK(record.dtype == DType::bfloat16);
}

TEST_CASE("After the log's end what is torn down leaves no events", "[tensor]") {
  Process p;
  Tensor x = empty(p.context, Op::empty, {1}, DType::float32);
  p.context.finish();
  x.reset();
  const Tensor y = empty(p.context, Op::empty, {1}, DType::float32);
  CHECK(p.events() == Bytes{4});
  CHECK(p.log().storages[0].free_event == kNever);
}

}  // namespace
}  // namespace oometer
