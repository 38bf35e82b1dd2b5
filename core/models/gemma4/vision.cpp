#include "models/gemma4/vision.h"

#include <utility>

#include "models/kit/norms.h"
#include "models/llama/llama.h"
#include "nn/activation.h"
#include "nn/wrapped_call.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

Gemma4ClippableLinear::Gemma4ClippableLinear(const Builder& builder, std::int64_t in_features,
                                             std::int64_t out_features, bool clips)
    : linear(builder.child("linear", "Linear"), in_features, out_features, false),
      use_clipped_linears(clips),
      module(builder.module) {
  if (!clips) return;
  for (int i = 0; i < 4; ++i) builder.buffer({}, builder.dtype);  // input_min, input_max, output_min, output_max
}

Tensor Gemma4ClippableLinear::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor hidden_states = call.argument(argument);
  if (use_clipped_linears) hidden_states = clamp(hidden_states, true);
  hidden_states = linear(hidden_states);
  if (use_clipped_linears) hidden_states = clamp(hidden_states, true);
  return call.result(hidden_states);
}

namespace {

Norm vision_norm(const Builder& parent, const char* name, std::int64_t size) {
  return Norm(parent.child(name, "Gemma4RMSNorm"), rms_norm_by_pow, {size});
}

struct Gemma4VisionMLP {
  Gemma4VisionMLP(const Builder& builder, const Gemma4VisionConfig& c)
      : gate_proj(builder.child("gate_proj", "Gemma4ClippableLinear"), c.hidden_size, c.intermediate_size,
                  c.use_clipped_linears),
        up_proj(builder.child("up_proj", "Gemma4ClippableLinear"), c.hidden_size, c.intermediate_size,
                c.use_clipped_linears),
        down_proj(builder.child("down_proj", "Gemma4ClippableLinear"), c.intermediate_size, c.hidden_size,
                  c.use_clipped_linears),
        act_fn(c.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor x = call.argument(argument);
    Tensor product;
    {
      const Tensor activated = [&] {
        const Tensor gate = gate_proj(x);
        return activate(act_fn, gate);
      }();
      const Tensor up = up_proj(x);
      product = mul(activated, up);
    }
    return call.result(down_proj(product));
  }

  Gemma4ClippableLinear gate_proj, up_proj, down_proj;
  Activation act_fn;
  ModuleId module;
};

// apply_multidimensional_rope: a part of the channels for each of the two axes.
Tensor apply_multidimensional_rope(const Tensor& x, const PositionEmbeddings& positions) {
  const std::int64_t part = x.size(-1) / 2;
  const TensorList x_parts = split(x, {part, part}, -1), cos_parts = split(positions.cos, {part, part}, -1),
                   sin_parts = split(positions.sin, {part, part}, -1);
  TensorList y_parts;
  for (std::size_t k = 0; k < 2; ++k) {
    const Tensor cos = unsqueeze(cos_parts[k], 2), sin = unsqueeze(sin_parts[k], 2);
    y_parts.push_back(rotate(x_parts[k], cos, sin));
  }
  return cat(y_parts, -1);
}

struct Gemma4VisionAttention {
  Gemma4VisionAttention(const Builder& builder, const Gemma4VisionConfig& c, AttentionKind attention)
      : head_dim(c.head_dim), call{attention, false, c.attention_dropout}, module(builder.module) {
    const auto projection = [&](const char* name, std::int64_t in, std::int64_t out) {
      return Gemma4ClippableLinear(builder.child(name, "Gemma4ClippableLinear"), in, out, c.use_clipped_linears);
    };
    const std::int64_t width = c.num_attention_heads * head_dim, kv_width = c.num_key_value_heads * head_dim;
    q_proj = projection("q_proj", c.hidden_size, width);
    k_proj = projection("k_proj", c.hidden_size, kv_width);
    v_proj = projection("v_proj", c.hidden_size, kv_width);
    o_proj = projection("o_proj", width, c.hidden_size);
    q_norm = vision_norm(builder, "q_norm", head_dim);
    k_norm = vision_norm(builder, "k_norm", head_dim);
    v_norm.module = builder.child("v_norm", "Gemma4RMSNorm").module;
    v_norm.forward = rms_norm_by_pow;
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(hidden_states.context(), module);
    const auto viewed = [&](const Tensor& projected) {
      return view(projected, {projected.size(0), projected.size(1), projected.size(2) / head_dim, head_dim});
    };
    AttentionInputs states;
    states.query = viewed(q_proj(hidden_states));
    states.query = q_norm(states.query);
    states.query = apply_multidimensional_rope(states.query, positions);
    states.query = transpose(states.query, 1, 2);
    states.key = viewed(k_proj(hidden_states));
    states.key = k_norm(states.key);
    states.key = apply_multidimensional_rope(states.key, positions);
    states.key = transpose(states.key, 1, 2);
    states.value = viewed(v_proj(hidden_states));
    states.value = v_norm(states.value);
    states.value = transpose(states.value, 1, 2);
    AttentionOutputs attention = attention_forward(call, states.query, states.key, states.value, attention_mask);
    const Shape& heads = attention.output.sizes();
    attention.output = reshape(attention.output, {heads[0], heads[1], checked_product(heads[2], heads[3])});
    attention.output = self.result(o_proj(attention.output));
    for (Tensor* name : {&states.query, &states.key, &states.value}) name->reset();  // as a frame lets its names go
    return attention;
  }

  std::int64_t head_dim;
  Gemma4ClippableLinear q_proj, k_proj, v_proj, o_proj;
  Norm q_norm, k_norm, v_norm;
  AttentionCall call;
  ModuleId module;
};

std::unique_ptr<TextLayer> make_encoder_layer(const Builder& builder, const Gemma4VisionConfig& c,
                                              AttentionKind attention) {
  auto layer = std::make_unique<TextLayer>(builder, sandwich_norm);
  layer->self_attn = Gemma4VisionAttention(builder.child("self_attn", "Gemma4VisionAttention"), c, attention);
  layer->mlp = Gemma4VisionMLP(builder.child("mlp", "Gemma4VisionMLP"), c);
  layer->input_norm = vision_norm(builder, "input_layernorm", c.hidden_size);
  layer->attention_norm = vision_norm(builder, "post_attention_layernorm", c.hidden_size);
  layer->feedforward_norm = vision_norm(builder, "pre_feedforward_layernorm", c.hidden_size);
  layer->output_norm = vision_norm(builder, "post_feedforward_layernorm", c.hidden_size);
  return layer;
}

/// pixel_position_ids[..., axis]
Tensor axis_of(const Tensor& position_ids, std::int64_t axis) { return select(position_ids, -1, axis); }

}  // namespace

Gemma4VisionModel::Gemma4VisionModel(const Builder& builder, const Gemma4VisionConfig& c, const ModelOptions& options)
    : config_(c),
      checkpointing_(options.checkpointing),
      masked_(masked_by(options.attention)),
      module_(builder.module) {
  const Builder patch_embedder = builder.child("patch_embedder", "Gemma4VisionPatchEmbedder");
  patch_embedder_ = patch_embedder.module;
  input_proj_ = Linear(patch_embedder.child("input_proj", "Linear"), c.patch_elements(), c.hidden_size, false);
  position_embedding_table_ =
      patch_embedder.parameter("position_embedding_table", {2, c.position_embedding_size, c.hidden_size});
  const Builder encoder = builder.child("encoder", "Gemma4VisionEncoder");
  encoder_ = encoder.module;
  const Builder rotary = encoder.child("rotary_emb", "Gemma4VisionRotaryEmbedding");
  rotary_emb_ = rotary.module;
  {
    LlamaConfig of_axis;  // compute_axial_rope_parameters: half a head each
    of_axis.head_dim = c.head_dim / 2;
    const LlamaRotaryEmbedding tables(rotary, of_axis);
    inv_freq_ = tables.inv_freq;
    original_inv_freq_ = tables.original_inv_freq;
  }
  stack_ = BlockStack(encoder);
  for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
    layers_.push_back(make_encoder_layer(encoder.child("layers", "Gemma4VisionEncoderLayer", i), c, options.attention));
    stack_.add_block(encoder);
  }
  pooler_ = builder.child("pooler", "Gemma4VisionPooler").module;
  if (!c.standardize) return;
  std_bias_ = builder.buffer({c.hidden_size}, builder.dtype);
  std_scale_ = builder.buffer({c.hidden_size}, builder.dtype);
}

Tensor Gemma4VisionModel::embed_patches(const Tensor& pixels_in, const Tensor& pixel_position_ids,
                                        const Tensor& padding_positions) const {
  Context& context = pixels_in.context();
  ModuleCall call(context, patch_embedder_);
  Tensor pixel_values;
  {
    const Tensor centred = add_scalar(pixels_in);
    pixel_values = mul_scalar(centred);
  }
  if (context.modules) context.modules->read(input_proj_.weight);  // `target_dtype`
  pixel_values = to(pixel_values, input_proj_.weight.dtype());
  const Tensor hidden_states = input_proj_(pixel_values);
  Tensor position_embeddings;
  {
    const Tensor clamped_positions = integers(context, Op::clamp, pixel_position_ids.sizes());
    const auto embedded = [&](std::int64_t axis) {
      return embedding(select(position_embedding_table_, 0, axis), axis_of(clamped_positions, axis));
    };
    const Tensor x_emb = embedded(0), y_emb = embedded(1);
    position_embeddings = add(x_emb, y_emb);
    const Tensor zero = empty(context, Op::empty, {}, position_embeddings.dtype());
    position_embeddings = where(unsqueeze(padding_positions, -1), zero, position_embeddings);
  }
  return call.result(add(hidden_states, position_embeddings));
}

Tensor Gemma4VisionModel::encode(const Tensor& inputs_embeds, const Tensor& padding_mask,
                                 const Tensor& pixel_position_ids, std::int64_t patches) const {
  Context& context = inputs_embeds.context();
  ModuleCall call(context, encoder_);
  Rows rows;
  rows.documents.assign(static_cast<std::size_t>(inputs_embeds.size(0)), {patches});
  rows.has_mask = true;
  MaskArguments given;
  given.attention_mask = padding_mask;
  given.rows = &rows;
  const Tensor attention_mask = create_bidirectional_mask(inputs_embeds, given, masked_);
  PositionEmbeddings positions;
  {
    ModuleCall self(context, rotary_emb_);
    const NoGrad no_grad(context);
    Tensor cos, sin;
    const Tensor freqs = rotary_angles(pixel_position_ids, inv_freq_);
    const auto scaled = [&](Op op) {
      const Tensor values = pointwise(op, {&freqs}, DType::float32);
      return mul_scalar(values);
    };
    cos = scaled(Op::cos);
    sin = scaled(Op::sin);
    const auto recomposition_frequencies = [](const Tensor& freq) {
      const Tensor freq_h = select(freq, 2, 0), freq_w = select(freq, 2, 1);
      return cat({freq_h, freq_h, freq_w, freq_w}, -1);
    };
    cos = recomposition_frequencies(cos);
    sin = recomposition_frequencies(sin);
    positions.cos = self.result(to(cos, inputs_embeds.dtype()));
    positions.sin = self.result(to(sin, inputs_embeds.dtype()));
  }
  const auto layer = [&](std::size_t i) -> BlockStack::Forward {
    return [&its = *layers_[i], attention_mask, positions](const Tensor& hidden_states) {
      return its(hidden_states, positions, attention_mask);
    };
  };
  return call.result(stack_.run(0, layers_.size(), inputs_embeds, checkpointing_, layer));
}

std::pair<Tensor, Tensor> Gemma4VisionModel::pool(const Tensor& argument, const Tensor& pixel_position_ids,
                                                  const Tensor& padding_positions, std::int64_t output_length) const {
  Context& context = argument.context();
  ModuleCall call(context, pooler_);
  const std::int64_t images = argument.size(0), length = argument.size(1);
  const auto booleans_of = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::boolean); };
  Tensor hidden_states = masked_fill(argument, unsqueeze(padding_positions, -1)), mask = padding_positions;
  if (length != output_length) {  // _avg_pool_by_positions
    Tensor weights, output;
    const Tensor clamped_positions = integers(context, Op::clamp, pixel_position_ids.sizes());
    Tensor max_x;
    {
      TensorList largest = max(axis_of(clamped_positions, 0), -1, true);
      max_x = integers(context, Op::add, {images, 1});
    }
    Tensor kernel_idxs = integers(context, Op::floor_divide, pixel_position_ids.sizes());
    {
      Tensor rows_before;
      {
        const Tensor along = integers(context, Op::floor_divide, {images, 1});
        rows_before = integers(context, Op::mul, {images, length});
      }
      kernel_idxs = integers(context, Op::add, {images, length});
    }
    {
      const Tensor as_float = [&] {
        const Tensor one_hot = integers(context, Op::zeros, {images, length, output_length});
        return empty(context, Op::to_copy, one_hot.sizes(), DType::float32);
      }();
      weights = div_scalar(as_float);
    }
    {
      const Tensor as_float = to(hidden_states, DType::float32);
      output = matmul(transpose(weights, 1, 2), as_float);
    }
    {
      const Tensor all_zero = [&] {
        const Tensor zeros = booleans_of(Op::eq, weights.sizes());
        return reduce(Op::all, zeros, {1}, false, DType::boolean);
      }();
      mask = booleans_of(Op::bitwise_not, {images, output_length});
    }
    hidden_states = to(output, hidden_states.dtype());
  }
  {
    const Tensor as_float = to(hidden_states, DType::float32);
    hidden_states = mul_scalar(as_float);
  }
  return {call.result(hidden_states), mask};
}

Tensor Gemma4VisionModel::operator()(const Tensor& pixel_values, const Tensor& pixel_position_ids,
                                     std::int64_t patches) const {
  Context& context = pixel_values.context();
  ModuleCall call(context, module_);
  const std::int64_t images = pixel_values.size(0), length = pixel_values.size(1);
  const Tensor padding_positions = [&] {
    const Tensor are_padding = empty(context, Op::eq, pixel_position_ids.sizes(), DType::boolean);
    return reduce(Op::all, are_padding, {2}, false, DType::boolean);
  }();
  const Tensor inputs_embeds = wrapped_call(pixel_values, patch_embedder_, [&](const Tensor& pixels) {
    return embed_patches(pixels, pixel_position_ids, padding_positions);
  });
  Tensor output;
  {
    const Tensor valid = empty(context, Op::bitwise_not, {images, length}, DType::boolean);
    output = encode(inputs_embeds, valid, pixel_position_ids, patches);
  }
  auto [pooled, pooler_mask] =
      pool(output, pixel_position_ids, padding_positions, length / config_.patches_per_token());
  Tensor hidden_states = index_mask(pooled, pooler_mask, images * (patches / config_.patches_per_token()));
  pooled.reset();
  if (config_.standardize) {
    const auto in_float32 = [](const Tensor& buffer) { return to(buffer, DType::float32); };
    Tensor centred;
    {
      const Tensor bias = in_float32(std_bias_);
      centred = sub(hidden_states, bias);
    }
    const Tensor scale = in_float32(std_scale_);
    hidden_states = mul(centred, scale);
  }
  hidden_states = to(hidden_states, inputs_embeds.dtype());
  return call.result(hidden_states);
}

}  // namespace oometer
