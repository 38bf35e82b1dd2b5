#include "job/estimate.h"

#include <nlohmann/json.hpp>

#include "jobs.h"

namespace oometer {
namespace {

using nlohmann::json;

constexpr const char* kZero2 = R"(, "parallel": {"strategy": "deepspeed", "zero_stage": 2, "data": 2})";

void each_module(const json& module, const auto& visit) {
  visit(module);
  for (const json& child : module.at("children")) each_module(child, visit);
}

}  // namespace

TEST_CASE("a module's tensors and its parts of flat buffers sum to what it holds", "[job]") {
  for (const std::string& job :
       {tiny_llava(), tiny_llava(R"("stage": "finetune", "precision": "bf16")", kZero2), tiny_llama()}) {
    EstimateOptions options;
    options.full_tree = true;
    const json report = json::parse(estimate_json(job, options));
    bool flat = false;
    each_module(report.at("modules").at(0), [&](const json& module) {
      std::int64_t held = -module.at("allocator_rounding").get<std::int64_t>();
      for (const auto& [factor, bytes] : report.at("breakdown").items()) held += module.at(factor).get<std::int64_t>();
      std::int64_t sum = 0;
      std::int64_t before = std::numeric_limits<std::int64_t>::max();
      const std::string path = module.at("path");
      for (const json& tensor : json::parse(tensors_json(job, path))) {
        const auto bytes = tensor.at("bytes").get<std::int64_t>();
        CHECK(bytes <= before);
        CHECK(tensor.at("module").get<std::string>().starts_with(path));
        flat = flat || tensor.contains("flat");
        before = bytes;
        sum += bytes;
      }
      INFO(path);
      CHECK(sum == held);
    });
    CHECK(flat == (job.find("deepspeed") != std::string::npos));
  }
}

TEST_CASE("tensors are asked of a module that there is", "[job]") {
  CHECK(tensors_json(tiny_llama(), "model.layers.7").find(R"({"error":{"code":"invalid")") == 0);
  CHECK(tensors_json("{", "").find(R"({"error":{"code":"not-json")") == 0);
}

}  // namespace oometer
