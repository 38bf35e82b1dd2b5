#include <algorithm>
#include <utility>

#include "peft/layer.h"
#include "peft/methods.h"

/// LoKr, after peft 0.21 (tuners/lokr/layer.py): the change of a weight is a Kronecker product, of which the larger
/// factor may have a low rank.
namespace oometer {

namespace {

class LokrLinear;
struct LokrConfig final : ConfigOf<LokrLinear, LokrConfig> {
  std::int64_t r = 8, decompose_factor = -1;
  bool decompose_both = false;
  NumberByModule rank_pattern;
};

/// factorization: two factors of a dimension, the smaller one first.
std::pair<std::int64_t, std::int64_t> factorization(std::int64_t dimension, std::int64_t factor) {
  if (factor > 0 && dimension % factor == 0) return {factor, dimension / factor};
  if (factor == -1) factor = dimension;
  std::int64_t m = 1, n = dimension;
  const std::int64_t length = m + n;
  while (m < n) {
    std::int64_t new_m = m + 1;
    while (dimension % new_m != 0) ++new_m;
    const std::int64_t new_n = dimension / new_m;
    if (new_m + new_n > length || new_m > factor) break;
    m = new_m;
    n = new_n;
  }
  return {std::min(m, n), std::max(m, n)};
}

/// torch.kron of matrices (LinearAlgebra.cpp, KronImpl).
Tensor kron(const Tensor& a, const Tensor& b) {
  const Tensor rows = view(a, {a.size(0), 1, a.size(1), 1});
  const Tensor columns = view(b, {1, b.size(0), 1, b.size(1)});
  return unsafe_view(mul(rows, columns), {a.size(0) * b.size(0), a.size(1) * b.size(1)});
}

class LokrLinear : public TunerLayer {
 public:
  LokrLinear(const LokrConfig& config, const LayerPlace& place)
      : TunerLayer(place, "lokr.Linear"),
        r_(ModulePattern(config.rank_pattern).of(path(), config.r)),
        in_(factorization(in_features_, config.decompose_factor)),
        out_(factorization(out_features_, config.decompose_factor)),
        use_w1_(!(config.decompose_both && 2 * r_ < std::max(out_.first, in_.first))),
        use_w2_(2 * r_ >= std::max(out_.second, in_.second)) {
    declare(lokr_w1_, "lokr_w1");
    declare(lokr_w1_a_, "lokr_w1_a");
    declare(lokr_w1_b_, "lokr_w1_b");
    declare(lokr_w2_, "lokr_w2");
    declare(lokr_w2_a_, "lokr_w2_a");
    declare(lokr_w2_b_, "lokr_w2_b");
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    if (use_w1_) {
      make(parameters, lokr_w1_, {out_.first, in_.first});
    } else {
      make(parameters, lokr_w1_a_, {out_.first, r_});
      make(parameters, lokr_w1_b_, {r_, in_.first});
    }
    if (use_w2_) {
      make(parameters, lokr_w2_, {out_.second, in_.second});
    } else {
      make(parameters, lokr_w2_a_, {out_.second, r_});
      make(parameters, lokr_w2_b_, {r_, in_.second});
    }
  }

 private:
  // get_delta_weight
  Tensor delta_weight() const {
    const Tensor w1 = use_w1_ ? lokr_w1_.tensor : matmul(lokr_w1_a_, lokr_w1_b_);
    const Tensor w2 = use_w2_ ? lokr_w2_.tensor : matmul(lokr_w2_a_, lokr_w2_b_);
    const Tensor rebuild = kron(w1, w2);
    return mul_scalar(rebuild);
  }

  // _get_delta_activations
  Tensor delta_activations(const Tensor& argument) const {
    const Tensor weight = delta_weight();
    const Tensor input = to(argument, weight.dtype());
    return linear(input, weight, {});
  }

  Tensor forward(const Linear& base_layer, const Tensor& x) const override {
    Tensor result = base_layer.forward(x);
    {
      const Tensor added = delta_activations(x);
      result = add(result, added);
    }
    return to(result, x.dtype());
  }

  std::int64_t r_;
  std::pair<std::int64_t, std::int64_t> in_, out_;
  bool use_w1_, use_w2_;
  AdapterParameter lokr_w1_, lokr_w1_a_, lokr_w1_b_, lokr_w2_, lokr_w2_a_, lokr_w2_b_;
};

}  // namespace

std::shared_ptr<const PeftMethod> read_lokr(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<LokrConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  config->r = reader.integer("r", config->r);
  config->decompose_factor = reader.integer("decompose_factor", -1, {-1, 1 << 20});
  config->decompose_both = reader.boolean("decompose_both", false);
  config->rank_pattern = read_lycoris_pattern(reader);
  reader.ignore({"alpha", "use_effective_conv2d", "init_weights", "rank_dropout_scale"});
  return config;
}

}  // namespace oometer
