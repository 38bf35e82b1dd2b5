#include <algorithm>

#include "ops/vision.h"
#include "peft/layer.h"
#include "peft/methods.h"

/// OFT, after peft 0.21 (tuners/oft/layer.py): a layer's input is turned, block by block.
namespace oometer {

namespace {

class OftLinear;
struct OftConfig final : ConfigOf<OftLinear, OftConfig> {
  std::int64_t r = 0, oft_block_size = 32;
  bool block_share = false;
  std::int64_t num_cayley_neumann_terms = 5;
};

/// adjust_oft_parameters: the divisor of the layer's width that is nearest.
std::int64_t adjusted(std::int64_t in_features, std::int64_t params) {
  if (params >= in_features) return in_features;
  std::int64_t higher = params, lower = params;
  while (higher <= in_features && in_features % higher != 0) ++higher;
  while (lower > 1 && in_features % lower != 0) --lower;
  return params - lower <= higher - params ? lower : higher;
}

class OftLinear : public TunerLayer {
 public:
  OftLinear(const OftConfig& config, const LayerPlace& place)
      : TunerLayer(place, "oft.Linear"), config_(config), r_(config.r), block_size_(config.oft_block_size) {
    if (r_ == 0) {
      if (in_features_ % block_size_ != 0 || block_size_ > in_features_)
        block_size_ = adjusted(in_features_, block_size_);
      r_ = in_features_ / block_size_;
    } else {
      if (in_features_ % r_ != 0 || r_ > in_features_) r_ = adjusted(in_features_, r_);
      block_size_ = in_features_ / r_;
    }
    blocks_ = config.block_share ? 1 : r_;
    declare(weight_, "oft_R.default", "OFTRotationModule");
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    const std::int64_t elements = block_size_ * (block_size_ - 1) / 2;
    make(parameters, weight_, {blocks_, elements});
    rows_ = weight_.dict.buffer({elements}, DType::int64);
    cols_ = weight_.dict.buffer({elements}, DType::int64);
  }

 private:
  // _cayley_batch, with a Neumann series for the inverse
  Tensor cayley() const {
    const Tensor& Q = weight_;
    Context& context = Q.context();
    const std::int64_t terms = config_.num_cayley_neumann_terms, size = block_size_;
    Tensor skew;
    {  // _pytorch_skew_symmetric
      Tensor matrix = empty(context, Op::zeros, {blocks_, size, size}, Q.dtype());
      matrix = index_put_(std::move(matrix), rows_, cols_, Q);
      matrix = sub(matrix, transpose(matrix, 1, 2));
      skew = std::move(matrix);
    }
    Tensor R;
    {
      const Tensor eye = empty(context, Op::eye, {size, size}, Q.dtype());
      R = repeat(eye, {blocks_, 1, 1});
    }
    const auto product = [](const Tensor& a, const Tensor& b) {
      const Tensor left = autocast_lower(a);
      const Tensor right = autocast_lower(b);
      return bmm(left, right);
    };
    if (terms > 1) {
      R = add_multiple_in_place(R, skew);
      if (terms > 2) {
        const Tensor Q_squared = product(skew, skew);
        R = add_multiple_in_place(R, Q_squared);
        Tensor Q_power = Q_squared;
        for (std::int64_t i = 3; i < terms - 1; ++i) {
          Q_power = product(Q_power, skew);
          R = add_multiple_in_place(R, Q_power);
        }
        Q_power = product(Q_power, skew);
        R = add_in_place(R, Q_power);
      }
    }
    return to(R, Q.dtype());
  }

  // OFTRotationModule.forward
  Tensor rotated(const Tensor& x) const {
    const ModuleScope scope(x.context(), weight_.dict.module);
    Tensor orth_rotate = cayley();
    Shape sizes = x.sizes();
    sizes[-1] = r_;
    sizes.push_back(block_size_);
    const Tensor x_reshaped = reshape(x, sizes);
    if (config_.block_share) orth_rotate = repeat(orth_rotate, {r_, 1, 1});
    const bool is_batch = sizes.ndim() == 4;
    const Tensor x_rotated_reshaped =
        einsum(is_batch ? "bsrk" : "brk", "rkc", is_batch ? "bsrc" : "brc", x_reshaped, orth_rotate);
    const Tensor x_rotated = reshape(x_rotated_reshaped, x.sizes());
    return to(x_rotated, x.dtype());
  }

  Tensor forward(const Linear& base_layer, const Tensor& argument) const override {
    Tensor x = to(argument, weight_.tensor.dtype());
    x = rotated(x);
    Tensor result = to(x, argument.dtype());
    result = base_layer.forward(result);
    return to(result, argument.dtype());
  }

  const OftConfig& config_;
  std::int64_t r_, block_size_, blocks_ = 1;
  AdapterParameter weight_;
  Tensor rows_, cols_;
};

}  // namespace

std::shared_ptr<const PeftMethod> read_oft(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<OftConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  refuse_bias(reader);
  config->r = reader.integer("r", 0, non_negative);
  config->oft_block_size = reader.integer("oft_block_size", config->oft_block_size, non_negative);
  if ((config->r == 0) == (config->oft_block_size == 0))
    reader.fail_found(config->r == 0 ? "oft_block_size" : "r", "inconsistent",
                      "You can only specify either r or oft_block_size, but not both simultaneously, because r x "
                      "oft_block_size == in_features.");
  config->block_share = reader.boolean("block_share", false);
  config->num_cayley_neumann_terms = reader.integer("num_cayley_neumann_terms", 5);
  if (!reader.boolean("use_cayley_neumann", true))
    reader.fail_found("use_cayley_neumann", "not-modelled", "the inverse itself is not supported yet; expected true");
  reader.refuse("coft", "it is not supported yet: leave it out");
  reader.ignore({"module_dropout", "eps", "init_weights"});
  return config;
}

}  // namespace oometer
