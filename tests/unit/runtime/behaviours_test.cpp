#include "runtime/behaviours.h"

#include <catch2/catch_test_macros.hpp>

namespace oometer {
namespace {

Behaviours with_torch(int minor) {
  Runtime runtime;
  runtime.torch = {2, minor, 0};
  return resolve_behaviours(runtime);
}

TEST_CASE("Versions are read and compared", "[runtime]") {
  CHECK(*parse_version("2.15") == Version{2, 15, 0});
  CHECK(*parse_version("v4.37.2") == Version{4, 37, 2});
  CHECK(*parse_version("2.15.0+cu132") == Version{2, 15, 0});
  CHECK(Version{4, 9, 0} < Version{4, 37, 0});
  CHECK(to_string(Version{0, 19, 8}) == "0.19.8");
  CHECK(to_string(Version{2, 15, 0}) == "2.15");
  for (const char* bad : {"", "2", "2.", "two", "2.x", ".1", "2.15.", "999999.1", "-2.1"}) {
    INFO(bad);
    CHECK_FALSE(parse_version(bad).has_value());
  }
}

TEST_CASE("The defaults of the flags are those of the default runtime", "[runtime]") {
  const Behaviours measured = resolve_behaviours(Runtime{});
  CHECK(measured.cublas_workspace_per_call);
  CHECK(measured.llava_merge == LlavaMerge::masked_scatter);
  CHECK(measured.loss_shift == LossShift::pad_labels);
  CHECK_FALSE(measured.captures_all_hidden_states);
  CHECK_FALSE(measured.dispatch_mode);
}

TEST_CASE("Workspaces by version of torch", "[runtime]") {
  CHECK_FALSE(with_torch(14).cublas_workspace_per_call);
  CHECK(with_torch(14).cublaslt_workspace_unified);
  CHECK_FALSE(with_torch(10).cublaslt_workspace_per_call);
  CHECK_FALSE(with_torch(10).cublaslt_workspace_unified);
  CHECK(with_torch(6).cublaslt_workspace_per_call);
}

TEST_CASE("The original LLaVA code behaves as its pins", "[runtime]") {
  const Behaviours original = resolve_behaviours(default_runtime(Framework::llava));
  CHECK(original.llava_merge == LlavaMerge::split_and_cat);
  CHECK(original.logits_float_in_model);
  CHECK(original.loss_shift == LossShift::shift_logits_copy);
  CHECK(original.captures_all_hidden_states);
  CHECK(original.zero_optimizer_states_at_init);
  CHECK_FALSE(original.zero_flattens_on_gpu);
  CHECK_FALSE(original.cublas_workspace_per_call);
}

}  // namespace
}  // namespace oometer
