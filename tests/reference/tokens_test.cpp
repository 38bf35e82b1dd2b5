#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "files.h"
#include "job/parse.h"

namespace oometer {
namespace {

nlohmann::json job_of(const nlohmann::json& preset, nlohmann::json data) {
  nlohmann::json job{{"version", 1}, {"task", "train"}, {"model", {{"preset", preset}}}};
  job["gpu"]["name"] = "h100-80gb";
  job["data"] = std::move(data);
  return job;
}

TEST_CASE("An image of any size takes as many tokens as the real processor gives it", "[reference][tokens]") {
  const auto files = files_of_families("tokens");
  CHECK_FALSE(files.empty());
  for (const std::filesystem::path& file : files) {
    std::ifstream input(kReference / file);
    for (std::string line; std::getline(input, line);) {
      const nlohmann::json recorded = nlohmann::json::parse(line);
      for (const nlohmann::json& size : recorded["sizes"]) {
        const nlohmann::json job =
            job_of(recorded["model"], {{"image_size", {size[0], size[1]}}, {"sequence_length", 20'000}});
        const Result<Job> read = parse_job(job.dump());
        INFO(recorded["model"] << ": " << size);
        REQUIRE(read.has_value());
        CHECK(read->data.tokens_per_image == size[2]);
      }
    }
  }
}

TEST_CASE("Images of several sizes take what each takes alone", "[reference][tokens]") {
  for (const std::filesystem::path& file : files_of_families("tokens")) {
    std::ifstream input(kReference / file);
    for (std::string line; std::getline(input, line);) {
      const nlohmann::json recorded = nlohmann::json::parse(line), &sizes = recorded["sizes"];
      for (std::size_t i = 0; i + 3 <= sizes.size(); i += 97) {
        nlohmann::json data;
        std::int64_t tokens = 0;
        for (std::size_t k = i; k < i + 3; ++k) {
          data["image_sizes"].push_back({sizes[k][0], sizes[k][1]});
          tokens += sizes[k][2].get<std::int64_t>();
        }
        data["sequence_length"] = tokens + 1000;  // of audio, too
        const Result<Job> read = parse_job(job_of(recorded["model"], data).dump());
        INFO(recorded["model"] << ": " << data.dump());
        if (!read) {  // a family that takes one image, or pads them in a way of its own
          CHECK((read.error().pointer == "/data/image_sizes" || read.error().code == "not-modelled"));
          continue;
        }
        CHECK(read->data.images_per_sample == 3);
        CHECK(read->data.tokens_of_images() == tokens);
      }
    }
  }
}

TEST_CASE("A video takes as many tokens as the real processor gives it", "[reference][tokens]") {
  const auto files = files_of_families("videos");
  CHECK_FALSE(files.empty());
  for (const std::filesystem::path& file : files) {
    std::ifstream input(kReference / file);
    for (std::string line; std::getline(input, line);) {
      const nlohmann::json recorded = nlohmann::json::parse(line);
      for (const nlohmann::json& film : recorded["videos"]) {
        const nlohmann::json video{{"seconds", film[0]}, {"fps", film[1]}, {"size", {film[2], film[3]}}};
        const Result<Job> read =
            parse_job(job_of(recorded["model"], {{"video", video}, {"sequence_length", film[4]}}).dump());
        INFO(recorded["model"] << ": " << film << (read ? "" : read.error().message));
        REQUIRE(read.has_value());
        CHECK(read->data.tokens_per_image == film[4]);
      }
    }
  }
}

TEST_CASE("An audio takes as many tokens as the real processor gives it", "[reference][tokens]") {
  const auto files = files_of_families("audios");
  CHECK_FALSE(files.empty());
  for (const std::filesystem::path& file : files) {
    std::ifstream input(kReference / file);
    for (std::string line; std::getline(input, line);) {
      const nlohmann::json recorded = nlohmann::json::parse(line);
      const Result<Job> usual = parse_job(job_of(recorded["model"], nlohmann::json::object()).dump());
      REQUIRE(usual.has_value());
      for (const nlohmann::json& audio : recorded["audios"]) {
        nlohmann::json data{{"audio_seconds", audio[0]}, {"sequence_length", 20'000}};
        if (usual->data.images_per_sample != 0) data["images_per_sample"] = 0;
        const Result<Job> read = parse_job(job_of(recorded["model"], data).dump());
        INFO(recorded["model"] << ": " << audio << (read ? "" : read.error().message));
        REQUIRE(read.has_value());
        CHECK(read->data.tokens_per_audio == audio[1]);
      }
    }
  }
}

}  // namespace
}  // namespace oometer
