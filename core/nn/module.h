#pragma once

#include <string_view>
#include <vector>

#include "tensor/context.h"
#include "tensor/tensor.h"

/// Modules made of operators, named as torch.nn's and transformers'. A module's constructor allocates what its Python
/// constructor allocates, in that order; its `forward` reads like the Python one.
namespace oometer {

struct Parameter {
  Tensor tensor;
  ModuleId module = 0;
  const char* name = "weight";
  bool decays = true;  ///< weight decay applies: HF Trainer's first parameter group (not biases, not norms)
};

/// Builds a module tree: where in it we are, what type the weights have. Constructors pass children `child(...)`.
struct Builder {
  Context* context = nullptr;
  std::vector<Parameter>* parameters = nullptr;
  std::vector<Tensor>* buffers = nullptr;
  ModuleId module = 0;
  Modality modality = Modality::none;
  DType dtype = DType::float32;
  bool in_norm = false;

  /// The builder for a child module.
  Builder child(const char* name, const char* type, std::int32_t index = -1) const;
  Builder child(const char* name, const char* type, Modality modality) const;

  Tensor parameter(const char* name, const Shape& sizes) const;
  Tensor buffer(const Shape& sizes, DType dtype) const;
};

struct Linear {
  Linear() = default;
  Linear(const Builder& builder, std::int64_t in_features, std::int64_t out_features, bool bias);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  ModuleId module = 0;
};

struct Embedding {
  Embedding() = default;
  Embedding(const Builder& builder, std::int64_t count, std::int64_t size);
  Tensor operator()(const Tensor& indices) const;

  Tensor weight;
  ModuleId module = 0;
};

struct LayerNorm {
  LayerNorm() = default;
  LayerNorm(const Builder& builder, std::int64_t size);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  ModuleId module = 0;
};

struct Conv2d {
  Conv2d() = default;
  Conv2d(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel, bool bias);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  ModuleId module = 0;
};

}  // namespace oometer
