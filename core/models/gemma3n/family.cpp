#include "models/family.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "config/reader.h"
#include "models/gemma3n/gemma3n.h"
#include "models/gemma3n/mobilenetv5.h"
#include "models/gemma3n_text/gemma3n_text.h"
#include "models/gemma4_text/gemma4_text.h"
#include "models/registry.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"gemma3n", "Gemma3nForConditionalGeneration"}};
constexpr const char* kBlocks[] = {kGemma3nNames.decoder_layer};
constexpr std::int64_t kTokens = kMobileNetV5OutputSize * kMobileNetV5OutputSize;

Gemma3nAudioConfig read_audio(ConfigReader reader) {
  Gemma3nAudioConfig c;
  c.vocab_size = reader.integer("vocab_size", c.vocab_size);
  c.input_feat_size = reader.integer("input_feat_size", c.input_feat_size);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.conf_attention_chunk_size = reader.integer("conf_attention_chunk_size", c.conf_attention_chunk_size);
  c.conf_attention_context_left = reader.integer("conf_attention_context_left", 13, non_negative);
  c.conf_attention_context_right = reader.integer("conf_attention_context_right", 0, non_negative);
  c.conf_num_attention_heads = reader.integer("conf_num_attention_heads", c.conf_num_attention_heads);
  c.conf_num_hidden_layers = reader.integer("conf_num_hidden_layers", c.conf_num_hidden_layers, layer_count);
  c.conf_conv_kernel_size = reader.integer("conf_conv_kernel_size", c.conf_conv_kernel_size);
  const std::vector<std::int64_t> channels = reader.integers("sscp_conv_channel_size");
  if (channels.size() == 2)
    c.sscp_conv_channel_size = {channels[0], channels[1]};
  else if (!channels.empty())
    reader.fail_found("sscp_conv_channel_size", "inconsistent", "expected two numbers of channels");
  for (const char* key : {"sscp_conv_kernel_size", "sscp_conv_stride_size"})
    if (reader.has(key) &&
        *reader.find(key) != nlohmann::json::parse(key[10] == 'k' ? "[[3,3],[3,3]]" : "[[2,2],[2,2]]"))
      reader.fail(key, "not-modelled", "others than the class's own are not supported yet: leave it out");
  reader.ignore({"model_type", "vocab_offset", "rms_norm_eps", "gradient_clipping", "conf_attention_logit_cap",
                 "conf_reduction_factor", "conf_residual_weight", "sscp_conv_group_norm_eps"});
  reader.finish();
  return c;
}

void read_vision(ConfigReader reader, Gemma3nConfig& c) {
  if (reader.text("architecture", "mobilenetv5_300m_enc") != "mobilenetv5_300m_enc")
    reader.fail_found("architecture", "not-modelled",
                      "another tower is not supported yet: expected \"mobilenetv5_300m_enc\"");
  if (reader.is_object("model_args"))
    reader.fail("model_args", "not-modelled", "arguments of timm's own are not supported yet: leave it out");
  if (reader.integer("hidden_size", kMobileNetV5Features) != kMobileNetV5Features)
    reader.fail_found("hidden_size", "inconsistent", "mobilenetv5_300m_enc gives 2048 features: expected 2048");
  c.vision_vocab_size = reader.integer("vocab_size", 128);
  reader.ignore({"model_type", "vocab_offset", "rms_norm_eps", "do_pooling", "initializer_range", "num_classes",
                 "label_names", "pretrained_cfg"});
  reader.finish();
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  Gemma3nConfig c;
  read_vision(reader.object("vision_config"), c);
  c.audio = read_audio(reader.object("audio_config"));
  ConfigReader text = reader.object("text_config");
  c.text = read_gemma3n_text_config(text);
  text.finish();
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  if (reader.integer("vision_soft_tokens_per_image", kTokens) != kTokens)
    reader.fail_found("vision_soft_tokens_per_image", "inconsistent", "the tower makes 16 x 16 of them: expected 256");
  reader.ignore({"audio_soft_tokens_per_image", "boi_token_id", "eoi_token_id", "image_token_id", "boa_token_id",
                 "eoa_token_id", "audio_token_id", "eos_token_id"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_gemma3n(context, config.as<Gemma3nConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Gemma3nConfig>();
  ModelTraits t = vision_language_traits(kClasses[0].class_name, c.text, c.tie_word_embeddings);
  t.set_parts("vision_tower", "embed_vision", "language_model");
  t.image_keys = {"image_size", "image_sizes"};
  t.image_size = kMobileNetV5ImageSize;
  t.cuts_images = true;     // the processor makes a square of any
  t.has_idle_parts = true;  // nothing is played to the audio tower
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules = {kGemma3nNames.decoder_layer, "TimmWrapperModel"};
  for (const Feature feature : {Feature::deepspeed, Feature::zero3, Feature::inference, Feature::headinfer,
                                Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::flash_attention_2, "inconsistent", "timm's encoder is not made for it: expected eager or sdpa");
  t.allow({Feature::fsdp, Feature::packing});
  t.generates = false;
  return t;
}

ImageCount count_image(const FamilyConfig&, std::int64_t, std::int64_t, std::int64_t) { return {1, kTokens}; }

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Gemma3nConfig>();
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1);
  return std::max({largest_tensor_of_gemma4_text(c.text, data),
                   bytes_of({c.text.altup_num_inputs, data.micro_batch_size, data.sequence_length, c.text.hidden_size}),
                   // of mobilenetv5_300m_enc: 1536 channels of 192 x 192, 16 heads of 576 queries, 12 of 2304
                   bytes_of({images, 1536, 192, 192}), bytes_of({images, 12, 2304, 576}),
                   bytes_of({4 * c.audio.hidden_size, c.audio.hidden_size})});
}

}  // namespace

namespace family {
extern const Family gemma3n{.classes = kClasses,
                            .blocks = kBlocks,
                            .read = read,
                            .build = build,
                            .traits = traits,
                            .largest_tensor = largest_tensor,
                            .count_image = count_image};
}  // namespace family

}  // namespace oometer
