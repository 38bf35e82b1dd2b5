#pragma once

#include <functional>
#include <memory>
#include <span>
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
  bool decays = true;             ///< weight decay applies: HF Trainer's first parameter group (not biases, not norms)
  std::int32_t saved_copies = 0;  ///< into how many tensors of its own save_pretrained cuts it; 0: it is saved as it is
};

/// A tensor of a module that does not train.
struct Buffer {
  Tensor tensor;
  ModuleId module = 0;
  bool is_kept_in_float32 = false;  ///< see Builder::kept_buffer

  operator const Tensor&() const { return tensor; }  // NOLINT(google-explicit-constructor)
};

/// In the order of named_parameters(): a module's own before its children's, whatever was made first.
void sort_by_module(std::vector<Parameter>& parameters);

/// `parameter.data = parameter.data.to(dtype)`.
void cast_parameter(const Tensor& parameter, DType dtype);

struct Linear;
struct Embedding;
class LoraLinear;

/// A forward hook of a module, which sees its result.
using ForwardHook = std::function<void(Tensor& result)>;

/// What a library puts in a Linear's place (peft's tuner layers): called instead of it, and calls it.
class LinearWrapper {
 public:
  virtual ~LinearWrapper() = default;
  virtual Tensor operator()(const Linear& base_layer, const Tensor& x) const = 0;
  /// Layers of one input, the first of which this is around, in one function of the library's (Axolotl's
  /// lora_qkv_kernel), into `results`. False: each is called by itself.
  virtual bool project([[maybe_unused]] const Tensor& x, [[maybe_unused]] std::span<const Linear* const> layers,
                       [[maybe_unused]] std::span<Tensor> results) const {
    return false;
  }
  /// A gated MLP in one function (lora_mlp_kernel), of which gate_proj is what this is around. Null: its layers are
  /// called.
  virtual Tensor gated_mlp([[maybe_unused]] const Tensor& x, [[maybe_unused]] const Linear& gate_proj,
                           [[maybe_unused]] const Linear& up_proj, [[maybe_unused]] const Linear& down_proj) const {
    return {};
  }
  virtual const LoraLinear* as_lora() const { return nullptr; }
};

/// The same in an Embedding's place.
class EmbeddingWrapper {
 public:
  virtual ~EmbeddingWrapper() = default;
  /// `base_layer` is called by its `forward` with the same hook.
  virtual Tensor operator()(const Embedding& base_layer, const Tensor& indices, const ForwardHook& hook) const = 0;
};

/// A parameter of a module that is no layer.
struct NamedParameter {
  const char* name;
  const Tensor& tensor;
};

/// The same in the place of a module whose parameters are no layer's (peft's ParamWrapper): the experts' and a
/// router's.
class ParametersWrapper {
 public:
  /// One call of the module, in which its parameters are what the library makes of them.
  class Call {
   public:
    virtual ~Call() = default;
    virtual Tensor operator()(const char* name, const Tensor& parameter) = 0;
  };

  virtual ~ParametersWrapper() = default;
  /// `parameters`: all that the module has.
  virtual std::unique_ptr<Call> call(std::span<const NamedParameter> parameters) const = 0;
};

/// The parameters of a module in one call of it; themselves where nothing is in its place.
class ParameterValues {
 public:
  ParameterValues(const std::shared_ptr<const ParametersWrapper>& wrapper, std::span<const NamedParameter> parameters)
      : call_(wrapper ? wrapper->call(parameters) : nullptr) {}
  Tensor operator()(const char* name, const Tensor& parameter) const {
    return call_ ? (*call_)(name, parameter) : parameter;
  }

 private:
  std::unique_ptr<ParametersWrapper::Call> call_;
};

/// A parameter of such a module, before it is made.
struct ParameterSizes {
  const char* name;
  Shape sizes;
};

struct Builder;
struct QuantState;
class Quantizer;

/// Who wraps modules. Asked while the model is built, so that the module tree is in its final order; what a wrapper
/// itself allocates comes after the whole model, as `get_peft_model(model)` does.
class Wrapping {
 public:
  virtual ~Wrapping() = default;
  /// For the Linear that is being built; null: it stays as it is. May add modules below `builder`, which is moved to
  /// where the Linear itself then is ("q_proj.base_layer").
  virtual std::shared_ptr<const LinearWrapper> wrap_linear(Builder& builder, std::int64_t in_features,
                                                           std::int64_t out_features) = 0;
  /// The same for an Embedding.
  virtual std::shared_ptr<const EmbeddingWrapper> wrap_embedding([[maybe_unused]] Builder& builder,
                                                                 [[maybe_unused]] std::int64_t count,
                                                                 [[maybe_unused]] std::int64_t size) {
    return nullptr;
  }
  /// The same for a module with these parameters. `is_transposed`: those of experts are [experts, in, out].
  virtual std::shared_ptr<const ParametersWrapper> wrap_parameters(
      [[maybe_unused]] Builder& builder, [[maybe_unused]] std::span<const ParameterSizes> parameters,
      [[maybe_unused]] bool is_transposed) {
    return nullptr;
  }
};

/// Builds a module tree: where in it we are, what type the weights have. Constructors pass children `child(...)`.
struct Builder {
  Context* context = nullptr;
  std::vector<Parameter>* parameters = nullptr;
  std::vector<Buffer>* buffers = nullptr;
  ModuleId module = 0;
  Modality modality = Modality::none;
  DType dtype = DType::float32;
  Wrapping* wrapping = nullptr;    ///< none: nothing is wrapped
  Quantizer* quantizer = nullptr;  ///< none: nothing is quantised
  bool in_norm = false;

  /// The builder for a child module.
  Builder child(const char* name, const char* type, std::int32_t index = -1) const;
  Builder child(const char* name, const char* type, Modality modality) const;

  /// Its children are constructed, as what comes next has to know: zero.Init cuts their parameters now.
  void children_are_through() const;

  Tensor parameter(const char* name, const Shape& sizes) const;
  Tensor buffer(const Shape& sizes, DType dtype) const;
  /// One that the class makes in the model's type, and _keep_in_fp32_modules_strict of the model names (transformers
  /// 5.23): so float32 in zero.Init, and again after DeepSpeed has cast the model (deepspeed 0.19,
  /// runtime/keep_in_fp32.py); making a model elsewhere does not follow it.
  Tensor kept_buffer(const Shape& sizes) const;
};

/// What a module is called with, as its hooks have it: FSDP2 casts it first (_cast_forward_inputs).
Tensor cast_forward_input(const Tensor& x, ModuleId module);

struct Linear {
  Linear() = default;
  Linear(const Builder& builder, std::int64_t in_features, std::int64_t out_features, bool bias);
  Tensor operator()(const Tensor& x) const;
  /// nn.Linear.forward: what a wrapper calls as its base layer.
  Tensor forward(const Tensor& x) const;

  Tensor weight, bias;
  ModuleId module = 0;
  std::shared_ptr<const LinearWrapper> wrapper;  ///< null: none
  std::shared_ptr<const QuantState> quantized;   ///< bitsandbytes' Linear4bit; null: nn.Linear
};

struct Embedding {
  Embedding() = default;
  Embedding(const Builder& builder, std::int64_t count, std::int64_t size);
  /// `hook`: the embedding's own, which a wrapper does not take over.
  Tensor operator()(const Tensor& indices, const ForwardHook& hook = nullptr) const;
  /// nn.Embedding.forward: what a wrapper calls as its base layer.
  Tensor forward(const Tensor& indices, const ForwardHook& hook) const;

  Tensor weight;
  ModuleId module = 0;
  std::shared_ptr<const EmbeddingWrapper> wrapper;  ///< null: none
};

struct LayerNorm {
  LayerNorm() = default;
  LayerNorm(const Builder& builder, std::int64_t size);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  bool liger = false;  ///< LigerLayerNorm
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
