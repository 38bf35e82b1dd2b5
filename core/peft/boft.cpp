#include "ops/vision.h"
#include "peft/layer.h"
#include "peft/methods.h"
#include "tensor/node.h"

/// BOFT, after peft 0.21 (tuners/boft/layer.py) without its CUDA extension, which does not compile with torch 2.15
/// (fbd_cuda_kernel.cu): one butterfly factor.
namespace oometer {

namespace {

class BoftLinear;
struct BoftConfig final : TunerConfig {
  std::int64_t block_size = 4, block_num = 0;
  std::unique_ptr<Tuner> tuner(Context& context, const std::string& kind,
                               std::span<const PeftAdapter> adapters) const override;
};

/// torch.block_diag(*torch.unbind(x)): backward stacks what it reads of the gradient.
Tensor block_diag(const Tensor& x, std::int64_t size) {
  Record record(Op::zeros, [](Backward& b) { b.give(0, empty(b.context, Op::stack, b.node.sizes, b.grad().dtype())); },
                {&x});
  if (record) record->sizes = x.sizes();
  return record.output(empty(x.context(), Op::zeros, {size, size}, x.dtype()));
}

class BoftLinear : public TunerLayer {
 public:
  BoftLinear(const BoftConfig& config, const LayerPlace& place)
      : TunerLayer(place, "boft.Linear"), size_(config.block_size), blocks_(config.block_num) {
    add_dropout("boft_dropout.default", 0);
    declare(R_, "boft_R");
    declare(s_, "boft_s");
    if (blocks_ == 0)
      blocks_ = in_features_ / size_;
    else
      size_ = in_features_ / blocks_;
  }

  std::string refusal() const override {
    if (blocks_ * size_ == in_features_ && blocks_ > 0) return {};
    return "in_features (" + std::to_string(in_features_) + ") must be divisible by boft_block_size or boft_block_num!";
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) override {
    make(parameters, R_, {1, blocks_, size_, size_});
    make(parameters, s_, {out_features_, 1});
  }
  /// self.register_buffer("boft_P", P, persistent=False), on the host until a trainer moves the model
  void move_permutation() { P_ = inside_.buffer({1, in_features_, in_features_}, DType::float32); }

 private:
  // cayley_batch
  Tensor cayley(const Tensor& data) const {
    Tensor skew_mat = sub(data, transpose(data, 1, 2));
    skew_mat = mul_scalar(skew_mat);
    const Tensor id_mat = empty(data.context(), Op::eye, {size_, size_}, DType::float32);
    const Tensor expanded = expand(unsqueeze(id_mat, 0), data.sizes());
    const Tensor A = add(expanded, skew_mat);
    const Tensor B = sub(expanded, skew_mat);
    return to(solve(A, B), data.dtype());
  }

  /// torch.linalg.solve(A, B, left=False): linalg_solve_ex with the factors of A.
  static Tensor solve(const Tensor& A, const Tensor& B) {
    Record record(Op::solve_triangular,
                  [](Backward& b) {
                    const Tensor gB = empty_like(Op::solve_triangular, b.grad());
                    if (b.wants(0)) {
                      const Tensor product = bmm(transpose(b.saved(0), 1, 2), gB);
                      b.give(0, empty_like(Op::neg, product));
                    }
                    if (b.wants(1)) b.give(1, gB);
                  },
                  {&A, &B});
    Context& context = A.context();
    const Tensor result = empty_like(Op::solve_triangular, B);
    const Tensor LU = empty_like(Op::solve_triangular, A);
    const Tensor pivots = empty(context, Op::solve_triangular, {A.size(0), A.size(1)}, DType::int32);
    const Tensor info = empty(context, Op::solve_triangular, {A.size(0)}, DType::int32);
    if (record) record.save_output(result);
    record.save(A);
    record.save(LU);
    record.save(pivots);
    return record.output(result);
  }

  Tensor forward(const Linear& base_layer, const Tensor& x) const override {
    Context& context = x.context();
    const DType previous_dtype = x.dtype();
    Tensor boft_rotation = empty(context, Op::eye, {in_features_, in_features_}, previous_dtype);
    Tensor boft_scale = empty(context, Op::ones_like, {out_features_, 1}, previous_dtype);
    const Tensor boft_R = view(R_, {blocks_, size_, size_});
    const Tensor orth_rotate_butterfly = cayley(boft_R);
    Tensor block_diagonal_butterfly = block_diag(orth_rotate_butterfly, in_features_);
    block_diagonal_butterfly = unsqueeze(block_diagonal_butterfly, 0);
    const Tensor boft_P = to(P_, previous_dtype);
    block_diagonal_butterfly = to(block_diagonal_butterfly, previous_dtype);
    const auto product = [](const Tensor& a, const Tensor& b) {
      const Tensor left = autocast_lower(a);
      const Tensor right = autocast_lower(b);
      return bmm(left, right);
    };
    Tensor butterfly_oft_mat_batch = product(block_diagonal_butterfly, permute(boft_P, {0, 2, 1}));
    butterfly_oft_mat_batch = product(boft_P, butterfly_oft_mat_batch);
    const Tensor butterfly_oft_mat = select(butterfly_oft_mat_batch, 0, 0);
    boft_rotation = matmul(butterfly_oft_mat, boft_rotation);
    boft_scale = mul(s_, boft_scale);
    boft_rotation = to(boft_rotation, previous_dtype);
    const Tensor x_rotated = matmul(x, boft_rotation);
    Tensor result = base_layer.forward(x_rotated);
    if (base_layer.bias) result = sub(result, base_layer.bias);
    result = mul(result, view(boft_scale, {out_features_}));
    if (base_layer.bias) result = add(result, base_layer.bias);
    return to(result, previous_dtype);
  }

  std::int64_t size_, blocks_;
  AdapterParameter R_, s_;
  Tensor P_;
};

class BoftModel : public TunerModel<BoftLinear, BoftConfig> {
 public:
  using TunerModel::TunerModel;

 protected:
  void cast_parameters(std::size_t adapter) override {
    TunerModel::cast_parameters(adapter);
    for (const std::shared_ptr<BoftLinear>& layer : layers_) layer->move_permutation();
  }
};

std::unique_ptr<Tuner> BoftConfig::tuner(Context& context, const std::string& kind,
                                         std::span<const PeftAdapter> adapters) const {
  return std::make_unique<BoftModel>(context, kind, *this, adapters.front().autocast_adapter_dtype);
}

}  // namespace

std::shared_ptr<const PeftMethod> read_boft(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<BoftConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.lora);
  refuse_bias(reader);
  config->block_size = reader.integer("boft_block_size", config->block_size, non_negative);
  config->block_num = reader.integer("boft_block_num", 0, non_negative);
  if ((config->block_size == 0) == (config->block_num == 0))
    reader.fail_found(config->block_num == 0 ? "boft_block_size" : "boft_block_num", "inconsistent",
                      "Either `boft_block_size` or `boft_block_num` must be non-zero, and not both");
  if (reader.number("boft_dropout", 0, 0, kDropout) != 0)
    reader.fail_found("boft_dropout", "not-modelled", "it is not supported yet: leave it out");
  // Without the extension "Setting boft_n_butterfly_factor to 1 to speed up the finetuning process."
  reader.integer("boft_n_butterfly_factor", 1);
  reader.ignore({"init_weights"});
  return config;
}

}  // namespace oometer
