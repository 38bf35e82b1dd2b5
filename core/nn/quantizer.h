#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nn/linear4bit.h"
#include "nn/module.h"
#include "result.h"
#include "tensor/context.h"
#include "trace/dtype.h"

namespace oometer {

/// BitsAndBytesConfig of 4 bits (transformers 5.23, utils/quantization_config.py), and what peft does next. fp4 or nf4:
/// the same memory.
struct QuantizationConfig {
  bool is_nf4 = false;                                   ///< bnb_4bit_quant_type
  bool double_quant = false;                             ///< bnb_4bit_use_double_quant
  DType compute_dtype = DType::float32;                  ///< bnb_4bit_compute_dtype
  DType quant_storage = DType::uint8;                    ///< bnb_4bit_quant_storage: of the packed weights
  std::optional<std::vector<std::string>> skip_modules;  ///< llm_int8_skip_modules; none: the output embeddings
  bool prepares = true;      ///< prepare_model_for_kbit_training: everything else becomes float32
  bool moe_experts = false;  ///< Axolotl's quantize_moe_experts

  bool operator==(const QuantizationConfig&) const = default;
};

/// transformers' Bnb4BitHfQuantizer (5.23) and peft's prepare_model_for_kbit_training (0.21). The model is built
/// without memory (Context::stopped stands for the meta device), and `load` brings its weights one by one, as
/// from_pretrained does.
class Quantizer {
 public:
  /// `weights_loaded_ahead`: of MemoryBehaviours.
  Quantizer(Context& context, const QuantizationConfig& config, int weights_loaded_ahead = 0)
      : context_(context), config_(config), weights_loaded_ahead_(weights_loaded_ahead) {}

  /// For the Linear that is being built, [out, in]; null: it is left as it is (replace_with_bnb_linear).
  std::shared_ptr<const QuantState> quantize(const Builder& builder, const Shape& shape);

  /// Axolotl 0.19's quantize_moe_experts (monkeypatch/moe_quant.py): experts' parameters, of three dimensions, become
  /// nf4 with double quantisation when they are loaded, and come back as a whole while their module runs. Who says what
  /// they are then: `adapters`, where nothing is quantised. `at`: the module itself.
  std::shared_ptr<const ParametersWrapper> quantize_experts(const Builder& at,
                                                            std::span<const ParameterSizes> parameters,
                                                            std::shared_ptr<const ParametersWrapper> adapters);

  /// A module's parameter of `name` that from_pretrained merges of experts' own, [experts, ...], which the checkpoint
  /// calls `projections` (transformers 5.23, core_model_loading.py: MergeModulelist, then Concatenate).
  void merges(ModuleId module, const char* name, std::span<const char* const> projections) {
    merged_.push_back({module, name, projections});
  }

  /// A module has another name in the checkpoint (WeightRenaming).
  void renames(ModuleId module, const char* name) { renamed_.emplace_back(module, name); }

  /// Of the adapters that peft puts beside a Linear whose own type is `dtype`.
  DType adapter_dtype(bool is_quantized, DType dtype) const;

  /// The error of a name in llm_int8_skip_modules that skips nothing, which transformers takes without a word.
  std::optional<Error> check_skipped() const;

  /// The error of experts that quantize_moe_experts would have quantised, but whose class has no such thing here.
  std::optional<Error> check_experts(const std::vector<Parameter>& parameters) const;

  /// `parameters` in the order of named_parameters().
  void load(std::vector<Parameter>& parameters, const std::vector<Buffer>& buffers);

  bool is_quantized(const Parameter& parameter) const { return state_of(parameter) != nullptr; }
  /// Elements of a parameter as the model has them, whatever now holds it.
  std::int64_t elements_of(const Parameter& parameter) const;

 private:
  struct MergedParameter {
    ModuleId module;
    std::string_view name;
    std::span<const char* const> projections;
  };

  struct QuantizedExperts {
    ModuleId module;
    const char* name;
    std::shared_ptr<QuantState> state;
  };

  QuantState* state_of(const Parameter& parameter) const;
  bool is_of_experts(const Parameter& parameter) const;  ///< whether quantize_moe_experts takes it
  Tensor pack(const Tensor& weight, QuantState& state, DType storage);
  std::string key_of(const Parameter& parameter) const;  ///< in the checkpoint
  /// Null: the checkpoint has the parameter as it is.
  const MergedParameter* merged(const Parameter& parameter) const;
  Tensor merge(const Tensor& parameter, const MergedParameter& of) const;

  Context& context_;
  const QuantizationConfig& config_;
  std::vector<MergedParameter> merged_;
  std::vector<std::pair<ModuleId, const char*>> renamed_;
  int weights_loaded_ahead_;
  std::vector<std::shared_ptr<QuantState>> states_;
  std::vector<std::pair<ModuleId, QuantState*>> modules_;  ///< as built; peft's base_layer comes below
  Tensor dynamic_map_;                                     ///< name2qmap["dynamic"], shared by all
  std::vector<QuantizedExperts> experts_;
};

}  // namespace oometer
