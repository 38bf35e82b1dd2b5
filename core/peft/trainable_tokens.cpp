#include "peft/trainable_tokens.h"

#include <utility>

#include "ops/ops.h"
#include "peft/layer.h"
#include "peft/methods.h"

namespace oometer {

namespace {

/// The module that the layer is, in its wrapper or alone; `builder` moves on to what is in it.
ModuleId enter(Builder& builder, const char* inner, const char* type) {
  builder.wrapping = nullptr;
  if (inner) {
    builder.context->log.modules[builder.module].type = "TrainableTokensWrapper";
    builder = builder.child(inner, type);
  }
  builder.context->log.modules[builder.module].type = type;
  return builder.module;
}

}  // namespace

TrainableTokens::TrainableTokens(Builder& builder, const char* inner, std::int64_t rows, std::int64_t size)
    : rows_(rows), size_(size) {
  Builder inside = builder;
  module_ = enter(inside, inner, "TrainableTokensLayer");
  builder = inside.child("base_layer", "Embedding");
  base_layer_ = builder.module;
  delta_ = inside.child("trainable_tokens_delta", "ParameterDict");
  original_ = inside.child("trainable_tokens_original", "BufferDict");
}

void TrainableTokens::make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>) {
  Context& context = *delta_.context;
  const ModuleScope scope(context, delta_.module);
  DType dtype = DType::float32;
  for (const Parameter& parameter : parameters)
    if (parameter.module == base_layer_) dtype = parameter.tensor.dtype();
  // weight[rows], the list as an index on the device; a clone that trains, and one that stays
  const Tensor index = empty(context, Op::to_copy, {rows_}, DType::int64);
  const Tensor originals = empty(context, Op::index, {rows_, size_}, dtype);
  delta_.parameters = &parameters;
  delta_.dtype = dtype;
  trainable_tokens_delta_ = delta_.parameter("default", {rows_, size_});
  trainable_tokens_original_ = original_.buffer({rows_, size_}, dtype);
}

void TrainableTokens::cast_parameters() const {
  cast_half(trainable_tokens_delta_);
  cast_buffer(trainable_tokens_original_, original_.module);
}

// get_merged_weights
Tensor TrainableTokens::merged_weights(const Tensor& weight) const {
  Context& context = weight.context();
  const Tensor index = empty(context, Op::to_copy, {rows_}, DType::int64);
  const Tensor deltas = to(trainable_tokens_delta_, weight.dtype());
  return index_copy(weight, index, deltas);
}

// forward_adapters
Tensor TrainableTokens::operator()(const Embedding& base_layer, const Tensor& indices, const ForwardHook& hook) const {
  const ModuleScope scope(indices.context(), module_);
  if (indices.context().adapters_disabled) return base_layer.forward(indices, hook);
  const Tensor W = merged_weights(base_layer.weight);
  return embedding(W, indices);
}

TiedTrainableTokens::TiedTrainableTokens(Builder& builder, const char* inner,
                                         std::shared_ptr<const TrainableTokens> embeddings)
    : embeddings_(std::move(embeddings)) {
  Builder inside = builder;
  module_ = enter(inside, inner, "TrainableTokensLayer");
  builder = inside.child("base_layer", "Linear");
}

Tensor TiedTrainableTokens::operator()(const Linear& base_layer, const Tensor& x) const {
  const ModuleScope scope(x.context(), module_);
  if (x.context().adapters_disabled) return base_layer.forward(x);
  const Tensor W = embeddings_->merged_weights(base_layer.weight);
  return linear(x, W, {});
}

namespace {

struct TrainableTokensConfig final : TunerConfig {
  std::int64_t rows = 0;
  std::unique_ptr<Tuner> tuner(Context& context, const std::string& kind,
                               std::span<const PeftAdapter> adapters) const override;
};

class TrainableTokensModel : public Tuner {
 public:
  TrainableTokensModel(Context& context, const std::string& kind, const TrainableTokensConfig& config, bool casts)
      : Tuner(context, kind, config.target_modules, config.modules_to_save), rows_(config.rows), casts_(casts) {}

 protected:
  std::shared_ptr<const LinearWrapper> create(Builder& builder, std::int64_t, std::int64_t) override {
    refuse(error("not-modelled", "found " + module_path(context_.log, builder.module) +
                                     ", a Linear, among the targets: trainable tokens of other layers than embeddings "
                                     "are not supported yet"));
    return nullptr;
  }
  std::shared_ptr<const EmbeddingWrapper> create_embedding(Builder& builder, std::int64_t, std::int64_t size) override {
    if (!is_target(builder.module)) return nullptr;
    tokens_ = std::make_shared<TrainableTokens>(builder, nullptr, rows_, size);
    return tokens_;
  }
  std::shared_ptr<const LinearWrapper> create_tied(Builder& builder) override {
    return tokens_ ? std::make_shared<TiedTrainableTokens>(builder, nullptr, tokens_) : nullptr;
  }
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied, std::size_t) override {
    if (tokens_) tokens_->make_parameters(parameters, tied);
  }
  void cast_parameters(std::size_t) override {
    if (tokens_ && casts_ && context_.behaviours.peft_casts_adapters) tokens_->cast_parameters();
  }

 private:
  std::int64_t rows_;
  bool casts_;
  std::shared_ptr<TrainableTokens> tokens_;
};

std::unique_ptr<Tuner> TrainableTokensConfig::tuner(Context& context, const std::string& kind,
                                                    std::span<const PeftAdapter> adapters) const {
  return std::make_unique<TrainableTokensModel>(context, kind, *this, adapters.front().autocast_adapter_dtype);
}

}  // namespace

std::shared_ptr<const PeftMethod> read_trainable_tokens(ConfigReader& reader, const PeftDefaults&) {
  const auto config = std::make_shared<TrainableTokensConfig>();
  config->target_modules = read_target_modules(reader, {"embed_tokens"});
  config->rows = static_cast<std::int64_t>(reader.integers("token_indices", non_negative).size());
  if (config->rows == 0) reader.fail_found("token_indices", "missing", "expected the numbers of the tokens that train");
  reader.ignore({"init_weights"});
  return config;
}

}  // namespace oometer
