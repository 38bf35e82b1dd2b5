#include "models/glm4v/glm4v.h"

#include <utility>
#include <vector>

#include "models/kit/grids.h"
#include "models/kit/recurrent.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/cub.h"
#include "ops/grid_sample.h"
#include "ops/integers.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

LlamaMLP glm4_vision_mlp(const Builder& builder, const Glm4vVisionConfig& c, const LigerConfig& kernels) {
  LlamaConfig sizes;
  sizes.hidden_size = c.hidden_size;
  sizes.intermediate_size = c.mlp_size();
  sizes.mlp_bias = c.of->is_ocr() && c.attention_bias;
  sizes.hidden_act = c.hidden_act;
  return {builder, sizes, kernels};
}

PatchAttention glm4v_vision_attention(const Builder& builder, const Glm4vVisionConfig& c, AttentionKind attention) {
  const bool is_ocr = c.of->is_ocr();
  PatchAttention its(builder, c.hidden_size, c.num_heads, attention, c.attention_bias, is_ocr && c.attention_bias);
  if (!is_ocr) return its;
  its.q_norm = Norm(builder.child("q_norm", c.of->tower->rms_norm), rms_norm, {its.head_dim});
  its.k_norm = Norm(builder.child("k_norm", c.of->tower->rms_norm), rms_norm, {its.head_dim});
  return its;
}

struct Glm4vVisionBlock {
  Glm4vVisionBlock(const Builder& builder, const Glm4vVisionConfig& c, const ModelOptions& options)
      : norm1(builder.child("norm1", c.of->tower->rms_norm), c.hidden_size, options.liger.rms_norm),
        norm2(builder.child("norm2", c.of->tower->rms_norm), c.hidden_size, options.liger.rms_norm),
        attn(glm4v_vision_attention(builder.child("attn", c.of->tower->attention), c, options.attention)),
        mlp(glm4_vision_mlp(builder.child("mlp", c.of->tower->mlp), c, options.liger)),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const PatchSequences& sequences,
                    const PositionEmbeddings& positions) const {
    return run_vision_block(*this, hidden_in, sequences, positions);
  }

  LlamaRMSNorm norm1, norm2;
  PatchAttention attn;
  LlamaMLP mlp;
  ModuleId module;
};

struct Glm4vVisionPatchMerger {
  Glm4vVisionPatchMerger() = default;
  Glm4vVisionPatchMerger(const Builder& builder, const Glm4vVisionConfig& c)
      : proj(builder.child("proj", "Linear"), c.out_hidden_size, c.out_hidden_size, false),
        post_projection_norm(builder.child("post_projection_norm", "LayerNorm"), c.out_hidden_size),
        gate_proj(builder.child("gate_proj", "Linear"), c.out_hidden_size, c.merger_size(), false),
        up_proj(builder.child("up_proj", "Linear"), c.out_hidden_size, c.merger_size(), false),
        down_proj(builder.child("down_proj", "Linear"), c.merger_size(), c.out_hidden_size, false),
        act_fn(c.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_state = proj(call.argument(argument));
    {
      const Tensor normalised = post_projection_norm(hidden_state);
      hidden_state = activate(Activation::gelu, normalised);
    }
    Tensor product;
    {
      Tensor gate = gate_proj(hidden_state);
      gate = activate(act_fn, gate);
      const Tensor up = up_proj(hidden_state);
      product = mul(gate, up);
    }
    return call.result(down_proj(product));
  }

  Linear proj;
  LayerNorm post_projection_norm;
  Linear gate_proj, up_proj, down_proj;
  Activation act_fn = Activation::silu;
  ModuleId module = 0;
};

/// Learned positions of a square's patches, from which those of each image are sampled.
struct Glm4vVisionEmbeddings {
  Glm4vVisionEmbeddings() = default;
  Glm4vVisionEmbeddings(const Builder& builder, const Glm4vVisionConfig& c)
      : side(c.side()),
        position_embedding(builder.child("position_embedding", "Embedding"), side * side, c.hidden_size),
        module(builder.module) {}

  explicit operator bool() const { return side != 0; }
  Tensor operator()(const Tensor& argument, const DataConfig& data) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor embeddings = call.argument(argument), pos_embed_weight = position_embedding.weight;
    if (context.modules) context.modules->read(pos_embed_weight);
    const std::int64_t tokens = embeddings.size(0), hidden_size = pos_embed_weight.size(1), images = data.images();
    const auto floats = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::float32); };
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor result, adapted_pos_embed, adapted_pos_embed_fp32, interpolated_embed_fp32, grid, norm_h, norm_w, target_w,
        target_h, seq_ids, token_positions, pos_embed_2d;
    pos_embed_2d =
        to(unsqueeze(permute(view(pos_embed_weight, {side, side, hidden_size}), {2, 0, 1}), 0), DType::float32);
    token_positions = integers(context, Op::arange, {tokens});
    {
      Tensor bounds = integers(context, Op::cumsum, {images});
      {
        const Tensor copy = integers(context, Op::to_copy, {images});
        const Workspace scan(context, Op::cumsum, cub_scan_bytes(images));
      }
      const Tensor is_behind = empty(context, Op::ge, {images, tokens}, DType::boolean);
      bounds.reset();
      seq_ids = reduce(Op::sum, is_behind, {0}, false, DType::int64);
    }
    const auto side_of_image = [&] {
      const Tensor chosen = integers(context, Op::index, {tokens});
      return floats(Op::to_copy, {tokens});
    };
    target_h = side_of_image();
    target_w = side_of_image();
    const auto normalised = [&] {
      Tensor x = floats(Op::add, {tokens});
      x = floats(Op::div, {tokens});
      x = mul_scalar(x);
      return floats(Op::sub, {tokens});
    };
    norm_w = normalised();
    norm_h = normalised();
    grid = floats(Op::stack, {1, tokens, 1, 2});
    interpolated_embed_fp32 = grid_sample(pos_embed_2d, grid);
    adapted_pos_embed_fp32 = permute(view(interpolated_embed_fp32, {hidden_size, tokens}), {1, 0});
    adapted_pos_embed = to(adapted_pos_embed_fp32, pos_embed_weight.dtype());
    result = add(embeddings, adapted_pos_embed);
    return call.result(result);
  }

  std::int64_t side = 0;
  Embedding position_embedding;
  ModuleId module = 0;
};

struct Glm4vVisionModel {
  Glm4vVisionModel() = default;
  Glm4vVisionModel(const Builder& builder, const Glm4vVisionConfig& c, const ModelOptions& options)
      : config(c), checkpointing(options.checkpointing), module(builder.module) {
    const Glm4vTowerNames& names = *c.of->tower;
    const bool is_ocr = c.of->is_ocr();
    if (!is_ocr) embeddings = Glm4vVisionEmbeddings(builder.child("embeddings", names.embeddings), c);
    // No hook of checkpointing: transformers 5.23 does not find this tower's input embeddings.
    patch_embed =
        GridPatchEmbed(builder.child("patch_embed", names.patch_embed),
                       {c.hidden_size, c.in_channels, c.temporal_patch_size, c.patch_size, c.patch_size}, true, {});
    LlamaConfig half;  // compute_axial_rope_parameters: frequencies of half a head
    half.head_dim = c.hidden_size / c.num_heads / 2;
    rotary_pos_emb = LlamaRotaryEmbedding(builder.child("rotary_pos_emb", names.rotary_embedding), half);
    blocks.reserve(static_cast<std::size_t>(c.depth));
    stack = BlockStack(builder);
    for (std::int32_t i = 0; i < c.depth; ++i) {
      blocks.emplace_back(builder.child("blocks", names.block, i), c, options);
      stack.add_block(builder);
    }
    merger = Glm4vVisionPatchMerger(builder.child("merger", names.merger, Modality::projector), c);
    if (!is_ocr)
      post_conv_layernorm = LlamaRMSNorm(builder.child("post_conv_layernorm", names.rms_norm), c.hidden_size);
    downsample =
        Conv2d(builder.child("downsample", "Conv2d"), c.hidden_size, c.out_hidden_size, c.spatial_merge_size, true);
    post_layernorm = LlamaRMSNorm(builder.child("post_layernorm", names.rms_norm), c.hidden_size);
  }

  GridOutputs operator()(const Tensor& pixel_values, const DataConfig& data) const {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    const Tensor position_ids = vision_position_ids(context, data);
    const PatchSequences sequences = frames_of(context, data, blocks.front().attn.call.kind);
    Tensor hidden_states = patch_embed(pixel_values);
    if (embeddings) hidden_states = post_conv_layernorm(hidden_states);
    const PositionEmbeddings positions = vision_rotary(rotary_pos_emb, position_ids);
    Tensor seqlens;
    if (embeddings) {
      seqlens = empty(context, Op::sub, {data.images()}, DType::int32);
      hidden_states = embeddings(hidden_states, data);
    }
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&block = blocks[i], sequences, positions = cast_forward_input(positions, blocks[i].module)](
                 const Tensor& hidden) { return block(hidden, sequences, positions); };
    };
    hidden_states = stack.run(0, blocks.size(), std::move(hidden_states), checkpointing, block);
    hidden_states = post_layernorm(hidden_states);
    const std::int64_t merge = config.spatial_merge_size, tokens = hidden_states.size(0) / config.merge_unit();
    hidden_states = permute(view(hidden_states, {tokens, merge, merge, config.hidden_size}), {0, 3, 1, 2});
    hidden_states = downsampled(hidden_states);
    hidden_states = view(hidden_states, {tokens, config.out_hidden_size});
    GridOutputs outputs;
    outputs.pooler_output = merger(hidden_states);
    outputs.last_hidden_state = call.result(hidden_states);
    outputs.pooler_output = call.result(outputs.pooler_output);
    return outputs;
  }

  Tensor downsampled(const Tensor& argument) const {
    const std::int64_t merge = config.spatial_merge_size;
    ModuleCall call(argument.context(), downsample.module);
    return call.result(
        convolution(call.argument(argument), downsample.weight, downsample.bias,
                    {.stride = {merge, merge}, .padding = {0, 0}, .dilation = {1, 1}, .output_padding = {0, 0}}));
  }

  Glm4vVisionConfig config;
  CheckpointingConfig checkpointing;
  Glm4vVisionEmbeddings embeddings;
  LlamaRotaryEmbedding rotary_pos_emb;
  std::vector<Glm4vVisionBlock> blocks;
  Glm4vVisionPatchMerger merger;
  LlamaRMSNorm post_conv_layernorm, post_layernorm;
  Conv2d downsample;
  GridPatchEmbed patch_embed;
  BlockStack stack;
  ModuleId module = 0;
};

class Glm4v : public GridLanguageModel {
 public:
  Glm4v(Context& context, const Glm4vConfig& config, const DataConfig& data, const ModelOptions& options)
      : GridLanguageModel(context, config.of->class_name, data, options, config.vision.patch_elements(), false) {
    accepts_loss_kwargs = false;
    const Builder model = root_.child("model", config.of->model);
    model_ = model.module;
    visual_ =
        Glm4vVisionModel(model.child("visual", config.of->tower->model, Modality::vision), config.vision, options);
    DecoderParts parts =
        config.of->has_experts() ? glm4v_moe_text_parts(config.text, options) : glm4v_text_parts(config.text, options);
    complete_parts(parts, config.text);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options,
                 std::move(parts));
    language_model_.blocks.first_block = visual_.stack.size();
    make_head(root_, config.text, config.tie_word_embeddings);
  }

 private:
  GridOutputs run_tower(const Tensor& pixel_values) const override {
    if (!data_.video) return visual_(pixel_values, data_);
    // get_video_features: each frame is an image
    DataConfig frames = data_;
    frames.images_per_sample = checked_product(data_.images_per_sample, data_.grid_t);
    frames.grid_t = 1;
    const Tensor flattened_hw = repeat_interleave(context_, data_.images(), true, frames.images(), 2),
                 prefix_ones = integers(context_, Op::fill, {frames.images(), 1}),
                 flattened_video_grid_thw = integers(context_, Op::cat, {frames.images(), 3});
    return visual_(pixel_values, frames);
  }
  bool times_frames() const override { return true; }
  const Tensor& first_of_tower() const override {
    return visual_.embeddings ? visual_.embeddings.position_embedding.weight : visual_.patch_embed.weight;
  }

  Glm4vVisionModel visual_;
};

}  // namespace

std::unique_ptr<Model> build_glm4v(Context& context, const Glm4vConfig& config, const DataConfig& data,
                                   const ModelOptions& options) {
  return std::make_unique<Glm4v>(context, config, data, options);
}

}  // namespace oometer
