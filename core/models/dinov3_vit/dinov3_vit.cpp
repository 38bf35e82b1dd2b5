#include "models/dinov3_vit/dinov3_vit.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "models/bert/bert.h"
#include "models/kit/grids.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "nn/checkpointing.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

struct Dinov3Embeddings {
  Dinov3Embeddings() = default;
  Dinov3Embeddings(const Builder& builder, const Dinov3Config& c, const ModelOptions& options)
      : checkpointing(options.checkpointing), module(builder.module) {
    cls_token = builder.parameter("cls_token", {1, 1, c.hidden_size});
    mask_token = builder.parameter("mask_token", {1, 1, c.hidden_size});
    register_tokens = builder.parameter("register_tokens", {1, c.num_register_tokens, c.hidden_size});
    patch_embeddings =
        Conv2d(builder.child("patch_embeddings", "Conv2d"), c.num_channels, c.hidden_size, c.patch_size, true);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor pixel_values = call.argument(argument);
    const std::int64_t batch = pixel_values.size(0), dim = cls_token.size(2);
    Tensor patches = patch_embeddings(to(pixel_values, patch_embeddings.weight.dtype()));
    if (checkpointing.input_require_grads) require_input_grad(checkpointing, patches, patch_embeddings.module);
    patches = transpose(reshape(patches, {batch, dim, checked_product(patches.size(2), patches.size(3))}), 1, 2);
    const Tensor cls = expand(cls_token, {batch, 1, dim}),
                 registers = expand(register_tokens, {batch, register_tokens.size(1), dim});
    return call.result(cat({cls, registers, patches}, 1));
  }

  Tensor cls_token, mask_token, register_tokens;
  Conv2d patch_embeddings;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

struct Dinov3RopePositionEmbedding {
  Dinov3RopePositionEmbedding() = default;
  Dinov3RopePositionEmbedding(const Builder& builder, const Dinov3Config& c)
      : config(c), frequencies((c.head_dim() + 3) / 4), module(builder.module) {
    const auto floats = [&](Op op) { return empty(*builder.context, op, {frequencies}, DType::float32); };
    Tensor steps = floats(Op::arange);
    const Tensor powers = floats(Op::pow);
    { const Workspace base(*builder.context, Op::pow, 8); }
    steps.reset();
    const Tensor inverse = floats(Op::reciprocal);
    inv_freq = builder.buffer({frequencies}, DType::float32);
  }

  PositionEmbeddings operator()(const Tensor& pixel_values) {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    const std::int64_t rows = pixel_values.size(2) / config.patch_size,
                       columns = pixel_values.size(3) / config.patch_size, patches = rows * columns;
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor sin, cos, angles, patch_coords;
    Tensor& cached = coordinates[{rows, columns}];
    if (!cached) cached = center_coordinates(context, rows, columns);
    patch_coords = augmented(cached);
    {
      const Tensor scaled = mul_scalar(patch_coords);
      angles = empty(context, Op::mul, {patches, 2, frequencies}, DType::float32);
    }
    angles = repeat(view(angles, {patches, 2 * frequencies}), {1, 2});
    cos = pointwise(Op::cos, {&angles}, DType::float32);
    sin = pointwise(Op::sin, {&angles}, DType::float32);
    const PositionEmbeddings result{to(cos, pixel_values.dtype()), to(sin, pixel_values.dtype())};
    return {call.result(result.cos), call.result(result.sin)};
  }

  // get_patches_center_coordinates, whose result stays for the next call (compile_compatible_method_lru_cache)
  static Tensor center_coordinates(Context& context, std::int64_t rows, std::int64_t columns) {
    const auto floats = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::float32); };
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor coords_w, coords_h;
    Tensor coords;
    {
      Tensor steps_h = floats(Op::arange, {rows}), steps_w = floats(Op::arange, {columns});
      coords_h = floats(Op::div, {rows});
      steps_h.reset();
      coords_w = floats(Op::div, {columns});
    }
    coords = floats(Op::cat, {rows * columns, 2});
    {
      const Tensor doubled = mul_scalar(coords);
      coords = add_scalar(doubled);
    }
    return coords;
  }

  // augment_patches_center_coordinates
  Tensor augmented(Tensor coords) const {
    Context& context = coords.context();
    const auto floats = [&](Op op, std::int64_t count) { return empty(context, op, {count}, DType::float32); };
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor rescale, jitter, shift;
    if (config.shifts) {
      shift = floats(Op::empty, 2);
      coords = pointwise(Op::add, {&coords}, DType::float32);
    }
    if (config.jitters) {
      jitter = floats(Op::empty, 2);
      jitter = floats(Op::exp, 2);
      coords = pointwise(Op::mul, {&coords}, DType::float32);
    }
    if (config.rescales) {
      rescale = floats(Op::empty, 1);
      rescale = floats(Op::exp, 1);
      coords = pointwise(Op::mul, {&coords}, DType::float32);
    }
    return coords;
  }

  Dinov3Config config;
  std::int64_t frequencies = 0;
  Tensor inv_freq;
  std::map<std::pair<std::int64_t, std::int64_t>, Tensor> coordinates;  ///< by rows and columns of patches
  ModuleId module = 0;
};

/// Of the patches alone, not of the tokens before them.
Tensor rotate_patches(const Tensor& x, const PositionEmbeddings& positions, Tensor& patches) {
  const std::int64_t count = positions.sin.size(0), prefix = x.size(2) - count;
  const TensorList parts = split(x, {prefix, count}, -2);
  patches = rotate(parts[1], positions.cos, positions.sin);
  return parts[0];
}

struct Dinov3Attention {
  Dinov3Attention(const Builder& builder, const Dinov3Config& c, const ModelOptions& options)
      : head_dim(c.head_dim()),
        call{.kind = options.attention, .dropout = c.attention_probs_dropout_prob},
        module(builder.module) {
    const auto projection = [&](const char* name, bool bias) {
      return Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, bias);
    };
    k_proj = projection("k_proj", c.key_bias);
    v_proj = projection("v_proj", c.value_bias);
    q_proj = projection("q_proj", c.query_bias);
    o_proj = projection("o_proj", c.proj_bias);
  }

  AttentionOutputs operator()(const Tensor& argument, const PositionEmbeddings& positions) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    AttentionInputs states = project(hidden_states, q_proj, k_proj, v_proj, head_dim, true);
    {
      Tensor key, query;
      {
        Tensor k_patches, q_patches;
        const Tensor q_prefix = rotate_patches(states.query, positions, q_patches),
                     k_prefix = rotate_patches(states.key, positions, k_patches);
        query = cat({q_prefix, q_patches}, -2);
        key = cat({k_prefix, k_patches}, -2);
      }
      states.query = std::move(query);
      states.key = std::move(key);
    }
    AttentionOutputs attention = call.kind == AttentionKind::eager
                                     ? eager_in_own_type(call, states, {})
                                     : attention_forward(call, states.query, states.key, states.value, {});
    attention.output = reshape(attention.output, hidden_states.sizes());
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  std::int64_t head_dim;
  Linear k_proj, v_proj, q_proj, o_proj;
  AttentionCall call;
  ModuleId module;
};

struct Dinov3MLP {
  Dinov3MLP(const Builder& builder, const Dinov3Config& c)
      : is_gated(c.use_gated_mlp), act_fn(c.hidden_act), module(builder.module) {
    if (is_gated)
      gate_proj = Linear(builder.child("gate_proj", "Linear"), c.hidden_size, c.intermediate_size, c.mlp_bias);
    up_proj = Linear(builder.child("up_proj", "Linear"), c.hidden_size, c.intermediate_size, c.mlp_bias);
    down_proj = Linear(builder.child("down_proj", "Linear"), c.intermediate_size, c.hidden_size, c.mlp_bias);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor x = call.argument(argument);
    Tensor widened;
    if (is_gated) {
      Tensor gate = gate_proj(x);
      gate = activate(act_fn, gate);
      const Tensor up = up_proj(x);
      widened = mul(gate, up);
    } else {
      widened = up_proj(x);
      widened = activate(act_fn, widened);
    }
    return call.result(down_proj(widened));
  }

  bool is_gated;
  Linear gate_proj, up_proj, down_proj;
  Activation act_fn;
  ModuleId module;
};

struct Dinov3Layer {
  Dinov3Layer(const Builder& builder, const Dinov3Config& c, const ModelOptions& options)
      : norm1(builder.child("norm1", "LayerNorm"), c.hidden_size),
        attention(builder.child("attention", c.names->attention), c, options),
        layer_scale1(builder.child("layer_scale1", "DINOv3ViTLayerScale"), c.hidden_size),
        norm2((builder.child("drop_path", "Identity"), builder.child("norm2", "LayerNorm")), c.hidden_size),
        mlp(builder.child("mlp", c.use_gated_mlp ? "DINOv3ViTGatedMLP" : c.names->mlp), c),
        layer_scale2(builder.child("layer_scale2", "DINOv3ViTLayerScale"), c.hidden_size),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in;
    Tensor hidden_states = norm1(hidden_in);
    AttentionOutputs attended = attention(hidden_states, positions);
    hidden_states = std::move(attended.output);  // the weights stay in `_` until the layer returns
    hidden_states = layer_scale1(hidden_states);
    hidden_states = add(hidden_states, residual);
    residual = hidden_states;
    hidden_states = norm2(hidden_states);
    hidden_states = mlp(hidden_states);
    hidden_states = layer_scale2(hidden_states);
    return add(hidden_states, residual);
  }

  LayerNorm norm1;
  Dinov3Attention attention;
  VitLayerScale layer_scale1;
  LayerNorm norm2;
  Dinov3MLP mlp;
  VitLayerScale layer_scale2;
  ModuleId module;
};

class Dinov3 : public ImageModel {
 public:
  Dinov3(Context& context, const Dinov3Config& c, const DataConfig& data, const ModelOptions& options)
      : ImageModel(context, c, data, options), checkpointing_(options.checkpointing) {
    embeddings_ = Dinov3Embeddings(root_.child("embeddings", c.names->embeddings), c, options);
    rope_embeddings_ = Dinov3RopePositionEmbedding(root_.child("rope_embeddings", "DINOv3ViTRopePositionEmbedding"), c);
    const Builder encoder = root_.child("model", "DINOv3ViTEncoder");
    encoder_ = encoder.module;
    blocks_ = BlockStack(encoder);
    layers_.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers_.emplace_back(encoder.child("layer", c.names->layer, i), c, options);
      blocks_.add_block(encoder);
    }
    norm_ = LayerNorm(root_.child("norm", "LayerNorm"), c.hidden_size);
  }

  // DINOv3ViTModel.forward
  ModelOutputs forward(const ModelInputs& inputs) override {
    if (context_.modules) context_.modules->read(embeddings_.patch_embeddings.weight);
    const Tensor pixel_values = to(inputs.pixel_values, embeddings_.patch_embeddings.weight.dtype());
    const Tensor hidden_states = embeddings_(pixel_values);
    const PositionEmbeddings positions = rope_embeddings_(pixel_values);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers_[i], positions = cast_forward_input(positions, layers_[i].module)](const Tensor& hidden) {
        return layer(hidden, positions);
      };
    };
    Tensor last_hidden_state;
    {
      ModuleCall encoder(context_, encoder_);
      last_hidden_state =
          encoder.result(blocks_.run(0, layers_.size(), hidden_states, checkpointing_, block, {.positional = true}));
    }
    Tensor sequence_output = norm_(last_hidden_state);
    const Tensor pooled_output = select(sequence_output, 1, 0);
    return {{}, pooled_output, {sequence_output}};
  }

 private:
  CheckpointingConfig checkpointing_;
  Dinov3Embeddings embeddings_;
  Dinov3RopePositionEmbedding rope_embeddings_;
  std::vector<Dinov3Layer> layers_;
  BlockStack blocks_;
  LayerNorm norm_;
  ModuleId encoder_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_dinov3(Context& context, const Dinov3Config& config, const DataConfig& data,
                                    const ModelOptions& options) {
  return std::make_unique<Dinov3>(context, config, data, options);
}

}  // namespace oometer
