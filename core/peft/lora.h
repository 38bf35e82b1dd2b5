#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "peft/lora_function.h"
#include "peft/method.h"
#include "peft/trainable_tokens.h"
#include "peft/tuner.h"

/// LoRA, after peft 0.21 (tuners/lora/model.py, layer.py).
namespace oometer {

class LoraModel;

/// What one adapter has in a Linear: lora_A, lora_B, lora_dropout, each under the adapter's name.
class LoraAdapter {
 public:
  LoraAdapter(const LoraModel& model, std::size_t adapter, std::int64_t rank, std::int64_t in_features,
              std::int64_t out_features);
  virtual ~LoraAdapter() = default;
  /// Its modules, one kind after another as lora.Linear has them; first those of all adapters of the first kind.
  virtual void add_modules(const Builder& layer, int kind);
  /// update_layer: A and B, in the base layer's dtype. The base layer's own are among `parameters` or `tied`.
  virtual void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                               const GatherParameters& gather, ModuleId base_layer);
  virtual void cast_parameters(LastCast& param) const;

  /// The base layer's result with the adapter's part in it.
  virtual Tensor update(const Linear& base_layer, const Tensor& x, const Tensor& result) const;
  /// What it adds to a quantized base layer's result.
  Tensor output(const Tensor& x) const;
  /// _cast_input_dtype
  Tensor input(const Tensor& x) const;
  Tensor dropout(const Tensor& x) const;
  std::size_t adapter() const { return adapter_; }
  const LoraConfig& config() const { return config_; }
  const Tensor& lora_A() const { return lora_A_.weight; }
  const Tensor& lora_B() const { return lora_B_.weight; }

  static constexpr int kKinds = 4;  ///< lora_dropout, lora_A, lora_B, what variants have

 protected:
  const LoraModel& model_;
  const LoraConfig& config_;
  std::size_t adapter_;
  std::int64_t rank_, in_features_, out_features_;
  Builder lora_a_, lora_b_;
  Linear lora_A_, lora_B_;
  ModuleId lora_dropout_ = 0;
};

/// A layer with adapters.
class LoraLayer {
 public:
  virtual ~LoraLayer() = default;
  virtual void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                               const GatherParameters& gather, std::size_t adapter) = 0;
  virtual void cast_parameters(std::size_t adapter, LastCast& param) const = 0;
  virtual ModuleId base_layer() const = 0;
  /// It adapts a module's own parameters: its adapters are made when all layers have theirs (_inject_parameters).
  virtual bool is_of_parameters() const { return false; }
};

/// lora.Linear: the base layer's result, and the adapters' added to it.
class LoraLinear : public LinearWrapper, public LoraLayer {
 public:
  LoraLinear(const LoraModel& model, Builder& builder, std::int64_t in_features, std::int64_t out_features);
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                       const GatherParameters& gather, std::size_t adapter) override;
  void cast_parameters(std::size_t adapter, LastCast& param) const override;
  ModuleId base_layer() const override { return base_layer_; }

  Tensor operator()(const Linear& base_layer, const Tensor& x) const override;
  bool project(const Tensor& x, std::span<const Linear* const> layers, std::span<Tensor> results) const override;
  Tensor gated_mlp(const Tensor& x, const Linear& gate_proj, const Linear& up_proj,
                   const Linear& down_proj) const override;
  const LoraLinear* as_lora() const override { return this; }
  const LoraAdapter& adapter() const { return *adapters_.front(); }

 private:
  /// NeMo Automodel's LinearLoRA.forward, which is the layer's own.
  Tensor run_automodels(const Linear& base_layer, const Tensor& x) const;

  const LoraModel& model_;
  std::vector<std::unique_ptr<LoraAdapter>> adapters_;
  ModuleId module_, base_layer_;
  bool is_in_text_layer_;  ///< where Axolotl's kernels look (find_self_attn_in_layer, find_mlp_in_layer)
  bool is_o_proj_;
};

/// lora.Embedding: the same of the rows of A.
class LoraEmbedding : public EmbeddingWrapper, public LoraLayer {
 public:
  LoraEmbedding(const LoraModel& model, Builder& builder, std::int64_t count, std::int64_t size);
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                       const GatherParameters& gather, std::size_t adapter) override;
  void cast_parameters(std::size_t adapter, LastCast& param) const override;
  ModuleId base_layer() const override { return base_layer_; }

  Tensor operator()(const Embedding& base_layer, const Tensor& indices, const ForwardHook& hook) const override;

 private:
  struct Adapter {
    std::int64_t rank;
    Tensor lora_embedding_A, lora_embedding_B;
  };

  const LoraModel& model_;
  std::int64_t count_, size_;
  std::vector<Adapter> adapters_;
  Builder lora_embedding_a_, lora_embedding_b_;
  ModuleId module_, base_layer_;
};

/// LoraModel, with any number of adapters of which some are active. The configs outlive it.
class LoraModel : public Tuner {
 public:
  struct Adapter {
    std::string name;
    const LoraConfig* config;
    bool active;
  };

  LoraModel(Context& context, const LoraConfig& config) : LoraModel(context, "lora", {{"default", &config, true}}) {}
  /// Of peft's own configs; `kind`: where they stand in the job.
  LoraModel(Context& context, std::string kind, std::vector<Adapter> adapters);

  std::size_t adapters() const override { return adapters_.size(); }
  const Adapter& adapter(std::size_t i) const { return adapters_[i]; }
  LoraFunction function = LoraFunction::peft;  ///< of every layer

  /// Of the adapter: "lora_A.default", a name that lives as long as the log.
  const char* name_of(std::size_t adapter, int kind) const;

 protected:
  std::shared_ptr<const LinearWrapper> create(Builder& builder, std::int64_t in_features,
                                              std::int64_t out_features) override;
  std::shared_ptr<const EmbeddingWrapper> create_embedding(Builder& builder, std::int64_t count,
                                                           std::int64_t size) override;
  std::shared_ptr<const LinearWrapper> create_tied(Builder& builder) override;
  std::shared_ptr<const ParametersWrapper> create_parameters(Builder& builder,
                                                             std::span<const ParameterSizes> parameters,
                                                             bool is_transposed) override;
  std::optional<Error> check_parameters(const std::vector<Parameter>& parameters) const override;
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                       std::size_t adapter) override;
  void cast_parameters(std::size_t adapter) override;

 private:
  friend class LoraLinear;
  friend class LoraEmbedding;
  friend class ParamWrapper;
  void refuse_beside_tokens(ModuleId module);
  std::int64_t rank_of(std::size_t adapter, ModuleId module) const;
  std::int64_t rank_of(std::size_t adapter, const std::string& path) const;

  const std::vector<Adapter> adapters_;
  std::shared_ptr<const std::vector<std::string>> names_;
  std::vector<ModulePattern> rank_patterns_;  ///< of each adapter
  std::vector<std::shared_ptr<LoraLayer>> layers_;
  std::shared_ptr<TrainableTokens> tokens_;  ///< of the embeddings; null: none train
};

}  // namespace oometer
