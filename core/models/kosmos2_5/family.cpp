#include "models/family.h"

#include <algorithm>
#include <cmath>

#include "config/reader.h"
#include "models/kit/positioned.h"
#include "models/kosmos2_5/kosmos2_5.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"kosmos-2.5", kKosmos2_5Names.causal_lm}};
constexpr const char* kBlocks[] = {kKosmos2_5VisionLayer, kKosmos2_5Names.decoder_layer};
constexpr std::int64_t kPatchSide = 16;    // its processor's
constexpr std::int64_t kPromptTokens = 3;  // <s>, <image> and </image> around an image's

Kosmos2_5TextConfig read_text(ConfigReader& reader) {
  Kosmos2_5TextConfig c;
  c.names = &kKosmos2_5Names;
  c.vocab_size = reader.integer("vocab_size", 108'481);
  c.hidden_size = read_mapped(reader, "embed_dim", "hidden_size", 1536);
  c.num_hidden_layers = read_mapped(reader, "layers", "num_hidden_layers", 24, layer_count);
  c.num_attention_heads = c.num_key_value_heads = read_mapped(reader, "attention_heads", "num_attention_heads", 16);
  c.intermediate_size = reader.integer("ffn_dim", 6144);
  c.max_position_embeddings = reader.integer("max_position_embeddings", 4096);
  c.hidden_act = reader.activation("activation_function", Activation::gelu);
  c.layer_dropout = reader.number("dropout", 0.1, 0, 1);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.activation_dropout = reader.number("activation_dropout", 0, 0, 1);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  if (reader.integer("pad_token_id", 1, {0, 1 << 30}) != 1)
    reader.fail_found("pad_token_id", "not-modelled",
                      "positions that begin elsewhere are not supported yet: expected 1");
  reader.ignore({"model_type", "layer_norm_eps", "init_std", "scale_embedding", "layerdrop", "use_cache",
                 "bos_token_id", "eos_token_id"});
  share_hidden_size(reader, c);
  if (c.hidden_size % 2 != 0) reader.fail_found("embed_dim", "not-modelled", "an odd number is not supported yet");
  return c;
}

Kosmos2_5VisionConfig read_vision(ConfigReader& reader) {
  Kosmos2_5VisionConfig c;
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.patch_embed_hidden_size = reader.integer("patch_embed_hidden_size", c.patch_embed_hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.head_dim = reader.integer("head_dim", c.head_dim);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.max_num_patches = reader.integer("max_num_patches", c.max_num_patches);
  c.dropout_rate = reader.number("dropout_rate", 0, 0, 1);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.dense_act_fn = reader.activation("dense_act_fn", c.dense_act_fn);
  reader.ignore({"model_type", "layer_norm_eps", "initializer_factor", "initializer_range"});
  return c;
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  Kosmos2_5Config c;
  ConfigReader vision = reader.object("vision_config"), text = reader.object("text_config");
  c.vision = read_vision(vision);
  c.text = read_text(text);
  c.latent_query_num = reader.integer("latent_query_num", c.latent_query_num);
  if (reader.boolean("tie_word_embeddings", true) != c.text.tie_word_embeddings)
    reader.fail_found("tie_word_embeddings", "not-modelled",
                      "text_config says otherwise, which is not supported yet: expected the same in both");
  vision.finish();
  text.finish();
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_kosmos2_5(context, config.as<Kosmos2_5Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Kosmos2_5Config>();
  ModelTraits t = vision_language_traits(kKosmos2_5Names.causal_lm, c.text, c.text.tie_word_embeddings);
  t.set_parts("vision_model", "", "text_model");
  t.image_keys = {"image_size"};
  t.image_size = kPatchSide * std::llround(std::floor(std::sqrt(static_cast<double>(c.vision.max_num_patches))));
  t.cuts_images = true;  // the processor makes the same number of patches of any
  t.min_images = t.max_images = 1;
  t.images_why = "the processor takes one image a sample";
  t.convolutions = 0;
  t.max_sequence_length = c.text.max_position_embeddings;
  t.default_sequence_length = std::min(c.latent_query_num + kPromptTokens + 1024, t.max_sequence_length);
  t.no_split_modules = {kKosmos2_5VisionLayer, kKosmos2_5Names.decoder_layer};
  t.oldest_transformers = {5, 23, 0};
  t.generates = false;
  t.has_no_peft_targets();
  t.allow({Feature::zero3, Feature::fsdp});
  t.refuse(Feature::quantization, "inconsistent",
           "the tower of " + t.class_name +
               " casts its states to the type of quantised weights, which breaks them: "
               "leave it out");
  for (const Feature feature :
       {Feature::inference, Feature::generate_options, Feature::headinfer, Feature::quantized_cache,
        Feature::turn_images, Feature::chunked_cross_entropy, Feature::pretrain, Feature::finetune, Feature::packing,
        Feature::image_preferences, Feature::flash_attention_2})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

ImageCount count_image(const FamilyConfig& config, std::int64_t, std::int64_t, std::int64_t) {
  return {1, config.as<Kosmos2_5Config>().latent_query_num + kPromptTokens};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Kosmos2_5Config>();
  const Kosmos2_5VisionConfig& v = c.vision;
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1), patches = v.max_num_patches,
                     joined = patches + c.latent_query_num;
  return std::max({largest_tensor_of(c.text, data),
                   bytes_of_layer(images, patches, v.hidden_size, std::max(v.intermediate_size, v.inner_dim()),
                                  v.num_attention_heads),
                   bytes_of({images, c.text.num_attention_heads, c.latent_query_num, joined}),
                   bytes_of({images, joined, c.text.hidden_size}),
                   bytes_of({images, patches, v.patch_embed_hidden_size + 2}),
                   bytes_of({std::max(patches, v.patch_embed_hidden_size), v.hidden_size}),
                   bytes_of({v.hidden_size, c.text.hidden_size})});
}

}  // namespace

namespace family {
extern const Family kosmos2_5{.classes = kClasses,
                              .blocks = kBlocks,
                              .read = read,
                              .build = build,
                              .traits = traits,
                              .largest_tensor = largest_tensor,
                              .count_image = count_image};
}  // namespace family

}  // namespace oometer
