#include "models/family.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "config/reader.h"
#include "models/audioflamingo3/audioflamingo3.h"
#include "models/kit/layerdrop.h"
#include "models/llama/family.h"
#include "models/registry.h"
#include "models/sizes.h"
#include "models/vision_language.h"
#include "models/voxtral/voxtral.h"
#include "rounding.h"

namespace oometer {

namespace {

constexpr std::int64_t kHop = 160;  ///< samples of a frame, at 16 kHz (WhisperFeatureExtractor.hop_length)

std::int64_t samples(double seconds) { return static_cast<std::int64_t>(std::llround(seconds * 16'000)); }

}  // namespace

std::int64_t AudioFlamingo3Config::windows(double seconds) const {
  return std::max<std::int64_t>(divide_up(samples(seconds), kHop * audio.frames()), 1);
}

std::int64_t AudioFlamingo3Config::frames(double seconds) const {
  return std::max<std::int64_t>(divide_up(samples(seconds), kHop), 1);
}

std::int64_t AudioFlamingo3Config::last_states(double seconds) const {
  return (frames(seconds) - (windows(seconds) - 1) * audio.frames() - 1) / 2 + 1;
}

std::int64_t AudioFlamingo3Config::tokens(double seconds) const { return ((frames(seconds) - 1) / 2 + 1) / 2; }

namespace {

constexpr ModelClass kClasses[] = {{"audioflamingo3", "AudioFlamingo3ForConditionalGeneration"}};
constexpr const char* kBlocks[] = {"AudioFlamingo3EncoderLayer"};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  AudioFlamingo3Config c;
  if (!reader.has("text_config"))
    reader.fail("text_config", "not-modelled", "the class's own one is not supported yet: expected an object");
  ConfigReader audio = reader.object("audio_config"), text = reader.object("text_config");
  c.audio = read_voxtral_encoder(audio);
  read_layerdrop(audio);
  audio.finish();
  c.text = read_language_config(text);
  text.finish();
  c.projector_hidden_act = reader.activation("projector_hidden_act", Activation::gelu);
  c.projector_bias = reader.boolean("projector_bias", true);
  reader.ignore({"audio_token_id", "hidden_size", "vocab_size"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_audioflamingo3(context, config.as<AudioFlamingo3Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<AudioFlamingo3Config>();
  ModelTraits t = vision_language_traits("AudioFlamingo3ForConditionalGeneration", c.text, false);
  t.language = "language_model";
  t.takes_images = false;
  t.max_audios = 1;  // its processor takes one a text
  t.usual_audio_seconds = c.audio.window_seconds();
  t.max_audio_seconds = 600;  // max_audio_len
  t.audio_why = "what the processor cuts audio to";
  t.convolutions = 2;
  t.default_sequence_length = c.tokens(t.usual_audio_seconds) + 256;
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules = {"AudioFlamingo3Attention", "AudioFlamingo3EncoderLayer", c.text.names->decoder_layer};
  for (const Feature feature :
       {Feature::fsdp, Feature::headinfer, Feature::quantized_cache, Feature::pretrain, Feature::finetune})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.allow({Feature::quantization});
  return t;
}

AudioCount count_audio(const FamilyConfig& config, double seconds) {
  const auto& c = config.as<AudioFlamingo3Config>();
  const std::int64_t tokens = c.tokens(seconds);
  return {tokens, std::to_string(c.frames(seconds)) + " frames of 10 ms, in " + std::to_string(c.windows(seconds)) +
                      " window(s) of " + std::to_string(c.audio.frames()) + ", the last one padded, are " +
                      std::to_string(tokens) + " tokens: one of four frames."};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<AudioFlamingo3Config>();
  const std::int64_t windows = checked_product(std::max<std::int64_t>(data.audios(), 1), c.windows(data.audio_seconds)),
                     states = c.audio.max_source_positions;
  return std::max({largest_tensor_of(c.text, data), largest_tensor_of_whisper_encoder(c.audio, windows),
                   bytes_of({windows, states, c.text.hidden_size}), bytes_of({windows, states, states}),
                   bytes_of({c.text.hidden_size, std::max(c.text.hidden_size, c.audio.hidden_size)})});
}

}  // namespace

namespace family {
extern const Family audioflamingo3{.classes = kClasses,
                                   .blocks = kBlocks,
                                   .read = read,
                                   .build = build,
                                   .traits = traits,
                                   .largest_tensor = largest_tensor,
                                   .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
