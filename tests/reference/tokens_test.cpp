#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "files.h"
#include "job/parse.h"

namespace oometer {
namespace {

TEST_CASE("An image of any size takes as many tokens as the real processor gives it", "[reference][tokens]") {
  const auto files = files_of_families("tokens");
  CHECK_FALSE(files.empty());
  for (const std::filesystem::path& file : files) {
    std::ifstream input(kReference / file);
    for (std::string line; std::getline(input, line);) {
      const nlohmann::json recorded = nlohmann::json::parse(line);
      for (const nlohmann::json& size : recorded["sizes"]) {
        nlohmann::json job{{"version", 1}, {"task", "train"}, {"model", {{"preset", recorded["model"]}}}};
        job["gpu"]["name"] = "h100-80gb";
        job["data"] = {{"image_size", {size[0], size[1]}}, {"sequence_length", 20'000}};
        const Result<Job> read = parse_job(job.dump());
        INFO(recorded["model"] << ": " << size);
        REQUIRE(read.has_value());
        CHECK(read->data.tokens_per_image == size[2]);
      }
    }
  }
}

}  // namespace
}  // namespace oometer
