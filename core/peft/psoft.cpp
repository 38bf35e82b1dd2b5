#include <algorithm>

#include "ops/vision.h"
#include "peft/layer.h"
#include "peft/methods.h"

/// PSOFT, after peft 0.21 (tuners/psoft/layer.py): what a weight's largest singular vectors make of the input is
/// turned.
namespace oometer {

namespace {

class PsoftLinear;
struct PsoftConfig final : ConfigOf<PsoftLinear, PsoftConfig> {
  std::int64_t r = 32;
  double dropout = 0;
  bool orth = true, mag_b = true, mag_a = true;
  std::int64_t num_cayley_neumann_terms = 5;
};

class PsoftLinear : public TunerLayer {
 public:
  PsoftLinear(const PsoftConfig& config, const LayerPlace& place) : TunerLayer(place, "psoft.Linear"), config_(config) {
    add_dropout("psoft_dropout.default", config.dropout);
    declare(weight_, "psoft_R.default", "OrthLayer");
    if (config.mag_b) declare(vector_b_, "psoft_R.default", "OrthLayer");
    if (config.mag_a) declare(vector_a_, "psoft_R.default", "OrthLayer");
    A_cache_ = inside_.child("_psoft_A_cache", "BufferDict");
    B_cache_ = inside_.child("_psoft_B_cache", "BufferDict");
  }

  std::string refusal() const override {
    if (config_.r <= std::min(in_features_, out_features_)) return {};
    return "`r` (" + std::to_string(config_.r) + ") must be less than or equal to min(in_features, out_features) (" +
           std::to_string(in_features_) + ", " + std::to_string(out_features_) + ")";
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    const std::int64_t r = config_.r, elements = r * (r - 1) / 2;
    make(parameters, weight_, config_.orth ? Shape{elements} : Shape{r, r});
    if (config_.mag_b) make(parameters, vector_b_, {r});
    if (config_.mag_a) make(parameters, vector_a_, {r});
    if (config_.orth) {
      rows_ = weight_.dict.buffer({elements}, DType::int64);
      cols_ = weight_.dict.buffer({elements}, DType::int64);
    }
    A_ = A_cache_.buffer({r, in_features_}, DType::float32);
    B_ = B_cache_.buffer({out_features_, r}, DType::float32);
  }

 private:
  // OrthLayer.get_matrix, with a Neumann series for the inverse
  Tensor matrix() const {
    Tensor R = config_.orth ? rotation() : weight_.tensor;
    if (config_.mag_b) R = mul(unsqueeze(vector_b_, 1), R);
    if (config_.mag_a) R = mul(R, unsqueeze(vector_a_, 0));
    return R;
  }

  Tensor rotation() const {
    Context& context = weight_.tensor.context();
    const DType dtype = weight_.tensor.dtype();
    const std::int64_t terms = config_.num_cayley_neumann_terms, r = config_.r;
    Tensor Q;
    {  // _skew_symmetric
      Tensor zeros = empty(context, Op::zeros, {r, r}, dtype);
      Tensor filled = clone(zeros);
      filled = index_put_(std::move(filled), rows_, cols_, weight_);
      zeros.reset();
      Q = sub(filled, transpose(filled, 0, 1));
    }
    const Tensor id_mat = empty(context, Op::eye, {r, r}, dtype);
    Tensor R = clone(id_mat), Q_squared, Q_power;
    if (terms > 1) R = add_multiple_in_place(R, Q);
    if (terms > 2) {
      Q_squared = matmul(Q, Q);
      R = add_multiple_in_place(R, Q_squared);
      Q_power = Q_squared;
      for (std::int64_t i = 3; i < terms - 1; ++i) {
        Q_power = matmul(Q_power, Q);
        R = add_multiple_in_place(R, Q_power);
      }
      Q_power = matmul(Q_power, Q);
      R = add_in_place(R, Q_power);
    }
    return R;
  }

  // OrthLayer.forward
  Tensor turned(const Tensor& input) const {
    const ModuleScope scope(input.context(), weight_.dict.module);
    const Tensor R = matrix();
    const Tensor cast = to(R, input.dtype());
    const Tensor product = matmul(input, transpose(cast, 0, 1));
    return to(product, input.dtype());
  }

  Tensor forward(const Linear& base_layer, const Tensor& x) const override {
    Tensor result = base_layer.forward(x);
    const DType torch_result_dtype = result.dtype();
    const Tensor x_cast = to(x, A_.dtype());
    const Tensor x_d = dropout(x_cast);
    const Tensor A_c = to(A_, x_d.dtype());
    const Tensor B_c = to(B_, x_d.dtype());
    const Tensor xa = matmul(x_d, transpose(A_c, 0, 1));
    const Tensor xr = turned(xa);
    Tensor delta_y;
    {
      const Tensor difference = sub(xr, xa);
      delta_y = matmul(difference, transpose(B_c, 0, 1));
    }
    {
      const Tensor scaled = mul_scalar(delta_y);
      result = add(result, scaled);
    }
    return to(result, torch_result_dtype);
  }

  const PsoftConfig& config_;
  AdapterParameter weight_, vector_b_, vector_a_;
  Builder A_cache_, B_cache_;
  Tensor rows_, cols_, A_, B_;
};

}  // namespace

std::shared_ptr<const PeftMethod> read_psoft(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<PsoftConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  config->r = reader.integer("r", config->r, {2, 1 << 20});
  config->dropout = reader.number("psoft_dropout", 0, 0, kDropout);
  config->orth = reader.boolean("psoft_orth", true);
  config->mag_a = reader.boolean("psoft_mag_a", true);
  config->mag_b = reader.boolean("psoft_mag_b", true);
  config->num_cayley_neumann_terms = reader.integer("num_cayley_neumann_terms", config->num_cayley_neumann_terms);
  if (!reader.boolean("use_cayley_neumann", false) && config->orth)
    reader.fail("use_cayley_neumann", "not-modelled",
                "found false: PSOFT then solves a system of equations (cuSOLVER), whose workspace only that library "
                "knows; expected true");
  if (config->orth)
    reader.refuse("cayley_neumann_eps", "its bound, which depends on values, is not supported: leave it out");
  if (!defaults.loads_on_host)
    reader.fail("target_modules", "not-modelled",
                "found weights that are made on the device, where peft decomposes them for PSOFT, which is not "
                "supported yet; expected \"load\": \"host\" in training.loop");
  reader.ignore({"psoft_alpha", "ab_svd_init", "psoft_svd", "psoft_svd_lowrank_niter", "random_seed", "init_weights",
                 "fan_in_fan_out", "cayley_neumann_eps"});
  return config;
}

}  // namespace oometer
