#include <nlohmann/json.hpp>

#include "peft/layer.h"
#include "peft/methods.h"
#include "tensor/node.h"

/// SHiRA, after peft 0.21 (tuners/shira/layer.py): a few elements of a weight train, added to a copy of it as a sparse
/// tensor.
namespace oometer {

namespace {

class ShiraLinear;
struct ShiraConfig final : ConfigOf<ShiraLinear, ShiraConfig> {
  std::int64_t r = 32;
};

class ShiraLinear : public TunerLayer {
 public:
  ShiraLinear(const ShiraConfig& config, const LayerPlace& place)
      : TunerLayer(place, "shira.Linear"), count_(config.r * (in_features_ + out_features_)), r_(config.r) {
    declare(shira_weight_, "shira_weight");
  }

  std::string refusal() const override {
    if (count_ <= in_features_ * out_features_) return {};
    return "The set rank " + std::to_string(r_) +
           " results in more shira params than the total number of params in the base layer " +
           std::to_string(in_features_ * out_features_) + " and this is not allowed.";
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    make(parameters, shira_weight_, {count_});
    inside_.context->repeats = false;  // a block's indices come to the device when it runs for the first time
  }

 private:
  /// torch.sparse_coo_tensor(indices, values, size) and `new_weight += it`
  /// (native/sparse/cuda/SparseCUDATensorMath.cu, add_out_dense_sparse_cuda).
  Tensor add_sparse(const Tensor& new_weight, const Tensor& values) const {
    Context& context = new_weight.context();
    Record record(Op::add,
                  [](Backward& b) {
                    // The engine casts the dense gradient to the values' type; sparse_constructor_values_backward is
                    // grad.sparse_mask(sparse), which takes the elements and counts how often each is there.
                    const Tensor grad = to(b.grad(), b.input_dtype(0));
                    b.grads[0].reset();
                    Tensor scalar = empty(b.context, Op::masked_select, {}, DType::float32);
                    Tensor elements = empty(b.context, Op::index, b.node.sizes, grad.dtype());
                    const Tensor indices = empty_like(Op::clone, b.saved(1));
                    Tensor result = empty(b.context, Op::mul, b.node.sizes, grad.dtype());
                    elements.reset();
                    scalar.reset();
                    b.give(0, std::move(result));
                  },
                  {&values});
    if (record) record->sizes = values.sizes();
    const Tensor indices = empty(context, Op::to_copy, {2, count_}, DType::int64);
    record.save(values);
    record.save(indices);
    {
      const DType common = values.dtype() == DType::float32 ? DType::float32 : new_weight.dtype();
      Tensor r, buffer;
      if (new_weight.dtype() != common) {
        r = empty_like(Op::add, new_weight, common);
        buffer = empty_like(Op::to_copy, new_weight, common);
      }
      const Tensor flat = empty(context, Op::mul, {count_}, DType::int64);
    }
    if (!record) return new_weight;
    return record.output(new_weight);
  }

  Tensor forward(const Linear& base_layer, const Tensor& x) const override {
    Tensor new_weight = clone(base_layer.weight);
    {
      if (!shira_indices_) {
        shira_indices_ = empty(x.context(), Op::to_copy, {2, count_}, DType::int32, Role::buffer);
        x.context().set_role(shira_indices_, Role::buffer, module_);
      }
      const Tensor values = mul_scalar(shira_weight_);
      new_weight = add_sparse(new_weight, values);
    }
    return linear(x, new_weight, base_layer.bias);
  }

  std::int64_t count_, r_;
  AdapterParameter shira_weight_;
  mutable Tensor shira_indices_;
};

}  // namespace

std::shared_ptr<const PeftMethod> read_shira(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<ShiraConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  config->r = reader.integer("r", config->r);
  if (reader.text("mask_type", "random") != "random")
    reader.fail_found("mask_type", "inconsistent", "peft has no other mask function of its own; expected \"random\"");
  if (!defaults.loads_on_host)
    reader.fail("target_modules", "not-modelled",
                "found weights that are made on the device, where peft draws SHiRA's masks, which is not supported "
                "yet; expected \"load\": \"host\" in training.loop");
  reader.ignore({"random_seed", "init_weights"});
  return config;
}

}  // namespace oometer
