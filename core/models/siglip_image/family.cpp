#include "models/family.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "config/reader.h"
#include "models/clip/clip.h"
#include "models/clip/family.h"
#include "models/kit/encoder.h"
#include "models/siglip/config.h"
#include "models/siglip/siglip.h"
#include "models/sizes.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23: CLIPForImageClassification (models/clip/modeling_clip.py) and SiglipForImageClassification
/// (models/siglip/modeling_siglip.py), which classify the mean of a tower's patches.
namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"clip", "CLIPForImageClassification"}, {"siglip", "SiglipForImageClassification"}};

struct ImageClassifierConfig {
  const char* class_name = "";
  bool is_clip = true;
  ClipVisionConfig vision;
  std::int64_t num_labels = 2;

  bool operator==(const ImageClassifierConfig&) const = default;
};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  ImageClassifierConfig c;
  c.class_name = of.class_name;
  c.is_clip = &of == &kClasses[0];
  c.num_labels = read_num_labels(reader);
  ConfigReader vision = reader.object("vision_config");
  c.vision = c.is_clip ? read_clip_vision_config(vision) : read_siglip_vision_config(vision);
  vision.finish();
  reader.ignore({"text_config", "text_config_dict", "vision_config_dict", "projection_dim", "logit_scale_init_value",
                 "initializer_factor"});
  return c;
}

template <typename Tower>
class ImageClassifier : public Model {
 public:
  ImageClassifier(Context& context, const ImageClassifierConfig& c, const DataConfig& data, const ModelOptions& options)
      : context_(context), data_(data), config_(c), dtype_(options.dtype) {
    loss_type = LossType::cross_entropy;
    const Builder builder{
        &context,         &parameters,   &buffers,         context.add_root(c.class_name, Modality::vision),
        Modality::vision, options.dtype, options.wrapping, options.quantizer};
    vision_model_ = Tower(builder.child("vision_model", c.vision.family->model), c.vision, options);
    if (options.checkpointing.input_require_grads) vision_model_.embeddings.checkpointing = options.checkpointing;
    classifier_ =
        Linear(builder.child("classifier", "Linear", Modality::none), c.vision.hidden_size, c.num_labels, true);
  }

  void set_data(const DataConfig& data) override { data_ = data; }

  ModelInputs make_inputs(bool with_labels) override {
    ModelInputs batch;
    batch.pixel_values =
        empty(context_, Op::input, {data_.images(), config_.vision.num_channels, data_.image_height, data_.image_width},
              data_.pixel_dtype.value_or(dtype_), Role::input);
    if (with_labels) batch.labels = empty(context_, Op::input, {data_.images()}, DType::int64, Role::input);
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const ClipVisionOutput vision = vision_model_(inputs.pixel_values);
    Tensor sequence_output = vision.last_hidden_state;
    if (config_.is_clip) sequence_output = slice(sequence_output, 1, 1, sequence_output.size(1) - 1);
    sequence_output = mean(sequence_output, 1, false);
    Tensor logits = classifier_(sequence_output);
    ModelOutputs outputs;
    if (inputs.labels) outputs.loss = (*loss_function)(logits, inputs.labels);
    outputs.others.push_back(std::move(logits));
    return outputs;
  }

 private:
  Context& context_;
  DataConfig data_;
  ImageClassifierConfig config_;
  DType dtype_;
  Tower vision_model_;
  Linear classifier_;
};

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  const auto& c = config.as<ImageClassifierConfig>();
  if (c.is_clip) return std::make_unique<ImageClassifier<ClipVisionModel>>(context, c, data, options);
  return std::make_unique<ImageClassifier<SiglipVisionModel>>(context, c, data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<ImageClassifierConfig>();
  ModelTraits t = clip_vision_traits(c.vision);
  t.class_name = c.class_name;
  t.oldest_transformers = {5, 23, 0};
  t.has_loss = true;
  t.losses = {};
  t.max_images = 1;
  t.images_why = "each sample is an image";
  t.tower = "vision_model";
  t.hidden_size = 0;        // the config of both towers has none
  t.has_idle_parts = true;  // what pools, which it does not read
  for (const Feature feature : {Feature::zero3, Feature::fsdp, Feature::flash_attention_2})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<ImageClassifierConfig>();
  return std::max(largest_tensor_of(c.vision, data), bytes_of({c.num_labels, c.vision.hidden_size}));
}

}  // namespace

namespace family {
extern const Family siglip_image{
    .classes = kClasses, .read = read, .build = build, .traits = traits, .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
