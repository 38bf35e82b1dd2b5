#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/ops.h"
#include "peft/method.h"
#include "peft/tuner.h"

/// What a method's layer around a Linear and its model are made of, where all of its layers are of one class
/// (BaseTunerLayer and BaseTuner: peft 0.21, tuners/tuners_utils.py).
namespace oometer {

/// Where a layer stands: `builder` moves on to the base layer.
struct LayerPlace {
  Builder& builder;
  std::int64_t in_features, out_features;
};

/// An entry of a layer's nn.ParameterDict (or of a ModuleDict's nn.Linear): `self.vera_lambda_b[adapter_name]`.
struct AdapterParameter {
  operator const Tensor&() const { return tensor; }  // NOLINT(google-explicit-constructor)

  Builder dict;
  Tensor tensor;
};

/// A layer around a Linear, with one adapter in it.
class TunerLayer : public LinearWrapper {
 public:
  /// `type`: "vera.Linear".
  TunerLayer(const LayerPlace& place, const char* type);
  /// update_layer: the adapter's parameters, in the base layer's dtype. The base layer's own are among `parameters` or
  /// `tied`. An error, without its pointer, where peft raises one.
  virtual void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied) = 0;
  /// cast_adapter_dtype: by entries of dictionaries, in the order of modules().
  virtual void cast_parameters(LastCast& param) const;
  Tensor operator()(const Linear& base_layer, const Tensor& x) const final;

  /// Why peft refuses the layer; empty: it does not.
  virtual std::string refusal() const { return {}; }
  ModuleId module() const { return module_; }

 protected:
  virtual Tensor forward(const Linear& base_layer, const Tensor& x) const = 0;

  /// `self.NAME = nn.ParameterDict({})`: in the constructor, in that order. The member lives as long as the layer.
  void declare(AdapterParameter& parameter, const char* name, const char* type = "ParameterDict",
               std::int32_t index = -1);
  /// `self.NAME[adapter_name] = nn.Parameter(...)`; false: requires_grad=False.
  static void make(std::vector<Parameter>& parameters, AdapterParameter& parameter, const Shape& sizes,
                   bool trains = true);
  /// A dropout in a ModuleDict: Identity where its probability is none.
  void add_dropout(const char* name, double probability);
  Tensor dropout(const Tensor& x) const;
  std::string path() const { return module_path(inside_.context->log, module_); }
  /// The base layer's weight, among what the model has.
  Tensor base_weight(std::span<const Parameter> parameters, std::span<const Parameter> tied) const;

  std::int64_t in_features_, out_features_;
  Builder inside_;
  ModuleId module_, base_layer_;

 private:
  std::vector<AdapterParameter*> entries_;
  double dropout_ = 0;
  ModuleId dropout_module_ = 0;
};

/// A half-precision entry of a BufferDict becomes float32.
void cast_buffer(const Tensor& buffer, ModuleId module);

/// A tuner whose layers are `Layer(config, place)`.
template <class Layer, class Config>
class TunerModel : public Tuner {
 public:
  TunerModel(Context& context, const std::string& kind, const Config& config, bool casts)
      : Tuner(context, kind, config.target_modules, config.modules_to_save), config_(config), casts_(casts) {}

 protected:
  std::shared_ptr<const LinearWrapper> create(Builder& builder, std::int64_t in_features,
                                              std::int64_t out_features) override {
    layers_.push_back(std::make_shared<Layer>(config_, LayerPlace{builder, in_features, out_features}));
    return layers_.back();
  }
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied, std::size_t) override {
    for (const std::shared_ptr<Layer>& layer : layers_) {
      if (std::string why = layer->refusal(); !why.empty())
        return refuse(error("inconsistent", "found " + module_path(context_.log, layer->module()) + ": " + why));
      layer->make_parameters(parameters, tied);
    }
  }
  void cast_parameters(std::size_t) override {
    if (!casts_ || !context_.behaviours.peft_casts_adapters) return;
    LastCast param;
    for (const std::shared_ptr<Layer>& layer : layers_) layer->cast_parameters(param);
  }

  const Config& config_;
  const bool casts_;
  std::vector<std::shared_ptr<Layer>> layers_;
};

/// A config whose tuner is TunerModel.
template <class Layer, class Config>
struct ConfigOf : TunerConfig {
  std::unique_ptr<Tuner> tuner(Context& context, const std::string& kind,
                               std::span<const PeftAdapter> adapters) const override {
    return std::make_unique<TunerModel<Layer, Config>>(context, kind, static_cast<const Config&>(*this),
                                                       adapters.front().autocast_adapter_dtype);
  }
};

}  // namespace oometer
