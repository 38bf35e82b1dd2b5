#pragma once

#include <span>
#include <string_view>

#include "nn/module.h"

/// Axolotl's autograd functions over layers with LoRA (axolotl 0.19, kernels/lora.py), which its training enables by
/// itself: adapters of one kind, without DoRA and biases of B, of weights in 16 bits or quantized twice. The layers
/// themselves are not called.
namespace oometer {

/// Whether it rewrites the source of that class's attention (monkeypatch/lora_kernels.py: QKV_PATCHES), as was
/// compared.
bool has_lora_kernels(std::string_view class_name);

/// apply_lora_qkv: what each of the layers makes of x [b, s, in], [b, s, out].
void lora_qkv(const Tensor& x, std::span<const Linear* const> layers, std::span<Tensor> results);
/// apply_lora_o
Tensor lora_o(const Tensor& x, const Linear& o_proj);
/// apply_lora_mlp_swiglu, apply_lora_mlp_geglu
Tensor lora_mlp(const Tensor& x, const Linear& gate_proj, const Linear& up_proj, const Linear& down_proj);

/// NeMo Automodel 0.7 (components/_peft): LoRATritonFunction of a layer's input and its own result, to which it adds
/// the adapter's, and LoRASwiGLUMLPFunction of layers in 16 bits without biases. Nothing is dropped.
Tensor automodel_lora(const Tensor& x, const Linear& layer, const Tensor& result, bool by_triton);
Tensor automodel_lora_mlp(const Tensor& x, const Linear& gate_proj, const Linear& up_proj, const Linear& down_proj);

}  // namespace oometer
