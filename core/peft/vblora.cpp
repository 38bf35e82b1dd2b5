#include "ops/experts.h"
#include "ops/masks.h"
#include "ops/vision.h"
#include "peft/layer.h"
#include "peft/methods.h"

/// VB-LoRA, after peft 0.21 (tuners/vblora/model.py, layer.py): A and B of all layers are mixed of one bank of vectors.
namespace oometer {

namespace {

struct VbloraConfig final : TunerConfig {
  std::int64_t r = 4, num_vectors = 256, vector_length = 256, topk = 2;
  double vblora_dropout = 0;
  std::unique_ptr<Tuner> tuner(Context& context, const std::string& kind,
                               std::span<const PeftAdapter> adapters) const override;
};

class VbloraLinear : public TunerLayer {
 public:
  VbloraLinear(const VbloraConfig& config, const LayerPlace& place)
      : TunerLayer(place, "vblora.Linear"), config_(config) {
    add_dropout("vblora_dropout.default", config.vblora_dropout);
    declare(logits_A_, "vblora_logits_A");
    declare(logits_B_, "vblora_logits_B");
    vector_bank_dict = inside_.child("vblora_vector_bank", "ParameterDict");
  }

  std::string refusal() const override {
    const std::int64_t length = config_.vector_length;
    if (in_features_ % length != 0)
      return "`in_features` " + std::to_string(in_features_) + " must be divisible by `vector_length` " +
             std::to_string(length);
    if (out_features_ % length != 0)
      return "`out_features` " + std::to_string(out_features_) + " must be divisible by `vector_length` " +
             std::to_string(length);
    return {};
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    make(parameters, logits_A_, {config_.r, in_features_ / config_.vector_length, config_.num_vectors});
    make(parameters, logits_B_, {out_features_ / config_.vector_length, config_.r, config_.num_vectors});
  }

  Builder vector_bank_dict;
  const Tensor* vector_bank = nullptr;  ///< the model's

 private:
  // _get_low_rank_matrix
  Tensor low_rank_matrix(const Tensor& logits) const {
    const TopK top_k = topk(logits, config_.topk);
    const Tensor topk_weights =
        softmax(top_k.values, logits.context().autocast.enabled ? DType::float32 : logits.dtype());
    const Tensor vectors = index(*vector_bank, 0, top_k.indices);
    const Tensor product = mul(unsqueeze(topk_weights, -1), vectors);
    return sum(product, {-2}, false);
  }

  Tensor forward(const Linear& base_layer, const Tensor& argument) const override {
    Tensor result = base_layer.forward(argument);
    {  // vblora_logits_A[0, 0].isinf().any()
      const Tensor first = select(select(logits_A_, 0, 0), 0, 0);
      Tensor found = abs(first);
      found = pointwise(Op::eq, {&found}, DType::boolean);
      found = all(Op::any, found, {0}, false);
    }
    Tensor A = low_rank_matrix(logits_A_);
    A = reshape(A, {config_.r, in_features_});
    Tensor B = low_rank_matrix(logits_B_);
    B = reshape(transpose(B, 1, 2), {out_features_, config_.r});
    const Tensor x = to(argument, vector_bank->dtype());
    {
      Tensor added = dropout(x);
      added = linear(added, A, {});
      added = linear(added, B, {});
      result = add(result, added);
    }
    return to(result, argument.dtype());
  }

  const VbloraConfig& config_;
  AdapterParameter logits_A_, logits_B_;
};

class VbloraModel : public TunerModel<VbloraLinear, VbloraConfig> {
 public:
  using TunerModel::TunerModel;

 protected:
  // _init_vblora_vector_bank: anew with each layer; what is moved with the last one stays.
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied, std::size_t) override {
    for (const std::shared_ptr<VbloraLinear>& layer : layers_) {
      if (std::string why = layer->refusal(); !why.empty())
        return refuse(error("inconsistent", "found " + module_path(context_.log, layer->module()) + ": " + why));
      if (vector_bank_) parameters.erase(parameters.begin() + bank_at_);
      vector_bank_.reset();
      layer->make_parameters(parameters, tied);
      Builder dict = layers_.front()->vector_bank_dict;
      dict.parameters = &parameters;
      vector_bank_ = dict.parameter("default", {config_.num_vectors, config_.vector_length});
      bank_at_ = std::ssize(parameters) - 1;
      layer->vector_bank = &vector_bank_;
    }
  }

  void cast_parameters(std::size_t adapter) override {
    if (layers_.empty() || !casts_ || !context_.behaviours.peft_casts_adapters) return;
    LastCast param;
    layers_.front()->cast_parameters(param);
    cast_half(vector_bank_);
    TunerModel::cast_parameters(adapter);
  }

 private:
  Tensor vector_bank_;
  std::ptrdiff_t bank_at_ = 0;
};

std::unique_ptr<Tuner> VbloraConfig::tuner(Context& context, const std::string& kind,
                                           std::span<const PeftAdapter> adapters) const {
  return std::make_unique<VbloraModel>(context, kind, *this, adapters.front().autocast_adapter_dtype);
}

}  // namespace

std::shared_ptr<const PeftMethod> read_vblora(ConfigReader& reader, const PeftDefaults&) {
  const auto config = std::make_shared<VbloraConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, {});
  refuse_bias(reader);
  config->r = reader.integer("r", config->r);
  config->num_vectors = reader.integer("num_vectors", config->num_vectors);
  config->vector_length = reader.integer("vector_length", config->vector_length);
  config->topk = reader.integer("topk", config->topk);
  if (config->topk > config->num_vectors)
    reader.fail_found("topk", "inconsistent", "expected at most num_vectors");
  else if (config->topk > 32)
    reader.fail_found("topk", "not-modelled", "more than 32 are not supported yet");
  config->vblora_dropout = reader.number("vblora_dropout", 0, 0, kDropout);
  reader.ignore({"save_only_topk_weights", "init_vector_bank_bound", "init_logits_std"});
  return config;
}

}  // namespace oometer
