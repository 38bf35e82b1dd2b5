#include "models/beit/beit.h"

#include <optional>
#include <utility>
#include <vector>

#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

struct BeitRelativePositionBias {
  BeitRelativePositionBias(const Builder& builder, const BeitConfig& c)
      : relative_position_bias_table(
            builder.parameter("relative_position_bias_table", {c.num_relative_distance(), c.num_attention_heads})),
        window(c.window()),
        module(builder.module) {}

  /// [1, heads, tokens, tokens], of an image of the config's own size.
  Tensor operator()() const {
    ModuleCall call(relative_position_bias_table.context(), module);
    const Tensor& table = relative_position_bias_table;
    const std::int64_t heads = table.size(1), side = 2 * window - 1, distances = checked_product(side, side),
                       tokens = checked_product(window, window) + 1;
    const Tensor new_sub_table = [&] {
      const Tensor old_sub_table =
          permute(reshape(slice(table, 0, 0, distances), {1, side, side, heads}), {0, 3, 1, 2});
      // channels last, as its operand is: what makes rows of it again is a view
      return view(pool(Op::upsample, Op::upsample_backward, old_sub_table, {1, heads, side, side}, false),
                  {distances, heads});
    }();
    const Tensor new_table = cat({new_sub_table, slice(table, 0, distances, 3)}, 0);
    // generate_relative_position_index, which stays in host memory for the next call
    Tensor bias = index_from_host(new_table, checked_product(tokens, tokens));
    bias = view(bias, {tokens, tokens, heads});
    bias = contiguous(permute(bias, {2, 0, 1}));
    return call.result(unsqueeze(bias, 0));
  }

  Tensor relative_position_bias_table;
  std::int64_t window;
  ModuleId module;
};

struct BeitLayer {
  BeitLayer(const Builder& builder, const BeitConfig& c, const ModelOptions& options, double drop_path_rate)
      : attention(builder.child("attention", c.names->attention), c, options),
        layernorm_before(builder.child("layernorm_before", "LayerNorm"), c.hidden_size),
        layernorm_after(builder.child("layernorm_after", "LayerNorm"), c.hidden_size),
        mlp(builder.child("mlp", c.names->mlp), c),
        dropout_prob(c.hidden_dropout_prob),
        drop_prob(drop_path_rate),
        module(builder.module) {
    builder.child("drop_path", drop_path_rate > 0 ? "BeitDropPath" : "Identity");
    const auto scale = [&](const char* name) {
      if (c.layer_scale_init_value <= 0) return Tensor();
      const Tensor ones = empty(*builder.context, Op::ones_like, {c.hidden_size}, builder.dtype);
      return builder.parameter(name, {c.hidden_size});
    };
    builder.children_are_through();
    lambda_1 = scale("lambda_1");
    lambda_2 = scale("lambda_2");
    if (c.use_relative_position_bias)
      relative_position_bias.emplace(builder.child("relative_position_bias", "BeitRelativePositionBias"), c);
  }

  Tensor operator()(const Tensor& hidden_in) const {
    const ModuleScope scope(hidden_in.context(), module);
    const Tensor attention_mask = relative_position_bias ? (*relative_position_bias)() : Tensor();
    Tensor residual = hidden_in;
    Tensor hidden_states = layernorm_before(hidden_in);
    AttentionOutputs attended = attention(hidden_states, attention_mask);
    hidden_states = std::move(attended.output);  // the weights stay in `_` until the layer returns
    hidden_states = dropout(hidden_states, dropout_prob);
    hidden_states = scaled(lambda_1, hidden_states);
    hidden_states = added(hidden_states, residual);
    residual = hidden_states;
    hidden_states = layernorm_after(hidden_states);
    hidden_states = mlp(hidden_states);
    hidden_states = dropout(hidden_states, dropout_prob);
    hidden_states = scaled(lambda_2, hidden_states);
    return added(hidden_states, residual);
  }

  static Tensor scaled(const Tensor& lambda, const Tensor& x) { return lambda ? mul(lambda, x) : mul_scalar(x); }

  /// `self.drop_path(x) + residual`
  Tensor added(const Tensor& x, const Tensor& residual) const {
    const Tensor kept = drop_path(x, drop_prob);
    return add(kept, residual);
  }

  VitAttention attention;
  LayerNorm layernorm_before, layernorm_after;
  VitMLP mlp;
  double dropout_prob, drop_prob;
  Tensor lambda_1, lambda_2;  ///< null: 1.0
  std::optional<BeitRelativePositionBias> relative_position_bias;
  ModuleId module;
};

class Beit : public PooledImageModel {
 public:
  Beit(Context& context, const BeitConfig& c, const DataConfig& data, const ModelOptions& options)
      : PooledImageModel(context, c, data, options), checkpointing_(options.checkpointing) {
    const Builder model = c.classifies ? root_.child("beit", c.names->model) : root_;
    model_ = model.module;
    embeddings_ = VitEmbeddings(model.child("embeddings", c.names->embeddings), c, options);
    blocks_ = BlockStack(model);
    layers_.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers_.emplace_back(model.child("layers", c.names->layer, i), c, options, i == 0 ? 0 : c.drop_path_rate);
      blocks_.add_block(model);
    }
    if (!c.use_mean_pooling) layernorm_.emplace(model.child("layernorm", "LayerNorm"), c.hidden_size);
    const Builder pooler = model.child("pooler", "BeitPooler");
    pooler_ = pooler.module;
    if (c.use_mean_pooling) pooler_layernorm_.emplace(pooler.child("layernorm", "LayerNorm"), c.hidden_size);
    make_classifier();
  }

 private:
  // BeitModel.forward
  Tensor model_forward(const Tensor& argument, Tensor& pooled_output) const override {
    ModuleCall call(context_, model_);
    const Tensor pixel_values = call.argument(argument);
    check_pixels(pixel_values, embeddings_.projection.weight);
    const Tensor embedding_output = embeddings_(pixel_values);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers_[i]](const Tensor& hidden) { return layer(hidden); };
    };
    const auto drops = [&](std::size_t i) { return layers_[i].drop_prob > 0 ? 1 : 0; };
    const Tensor hidden_states =
        blocks_.run(0, layers_.size(), embedding_output, checkpointing_, block, {.positional = true, .kind = drops});
    Tensor sequence_output = layernorm_ ? (*layernorm_)(hidden_states) : hidden_states;
    pooled_output = call.result(pool_tokens(sequence_output));
    return call.result(sequence_output);
  }

  // BeitPooler.forward
  Tensor pool_tokens(const Tensor& argument) const {
    ModuleCall call(context_, pooler_);
    const Tensor hidden_states = call.argument(argument);
    if (!pooler_layernorm_) return call.result(select(hidden_states, 1, 0));
    const Tensor averaged = mean(slice(hidden_states, 1, 1, hidden_states.size(1) - 1), 1, false);
    return call.result((*pooler_layernorm_)(averaged));
  }

  CheckpointingConfig checkpointing_;
  VitEmbeddings embeddings_;
  std::vector<BeitLayer> layers_;
  BlockStack blocks_;
  std::optional<LayerNorm> layernorm_, pooler_layernorm_;
  ModuleId model_ = 0, pooler_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_beit(Context& context, const BeitConfig& config, const DataConfig& data,
                                  const ModelOptions& options) {
  return std::make_unique<Beit>(context, config, data, options);
}

}  // namespace oometer
