#include "models/family.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config/reader.h"
#include "models/chameleon/chameleon.h"
#include "models/kit/recurrent.h"
#include "models/kit/text_family.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

std::int64_t ChameleonConfig::side() const {
  std::int64_t pixels = resolution;
  for (std::size_t i = 1; i < vq.levels(); ++i) pixels = (pixels + 1 - 3) / 2 + 1;
  return pixels;
}

namespace {

constexpr ModelClass kClasses[] = {{"chameleon", kChameleon.causal_lm}};
constexpr const char* kBlocks[] = {kChameleon.decoder_layer, kChameleonSwin.decoder_layer};

void read_vq(ConfigReader& reader, ChameleonConfig& config) {
  VqganConfig defaults;
  defaults.family = &kChameleonVqgan;
  VqganConfig& c = config.vq;
  c = read_vqgan_config(reader, defaults);
  config.resolution = reader.integer("resolution", 512, {1, 65'536});
  const bool is_vanilla = reader.choice<bool>("attn_type", true, {{"vanilla", true}, {"none", false}});
  const std::vector<std::int64_t> at =
      reader.has("attn_resolutions") ? reader.integers("attn_resolutions") : std::vector<std::int64_t>();
  std::int64_t resolution = config.resolution;
  for (std::size_t i = 0; i < c.levels(); ++i, resolution /= 2)
    c.attends.push_back(is_vanilla && std::find(at.begin(), at.end(), resolution) != at.end());
  c.mid_attends = is_vanilla;
  if (config.side() < 1)
    reader.fail_found("resolution", "inconsistent", "expected more pixels: nothing is left behind the last level");
  if (c.double_latent)
    reader.fail_found("double_latent", "inconsistent", "expected false: quant_conv takes latent_channels");
}

// class ChameleonConfig
FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  ChameleonConfig c;
  TextConfig d;
  c.swin_norm = reader.boolean("swin_norm", false);
  d.names = c.swin_norm ? &kChameleonSwin : &kChameleon;
  d.vocab_size = 65536;
  d.num_key_value_heads = 32;
  d.max_position_embeddings = 4096;
  d.has_pad_token = false;
  c.text = read_text_sizes(reader, d);
  share_hidden_size(reader, c.text);
  c.text.qkv_bias = c.text.output_bias = reader.boolean("attention_bias", false);
  c.text.mlp_bias = reader.boolean("mlp_bias", false);
  check_llama_heads(reader, c.text);
  ConfigReader vq = reader.object("vq_config");
  read_vq(vq, c);
  vq.finish();
  const nlohmann::json* map = reader.find("vocabulary_map");
  if (map && map->is_object())
    for (const auto& entry : map->items()) c.image_tokens += entry.key().starts_with("IMGIMG");
  if (!map) {  // published files have tens of thousands of entries
    c.image_tokens = c.vq.num_embeddings;
    reader.findings().assumptions.emplace_back(
        "the config has no vocabulary_map: it has a token for each of the VQ-GAN's num_embeddings");
  } else if (c.image_tokens == 0) {
    reader.fail("vocabulary_map", "inconsistent",
                "expected the tokens of images, whose names begin with IMGIMG: the class looks for them");
  }
  reader.ignore({"model_parallel_size", "image_token_id"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_chameleon(context, config.as<ChameleonConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<ChameleonConfig>();
  ModelTraits t = vision_language_traits(kChameleon.causal_lm, c.text, c.text.tie_word_embeddings);
  t.image_keys = {"image_size", "image_sizes"};
  t.image_size = c.resolution;
  t.cuts_images = true;     // the processor makes a square of any
  t.has_idle_parts = true;  // the VQ-GAN, whose tokens pass no gradient
  t.convolutions = 20;
  t.default_sequence_length = std::max(t.default_sequence_length, c.side() * c.side());
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules = {kChameleon.decoder_layer, kChameleonSwin.decoder_layer};
  t.allow({Feature::quantization});
  for (const Feature feature : {Feature::pretrain, Feature::finetune})
    t.refuse(feature, "inconsistent", t.class_name + " has no projector: expected \"full\", or adapters");
  for (const Feature feature :
       {Feature::zero3, Feature::fsdp, Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

ImageCount count_image(const FamilyConfig& config, std::int64_t, std::int64_t, std::int64_t) {
  const std::int64_t side = config.as<ChameleonConfig>().side();
  return {1, side * side};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<ChameleonConfig>();
  const std::int64_t images = data.images(), cells = c.side() * c.side();
  double most =
      std::max({largest_tensor_of_text(c.text, data), bytes_of({images, cells, c.vq.num_embeddings}),
                bytes_of({images, cells, cells}), bytes_of({c.vq.num_embeddings, c.vq.embed_dim}),
                bytes_of({images, c.resolution, c.resolution, std::max(c.vq.in_channels, c.vq.base_channels)}),
                bytes_of({9, c.vq.last_channels(), 2 * c.vq.latent_channels})});
  std::int64_t pixels = c.resolution;
  for (std::size_t i = 0; i < c.vq.levels(); ++i, pixels = (pixels + 1) / 2)
    most =
        std::max({most, bytes_of({images, pixels, pixels, c.vq.channels(i)}),
                  bytes_of({9, pixels, pixels, c.vq.channels(i)}), bytes_of({9, c.vq.channels(i), c.vq.channels(i)})});
  return most;
}

}  // namespace

namespace family {
extern const Family chameleon{.classes = kClasses,
                              .blocks = kBlocks,
                              .read = read,
                              .build = build,
                              .traits = traits,
                              .largest_tensor = largest_tensor,
                              .count_image = count_image};
}  // namespace family

}  // namespace oometer
