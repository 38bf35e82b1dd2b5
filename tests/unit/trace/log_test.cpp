#include "trace/log.h"

#include <catch2/catch_test_macros.hpp>

namespace oometer {
namespace {

TEST_CASE("A module's path is the names from the root, list positions among them", "[trace]") {
  Log log;
  log.modules = {{0, "", -1, "Model", Modality::none},
                 {0, "language_model", -1, "LlamaModel", Modality::language},
                 {1, "layers", 31, "LlamaDecoderLayer", Modality::language},
                 {2, "mlp", -1, "LlamaMLP", Modality::language},
                 {0, "lm_head", -1, "Linear", Modality::language}};
  CHECK(module_path(log, 0).empty());
  CHECK(module_path(log, 1) == "language_model");
  CHECK(module_path(log, 2) == "language_model.layers.31");
  CHECK(module_path(log, 3) == "language_model.layers.31.mlp");
  CHECK(module_path(log, 4) == "lm_head");
}

TEST_CASE("Models follow each other, each with its modules", "[trace]") {
  Log log;
  log.modules = {{0, "", -1, "Policy", Modality::none},
                 {0, "layers", 0, "Layer", Modality::none},
                 {2, "reference", -1, "Policy", Modality::none},
                 {2, "layers", 0, "Layer", Modality::none}};
  CHECK(module_path(log, 3) == "reference.layers.0");
  CHECK(log.root_of(1) == 0);
  CHECK(log.root_of(3) == 2);
  CHECK(log.end_of(0) == 2);
  CHECK(log.end_of(2) == 4);
}

TEST_CASE("Element sizes and names are PyTorch's", "[trace]") {
  CHECK(element_size(DType::float64) == 8);
  CHECK(element_size(DType::float32) == 4);
  CHECK(element_size(DType::float16) == 2);
  CHECK(element_size(DType::bfloat16) == 2);
  CHECK(element_size(DType::int64) == 8);
  CHECK(element_size(DType::int32) == 4);
  CHECK(element_size(DType::uint8) == 1);
  CHECK(element_size(DType::boolean) == 1);
  CHECK(std::string(dtype_name(DType::bfloat16)) == "bf16");
  CHECK(is_floating_point(DType::bfloat16));
  CHECK_FALSE(is_floating_point(DType::int64));
  CHECK(is_half(DType::float16));
  CHECK_FALSE(is_half(DType::float32));
}

TEST_CASE("An event is small: a step has tens of thousands", "[trace]") {
  STATIC_REQUIRE(sizeof(Event) == 12);
  STATIC_REQUIRE(sizeof(StorageRecord) <= 48);
}

}  // namespace
}  // namespace oometer
