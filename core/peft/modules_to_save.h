#pragma once

#include <memory>
#include <span>
#include <vector>

#include "nn/module.h"

/// ModulesToSaveWrapper (peft 0.21, utils/other.py) around a layer that has its weight together with another: the copy
/// that trains has its own.
namespace oometer {

class SavedModule : public LinearWrapper, public EmbeddingWrapper {
 public:
  /// `builder` moves on to the original.
  explicit SavedModule(Builder& builder);
  /// update: a deep copy of the original, which is among `parameters` or `tied`.
  void copy(std::vector<Parameter>& parameters, std::span<const Parameter> tied);
  ModuleId module() const { return module_; }

  Tensor operator()(const Linear& base_layer, const Tensor& x) const override;
  Tensor operator()(const Embedding& base_layer, const Tensor& indices, const ForwardHook& hook) const override;

 private:
  Builder copy_;
  ModuleId module_, original_;
  Tensor weight_, bias_;
};

}  // namespace oometer
