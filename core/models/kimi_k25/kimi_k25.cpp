#include "models/kimi_k25/kimi_k25.h"

#include <utility>
#include <vector>

#include "models/deepseek/deepseek.h"
#include "models/kit/interpolation.h"
#include "models/kit/packed_images.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/embedding_bag.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

// get_vision_frame_index
Tensor frame_index(Context& context, const DataConfig& data) {
  Tensor frames;
  TensorList parts;
  for (std::int64_t i = 0; i < data.images(); ++i) {
    const ImageShape& image = data.image(i);
    {
      const Tensor steps = integers(context, Op::arange, {image.grid_t});
      frames = integers(context, Op::add, {image.grid_t});
    }
    parts.push_back(integers(context, Op::clone, {image.patches()}));
  }
  return integers(context, Op::cat, {data.all_patches()});
}

struct KimiK25VisionPositionEmbeddings {
  KimiK25VisionPositionEmbeddings() = default;
  KimiK25VisionPositionEmbeddings(const Builder& builder, const KimiK25VisionConfig& c)
      : position_embeddings(builder.parameter("position_embeddings", {c.pos_emb_side, c.pos_emb_side, c.hidden_size})),
        module(builder.module) {
    compute_pos_embed(builder, c.pos_emb_time, c.hidden_size);
  }

  Tensor operator()(const Tensor& argument, const DataConfig& data) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor hidden_states = call.argument(argument);
    if (context.modules) context.modules->read(position_embeddings);
    const Shape& sizes = position_embeddings.sizes();
    const Tensor table = view(position_embeddings, {sizes[0] * sizes[1], sizes[2]});
    const Interpolation interp = interpolation(context, data, {.taps = 4});
    Tensor pos;
    {
      const Tensor weights = to(interp.weights, table.dtype());
      pos = embedding_bag(table, interp.indices, weights);
    }
    {
      Tensor of_frames;
      {
        const Tensor frames = frame_index(context, data);
        of_frames = index(time_position_embeddings, frames);
      }
      pos = add(pos, of_frames);
    }
    const Tensor typed = to(pos, hidden_states.dtype());
    return call.result(add(hidden_states, typed));
  }

  void compute_pos_embed(const Builder& builder, std::int64_t num_frames, std::int64_t dim) {
    Context& context = *builder.context;
    const ModuleScope scope(context, module);
    const auto floats = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::float32); };
    const Shape half{dim / 2};
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor pos_embed, freqs, inv_freq, position_ids;
    position_ids = floats(Op::arange, {num_frames});
    {
      Tensor powers;
      {
        Tensor exponents;
        {
          const Tensor steps = integers(context, Op::arange, half);
          exponents = floats(Op::to_copy, half);
        }
        exponents = floats(Op::div, half);
        powers = floats(Op::pow, half);
        const Tensor base = empty(context, Op::empty, {}, DType::float64);
      }
      const Tensor inverse = floats(Op::reciprocal, half);
      inv_freq = floats(Op::mul, half);
    }
    freqs = floats(Op::mul, {num_frames, dim / 2});
    {
      const Tensor sines = floats(Op::sin, freqs.sizes()), cosines = floats(Op::cos, freqs.sizes());
      pos_embed = floats(Op::cat, {num_frames, dim});
    }
    const Tensor zeros = floats(Op::zeros, {1, dim});
    time_position_embeddings = builder.buffer({num_frames + 1, dim}, DType::float32);
  }

  Tensor position_embeddings, time_position_embeddings;
  ModuleId module = 0;
};

struct KimiK25VisionPatchEmbed {
  KimiK25VisionPatchEmbed() = default;
  KimiK25VisionPatchEmbed(const Builder& builder, const KimiK25VisionConfig& c)
      : proj(builder.child("proj", "Conv2d"), 3, c.hidden_size, c.patch_size, true),
        pos_emb(builder.child("pos_emb", "Kimi_K25VisionPositionEmbeddings"), c),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const DataConfig& data) const {
    ModuleCall call(argument.context(), module);
    const Tensor pixel_values = call.argument(argument);
    Context& context = argument.context();
    if (pixel_values.dtype() != proj.weight.dtype() && !context.autocast.enabled)
      context.refusal = Error{"inconsistent", "/training/precision",
                              "found weights of another type than the processor's float32 images, which this class "
                              "gives to a convolution as they are: expected autocast, or float32"};
    Tensor hidden_states = proj(pixel_values);
    hidden_states = view(hidden_states, {hidden_states.size(0), hidden_states.size(1)});
    hidden_states = pos_emb(hidden_states, data);
    return call.result(hidden_states);
  }

  Conv2d proj;
  KimiK25VisionPositionEmbeddings pos_emb;
  ModuleId module = 0;
};

// Kimi_K25VisionRotaryEmbedding.forward
PositionEmbeddings kimi_k25_rotary(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids) {
  Context& context = position_ids.context();
  ModuleCall call(context, rotary_emb.module);
  const NoGrad no_grad(context);
  const Tensor freqs = rotary_angles(position_ids, rotary_emb.inv_freq);
  const auto of = [&](Op op) {
    const Tensor values = pointwise(op, {&freqs}, DType::float32);
    return mul_scalar(values);
  };
  Tensor cos = of(Op::cos), sin = of(Op::sin);
  const auto recomposition_frequencies = [&](const Tensor& freq) {
    Tensor freq_wh;
    {
      const Tensor flipped = empty(context, Op::flip, freq.sizes(), DType::float32);
      freq_wh = empty(context, Op::clone, {freq.size(0), freq.size(1) * freq.size(2)}, DType::float32);
    }
    return cat({freq_wh, freq_wh}, -1);
  };
  cos = recomposition_frequencies(cos);
  sin = recomposition_frequencies(sin);
  return {call.result(cos), call.result(sin)};
}

// get_vision_temporal_merge_index
Tensor temporal_merge_index(Context& context, const DataConfig& data) {
  Tensor base;
  TensorList rows;
  for (std::int64_t i = 0; i < data.images(); ++i) {
    const std::int64_t patches = data.image(i).patches();
    base = integers(context, Op::arange, {patches});
    base = integers(context, Op::clone, {patches});
    rows.push_back(base);
  }
  return integers(context, Op::cat, {data.all_patches()});
}

struct KimiK25VisionModel {
  KimiK25VisionModel() = default;
  KimiK25VisionModel(const Builder& builder, const KimiK25VisionConfig& c, const ModelOptions& options)
      : config(c), attention(options.attention), checkpointing(options.checkpointing), module(builder.module) {
    patch_embed = {builder.child("patch_embed", "Kimi_K25VisionPatchEmbed"), c};
    LlamaConfig half;  // compute_axial_rope_parameters: frequencies of half a head
    half.head_dim = c.hidden_size / c.num_attention_heads / 2;
    rotary_emb = LlamaRotaryEmbedding(builder.child("rotary_emb", "Kimi_K25VisionRotaryEmbedding"), half);
    const PackedVisionConfig its{.layer = kKimiK25VisionLayer,
                                 .attention = "Kimi_K25VisionAttention",
                                 .mlp = "Kimi_K25VisionMLP",
                                 .hidden_size = c.hidden_size,
                                 .intermediate_size = c.intermediate_size,
                                 .num_attention_heads = c.num_attention_heads,
                                 .hidden_act = c.hidden_act};
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    stack = BlockStack(builder);
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(builder.child("layers", its.layer, i), its, options.attention);
      stack.add_block(builder);
    }
    final_layernorm = LayerNorm(builder.child("final_layernorm", "LayerNorm"), c.hidden_size);
  }

  /// pooler_output: [tokens, patches of each, hidden].
  GridOutputs operator()(const Tensor& pixel_values, const DataConfig& data) const {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    Tensor hidden_states = patch_embed(call.argument(pixel_values), data);
    const Tensor position_ids = vision_position_ids(context, data);
    const PositionEmbeddings positions = kimi_k25_rotary(rotary_emb, position_ids);
    const PatchSequences clips = vision_cu_seqlens(context, data, true);
    ask_max_seqlen(clips, attention);
    const auto layer = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], clips, positions = cast_forward_input(positions, layers[i].module)](
                 const Tensor& hidden) { return layer(hidden, clips, positions); };
    };
    hidden_states = stack.run(0, layers.size(), std::move(hidden_states), checkpointing, layer);
    hidden_states = final_layernorm(hidden_states);
    const Tensor merge_index = temporal_merge_index(context, data);
    GridOutputs outputs;
    {
      const std::int64_t unit = config.merge_unit();
      const Tensor merged = index(hidden_states, merge_index);
      const std::int64_t tokens = merged.size(0) / data.grid_t / unit;
      outputs.pooler_output = mean(view(merged, {tokens, data.grid_t, unit, config.hidden_size}), 1, false);
    }
    outputs.last_hidden_state = call.result(hidden_states);
    outputs.pooler_output = call.result(outputs.pooler_output);
    return outputs;
  }

  KimiK25VisionConfig config;
  AttentionKind attention = AttentionKind::sdpa;
  CheckpointingConfig checkpointing;
  KimiK25VisionPatchEmbed patch_embed;
  LlamaRotaryEmbedding rotary_emb;
  std::vector<PackedVisionLayer> layers;
  LayerNorm final_layernorm;
  BlockStack stack;
  ModuleId module = 0;
};

struct KimiK25MultimodalProjection {
  KimiK25MultimodalProjection() = default;
  KimiK25MultimodalProjection(const Builder& builder, const KimiK25Config& c)
      : hidden_size(c.merged_size()),
        pre_norm(builder.child("pre_norm", "LayerNorm"), c.vision.hidden_size),
        in_proj(builder.child("in_proj", "Linear"), hidden_size, hidden_size, true),
        act(builder.child("act", "GELU").module),
        out_proj(builder.child("out_proj", "Linear"), hidden_size, c.text.hidden_size, true),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = pre_norm(call.argument(argument));
    hidden_states = view(hidden_states, {hidden_states.size(0), 1, hidden_size});
    hidden_states = in_proj(hidden_states);
    {
      const ModuleScope scope(argument.context(), act);
      hidden_states = activate(Activation::gelu, hidden_states);
    }
    hidden_states = out_proj(hidden_states);
    return call.result(hidden_states);
  }

  std::int64_t hidden_size = 0;
  LayerNorm pre_norm;
  Linear in_proj;
  ModuleId act = 0;
  Linear out_proj;
  ModuleId module = 0;
};

// Kimi_K25ForConditionalGeneration
class KimiK25 : public PackedImageModel {
 public:
  KimiK25(Context& context, const KimiK25Config& config, const DataConfig& data, const ModelOptions& options)
      : PackedImageModel(context, kKimiK25, data, options), config_(config) {
    const Builder model = root_.child("model", "Kimi_K25Model");
    model_ = model.module;
    vision_tower_ = KimiK25VisionModel(model.child("vision_tower", "Kimi_K25VisionModel", Modality::vision),
                                       config.vision, options);
    const LlamaConfig text = config.text.as_llama(config.text.intermediate_size);
    make_decoder(model.child("language_model", text.names->model, Modality::language), text, options,
                 deepseek_parts(context, config.text, options));
    language_model_.blocks.first_block = vision_tower_.stack.size();
    mm_projector_ = KimiK25MultimodalProjection(
        model.child("mm_projector", "Kimi_K25MultimodalProjection", Modality::projector), config);
    make_head(root_, text, config.tie_word_embeddings);
  }

 private:
  Shape pixel_sizes() const override {
    const std::int64_t patch = config_.vision.patch_size;
    return {data_.all_patches(), 3, patch, patch};
  }

  GridOutputs image_features(const Tensor& pixel_values) const override {
    GridOutputs outputs = vision_tower_(pixel_values, data_);
    const Tensor projected = mm_projector_(outputs.pooler_output);
    outputs.pooler_output = view(projected, {projected.size(0), projected.size(2)});  // squeeze(1)
    return outputs;
  }

  KimiK25Config config_;
  KimiK25VisionModel vision_tower_;
  KimiK25MultimodalProjection mm_projector_;
};

}  // namespace

std::unique_ptr<Model> build_kimi_k25(Context& context, const KimiK25Config& config, const DataConfig& data,
                                      const ModelOptions& options) {
  return std::make_unique<KimiK25>(context, config, data, options);
}

}  // namespace oometer
