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

// Qwen2AudioProcessor._process_audio of transformers 5.23, asked with WhisperFeatureExtractor.
TEST_CASE("Qwen2-Audio's tokens are its processor's", "[job][audio]") {
  struct Heard {
    const char* seconds;
    std::int64_t tokens;
  };
  for (const auto& [seconds, tokens] :
       {Heard{"0.02", 0}, Heard{"0.05", 1}, Heard{"0.49", 12}, Heard{"1", 25}, Heard{"2.06", 51}, Heard{"2.37", 59},
        Heard{"7.11", 178}, Heard{"7.22", 180}, Heard{"7.85", 196}, Heard{"11.16", 279}, Heard{"14.16", 354},
        Heard{"16.37", 409}, Heard{"18.16", 454}, Heard{"18.81", 470}, Heard{"25.14", 628}, Heard{"29.87", 747},
        Heard{"30", 750}}) {
    INFO(seconds);
    const Result<Job> job = audio_job("qwen2-audio-7b", std::string(R"({"audio_seconds": )") + seconds + "}");
    REQUIRE(job.has_value());
    CHECK(job->data.tokens_per_audio == tokens);
  }
  CHECK(audio_job("qwen2-audio-7b", R"({"audio_seconds": 31})").error().pointer == "/data/audio_seconds");
}

TEST_CASE("A model that hears nothing refuses audio", "[job][audio]") {
  const Result<Job> deaf = audio_job("llava-1.5-7b", R"({"audio_seconds": 10})");
  REQUIRE_FALSE(deaf.has_value());
  CHECK(deaf.error().message == "found 10; LlavaForConditionalGeneration hears nothing: leave it out");
}

}  // namespace
}  // namespace oometer
