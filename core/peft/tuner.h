#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/pattern.h"
#include "nn/module.h"
#include "peft/config.h"
#include "peft/method.h"
#include "peft/modules_to_save.h"
#include "result.h"
#include "tensor/context.h"
#include "tensor/tensor_list.h"

namespace oometer {

/// deepspeed.zero.GatheredParameters, as gather_params_ctx (utils/integrations.py) and ModulesToSaveWrapper.update
/// enter it: what ZeRO-3 has cut is whole from a call with true to one with false, which is given the same tensors by
/// the handles that they have by then.
using GatherParameters = std::function<void(const TensorList& parameters, bool whole)>;

/// A half-precision adapter's parameter becomes float32.
void cast_half(const Tensor& parameter);

/// The name `param` of cast_adapter_dtype's loop over the parameters of a module in a ModuleDict: the one that was cast
/// last stays until the next module's turn, whatever entries of ParameterDicts come between.
using LastCast = Storage;

class PromptLearning;
struct PromptShape;

/// peft's BaseTuner (0.21, tuners/tuners_utils.py): which modules of a model get an adapter, and what becomes of its
/// parameters. While the model is built `wrap_linear` finds the targets (_create_and_replace), and `inject` does the
/// rest of get_peft_model once it stands.
class Tuner : public Wrapping {
 public:
  /// `kind`: its key in the job, "lora". The names outlive the tuner.
  Tuner(Context& context, std::string kind, const TargetModules& targets,
        const std::vector<std::string>& modules_to_save);

  std::shared_ptr<const LinearWrapper> wrap_linear(Builder& builder, std::int64_t in_features,
                                                   std::int64_t out_features) final;
  std::shared_ptr<const EmbeddingWrapper> wrap_embedding(Builder& builder, std::int64_t count, std::int64_t size) final;
  std::shared_ptr<const ParametersWrapper> wrap_parameters(Builder& builder, std::span<const ParameterSizes> parameters,
                                                           bool is_transposed) final;

  /// Freezes the model, makes the adapters and the modules that train in full; all parameters are then in the order of
  /// named_parameters(). An error where peft raises one: nothing was targeted, or something that cannot be. `tied`:
  /// what modules have of others.
  std::optional<Error> inject(std::vector<Parameter>& parameters, std::span<const Parameter> tied);
  /// Where ZeRO-3 has cut the model. Without it nothing is gathered.
  void gather_with(GatherParameters gather) { gather_ = std::move(gather); }
  /// The model's config says tie_word_embeddings: its head has the embeddings' weight.
  void tie_embeddings() { ties_embeddings_ = true; }

  /// Embeddings may have adapters, too. Without it they are refused: on several GPUs and over quantized weights.
  void adapt_embeddings() { adapts_embeddings_ = true; }

  /// Of prompt learning: itself; null: another method.
  virtual const PromptLearning* prompt() const { return nullptr; }
  /// What the model is like, before `inject`.
  virtual void set_shape([[maybe_unused]] const PromptShape& shape) {}
  /// What the tuner's own forward does when the model has given its loss.
  virtual void after_forward([[maybe_unused]] Tensor& loss) {}

  /// What peft passes over without a word, for the report.
  const std::vector<std::string>& notes() const { return notes_; }

 protected:
  /// The tuner's layer around a Linear; its modules come below `builder`, which moves on to its base layer.
  virtual std::shared_ptr<const LinearWrapper> create(Builder& builder, std::int64_t in_features,
                                                      std::int64_t out_features) = 0;
  /// The same around an Embedding; null: peft has none.
  virtual std::shared_ptr<const EmbeddingWrapper> create_embedding([[maybe_unused]] Builder& builder,
                                                                   [[maybe_unused]] std::int64_t count,
                                                                   [[maybe_unused]] std::int64_t size) {
    return nullptr;
  }
  /// What a head that has the embeddings' weight gets, because these have an adapter; null: nothing.
  virtual std::shared_ptr<const LinearWrapper> create_tied([[maybe_unused]] Builder& builder) { return nullptr; }
  /// The same around a module with parameters of its own; null: none of them is a target.
  virtual std::shared_ptr<const ParametersWrapper> create_parameters(
      [[maybe_unused]] Builder& builder, [[maybe_unused]] std::span<const ParameterSizes> parameters,
      [[maybe_unused]] bool is_transposed) {
    return nullptr;
  }
  /// How many adapters there are, one made after another.
  virtual std::size_t adapters() const { return 1; }
  /// Makes an adapter's parameters, in the order in which `create` was called, in the dtype of their base layers. The
  /// model's own are frozen by now.
  virtual void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                               std::size_t adapter) = 0;
  /// cast_adapter_dtype: a half-precision adapter becomes float32.
  virtual void cast_parameters(std::size_t adapter) = 0;
  /// An error where the targets are none that it can adapt.
  virtual std::optional<Error> check_targets();
  /// The same of parameters that are no layer's.
  virtual std::optional<Error> check_parameters([[maybe_unused]] const std::vector<Parameter>& parameters) const {
    return std::nullopt;
  }

  bool is_target(ModuleId module) const;
  /// Whether something was put in the place of this module or of one around it.
  bool is_wrapped(ModuleId module) const;
  /// A deep copy of each of these modules trains in its place, the original stays; the model's handles go to the copy.
  void train_copies(std::vector<Parameter>& parameters, const std::vector<ModuleId>& modules);
  Error error(const char* code, const std::string& message, const char* key = "target_modules") const;
  /// What a layer's own sizes do not allow: peft raises it while the adapters are made. The first one stays.
  void refuse(Error error) {
    if (!refusal_) refusal_ = std::move(error);
  }

  Context& context_;
  GatherParameters gather_;
  bool ties_embeddings_ = false, adapts_embeddings_ = false;

 private:
  /// A module that was wrapped, and the modules that came below it with that: not the model's own.
  struct Target {
    ModuleId module, last;
  };

  bool is_saved_within(ModuleId module) const;
  bool is_saved(ModuleId module) const;
  bool is_saved_as(ModuleId module, const std::string& name) const;
  bool is_in_layers(ModuleId module) const;
  std::optional<Error> nothing_targeted(const std::vector<std::string_view>& linears) const;
  void save_modules(std::vector<Parameter>& parameters, std::span<const Parameter> tied);

  const std::string kind_;
  const TargetModules& targets_;
  const std::vector<std::string>& modules_to_save_;
  std::optional<Pattern> pattern_, excluded_;
  std::vector<Target> found_;
  std::vector<std::shared_ptr<SavedModule>> saved_;  ///< those that share a weight
  std::vector<std::string> notes_;
  std::optional<Error> refusal_;
};

}  // namespace oometer
