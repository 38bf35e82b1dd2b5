#include "models/family.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "config/reader.h"
#include "models/kit/image_size.h"
#include "models/kit/layerdrop.h"
#include "models/sizes.h"
#include "models/vision_encoder_decoder/vision_encoder_decoder.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"vision-encoder-decoder", "VisionEncoderDecoderModel"}};
constexpr const char* kBlocks[] = {kVit.layer, kDeit.layer, kDonutSwinStage, kTrocrLayer, kMBartDecoder.decoder_layer};

VitConfig read_vit(ConfigReader& reader, const VitClassNames& names) {
  VitConfig c;
  c.names = &names;
  read_vit_sizes(reader, {"", names.model}, c);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.pooler_output_size = reader.optional_integer("pooler_output_size").value_or(c.hidden_size);
  if (reader.text("pooler_act", "tanh") != "tanh")
    reader.fail_found("pooler_act", "not-modelled", "another activation is not supported yet: expected tanh");
  reader.ignore({"encoder_stride"});
  return c;
}

// class DonutSwinConfig
DonutSwinConfig read_donut_swin(ConfigReader& reader) {
  constexpr std::size_t most_stages = 8;
  DonutSwinConfig c;
  c.names = &kDonutSwin;
  c.class_name = kDonutSwin.model;
  c.num_channels = reader.integer("num_channels", 3);
  c.patch_size = reader.integer("patch_size", 4, {1, 65'536});
  if (const nlohmann::json* given = reader.find("image_size"); given && given->is_array()) {
    const auto size = reader.integers("image_size", {1, 65'536});
    if (size.size() == 2)
      std::tie(c.image_height, c.image_width) = std::tie(size[0], size[1]);
    else
      reader.fail_found("image_size", "wrong-type", "expected [height, width] in pixels, or a square's side");
  } else {
    c.image_height = c.image_width = reader.integer("image_size", 224, {1, 65'536});
  }
  c.image_size = std::max(c.image_height, c.image_width);
  c.embed_dim = reader.integer("embed_dim", c.embed_dim, {1, 1 << 20});
  if (const auto depths = reader.integers("depths", {1, 1024}); !depths.empty()) c.depths = depths;
  if (const auto heads = reader.integers("num_heads", {1, 65'536}); !heads.empty()) c.num_heads = heads;
  c.window_size = reader.integer("window_size", c.window_size, {1, 1024});
  c.mlp_ratio = reader.number("mlp_ratio", c.mlp_ratio, 0.01, 1024);
  c.qkv_bias = reader.boolean("qkv_bias", true);
  c.hidden_dropout_prob = reader.number("hidden_dropout_prob", 0, 0, 1);
  c.attention_probs_dropout_prob = reader.number("attention_probs_dropout_prob", 0, 0, 1);
  c.drop_path_rate = reader.number("drop_path_rate", c.drop_path_rate, 0, 1);
  c.hidden_act = reader.activation("hidden_act", Activation::gelu);
  reader.refuse("use_absolute_embeddings",
                "positions of one token more than there are patches, which the class cannot add: expected false");
  reader.ignore({"layer_norm_eps", "initializer_range", "num_layers", "hidden_size", "path_norm"});
  if (c.depths.size() > most_stages)
    reader.fail_found("depths", "not-modelled", "expected at most " + std::to_string(most_stages) + " stages");
  else if (c.num_heads.size() < c.depths.size())
    reader.fail("num_heads", "inconsistent",
                "expected one a stage, of which depths has " + std::to_string(c.depths.size()));
  if (!reader.ok()) return c;
  for (std::size_t stage = 0; stage < c.depths.size(); ++stage)
    if (c.dim(stage) % c.num_heads[stage] != 0)
      reader.fail("num_heads", "inconsistent", "expected divisors of the channels of their stages");
  c.hidden_size = c.dim(c.depths.size() - 1);
  return c;
}

// class TrOCRConfig
TrocrConfig read_trocr(ConfigReader& reader) {
  TrocrConfig c;
  c.class_name = kClasses[0].class_name;
  c.head = EncoderHead::masked_lm;  // a label for each token
  c.vocab_size = reader.integer("vocab_size", 50'265);
  c.hidden_size = reader.integer("d_model", 1024);
  c.decoder_layers = c.num_hidden_layers = reader.integer("decoder_layers", 12, layer_count);
  c.decoder_attention_heads = c.num_attention_heads = reader.integer("decoder_attention_heads", 16);
  c.decoder_ffn_dim = c.intermediate_size = reader.integer("decoder_ffn_dim", 4096);
  c.hidden_act = reader.activation("activation_function", Activation::gelu);
  c.max_position_embeddings = reader.integer("max_position_embeddings", 512);
  c.dropout = reader.number("dropout", 0.1, 0, 1);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.activation_dropout = reader.number("activation_dropout", 0, 0, 1);
  c.cross_attention_hidden_size = reader.optional_integer("cross_attention_hidden_size").value_or(0);
  c.layernorm_embedding = reader.boolean("layernorm_embedding", true);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  read_layerdrop(reader, "decoder_layerdrop");
  if (!reader.boolean("use_learned_position_embeddings", true))
    reader.fail_found("use_learned_position_embeddings", "not-modelled",
                      "sines, which are no buffer of the class, are not supported yet: expected true");
  check_encoder_heads(reader, c, "d_model");
  reader.ignore({"scale_embedding", "init_std", "decoder_start_token_id", "pad_token_id", "classifier_dropout",
                 "num_hidden_layers", "hidden_size"});
  return c;
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  enum class Tower : std::uint8_t { vit, deit, donut };
  VisionEncoderDecoderConfig c;
  ConfigReader encoder = reader.object("encoder"), decoder = reader.object("decoder");
  switch (encoder.choice<Tower>("model_type", Tower::vit,
                                {{"vit", Tower::vit}, {"deit", Tower::deit}, {"donut-swin", Tower::donut}})) {
    case Tower::vit:
      c.encoder = read_vit(encoder, kVit);
      break;
    case Tower::deit:
      c.encoder = read_vit(encoder, kDeit);
      break;
    case Tower::donut:
      c.encoder = read_donut_swin(encoder);
      break;
  }
  if (!decoder.has("model_type"))
    decoder.fail("model_type", "not-modelled",
                 "found nothing, which is BERT: a decoder of this kind is not supported yet; expected trocr or mbart");
  c.is_trocr = decoder.choice<int>("model_type", 0, {{"trocr", 0}, {"mbart", 1}}) == 0;
  if (c.is_trocr)
    c.decoder = read_trocr(decoder);
  else
    static_cast<BartConfig&>(c.decoder) = read_bart_config(decoder, kMBartDecoder).as<BartConfig>();
  c.use_cache = decoder.boolean("use_cache", true);
  c.decoder.has_pad_token = !reader.is_null("pad_token_id");
  decoder.ignore({"is_decoder", "add_cross_attention", "hidden_size", "num_hidden_layers"});
  encoder.finish();
  decoder.finish();
  reader.ignore({"is_encoder_decoder", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id",
                 "tie_word_embeddings", "vocab_size", "processor_class"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_vision_encoder_decoder(context, config.as<VisionEncoderDecoderConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<VisionEncoderDecoderConfig>();
  ModelTraits t = encoder_traits(c.decoder, "decoder");
  t.ties_embeddings = c.decoder.tie_word_embeddings;
  t.tower = "encoder";
  t.takes_images = true;
  t.min_images = t.max_images = 1;
  t.images_why = "the encoder reads one image a sample";
  t.image_keys = {"image_size"};
  t.image_size = c.donut() ? 0 : c.vision().image_size;
  t.convolutions = 1;
  t.has_idle_parts = !c.donut();  // ViT's pooler
  t.default_sequence_length = std::min<std::int64_t>(c.donut() ? 512 : 64, c.decoder.max_position_embeddings);
  t.hidden_size = 0;  // the config has none
  // Of its parts' classes.
  if (c.is_trocr)
    t.no_split_modules = {kTrocrLayer};
  else
    t.no_split_modules = {"MBartDecoderLayer", "MBartEncoderLayer", "MBartAttention"};
  if (c.donut())
    t.no_split_modules.emplace_back(kDonutSwinStage);
  else
    for (const char* its : {c.vision().names->embeddings, c.vision().names->layer})
      t.no_split_modules.emplace_back(its);
  t.allow({Feature::quantization, Feature::zero3, Feature::fsdp});
  for (const Feature feature : {Feature::flash_attention_2, Feature::inference, Feature::finetune, Feature::packing,
                                Feature::generate_options, Feature::flash_attention})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const auto& c = config.as<VisionEncoderDecoderConfig>();
  const DonutSwinConfig* const donut = c.donut();
  const std::int64_t side = c.vision().image_size;
  const auto size =
      read_image_size(reader, data, donut ? std::pair{donut->image_height, donut->image_width} : std::pair{side, side});
  if (!size) return;
  std::tie(data.image_height, data.image_width) = *size;
  const auto [height, width] = *size;
  if (!donut && (height != side || width != side)) {
    const std::string own = std::to_string(side);
    reader.fail_found("image_size", "inconsistent", "expected the config's own, [" + own + ", " + own + "]");
  }
  if (!donut) return;
  const auto behind = [&](std::int64_t pixels) {
    std::int64_t patches = (pixels + donut->patch_size - 1) / donut->patch_size;
    for (std::size_t stage = 1; stage < donut->depths.size(); ++stage) patches = (patches + 1) / 2;
    return patches;
  };
  const std::int64_t least = std::min(behind(height), behind(width));
  if (least < donut->window_size)  // set_shift_and_window_size: a window of that many, to which the bias does not fit
    reader.fail("image_size", "inconsistent",
                "found [" + std::to_string(height) + ", " + std::to_string(width) + "], of which " +
                    std::to_string(least) + " patches a side reach the last stage; expected a larger image: at least " +
                    std::to_string(donut->window_size) + " (window_size)");
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<VisionEncoderDecoderConfig>();
  const TrocrConfig& d = c.decoder;
  std::int64_t tokens = 0;
  double of_tower = 0;
  if (const DonutSwinConfig* const donut = c.donut()) {
    SwinConfig as_square = *donut;
    as_square.image_size = std::max(data.image_height, data.image_width);
    of_tower = largest_tensor_of_swin(as_square, data);
    tokens = as_square.side(donut->depths.size() - 1) * as_square.side(donut->depths.size() - 1);
  } else {
    of_tower = largest_tensor_of_vit(c.vision(), data);
    tokens = c.vision().num_positions() + 1;
  }
  return std::max({of_tower, largest_tensor_of_encoder(d, data),
                   bytes_of_layer(data.micro_batch_size, data.sequence_length, d.hidden_size, d.decoder_ffn_dim,
                                  d.decoder_attention_heads),
                   bytes_of({data.micro_batch_size, d.decoder_attention_heads, data.sequence_length, tokens}),
                   bytes_of({data.micro_batch_size, tokens, std::max(d.hidden_size, c.vision().hidden_size)}),
                   bytes_of({d.hidden_size, c.vision().hidden_size})});
}

}  // namespace

namespace family {
extern const Family vision_encoder_decoder{.classes = kClasses,
                                           .blocks = kBlocks,
                                           .read = read,
                                           .build = build,
                                           .traits = traits,
                                           .largest_tensor = largest_tensor,
                                           .read_images = read_images};
}  // namespace family

}  // namespace oometer
