#include <catch2/catch_test_macros.hpp>
#include <initializer_list>
#include <string>

#include "job/estimate.h"
#include "job/parse.h"

namespace oometer {
namespace {

Result<Job> audio_job(const std::string& model, const std::string& data) {
  return parse_job(R"({"version": 1, "model": {"preset": ")" + model + R"("}, "data": )" + data + "}");
}

struct Heard {
  const char* seconds;
  std::int64_t tokens;
};

void check_tokens(const char* preset, std::initializer_list<Heard> cases) {
  for (const auto& [seconds, tokens] : cases) {
    INFO(seconds);
    const Result<Job> job =
        audio_job(preset, std::string(R"({"sequence_length": 16384, "audio_seconds": )") + seconds + "}");
    REQUIRE(job.has_value());
    CHECK(job->data.tokens_per_audio == tokens);
  }
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

TEST_CASE("Encoders of sound take no clip of fewer states than a span of their masks has", "[job][audio]") {
  for (const char* preset : {"wav2vec2-base", "wavlm-large", "w2v-bert-2.0"}) {
    INFO(preset);
    for (const char* seconds : {"0.02", "0.204"}) {
      const Result<Job> job = audio_job(preset, std::string(R"({"audio_seconds": )") + seconds + "}");
      REQUIRE(job.has_value());
      const Result<Estimate> report = estimate(*job);
      REQUIRE_FALSE(report.has_value());
      CHECK(report.error().message ==
            "found a clip of fewer states than the encoder takes (10); expected 0.205 s or more");
    }
    CHECK(estimate(*audio_job(preset, R"({"audio_seconds": 0.205})")).has_value());
  }
}

// Qwen2AudioProcessor._process_audio of transformers 5.23, asked with WhisperFeatureExtractor.
TEST_CASE("Qwen2-Audio's tokens are its processor's", "[job][audio]") {
  check_tokens("qwen2-audio-7b", {{"0.02", 0},
                                  {"0.05", 1},
                                  {"0.49", 12},
                                  {"1", 25},
                                  {"2.06", 51},
                                  {"2.37", 59},
                                  {"7.11", 178},
                                  {"7.22", 180},
                                  {"7.85", 196},
                                  {"11.16", 279},
                                  {"14.16", 354},
                                  {"16.37", 409},
                                  {"18.16", 454},
                                  {"18.81", 470},
                                  {"25.14", 628},
                                  {"29.87", 747},
                                  {"30", 750}});
  CHECK(audio_job("qwen2-audio-7b", R"({"audio_seconds": 30})").has_value());  // the usual sequence holds it
  CHECK(audio_job("qwen2-audio-7b", R"({"audio_seconds": 31})").error().pointer == "/data/audio_seconds");
}

// AudioFlamingo3Processor._process_audio of transformers 5.23, asked with WhisperFeatureExtractor.
TEST_CASE("Audio Flamingo 3's tokens are its processor's", "[job][audio]") {
  check_tokens("audio-flamingo-3", {{"0.02", 0},
                                    {"0.05", 1},
                                    {"5.383", 135},
                                    {"10.21", 255},
                                    {"30", 750},
                                    {"30.005", 750},
                                    {"33.899", 847},
                                    {"61.7", 1542},
                                    {"150.3", 3757},
                                    {"600", 15000}});
  CHECK(audio_job("audio-flamingo-3", R"({"audio_seconds": 30})").has_value());  // the usual sequence holds it
  CHECK(audio_job("audio-flamingo-3", R"({"audio_seconds": 601})").error().message ==
        "found 601; expected at most 600: what the processor cuts audio to");
}

// Qwen2_5OmniProcessor._process_audio of transformers 5.23, asked with a WhisperFeatureExtractor of 300 s.
TEST_CASE("Qwen2.5-Omni's tokens are its processor's", "[job][audio]") {
  check_tokens("qwen2.5-omni-7b-thinker", {{"0.02", 0},
                                           {"0.05", 1},
                                           {"0.49", 12},
                                           {"1", 25},
                                           {"2.06", 51},
                                           {"2.37", 59},
                                           {"7.11", 178},
                                           {"7.215", 180},
                                           {"14.16", 354},
                                           {"29.87", 747},
                                           {"30", 750},
                                           {"60.003", 1500},
                                           {"299.99", 7500},
                                           {"300", 7500}});
  CHECK(audio_job("qwen2.5-omni-7b-thinker", R"({"audio_seconds": 301})").error().pointer == "/data/audio_seconds");
  const Result<Job> full = audio_job("qwen2.5-omni-7b-thinker", R"({"sequence_length": 900, "audio_seconds": 30})");
  REQUIRE_FALSE(full.has_value());
  CHECK(full.error().message ==
        "found a sequence of 900 tokens; it must hold the 384 tokens of its images and the 750 of its audio");
}

// Qwen3OmniMoeProcessor._process_audio of transformers 5.23, asked with a WhisperFeatureExtractor.
TEST_CASE("Qwen3-Omni's tokens are its processor's", "[job][audio]") {
  check_tokens("qwen3-omni-30b-a3b-thinker", {{"0.02", 1},
                                              {"0.05", 1},
                                              {"0.49", 7},
                                              {"1", 13},
                                              {"2.06", 27},
                                              {"2.37", 31},
                                              {"7.11", 93},
                                              {"7.215", 94},
                                              {"14.16", 184},
                                              {"29.87", 388},
                                              {"30", 390},
                                              {"60.003", 780},
                                              {"299.99", 3900},
                                              {"300", 3900},
                                              {"401.3", 5217}});
}

// Qwen3ASRProcessor._process_audio of transformers 5.23, asked with a Qwen3ASRFeatureExtractor.
TEST_CASE("Qwen3-ASR's tokens are its processor's", "[job][audio]") {
  check_tokens("qwen3-asr-1.7b", {{"0.02", 7},
                                  {"0.3", 7},
                                  {"0.49", 7},
                                  {"1", 13},
                                  {"2.06", 27},
                                  {"2.37", 31},
                                  {"7.11", 93},
                                  {"7.215", 94},
                                  {"14.16", 184},
                                  {"29.87", 388},
                                  {"30", 390},
                                  {"60.003", 780},
                                  {"299.99", 3900},
                                  {"401.3", 5217}});
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
