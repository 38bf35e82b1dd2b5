#include "models/family.h"

#include <algorithm>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/kit/detection.h"
#include "models/kit/encoder.h"
#include "models/sizes.h"
#include "models/yolos/yolos.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"yolos", "YolosForObjectDetection"}, {"yolos", "YolosModel"}};
constexpr const char* kBlocks[] = {kYolos.embeddings, kYolos.layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  YolosConfig c;
  c.names = &kYolos;
  c.class_name = of.class_name;
  c.detects = &of == &kClasses[0];
  c.num_labels = read_num_labels(reader);
  c.num_channels = reader.integer("num_channels", c.num_channels);
  c.patch_size = reader.integer("patch_size", c.patch_size);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.hidden_dropout_prob = reader.number("hidden_dropout_prob", 0, 0, 1);
  c.attention_probs_dropout_prob = reader.number("attention_probs_dropout_prob", 0, 0, 1);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.qkv_bias = reader.boolean("qkv_bias", true);
  c.num_detection_tokens = reader.integer("num_detection_tokens", c.num_detection_tokens, {1, 65'536});
  c.use_mid_position_embeddings = reader.boolean("use_mid_position_embeddings", true);
  if (const auto size = reader.integers("image_size", {1, 65'536}); size.size() == 2) {
    c.image_height = size[0];
    c.image_width = size[1];
  } else if (!size.empty()) {
    reader.fail_found("image_size", "wrong-type", "expected [height, width] in pixels");
  }
  if (reader.boolean("auxiliary_loss", false))
    reader.fail_found("auxiliary_loss", "inconsistent",
                      "the class would stack the states of its layers, which it does not keep: expected false");
  if (reader.ok() && std::min(c.image_height, c.image_width) < c.patch_size)
    reader.fail_found("image_size", "inconsistent", "expected at least a patch each way (patch_size)");
  if (c.use_mid_position_embeddings && c.num_hidden_layers < 2)
    reader.fail_found("num_hidden_layers", "not-modelled",
                      "a single layer with use_mid_position_embeddings is not supported yet: expected 2 or more");
  // InterpolateMidPositionEmbeddings counts patches by area, and then takes them by rows and columns.
  if (c.use_mid_position_embeddings &&
      checked_product(c.image_height, c.image_width) / (c.patch_size * c.patch_size) != c.num_patches())
    reader.fail_found("image_size", "inconsistent",
                      "the class cannot take such positions apart where use_mid_position_embeddings is true: expected "
                      "multiples of patch_size (" +
                          std::to_string(c.patch_size) + ")");
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  c.image_size = c.image_height;
  ignore_loss_weights(reader);
  reader.ignore({"label2id", "id2label", "layer_norm_eps", "initializer_range"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_yolos(context, config.as<YolosConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<YolosConfig>();
  ModelTraits t = vit_traits(c);
  t.image_size = 0;  // any
  if (c.detects) {
    set_detection_traits(t);
    t.tower = c.names->base;
  }
  t.refuse(Feature::fsdp, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<YolosConfig>();
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1),
                     height = std::max(c.image_height, data.image_height),
                     width = std::max(c.image_width, data.image_width),
                     tokens = c.patches(height, width) + c.num_detection_tokens + 1;
  double largest = std::max({bytes_of_layer(images, tokens, c.hidden_size, c.intermediate_size, c.num_attention_heads),
                             bytes_of({images, c.num_channels, height, width}),
                             bytes_of({tokens, c.num_channels, c.patch_size, c.patch_size}),
                             bytes_of({c.hidden_size, c.num_channels, c.patch_size, c.patch_size}),
                             bytes_of({c.hidden_size, std::max(c.num_labels + 1, c.hidden_size)})});
  if (c.use_mid_position_embeddings)
    largest = std::max(largest, bytes_of({c.num_hidden_layers, tokens, c.hidden_size}));
  return c.detects ? std::max(largest, largest_tensor_of_detection(data, c.num_detection_tokens, c.num_labels))
                   : largest;
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const auto& c = config.as<YolosConfig>();
  read_detection_images(reader, c.detects, kUsualImage, data);
  if (reader.ok() && std::min(data.image_height, data.image_width) < c.patch_size)
    reader.fail_found("image_size", "inconsistent",
                      "expected at least a patch (" + std::to_string(c.patch_size) + " pixels) each way");
}

}  // namespace

namespace family {
extern const Family yolos{.classes = kClasses,
                          .blocks = kBlocks,
                          .read = read,
                          .build = build,
                          .traits = traits,
                          .largest_tensor = largest_tensor,
                          .read_images = read_images};
}  // namespace family

}  // namespace oometer
