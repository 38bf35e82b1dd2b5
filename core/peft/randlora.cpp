#include <algorithm>

#include "ops/vision.h"
#include "peft/layer.h"
#include "peft/methods.h"
#include "tensor/node.h"

/// RandLoRA, after peft 0.21 (tuners/randlora/model.py, layer.py): all layers share two stacks of frozen random
/// matrices; each trains how much of which of them it takes.
namespace oometer {

namespace {

struct RandLoraConfig final : TunerConfig {
  std::int64_t r = 32;
  double dropout = 0;

  std::unique_ptr<Tuner> tuner(Context& context, const std::string& kind,
                               std::span<const PeftAdapter> adapters) const override;
};

/// UniqueBaseGrad: lambda[:, :, None] * A * gamma[None].
Tensor scaled_bases(const Tensor& A, const Tensor& lambda, const Tensor& gamma) {
  Record record(Op::mul,
                [](Backward& b) {
                  const Tensor A_ = to(b.saved(0), b.grad().dtype()), lambda_ = to(b.saved(1), b.grad().dtype());
                  const Tensor gamma_ = to(b.saved(2), b.grad().dtype());
                  // torch.einsum of three, from left to right without opt_einsum: a product, then a batched one
                  Tensor grad_lambda, grad_gamma;
                  {  // "kbj,kvj,bj->kb"
                    const Tensor product = mul(b.grad(), A_);
                    grad_lambda = bmm(permute(product, {1, 0, 2}), unsqueeze(gamma_, 2));
                  }
                  grad_lambda = permute(select(grad_lambda, 2, 0), {1, 0});
                  {  // "kbj,kvj,kb->bj"
                    const Tensor product = mul(b.grad(), A_);
                    grad_gamma = bmm(permute(product, {1, 2, 0}), unsqueeze(permute(lambda_, {1, 0}), 2));
                  }
                  grad_gamma = select(grad_gamma, 2, 0);
                  b.give(1, std::move(grad_lambda));
                  b.give(2, std::move(grad_gamma));
                },
                {&A, &lambda, &gamma});
  Tensor out;
  {
    const NoGrad no_grad(A.context());
    const Tensor product = mul(unsqueeze(lambda, 2), A);
    out = mul(product, unsqueeze(gamma, 0));
  }
  record.save(A);
  record.save(lambda);
  record.save(gamma);
  return record.output(std::move(out));
}

class RandLoraLinear : public TunerLayer {
 public:
  RandLoraLinear(const RandLoraConfig& config, const LayerPlace& place)
      : TunerLayer(place, "randlora.Linear"),
        r_(config.r),
        least_(std::min(in_features_, out_features_)),
        most_(std::max(in_features_, out_features_)),
        bases_((least_ + config.r - 1) / config.r) {
    add_dropout("randlora_dropout.default", config.dropout);
    declare(lambda_, "randlora_lambda");
    declare(gamma_, "randlora_gamma");
    A_dict = inside_.child("randlora_A", "BufferDict");
    B_dict = inside_.child("randlora_B", "BufferDict");
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    make(parameters, lambda_, {r_, bases_});
    make(parameters, gamma_, {bases_, least_});
  }

  std::int64_t in_features() const { return in_features_; }
  std::int64_t out_features() const { return out_features_; }

  Builder A_dict, B_dict;
  const Tensor *A = nullptr, *B = nullptr;  ///< the model's

 private:
  struct Bases {
    Tensor first, second;
  };

  // get_scaled_bases
  Bases bases() const {
    const Tensor sliced_A = slice(slice(*A, 1, 0, 1), 2, 0, least_);
    const Tensor sliced_B = slice(slice(*B, 0, 0, most_), 1, 0, bases_);
    Tensor update_B = reshape(sliced_B, {most_, bases_ * r_});
    Tensor update_A = scaled_bases(sliced_A, lambda_, gamma_);
    update_A = reshape(update_A, {r_ * bases_, least_});
    if (least_ == in_features_) return {std::move(update_A), std::move(update_B)};
    return {transpose(update_B, 0, 1), transpose(update_A, 0, 1)};
  }

  Tensor forward(const Linear& base_layer, const Tensor& argument) const override {
    Tensor x = argument;
    Tensor result = base_layer.forward(x);
    const Bases updates = bases();
    x = to(x, updates.second.dtype());
    {
      Tensor added = dropout(x);
      added = linear(added, updates.first, {});
      added = linear(added, updates.second, {});
      added = mul_scalar(added);
      result = add(result, added);
    }
    return to(result, argument.dtype());
  }

  std::int64_t r_, least_, most_, bases_;
  AdapterParameter lambda_, gamma_;
};

class RandLoraModel : public TunerModel<RandLoraLinear, RandLoraConfig> {
 public:
  using TunerModel::TunerModel;

 protected:
  // _init_randlora_A_randlora_B: made on the host, and moved with the first layer.
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied, std::size_t) override {
    std::int64_t in_features = 0, out_features = 0;
    for (const std::shared_ptr<RandLoraLinear>& layer : layers_) {
      in_features = std::max(in_features, layer->in_features());
      out_features = std::max(out_features, layer->out_features());
    }
    const std::int64_t least = std::min(in_features, out_features), most = std::max(in_features, out_features);
    for (const std::shared_ptr<RandLoraLinear>& layer : layers_) {
      layer->make_parameters(parameters, tied);
      if (!A_) {
        A_ = layer->A_dict.buffer({config_.r, 1, least}, layer->A_dict.dtype);
        B_ = layer->B_dict.buffer({most, (least + config_.r - 1) / config_.r, config_.r}, layer->B_dict.dtype);
      }
      layer->A = &A_;
      layer->B = &B_;
    }
  }

  void cast_parameters(std::size_t adapter) override {
    if (layers_.empty() || !casts_ || !context_.behaviours.peft_casts_adapters) return;
    LastCast param;
    layers_.front()->cast_parameters(param);
    cast_buffer(A_, layers_.front()->A_dict.module);
    cast_buffer(B_, layers_.front()->B_dict.module);
    TunerModel::cast_parameters(adapter);
  }

 private:
  Tensor A_, B_;
};

std::unique_ptr<Tuner> RandLoraConfig::tuner(Context& context, const std::string& kind,
                                             std::span<const PeftAdapter> adapters) const {
  return std::make_unique<RandLoraModel>(context, kind, *this, adapters.front().autocast_adapter_dtype);
}

}  // namespace

std::shared_ptr<const PeftMethod> read_randlora(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<RandLoraConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  refuse_bias(reader);
  config->r = reader.integer("r", config->r);
  config->dropout = reader.number("randlora_dropout", 0, 0, kDropout);
  reader.ignore({"projection_prng_key", "save_projection", "sparse", "very_sparse", "randlora_alpha", "init_weights"});
  return config;
}

}  // namespace oometer
