#pragma once

#include <cstdint>

namespace oometer {

/// Whose function a layer with LoRA is: peft's, or NeMo Automodel's that saves its input alone
/// (use_memory_efficient_lora), by PyTorch's products or by its Triton kernels (use_triton). `_mlp`: MLPs with silu are
/// one function, which is so of models that are not made on meta (components/_peft/lora_mlp.py:
/// install_fused_lora_mlp).
enum class LoraFunction : std::uint8_t { peft, automodel, automodel_triton, automodel_mlp, automodel_triton_mlp };

}  // namespace oometer
