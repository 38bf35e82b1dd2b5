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

// Qwen2_5OmniProcessor._process_audio of transformers 5.23, asked with a WhisperFeatureExtractor of 300 s.
TEST_CASE("Qwen2.5-Omni's tokens are its processor's", "[job][audio]") {
  struct Heard {
    const char* seconds;
    std::int64_t tokens;
  };
  for (const auto& [seconds, tokens] :
       {Heard{"0.02", 0}, Heard{"0.05", 1}, Heard{"0.49", 12}, Heard{"1", 25}, Heard{"2.06", 51}, Heard{"2.37", 59},
        Heard{"7.11", 178}, Heard{"7.215", 180}, Heard{"14.16", 354}, Heard{"29.87", 747}, Heard{"30", 750},
        Heard{"60.003", 1500}, Heard{"299.99", 7500}, Heard{"300", 7500}}) {
    INFO(seconds);
    const Result<Job> job = audio_job("qwen2.5-omni-7b-thinker",
                                      std::string(R"({"sequence_length": 16384, "audio_seconds": )") + seconds + "}");
    REQUIRE(job.has_value());
    CHECK(job->data.tokens_per_audio == tokens);
  }
  CHECK(audio_job("qwen2.5-omni-7b-thinker", R"({"audio_seconds": 301})").error().pointer == "/data/audio_seconds");
  const Result<Job> full = audio_job("qwen2.5-omni-7b-thinker", R"({"sequence_length": 900, "audio_seconds": 30})");
  REQUIRE_FALSE(full.has_value());
  CHECK(full.error().message ==
        "found a sequence of 900 tokens; it must hold the 384 tokens of its images and the 750 of its audio");
}

// Qwen3OmniMoeProcessor._process_audio of transformers 5.23, asked with a WhisperFeatureExtractor.
TEST_CASE("Qwen3-Omni's tokens are its processor's", "[job][audio]") {
  struct Heard {
    const char* seconds;
    std::int64_t tokens;
  };
  for (const auto& [seconds, tokens] :
       {Heard{"0.02", 1}, Heard{"0.05", 1}, Heard{"0.49", 7}, Heard{"1", 13}, Heard{"2.06", 27}, Heard{"2.37", 31},
        Heard{"7.11", 93}, Heard{"7.215", 94}, Heard{"14.16", 184}, Heard{"29.87", 388}, Heard{"30", 390},
        Heard{"60.003", 780}, Heard{"299.99", 3900}, Heard{"300", 3900}, Heard{"401.3", 5217}}) {
    INFO(seconds);
    const Result<Job> job = audio_job("qwen3-omni-30b-a3b-thinker",
                                      std::string(R"({"sequence_length": 16384, "audio_seconds": )") + seconds + "}");
    REQUIRE(job.has_value());
    CHECK(job->data.tokens_per_audio == tokens);
  }
}

// Qwen3ASRProcessor._process_audio of transformers 5.23, asked with a Qwen3ASRFeatureExtractor.
TEST_CASE("Qwen3-ASR's tokens are its processor's", "[job][audio]") {
  struct Heard {
    const char* seconds;
    std::int64_t tokens;
  };
  for (const auto& [seconds, tokens] :
       {Heard{"0.02", 7}, Heard{"0.3", 7}, Heard{"0.49", 7}, Heard{"1", 13}, Heard{"2.06", 27}, Heard{"2.37", 31},
        Heard{"7.11", 93}, Heard{"7.215", 94}, Heard{"14.16", 184}, Heard{"29.87", 388}, Heard{"30", 390},
        Heard{"60.003", 780}, Heard{"299.99", 3900}, Heard{"401.3", 5217}}) {
    INFO(seconds);
    const Result<Job> job =
        audio_job("qwen3-asr-1.7b", std::string(R"({"sequence_length": 16384, "audio_seconds": )") + seconds + "}");
    REQUIRE(job.has_value());
    CHECK(job->data.tokens_per_audio == tokens);
  }
}

TEST_CASE("A config of a whole Qwen2.5-Omni is read as its thinker's", "[job][audio]") {
  const auto read = [](const std::string& architecture) {
    return parse_job(R"({"version": 1, "model": {"config": {"model_type": "qwen2_5_omni", "architectures": [")" +
                     architecture +
                     R"("], "thinker_config": {"vision_config": {"hidden_size": 1280}}, "talker_config": {}}}})");
  };
  const Result<Job> thinker = read("Qwen2_5OmniThinkerForConditionalGeneration");
  REQUIRE(thinker.has_value());
  CHECK(thinker->model.config == audio_job("qwen2.5-omni-7b-thinker", "{}")->model.config);
  const Result<Job> whole = read("Qwen2_5OmniForConditionalGeneration");
  REQUIRE_FALSE(whole.has_value());
  CHECK(whole.error().message ==
        "found [\"Qwen2_5OmniForConditionalGeneration\"]; only the thinker of such a model is trained, which is "
        "supported: expected [\"Qwen2_5OmniThinkerForConditionalGeneration\"]");
}

TEST_CASE("A model that hears nothing refuses audio", "[job][audio]") {
  const Result<Job> deaf = audio_job("llava-1.5-7b", R"({"audio_seconds": 10})");
  REQUIRE_FALSE(deaf.has_value());
  CHECK(deaf.error().message == "found 10; LlavaForConditionalGeneration hears nothing: leave it out");
}

}  // namespace
}  // namespace oometer
