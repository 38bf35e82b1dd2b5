#include "models/family.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "config/reader.h"
#include "models/kit/encoder.h"
#include "models/sizes.h"
#include "models/vit/vit.h"

namespace oometer {

void read_image_fields(ConfigReader& reader, const ModelClass& of, VitConfig& c) {
  c.class_name = of.class_name;
  c.classifies = std::string_view(of.class_name).ends_with("Classification");
  c.num_labels = read_num_labels(reader);
  c.num_channels = reader.integer("num_channels", c.num_channels);
  c.image_size = reader.integer("image_size", c.image_size);
  c.patch_size = reader.integer("patch_size", c.patch_size);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.hidden_dropout_prob = reader.number("hidden_dropout_prob", 0, 0, 1);
  c.attention_probs_dropout_prob = reader.number("attention_probs_dropout_prob", 0, 0, 1);
  if (c.image_size < c.patch_size)
    reader.fail_found("image_size", "inconsistent",
                      "expected at least patch_size (" + std::to_string(c.patch_size) + ")");
  if (c.classifies) {
    const std::string problem = reader.has("problem_type") ? reader.text("problem_type", "") : "";
    if ((problem.empty() && c.num_labels == 1) || (!problem.empty() && problem != "single_label_classification"))
      reader.fail(problem.empty() ? "num_labels" : "problem_type", "not-modelled",
                  "regression and several labels at once are not supported yet with images; expected "
                  "single_label_classification with two labels or more");
  }
  reader.ignore({"label2id", "id2label", "problem_type", "layer_norm_eps", "initializer_range"});
}

void read_vit_sizes(ConfigReader& reader, const ModelClass& of, VitConfig& c) {
  read_image_fields(reader, of, c);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.qkv_bias = reader.boolean("qkv_bias", true);
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
}

ModelTraits vit_traits(const VitConfig& c) {
  ModelTraits t = transformers_traits(c.class_name);
  t.takes_images = true;
  t.min_images = t.max_images = 1;
  t.images_why = "the model reads one image a sample";
  t.image_keys = {"image_size"};
  t.image_size = c.image_size;
  t.convolutions = 1;
  t.hidden_size = c.hidden_size;
  t.oldest_transformers = {5, 23, 0};
  if (c.classifies) {
    t.tower = c.names->base;
  } else {
    t.has_loss = false;
    t.losses = {"pooler_output", "last_hidden_state"};
  }
  t.no_split_modules = {c.names->embeddings, c.names->layer};
  t.allow({Feature::flash_attention_2});
  t.refuse(Feature::quantization, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

ModelTraits vit_kin_traits(const FamilyConfig& config) {
  const auto& c = config.as<VitConfig>();
  ModelTraits t = vit_traits(c);
  if (t.has_loss)
    t.allow({Feature::quantization});
  else if (c.names->pooler[0] == '\0')
    t.losses = {"last_hidden_state"};
  for (const Feature feature : {Feature::zero3, Feature::fsdp})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor_of_vit(const VitConfig& c, const DataConfig& data) {
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1),
                     height = std::max(c.image_size, data.image_height),
                     width = std::max(c.image_size, data.image_width), tokens = c.tokens(c.patches(height, width));
  return std::max(
      {bytes_of_layer(images, tokens, c.hidden_size, c.intermediate_size, c.num_attention_heads),
       bytes_of({images, c.num_channels, height, width}),
       bytes_of({tokens, c.num_channels, c.patch_size, c.patch_size}),
       bytes_of({c.hidden_size, c.num_channels, c.patch_size, c.patch_size}), bytes_of({tokens, c.hidden_size}),
       bytes_of({c.hidden_size, 2 * std::max(c.pooler_output_size, c.num_labels)}), bytes_of({images, c.num_labels})});
}

void read_images_of_any_size(ConfigReader& reader, const VitConfig& c, DataConfig& data) {
  std::vector<std::int64_t> size = reader.integers("image_size", {1, 65'536});
  if (size.empty()) size = {224, 224};
  if (size.size() != 2)
    reader.fail_found("image_size", "wrong-type", "expected [height, width] in pixels");
  else if (size[0] < c.patch_size || size[1] < c.patch_size)
    reader.fail_found("image_size", "inconsistent",
                      "expected at least a patch (" + std::to_string(c.patch_size) + " pixels) each way");
  if (!reader.ok()) return;
  data.image_height = size[0];
  data.image_width = size[1];
}

namespace {

constexpr ModelClass kClasses[] = {{"vit", "ViTForImageClassification"}, {"vit", "ViTModel"}};
constexpr const char* kBlocks[] = {kVit.layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  VitConfig c;
  read_vit_sizes(reader, of, c);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.pooler_output_size = reader.integer("pooler_output_size", c.hidden_size);
  if (reader.text("pooler_act", "tanh") != "tanh")
    reader.fail_found("pooler_act", "not-modelled", "another activation is not supported yet: expected tanh");
  reader.ignore({"encoder_stride"});
  return c;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = vit_traits(config.as<VitConfig>());
  if (t.has_loss) t.allow({Feature::quantization});
  return t;
}

}  // namespace

namespace family {
extern const Family vit = vit_family(kClasses, kBlocks, read, traits);
}  // namespace family

}  // namespace oometer
