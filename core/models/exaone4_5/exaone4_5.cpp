#include "models/exaone4_5/exaone4_5.h"

#include <utility>

#include "models/exaone4/exaone4.h"
#include "models/kit/packed_images.h"
#include "models/kit/recurrent.h"
#include "models/qwen2_vl/qwen2_vl.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

// Exaone4_5_ForConditionalGeneration
class Exaone45 : public PackedImageModel {
 public:
  Exaone45(Context& context, const Exaone45Config& config, const DataConfig& data, const ModelOptions& options)
      : PackedImageModel(context, config.tower.names->text.causal_lm, data, options),
        patch_elements_(config.tower.vision.patch_elements()) {
    const QwenVLClassNames& names = *config.tower.names;
    const Builder model = root_.child("model", names.model);
    model_ = model.module;
    visual_ = make_qwen_vision(model.child("visual", names.tower, Modality::vision), config.tower, options);
    DecoderParts parts = exaone4_text_parts(config.text, options);
    complete_parts(parts, config.text);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options,
                 std::move(parts));
    language_model_.blocks.first_block = visual_->block_stack().size();
    make_head(root_, config.text, config.tie_word_embeddings);
  }

  /// "Force recomputation of 2D-RoPE and ignore rope_deltas"
  void prepare_inputs_for_generation(ModelInputs& inputs, bool) override { inputs.position_ids.reset(); }

 private:
  Shape pixel_sizes() const override { return {data_.all_patches(), patch_elements_}; }
  bool masks_images() const override { return false; }
  bool makes_positions() const override { return true; }

  GridOutputs image_features(const Tensor& pixel_values) const override {
    const Tensor typed = to(pixel_values, visual_->first_parameter().dtype());  // self.visual.dtype
    return (*visual_)(typed, data_);
  }

  std::unique_ptr<GridTower> visual_;
  std::int64_t patch_elements_;
};

}  // namespace

std::unique_ptr<Model> build_exaone4_5(Context& context, const Exaone45Config& config, const DataConfig& data,
                                       const ModelOptions& options) {
  return std::make_unique<Exaone45>(context, config, data, options);
}

}  // namespace oometer
