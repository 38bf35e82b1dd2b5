#include "models/family.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "config/reader.h"
#include "models/florence2/florence2.h"
#include "models/kit/image_size.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"florence2", "Florence2ForConditionalGeneration"}};
constexpr const char* kBlocks[] = {kBart.encoder_layer, kBart.decoder_layer};
constexpr std::int64_t kUsualSide = 768;  // its processor's

// class Florence2VisionConfig
DavitConfig read_vision(ConfigReader& reader) {
  DavitConfig c;
  c.in_channels = reader.integer("in_channels", c.in_channels);
  c.window_size = reader.integer("window_size", c.window_size, {1, 1024});
  if (reader.has("embed_dim")) c.embed_dim = reader.integers("embed_dim", {2, 1 << 20});
  const std::size_t stages = c.stages();
  const auto read_list = [&](const char* key, std::vector<std::int64_t>& values, Range range) {
    if (reader.has(key)) values = reader.integers(key, range);
    if (values.size() == stages) return;
    reader.fail(key, "inconsistent", "expected " + std::to_string(stages) + " numbers, as many as embed_dim has");
    values.assign(stages, 1);
  };
  read_list("depths", c.depths, {1, 1000});
  read_list("patch_size", c.patch_size, {1, 1024});
  read_list("patch_stride", c.patch_stride, {1, 1024});
  read_list("patch_padding", c.patch_padding, {0, 1024});
  read_list("num_heads", c.num_heads, positive);
  read_list("num_groups", c.num_groups, positive);
  if (const nlohmann::json* given = reader.find("patch_prenorm"); given && given->is_array()) {
    c.patch_prenorm.clear();
    for (const nlohmann::json& one : *given) c.patch_prenorm.push_back(one.is_boolean() && one.get<bool>() ? 1 : 0);
  }
  if (c.patch_prenorm.size() != stages) {
    reader.fail("patch_prenorm", "inconsistent", "expected as many as embed_dim has");
    c.patch_prenorm.assign(stages, 0);
  }
  for (std::size_t i = 0; i < stages; ++i)
    if (c.embed_dim[i] % c.num_heads[i] != 0 || c.embed_dim[i] % c.num_groups[i] != 0)
      reader.fail("embed_dim", "inconsistent", "expected multiples of num_heads and of num_groups");
  if (stages == 0 || stages > 16) {
    reader.fail("embed_dim", "out-of-range", "expected between 1 and 16 stages");
    c = {};
  }
  c.drop_path_rate = reader.number("drop_path_rate", c.drop_path_rate, 0, 1);
  c.mlp_ratio = reader.number("mlp_ratio", c.mlp_ratio, 0.01, 1024);
  c.qkv_bias = reader.boolean("qkv_bias", true);
  c.activation = reader.activation("activation_function", Activation::gelu);
  c.projection_dim = reader.integer("projection_dim", c.projection_dim);
  c.max_temporal_embeddings = reader.integer("max_temporal_embeddings", c.max_temporal_embeddings);
  c.max_position_embeddings = reader.integer("max_position_embeddings", c.max_position_embeddings);
  if (c.embed_dim.back() % 2 != 0)
    reader.fail("embed_dim", "not-modelled", "an odd width of positions is not supported yet");
  reader.ignore({"model_type", "initializer_range"});
  return c;
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  Florence2Config c;
  ConfigReader vision = reader.object("vision_config"), text = reader.object("text_config");
  c.vision = read_vision(vision);
  text.choice<int>("model_type", 0, {{"bart", 0}, {"florence2_language", 0}});
  c.text = read_bart_config(text, kBart).as<BartConfig>();
  c.text.class_name = kClasses[0].class_name;
  if (!reader.boolean("tie_word_embeddings", true))
    reader.fail_found("tie_word_embeddings", "not-modelled",
                      "embeddings of their own for encoder, decoder and head are not supported yet: expected true");
  if (c.vision.projection_dim != c.text.hidden_size)
    vision.fail("projection_dim", "inconsistent",
                "expected the text's d_model (" + std::to_string(c.text.hidden_size) + ")");
  vision.finish();
  text.finish();
  reader.ignore({"image_token_id", "is_encoder_decoder", "pad_token_id", "bos_token_id", "eos_token_id"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_florence2(context, config.as<Florence2Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Florence2Config>();
  ModelTraits t = bart_traits(c.text);
  t.takes_images = true;
  t.image_keys = {"image_size"};
  t.image_size = 0;  // any
  t.convolutions = 1;
  t.no_split_modules = {};
  t.lora_targets = t.ia3_targets = t.ia3_feedforward = t.ln_tuning_targets = {};
  t.set_parts("vision_tower", "multi_modal_projector", "language_model");
  t.allow({Feature::pretrain, Feature::finetune});
  t.default_sequence_length = std::min<std::int64_t>(1024, c.text.max_position_embeddings);
  for (const Feature feature :
       {Feature::fsdp, Feature::flash_attention_2, Feature::flash_attention, Feature::inference})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const DavitConfig& c = config.as<Florence2Config>().vision;
  const auto size = read_image_size(reader, data, {kUsualSide, kUsualSide});
  if (!size) return;
  std::tie(data.image_height, data.image_width) = *size;
  std::int64_t height = size->first, width = size->second;
  for (std::size_t i = 0; i < c.stages(); ++i) {
    const auto fits = [&](std::int64_t side) { return side + 2 * c.patch_padding[i] >= c.patch_size[i]; };
    if (!fits(height) || !fits(width)) {
      reader.fail("image_size", "inconsistent", "expected a larger image: nothing is left of it behind the last stage");
      return;
    }
    height = c.side(i, height);
    width = c.side(i, width);
  }
  if (std::max(height, width) > c.max_position_embeddings)
    reader.fail("image_size", "inconsistent",
                "expected a smaller image: the tower leaves more than max_position_embeddings (" +
                    std::to_string(c.max_position_embeddings) + ") of a side");
  if (height * width < 2)
    reader.fail("image_size", "not-modelled", "images of one patch are not supported yet: expected a larger one");
  data.tokens_per_image = 1 + height * width;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Florence2Config>();
  const DavitConfig& v = c.vision;
  double most = std::max(largest_tensor_of_bart(c.text, data),
                         bytes_of({data.images(), v.in_channels, data.image_height, data.image_width}));
  std::int64_t height = data.image_height, width = data.image_width;
  for (std::size_t i = 0; i < v.stages(); ++i) {
    height = std::max<std::int64_t>(1, v.side(i, height));
    width = std::max<std::int64_t>(1, v.side(i, width));
    const std::int64_t in = i == 0 ? v.in_channels : v.embed_dim[i - 1], area = v.window_size * v.window_size,
                       cells = (height + v.window_size) * (width + v.window_size), dim = v.embed_dim[i];
    most = std::max(
        {most, bytes_of({data.images(), cells, 3 * dim}), bytes_of({data.images(), cells, v.intermediate(i)}),
         bytes_of({data.images(), cells, v.num_heads[i], area}),
         bytes_of({data.images(), v.num_groups[i], dim / v.num_groups[i], dim / v.num_groups[i]}),
         bytes_of({cells, in, v.patch_size[i], v.patch_size[i]}), bytes_of({dim, in, v.patch_size[i], v.patch_size[i]}),
         bytes_of({dim, std::max(3 * dim, v.intermediate(i))})});
  }
  return std::max({most, bytes_of({v.embed_dim.back(), v.projection_dim}),
                   bytes_of({v.max_temporal_embeddings, v.embed_dim.back()})});
}

}  // namespace

namespace family {
extern const Family florence2{.classes = kClasses,
                              .blocks = kBlocks,
                              .read = read,
                              .build = build,
                              .traits = traits,
                              .largest_tensor = largest_tensor,
                              .read_images = read_images};
}  // namespace family

}  // namespace oometer
