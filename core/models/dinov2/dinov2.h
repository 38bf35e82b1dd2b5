#pragma once

#include <memory>
#include <vector>

#include "models/vit/vit.h"
#include "tensor/tensor_list.h"

/// transformers 5.23, models/dinov2/modeling_dinov2.py. Names and order of steps are that file's.
namespace oometer {

inline constexpr VitClassNames kDinov2{
    "Dinov2Model", "Dinov2Embeddings", "Dinov2PatchEmbeddings", "Dinov2Layer", "Dinov2Attention", "Dinov2MLP", "dinov2",
    false};
/// models/dinov2_with_registers/modeling_dinov2_with_registers.py
inline constexpr VitClassNames kDinov2WithRegisters{"Dinov2WithRegistersModel",
                                                    "Dinov2WithRegistersEmbeddings",
                                                    "Dinov2WithRegistersPatchEmbeddings",
                                                    "Dinov2WithRegistersLayer",
                                                    "Dinov2WithRegistersAttention",
                                                    "Dinov2WithRegistersMLP",
                                                    "dinov2_with_registers",
                                                    false};

/// Dinov2Config, with or without registers.
void read_dinov2(ConfigReader& reader, const ModelClass& of, bool has_registers, VitConfig& config);

/// What Dinov2Backbone reads beside. `out_indices`: 0 is the embeddings.
struct Dinov2BackboneConfig : VitConfig {
  std::vector<std::int64_t> out_indices;
  bool apply_layernorm = true;

  bool operator==(const Dinov2BackboneConfig&) const = default;
};
/// Of one whose feature maps are tokens, not images; `reshapes`: reshape_hidden_states where the config has none.
/// `config` holds the other defaults.
void read_dinov2_backbone(ConfigReader& reader, const ModelClass& of, bool reshapes, Dinov2BackboneConfig& config);

/// class Dinov2Backbone, without reshape_hidden_states
class Dinov2Backbone {
 public:
  virtual ~Dinov2Backbone() = default;
  /// The feature maps, [images, 1 + patches, hidden]. `all`: takes the hidden states, of a class that asks for them.
  virtual TensorList operator()(const Tensor& pixel_values, TensorList* all) const = 0;
};

std::unique_ptr<const Dinov2Backbone> build_dinov2_backbone(const Builder& builder, const Dinov2BackboneConfig& config,
                                                            const ModelOptions& options);

std::unique_ptr<Model> build_dinov2(Context& context, const VitConfig& config, const DataConfig& data,
                                    const ModelOptions& options);

}  // namespace oometer
