#include "models/blip_2/family.h"

/// transformers 5.23, models/instructblip/modeling_instructblip.py: BLIP-2, whose Q-Former reads the text, too.
namespace oometer {

namespace {

constexpr Blip2Family kInstructBlip{
    "instructblip",
    "InstructBlipForConditionalGeneration",
    {"InstructBlipVisionModel", "InstructBlipVisionEmbeddings", "InstructBlipEncoder", "InstructBlipEncoderLayer",
     "InstructBlipAttention", "InstructBlipMLP", true, true},
    &kInstructBlipQFormer,
    false};
constexpr ModelClass kClasses[] = {{kInstructBlip.model_type, kInstructBlip.conditional_generation}};
constexpr const char* kBlocks[] = {kInstructBlip.vision.encoder_layer, kInstructBlip.qformer->layer};

}  // namespace

namespace family {
extern const Family instructblip = blip2_family<kInstructBlip>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
