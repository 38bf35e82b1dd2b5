#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/deepseek_ocr2/deepseek_ocr2.h"
#include "models/kit/image_text.h"
#include "models/kit/mixture.h"
#include "models/kit/recurrent.h"
#include "models/registry.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"deepseek_ocr2", "DeepseekOcr2ForConditionalGeneration"}};
constexpr SamClassNames kSam{
    "DeepseekOcr2SamVisionLayer",         "DeepseekOcr2SamVisionAttention", "DeepseekOcr2SamMLPBlock",
    "DeepseekOcr2SamVisionNeck",          "DeepseekOcr2SamPatchEmbeddings", "DeepseekOcr2SamLayerNorm",
    "DeepseekOcr2SamVisionSdpaAttention", "DeepseekOcr2SamVisionProj"};
constexpr LlamaClassNames kEncoder{kClasses[0].class_name,
                                   "DeepseekOcr2VisionEncoder",
                                   "DeepseekOcr2VisionEncoderLayer",
                                   "DeepseekOcr2VisionAttention",
                                   "DeepseekOcr2VisionMLP",
                                   "DeepseekOcr2VisionRMSNorm",
                                   "DeepseekOcr2VisionRotaryEmbedding"};
constexpr DeepseekClassNames kText{
    {kClasses[0].class_name, "DeepseekOcr2TextModel", "DeepseekOcr2TextDecoderLayer", "DeepseekOcr2TextAttention",
     "DeepseekOcr2TextMLP", "DeepseekOcr2TextRMSNorm", "DeepseekOcr2TextRotaryEmbedding"},
    "DeepseekOcr2TextMoe",
    "DeepseekOcr2TextExperts",
    "DeepseekOcr2TextTopkRouter"};
constexpr const char* kBlocks[] = {kSam.layer, kEncoder.decoder_layer, kText.decoder_layer};

SamConfig read_sam(ConfigReader& reader) {
  SamConfig c = read_sam_config(reader, {.names = &kSam});
  if (!reader.has("mlp_dim"))
    c.mlp_dim = static_cast<std::int64_t>(static_cast<double>(c.hidden_size) * reader.number("mlp_ratio", 4, 0, 1024));
  c.downsample_channels = {512, 896};
  if (reader.has("downsample_channels")) c.downsample_channels = reader.integers("downsample_channels");
  if (c.downsample_channels.size() != 2) {
    reader.fail("downsample_channels", "inconsistent", "expected two numbers of channels");
    c.downsample_channels = {512, 896};
  }
  reader.ignore({"mlp_ratio"});
  return c;
}

LlamaConfig read_encoder(ConfigReader& reader, std::int64_t channels) {
  TextConfig d;
  d.names = &kEncoder;
  d.vocab_size = 151'936;
  d.intermediate_size = 22016;
  d.max_position_embeddings = 32768;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = true;
  check_llama_heads(reader, c);
  if (reader.boolean("use_sliding_window", false))
    reader.fail("use_sliding_window", "not-modelled", "layers that slide are not supported yet here: expected false");
  if (c.hidden_size != channels)
    reader.fail("hidden_size", "inconsistent",
                "found " + std::to_string(c.hidden_size) + "; expected the last of downsample_channels (" +
                    std::to_string(channels) + ")");
  reader.ignore({"model_type", "sliding_window", "max_window_layers", "layer_types", "attention_bias", "mlp_bias"});
  return c;
}

void read_text(ConfigReader& reader, DeepseekOcr2Config& config) {
  TextConfig d;
  d.names = &kText;
  d.vocab_size = 102'400;
  d.num_key_value_heads = 0;
  TextConfig& c = config.text;
  c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  share_hidden_size(reader, c);
  check_llama_heads(reader, c);
  if (!reader.has("mlp_layer_types"))
    reader.fail("mlp_layer_types", "missing", "expected \"dense\" or \"sparse\" of each layer");
  read_experts(reader, c, "n_routed_experts", "num_experts",
               {.num_experts = 64, .num_experts_per_tok = reader.optional_integer("num_experts_per_tok").value_or(1)});
  read_mlp_layer_types(reader, c);
  c.experts.intermediate_size = reader.integer("moe_intermediate_size", 1407);
  const std::int64_t shared = reader.integer("n_shared_experts", 2);
  c.experts.shared_intermediate_size = c.experts.intermediate_size * shared;
  DeepseekConfig& e = config.text_experts;
  e.names = &kText;
  e.hidden_size = c.hidden_size;
  e.moe_intermediate_size = c.experts.intermediate_size;
  e.n_routed_experts = c.experts.num_experts;
  e.n_shared_experts = shared;
  e.num_experts_per_tok = c.experts.num_experts_per_tok;
  e.n_group = reader.optional_integer("n_group").value_or(1);
  e.topk_group = reader.optional_integer("topk_group").value_or(1);
  e.hidden_act = c.hidden_act;
  e.mlp_bias = c.mlp_bias;
  const std::string method = reader.is_null("topk_method") ? "greedy" : reader.text("topk_method", "greedy");
  e.chooses_groups = method == "group_limited_greedy";
  if (!e.chooses_groups && method != "greedy")
    reader.fail_found("topk_method", "unknown-value", "expected \"greedy\" or \"group_limited_greedy\"");
  if (e.chooses_groups && (e.n_routed_experts % e.n_group != 0 || e.topk_group > e.n_group))
    reader.fail("n_group", "inconsistent",
                "found " + std::to_string(e.n_group) + "; expected a divisor of n_routed_experts (" +
                    std::to_string(e.n_routed_experts) + "), and at most so many topk_group");
  reader.ignore({"model_type", "head_dim", "routed_scaling_factor", "pretraining_tp"});
  reader.refuse("output_router_logits", "routers' logits among the outputs are not supported yet: set it to false");
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  DeepseekOcr2Config c;
  ConfigReader vision = reader.object("vision_config"), text = reader.object("text_config");
  ConfigReader sam = vision.object("sam_config"), encoder = vision.object("encoder_config");
  c.sam = read_sam(sam);
  sam.finish();
  c.encoder = read_encoder(encoder, c.sam.downsample_channels.back());
  encoder.finish();
  vision.ignore({"model_type"});
  vision.finish();
  read_text(text, c);
  text.finish();
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  reader.ignore({"image_token_id"});
  if (c.tile_size() < c.sam.patch_size)
    reader.fail("vision_config", "inconsistent", "found a patch_size of sam_config larger than an image's tiles");
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_deepseek_ocr2(context, config.as<DeepseekOcr2Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<DeepseekOcr2Config>();
  ModelTraits t = vision_language_traits(kClasses[0].class_name, c.text, c.tie_word_embeddings);
  t.set_parts("vision_tower", "multi_modal_projector", "language_model");
  t.image_keys = {"image_size", "tiles"};
  t.image_size = c.sam.image_size;
  t.cuts_images = t.chooses_tiles = true;
  t.convolutions = 10;
  t.has_experts = true;
  t.default_sequence_length = std::max(t.default_sequence_length, c.tokens(6));
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules = {kBlocks[0], kBlocks[1], kBlocks[2]};
  t.allow({Feature::quantization, Feature::fsdp, Feature::packing});
  t.refuse(Feature::zero3, "not-modelled",
           "its queries, which ZeRO-3 gathers for another module, are not supported yet: expected another strategy");
  for (const Feature feature : {Feature::flash_attention, Feature::flash_attention_2})
    t.refuse(feature, "inconsistent", "its towers add to what attention weighs: use sdpa or eager");
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

// DeepseekOcr2ImageProcessor: of two to six tiles, where an image is larger than one.
ImageCount count_image(const FamilyConfig& config, std::int64_t height, std::int64_t width, std::int64_t tiles) {
  const auto& c = config.as<DeepseekOcr2Config>();
  if (tiles == 0)
    tiles = 1 + (std::max(height, width) > c.tile_size() ? nearest_tiles(height, width, c.tile_size(), 6, 2) : 0);
  return {tiles, c.tokens(tiles - 1)};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<DeepseekOcr2Config>();
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1),
                     tiles = images * std::max<std::int64_t>(data.tiles, 1), length = c.patches(c.sam.image_size) + 256;
  return std::max(
      {largest_tensor_of_text(c.text, data), largest_tensor_of(c.sam, images, c.sam.image_size),
       largest_tensor_of(c.sam, tiles, c.tile_size()),
       bytes_of_layer(tiles, length, c.encoder.hidden_size, c.encoder.intermediate_size, c.encoder.num_attention_heads),
       bytes_of({9 * c.sam.downsample_channels[0], std::max(c.sam.downsample_channels[1], c.sam.output_channels)}),
       bytes_of({c.encoder.hidden_size, std::max(c.encoder.intermediate_size, c.text.hidden_size)}),
       bytes_of({tiles, length, c.text.hidden_size})});
}

}  // namespace

namespace family {
extern const Family deepseek_ocr2{.classes = kClasses,
                                  .blocks = kBlocks,
                                  .read = read,
                                  .build = build,
                                  .traits = traits,
                                  .largest_tensor = largest_tensor,
                                  .count_image = count_image};
}  // namespace family

}  // namespace oometer
