#pragma once

#include <string>
#include <string_view>

namespace oometer {

/// What the form of a page needs to know of a job's model to offer what means something for it, as JSON:
///
///     {"class": "Idefics3ForConditionalGeneration",
///      "text": true, "images": true,           it reads text, takes images
///      "prompts_take_images": true,            in inference, too
///      "idle_parts": false,                    parts that no sample reaches: DDP has to look for them
///      "sequence_length": 2048,                that its preset is used with; else null
///      "components": {"transformers": {"tower": "vision_model", "projector": "connector"}},
///                                              dotted names by framework; {} where it has no projector
///      "skip_modules": [],                     what QLoRA leaves as it is where the projector trains beside adapters
///      "lora_targets": [], "ia3_targets": [], "ia3_feedforward": [],   peft's own for the model_type
///      "without": ["/data/frames", ...],       settings that mean nothing for it, or whose use with it is refused
///      "choices": {"/training/stage": ["full", "custom"], ...}}        of a setting, where it has not all
///
/// Settings are named by their pointers in a job; one above another stands for it, too. Or {"error": {...}} where the
/// model cannot be read. Of the job, only its model counts. Nothing is simulated.
std::string traits_json(std::string_view job);

}  // namespace oometer
