#include <catch2/catch_test_macros.hpp>
#include <string>

#include "job/parse.h"

namespace oometer {
namespace {

Result<Job> audio_job(const std::string& model, const std::string& data) {
  return parse_job(R"({"version": 1, "model": {"preset": ")" + model + R"("}, "data": )" + data + "}");
}

TEST_CASE("Whisper hears no more than its encoder's window", "[job][audio]") {
  const Result<Job> fits = audio_job("whisper-small", R"({"audio_seconds": 12.5})");
  REQUIRE(fits.has_value());
  CHECK(fits->data.audio_seconds == 12.5);
  CHECK(fits->data.audios() == 1);
  CHECK(fits->data.sequence_length == 448);
  CHECK(audio_job("whisper-small", "{}")->data.audio_seconds == 30);

  const Result<Job> longer = audio_job("whisper-small", R"({"audio_seconds": 31})");
  REQUIRE_FALSE(longer.has_value());
  CHECK(longer.error().pointer == "/data/audio_seconds");
  CHECK(longer.error().message == "found 31; expected at most 30: the encoder's window");
  CHECK(audio_job("whisper-small", R"({"sequence_length": 449})").error().pointer == "/data/sequence_length");
  CHECK(audio_job("whisper-small", R"({"audios_per_sample": 2})").error().pointer == "/data/audios_per_sample");
}

TEST_CASE("A model that hears nothing refuses audio", "[job][audio]") {
  const Result<Job> deaf = audio_job("llava-1.5-7b", R"({"audio_seconds": 10})");
  REQUIRE_FALSE(deaf.has_value());
  CHECK(deaf.error().message == "found 10; LlavaForConditionalGeneration hears nothing: leave it out");
}

}  // namespace
}  // namespace oometer
