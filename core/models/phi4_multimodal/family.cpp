#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/kit/text_family.h"
#include "models/phi4_multimodal/phi4_multimodal.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"phi4_multimodal", "Phi4MultimodalForCausalLM"}};
constexpr const char* kBlocks[] = {"Phi4MultimodalDecoderLayer", kPhi4Vision.encoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) { return read_phi4_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_phi4_multimodal(context, config.as<Phi4Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Phi4Config>();
  ModelTraits t = vision_language_traits(kClasses[0].class_name, c.text, c.text.tie_word_embeddings);
  t.image_keys = {"image_size"};
  t.image_size = c.vision.image_size;
  t.cuts_images = true;
  t.has_idle_parts = true;
  t.max_audios = 64;
  t.max_audio_seconds = 5.0 * static_cast<double>(c.audio.time_reduction());
  t.usual_audio_seconds = std::min(t.usual_audio_seconds, t.max_audio_seconds);
  t.audio_why = "longer audio, which the encoder cuts into pieces, is not supported yet";
  t.convolutions = 1 + 2 * c.audio.convolutions + 4;
  t.default_sequence_length = std::max<std::int64_t>(t.default_sequence_length, 2048);
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules = {"Phi4MultimodalDecoderLayer"};
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::pretrain, Feature::finetune,
                                Feature::turn_images, Feature::zero3, Feature::fsdp, Feature::lengths})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.allow({Feature::quantization});
  return t;
}

ImageCount count_image(const FamilyConfig& config, std::int64_t height, std::int64_t width, std::int64_t) {
  const Phi4Crops cut = config.as<Phi4Config>().cut(height, width);
  return {1 + cut.crops(), cut.tokens};
}

AudioCount count_audio(const FamilyConfig& config, double seconds) {
  const Phi4AudioConfig& c = config.as<Phi4Config>().audio;
  const std::int64_t tokens = c.tokens(seconds);
  return {tokens, std::to_string(Phi4AudioConfig::frames(seconds)) + " frames of 10 ms are " + std::to_string(tokens) +
                      " tokens: one of " + std::to_string(c.time_reduction()) + " frames."};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Phi4Config>();
  const ClipVisionConfig& v = c.vision;
  const Phi4AudioConfig& a = c.audio;
  const std::int64_t crops = std::max<std::int64_t>(data.all_tiles(), 1), side = c.patches(),
                     audios = std::max<std::int64_t>(data.audios(), 1), hidden = c.text.hidden_size,
                     frames = Phi4AudioConfig::frames(data.audio_seconds), states = a.tokens(data.audio_seconds);
  return std::max(
      {largest_tensor_of_text_family(c.text, data),
       bytes_of_layer(crops, side * side, v.hidden_size, v.intermediate_size, v.num_attention_heads),
       bytes_of({crops, v.num_channels, v.image_size, v.image_size}), bytes_of({crops, side * side, hidden}),
       bytes_of({v.hidden_size, v.num_channels, v.patch_size, v.patch_size}), bytes_of({hidden, v.hidden_size}),
       bytes_of_layer(audios, states + a.kernel_size, a.hidden_size * (1 + a.depthwise_multiplier),
                      2 * a.intermediate_size, a.num_attention_heads),
       bytes_of({audios, frames, std::max(a.input_size, a.nemo_conv_channels * a.nemo_final_size)}),
       bytes_of({audios, a.nemo_conv_channels, frames, a.input_size}),
       bytes_of({a.nemo_conv_channels, 9, frames, a.input_size}), bytes_of({a.num_buckets, a.num_attention_heads}),
       bytes_of({a.nemo_conv_channels, std::max(a.nemo_conv_channels, a.nemo_final_size * a.hidden_size)}),
       bytes_of({hidden, std::max(hidden, a.hidden_size)}), bytes_of({audios, states, hidden})});
}

}  // namespace

namespace family {
extern const Family phi4_multimodal{.classes = kClasses,
                                    .blocks = kBlocks,
                                    .read = read,
                                    .build = build,
                                    .traits = traits,
                                    .largest_tensor = largest_tensor,
                                    .count_image = count_image,
                                    .count_audio = count_audio};
}  // namespace family

}  // namespace oometer
