#include "models/traits.h"

#include <algorithm>
#include <utility>

namespace oometer {

namespace {

/// What is said of a class that has not got it, behind the class's name.
struct Row {
  const char *name, *code, *why;
};

Row row_of(Feature feature) {
  switch (feature) {
    case Feature::transformers:
      return {"transformers", "inconsistent", " is not a class of transformers"};
    case Feature::original_llava:
      return {"original_llava", "inconsistent", ", and the original LLaVA code is supported for LLaVA-1.5 models only"};
    case Feature::training:
      return {"training", "inconsistent", " cannot be trained"};
    case Feature::inference:
      return {"inference", "inconsistent", " cannot be used for inference"};
    case Feature::pretrain:
      return {"pretrain", "inconsistent", " has no projector to train: expected full or custom"};
    case Feature::finetune:
      return {"finetune", "inconsistent", " has no language model beside the vision tower: expected full or custom"};
    case Feature::adapters:
      return {"adapters", "not-modelled", " is not supported with adapters: leave it out"};
    case Feature::checkpointing:
      return {"checkpointing", "not-modelled", " has no activation checkpointing: leave it out"};
    case Feature::no_grad:
      return {"no_grad", "not-modelled", " runs no part under no_grad: leave it out"};
    case Feature::eager_attention:
      return {"eager_attention", "not-modelled", " has no eager attention: leave it out"};
    case Feature::sdpa:
      return {"sdpa", "inconsistent", " cannot use SDPA: expected eager"};
    case Feature::flash_attention:
      return {"flash_attention", "inconsistent", " cannot use this kernel: expected sdpa, sdpa-efficient or sdpa-math"};
    case Feature::liger:
      return {"liger", "inconsistent", " has no kernels in Liger: leave it out"};
    case Feature::chunked_cross_entropy:
      return {"chunked_cross_entropy", "inconsistent", " has no such loss: leave it out"};
    case Feature::quantization:
      return {"quantization", "not-modelled", " is not supported with quantised weights yet: leave it out"};
    case Feature::deepspeed:
      return {"deepspeed", "not-modelled", " is not supported under DeepSpeed yet: expected none or ddp"};
    case Feature::zero3:
      return {"zero3", "not-modelled", " is not supported under ZeRO-3 yet: expected another stage or strategy"};
    case Feature::fsdp:
      return {"fsdp", "not-modelled", " is not supported under FSDP yet: expected none or ddp"};
    case Feature::generate_options:
      return {"generate_options", "inconsistent", " does not generate: leave it out"};
    case Feature::turn_images:
      return {"turn_images", "inconsistent", " takes no images in a later turn: expected 0"};
    case Feature::headinfer:
      return {"headinfer", "inconsistent", " has no attention of Llama's kind, as HeadInfer needs: use another cache"};
    case Feature::quantized_cache:
      return {"quantized_cache", "inconsistent",
              " has no full attention in every layer, as QuantizedCache needs: use another cache"};
    case Feature::mtla:
      return {"mtla", "inconsistent", " has no latent attention, as MTLA needs: use another cache"};
    case Feature::lengths:
      return {"lengths", "not-modelled", " is not supported with samples of different lengths yet: leave it out"};
    case Feature::flash_attention_2:
      return {"flash_attention_2", "not-modelled",
              " is not supported with the flash-attn package yet: expected eager, sdpa or one of its kernels"};
    case Feature::image_preferences:
      return {"image_preferences", "not-modelled",
              " is not supported with images under trl.DPOTrainer yet: expected \"images_per_sample\": 0, or "
              "trl.SFTTrainer"};
    case Feature::packing:
      return {"packing", "not-modelled", " is not supported with packed samples yet: leave it out"};
  }
  return {"", "", ""};
}

}  // namespace

const char* name_of(Feature feature) { return row_of(feature).name; }

bool ModelTraits::reads_images_by(std::string_view key) const {
  return std::any_of(image_keys.begin(), image_keys.end(), [&](const char* its) { return its == key; });
}

void ModelTraits::allow(std::initializer_list<Feature> features) {
  for (const Feature feature : features) is_allowed_[static_cast<std::size_t>(feature)] = true;
}

void ModelTraits::refuse(Feature feature, const char* code, std::string why) {
  is_allowed_[static_cast<std::size_t>(feature)] = false;
  refusals_.insert(refusals_.begin(), {feature, {code, std::move(why)}});  // the latest counts
}

void ModelTraits::has_no_liger() {
  is_allowed_[static_cast<std::size_t>(Feature::liger)] = false;
  liger.is_known = false;
}

void ModelTraits::stop_at_liger(const char* why) {
  refuse(Feature::liger, "inconsistent",
         "liger-kernel 0.8.5 stops at " + class_name + " with transformers 5 (" + why + "): leave it out");
  liger.is_known = true;
}

void ModelTraits::leave_liger_out() {
  refuse(Feature::liger, "not-modelled", "Liger's kernels are not supported yet with " + class_name + ": leave it out");
  liger.is_known = true;
}

std::optional<Refusal> ModelTraits::refusal(Feature feature) const {
  if (can(feature)) return std::nullopt;
  for (const auto& [refused, refusal] : refusals_)
    if (refused == feature) return refusal;
  if (*why_not != '\0') return Refusal{"not-modelled", why_not};
  const Row row = row_of(feature);
  return Refusal{row.code, class_name + row.why};
}

void ModelTraits::set_parts(const char* its_tower, const char* its_projector, const char* its_language) {
  tower = its_tower;
  projector = its_projector;
  language = its_language;
  pretrain = {{}, {projector}, {tower}};
  finetune = {{tower}, {}, {tower}};
  if (!projector.empty()) quantization_skips = {"lm_head", "model." + projector};  // which trains in full
  allow({Feature::pretrain, Feature::finetune});
}

ModelTraits transformers_traits(std::string class_name) {
  ModelTraits t;
  t.class_name = std::move(class_name);
  t.allow({Feature::transformers, Feature::training, Feature::inference, Feature::adapters, Feature::checkpointing,
           Feature::no_grad, Feature::eager_attention, Feature::sdpa, Feature::flash_attention, Feature::deepspeed,
           Feature::zero3, Feature::fsdp});
  return t;
}

}  // namespace oometer
