#include "peft/layer.h"
#include "peft/methods.h"
#include "tensor/node.h"

/// Super-Tuning, after peft 0.21 (tuners/supertuning/layer.py): the largest elements of a weight train, added to a copy
/// of it; with `r` LoRA's matrices, too.
namespace oometer {

namespace {

class SupertuningLinear;
struct SupertuningConfig final : ConfigOf<SupertuningLinear, SupertuningConfig> {
  double sparsity = 0.99;
  std::int64_t r = 0;
  double lora_dropout = 0;
};

// derivatives.yaml: self: grad, src: grad.gather(dim, index)
Tensor scatter_add(const Tensor& x, const Tensor& index, const Tensor& source) {
  Record record(Op::add,
                [](Backward& b) {
                  if (b.wants(0)) b.give(0, b.grad());
                  if (b.wants(1)) b.give(1, empty(b.context, Op::gather, b.saved(0).sizes(), b.grad().dtype()));
                },
                {&x, &source});
  record.wants(1) ? record.save(index) : record.skip();
  return record.output(empty_like(Op::add, x));
}

class SupertuningLinear : public TunerLayer {
 public:
  SupertuningLinear(const SupertuningConfig& config, const LayerPlace& place)
      : TunerLayer(place, "supertuning.Linear"),
        config_(config),
        count_(static_cast<std::int64_t>(static_cast<double>(in_features_ * out_features_) * (1 - config.sparsity))) {
    declare(values_, "supertuning_values");
    indices_dict_ = inside_.child("supertuning_indices", "BufferDict");
    if (config.r == 0) return;
    declare(lora_A_, "supertuning_lora_A.default", "Linear");
    declare(lora_B_, "supertuning_lora_B.default", "Linear");
    add_dropout("supertuning_lora_dropout.default", config.lora_dropout);
  }

  std::string refusal() const override {
    if (count_ >= 1) return {};
    return "sparsity leaves no trainable entries for a weight with " + std::to_string(in_features_ * out_features_) +
           " elements — no parameter would be adapted. Lower the sparsity so at least one entry is trainable.";
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    indices_ = indices_dict_.buffer({count_}, DType::int32);
    make(parameters, values_, {count_});
    if (config_.r == 0) return;
    make(parameters, lora_A_, {config_.r, in_features_});
    make(parameters, lora_B_, {out_features_, config_.r});
  }

 private:
  Tensor forward(const Linear& base_layer, const Tensor& x) const override {
    const Tensor& weight = base_layer.weight;
    Tensor dense_plus_sparse = reshape(weight, {weight.numel()});
    const Tensor indices = to(indices_, DType::int64);
    const Tensor values = to(values_, weight.dtype());
    dense_plus_sparse = scatter_add(dense_plus_sparse, indices, values);
    Tensor result = linear(x, reshape(dense_plus_sparse, weight.sizes()), base_layer.bias);
    if (config_.r == 0) return result;
    Tensor x_dropped = dropout(x);
    x_dropped = to(x_dropped, lora_A_.tensor.dtype());
    Tensor lora_out = linear(x_dropped, lora_A_, {});
    lora_out = linear(lora_out, lora_B_, {});
    {
      Tensor added = mul_scalar(lora_out);
      added = to(added, result.dtype());
      result = add(result, added);
    }
    return result;
  }

  const SupertuningConfig& config_;
  std::int64_t count_;
  AdapterParameter values_, lora_A_, lora_B_;
  Builder indices_dict_;
  Tensor indices_;
};

}  // namespace

std::shared_ptr<const PeftMethod> read_supertuning(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<SupertuningConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  config->sparsity = reader.number("sparsity", config->sparsity, 0, kDropout);
  if (reader.has("r")) config->r = reader.integer("r", 0);
  if (config->r == 0 && reader.has("lora_alpha"))
    reader.fail_found("lora_alpha", "inconsistent", "Supra mode requires an explicit r.");
  const double dropout = reader.number("lora_dropout", 0, 0, kDropout);
  if (config->r != 0) config->lora_dropout = dropout;
  if (!defaults.loads_on_host)
    reader.fail("target_modules", "not-modelled",
                "found weights that are made on the device, where peft looks for the largest ones, which is not "
                "supported yet; expected \"load\": \"host\" in training.loop");
  reader.ignore({"r", "lora_alpha", "select_top", "init_weights", "save_precomputed_indices"});
  return config;
}

}  // namespace oometer
