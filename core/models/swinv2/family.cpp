#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/sizes.h"
#include "models/swinv2/swinv2.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"swinv2", "Swinv2ForImageClassification"}, {"swinv2", "Swinv2Model"}};
constexpr const char* kBlocks[] = {"Swinv2Stage", kSwinv2.layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  Swinv2Config c;
  c.names = &kSwinv2;
  read_swin_sizes(reader, of, c);
  for (std::size_t stage = 0; reader.ok() && stage < c.depths.size(); ++stage) {
    const std::int64_t side = c.side(stage), window = c.window(stage);
    const bool halves = stage + 1 == c.depths.size() || side % 2 == 0;
    if (side < 1 || side % window != 0 || !halves)
      reader.fail_found("image_size", "not-modelled",
                        "images whose windows are filled up are not supported yet: expected a size whose " +
                            std::to_string(side) + " patches each way of stage " + std::to_string(stage + 1) +
                            (halves ? " whole windows fill" : " can be halved"));
  }
  if (c.use_absolute_embeddings)
    reader.fail_found("use_absolute_embeddings", "inconsistent",
                      "Swinv2Embeddings has a position more than there are patches, so that they cannot be added: "
                      "expected false");
  reader.ignore({"pretrained_window_sizes"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_swinv2(context, config.as<Swinv2Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Swinv2Config>();
  ModelTraits t = vit_traits(c);
  t.no_split_modules = {"Swinv2Stage"};
  for (const Feature feature : {Feature::sdpa, Feature::flash_attention, Feature::flash_attention_2})
    t.refuse(feature, "inconsistent", "Swin V2 computes its attention itself: expected eager");
  for (const Feature feature : {Feature::fsdp, Feature::deepspeed, Feature::zero3})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Swinv2Config>();
  constexpr std::int64_t position_width = 512;
  const std::int64_t span = 2 * c.window_size;
  return std::max(largest_tensor_of_swin(c, data), bytes_of({span, span, position_width}));
}

}  // namespace

namespace family {
extern const Family swinv2{.classes = kClasses,
                           .blocks = kBlocks,
                           .read = read,
                           .build = build,
                           .traits = traits,
                           .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
