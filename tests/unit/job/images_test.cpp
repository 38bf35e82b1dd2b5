#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "job/estimate.h"
#include "job/parse.h"
#include "jobs.h"

namespace oometer {
namespace {

std::string images_job(const std::string& model, const std::string& data, const std::string& more = "") {
  return R"({"version": 1, "model": {"preset": ")" + model + R"("}, "data": )" + data + more + "}";
}

Error error_of(const std::string& model, const std::string& data, const std::string& more = "") {
  const Result<Job> job = parse_job(images_job(model, data, more));
  INFO(data);
  REQUIRE_FALSE(job.has_value());
  return job.error();
}

TEST_CASE("Images of a sample may have sizes of their own", "[job][images]") {
  const Job job = job_of(images_job("qwen2.5-vl-3b", R"({"image_sizes": [[672, 448], [224, 224], [100, 900]]})"));
  CHECK(job.data.images_per_sample == 3);
  REQUIRE(job.data.sample_images.size() == 3);
  CHECK(job.data.sample_images[0].tokens_per_image == 24 * 16);
  CHECK(job.data.sample_images[1].tokens_per_image == 64);
  CHECK(job.data.tokens_of_images() == 24 * 16 + 64 + 4 * 32);
  CHECK(job_of(to_json(job)).data == job.data);
  // Those that the processor makes equal are.
  const Job equal = job_of(images_job("qwen2.5-vl-3b", R"({"image_sizes": [[672, 448], [670, 450]]})"));
  CHECK(equal.data.sample_images.empty());
  CHECK(equal.data.images_per_sample == 2);
  CHECK(job_of(to_json(equal)).data == equal.data);
}

TEST_CASE("Images of a processor that has one size are only counted", "[job][images]") {
  const Job job =
      job_of(images_job("llava-1.5-7b", R"({"sequence_length": 4096, "image_sizes": [[672, 448], [224, 224]]})"));
  CHECK(job.data == job_of(images_job("llava-1.5-7b", R"({"sequence_length": 4096, "images_per_sample": 2})")).data);
}

TEST_CASE("Images of several sizes that the processor makes equal take what equal ones do", "[job][images]") {
  for (const char* preset : {"gemma-3-4b", "paligemma-3b-pt-224", "janus-pro-1b"}) {
    INFO(preset);
    const Job sizes =
        job_of(images_job(preset, R"({"sequence_length": 2048, "image_sizes": [[672, 448], [1344, 896]]})"));
    const Job count = job_of(images_job(preset, R"({"sequence_length": 2048, "images_per_sample": 2})"));
    CHECK(sizes.data.tokens_of_images() == count.data.tokens_of_images());
    const Result<Estimate> a = estimate(sizes), b = estimate(count);
    REQUIRE(a.has_value());
    REQUIRE(b.has_value());
    CHECK(a->report.peak.allocated == b->report.peak.allocated);
  }
}

TEST_CASE("Each processor cuts images of several sizes by its own rule", "[job][images]") {
  for (const char* preset : {"internvl3-8b", "aya-vision-8b", "llava-v1.6-vicuna-7b", "smolvlm-2.2b"}) {
    INFO(preset);
    const std::string sizes[] = {"[500, 1100]", "[300, 310]"};
    std::int64_t tiles = 0, tokens = 0;
    for (const std::string& size : sizes) {
      const Job alone = job_of(images_job(preset, R"({"sequence_length": 30000, "image_size": )" + size + "}"));
      tiles += alone.data.tiles;
      tokens += alone.data.tokens_per_image;
    }
    const Job both = job_of(
        images_job(preset, R"({"sequence_length": 30000, "image_sizes": [)" + sizes[0] + ", " + sizes[1] + "]}"));
    CHECK(both.data.all_tiles() == tiles);
    CHECK(both.data.tokens_of_images() == tokens);
    CHECK(job_of(to_json(both)).data == both.data);
  }
}

TEST_CASE("What image_sizes cannot be is said where it stands", "[job][images]") {
  CHECK(error_of("qwen2.5-vl-3b", R"({"image_sizes": []})").pointer == "/data/image_sizes");
  CHECK(error_of("qwen2.5-vl-3b", R"({"image_sizes": [[672, 0]]})").message.find("1 to 65536") != std::string::npos);
  CHECK(error_of("qwen2.5-vl-3b", R"({"image_sizes": [[28, 28], [28, 60000]]})").pointer == "/data/image_sizes/1");
  const Error contradiction = error_of("qwen2.5-vl-3b", R"({"images_per_sample": 3, "image_sizes": [[28, 28]]})");
  CHECK(contradiction.pointer == "/data/images_per_sample");
  CHECK(contradiction.message == "found 3; expected 1, as many as image_sizes has, or nothing");
  CHECK(error_of("qwen2.5-vl-3b", R"({"image_size": [28, 28], "image_sizes": [[28, 28]]})").pointer ==
        "/data/image_size");
  CHECK(error_of("llama-3-8b", R"({"image_sizes": [[28, 28]]})").pointer == "/data/image_sizes");
  CHECK(error_of("llava-onevision-7b", R"({"image_sizes": [[280, 280], [900, 100]]})")
            .message.starts_with("found [[280,280],[900,100]]; expected 0 to 1 of them: "));
  CHECK(error_of("mistral-small-3.1-24b", R"({"image_size": [1, 2000]})").pointer == "/data/image_size");
  CHECK(error_of("gemma-4-e2b", R"({"image_sizes": [[280, 280], [900, 100]]})").code == "not-modelled");
  CHECK(error_of("qwen2.5-vl-3b", R"({"sequence_length": 447, "image_sizes": [[672, 448], [224, 224]]})").message ==
        "found a sequence of 447 tokens; it must hold the 448 tokens of 2 images");
}

TEST_CASE("A video is frames that its processor samples", "[job][images]") {
  const Job job = job_of(images_job(
      "qwen2.5-vl-3b", R"({"sequence_length": 4096, "video": {"seconds": 8.3, "fps": 2, "size": [360, 640]}})"));
  CHECK(job.data.grid_t == 8);
  CHECK(job.data.tokens_per_image == 8 * 13 * 23);
  CHECK(job_of(to_json(job)).data == job.data);
  // Qwen2.5-VL fills patches of two frames, Qwen3-VL need not.
  const std::string five = R"({"video": {"seconds": 5, "fps": 1, "size": [360, 640]}})";
  CHECK(job_of(images_job("qwen2.5-vl-3b", five)).data.grid_t == 2);
  CHECK(job_of(images_job("qwen3-vl-2b", five)).data.grid_t == 3);
  CHECK(error_of("qwen2.5-vl-3b", R"({"video": {"seconds": 0}})").pointer == "/data/video/seconds");
  CHECK(error_of("qwen2.5-vl-3b", R"({"video": {}})").pointer == "/data/video/seconds");
  CHECK(error_of("qwen2.5-vl-3b", R"({"frames": 4, "video": {"seconds": 4}})").pointer == "/data/frames");
  // GLM-4.1V samples what there is, in pairs.
  CHECK(job_of(images_job("glm-4.1v-9b", R"({"video": {"seconds": 3, "fps": 1, "size": [280, 280]}})")).data.grid_t ==
        2);
  const Error unsupported = error_of("qwen2.5-omni-7b-thinker", R"({"video": {"seconds": 4}})");
  CHECK(unsupported.code == "not-modelled");
  CHECK(unsupported.pointer == "/data/video");
  CHECK(error_of("llava-1.5-7b", R"({"video": {"seconds": 4}})").code == "inconsistent");
}

std::string mixtral(const std::string& routing, const std::string& experts) {
  return R"({"model": {"config": {"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 96, "vocab_size": 512,
             "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4,
             "num_experts_per_tok": 2}}, "data": {"micro_batch_size": 1, "sequence_length": 64)" +
         routing + R"(}, "runtime": {"experts": ")" + experts + R"("}})";
}

std::int64_t peak(const std::string& job) {
  const Result<Estimate> answer = estimate(job_of(job));
  REQUIRE(answer.has_value());
  return answer->report.peak.allocated;
}

TEST_CASE("Routing decides memory where experts run in a loop", "[job][routing]") {
  const std::string worst = R"(, "routing": "worst")", counts = R"(, "routing": [64, 32, 30, 2])";
  CHECK(peak(mixtral("", "grouped_mm")) == peak(mixtral(worst, "grouped_mm")));
  CHECK(peak(mixtral("", "eager")) != peak(mixtral(worst, "eager")));
  CHECK(peak(mixtral("", "eager")) != peak(mixtral(counts, "eager")));
  for (const std::string& routing : {worst, counts}) {
    const Job job = job_of(mixtral(routing, "eager"));
    CHECK(job_of(to_json(job)).data == job.data);
  }
  for (const char* wrong : {"[64, 64]", "[64, 64, 1, 0]", "[65, 63, 0, 0]"}) {
    const Result<Estimate> answer = estimate(job_of(mixtral(std::string(R"(, "routing": )") + wrong, "eager")));
    REQUIRE_FALSE(answer.has_value());
    CHECK(answer.error().pointer == "/data/routing");
  }
  CHECK(error_of("llama-3-8b", R"({"routing": "worst"})").pointer == "/data/routing");
  CHECK(error_of("mixtral-8x7b", R"({"routing": "best"})").pointer == "/data/routing");
}

}  // namespace
}  // namespace oometer
