#include "models/minicpmv4_6/minicpmv4_6.h"

#include <cmath>
#include <utility>
#include <vector>

#include "models/clip/clip.h"
#include "models/kit/grids.h"
#include "models/kit/image_text.h"
#include "models/qwen3_5/qwen3_5.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "nn/wrapped_call.h"
#include "ops/cub.h"
#include "ops/integers.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

/// Rows and columns of each image and slice.
using TargetSizes = std::vector<std::pair<std::int64_t, std::int64_t>>;

TargetSizes halved(const TargetSizes& sizes) {
  TargetSizes half;
  for (const auto& [rows, columns] : sizes) half.emplace_back(rows / 2, columns / 2);
  return half;
}

/// F.pad(torch.cumsum(target_sizes[:, 0] * target_sizes[:, 1], dtype=torch.int32), (1, 0))
PatchSequences sequences_of(Context& context, const TargetSizes& sizes) {
  const std::int64_t images = std::ssize(sizes);
  Tensor sums;
  {
    const Tensor areas = empty(context, Op::mul, {images}, DType::int32);
    sums = empty(context, Op::cumsum, {images}, DType::int32);
    const Workspace scan(context, Op::cumsum, kSmallScan);
  }
  PatchSequences sequences;
  sequences.cu_seqlens = empty(context, Op::constant_pad_nd, {images + 1}, DType::int32);
  for (const auto& [rows, columns] : sizes) sequences.lengths.push_back(rows * columns);
  return sequences;
}

struct VisionEmbeddings {
  VisionEmbeddings() = default;
  VisionEmbeddings(const Builder& builder, const ClipVisionConfig& c)
      : patch_embedding(builder.child("patch_embedding", "Conv2d"), c.num_channels, c.hidden_size, c.patch_size, true),
        position_embedding(builder.child("position_embedding", "Embedding"), c.num_positions(), c.hidden_size),
        num_patches_per_side(c.image_size / c.patch_size),
        module(builder.module) {}

  // get_vision_nearest_position_ids (vision_utils.py)
  Tensor position_ids(Context& context, const TargetSizes& target_sizes) const {
    Tensor bucket_w, bucket_h, w_coords, h_coords;
    TensorList pos_ids_list;
    const double step = 1.0 / static_cast<double>(num_patches_per_side);
    const Tensor boundaries =
        empty(context, Op::arange, {static_cast<std::int64_t>(std::ceil((1.0 - step) / step))}, DType::float32);
    std::int64_t patches = 0;
    for (const auto& [height, width] : target_sizes) {
      const auto coords = [&](std::int64_t size) {
        const Tensor steps = integers(context, Op::arange, {size});
        return empty(context, Op::div, {size}, DType::float32);
      };
      h_coords = coords(height);
      w_coords = coords(width);
      bucket_h = integers(context, Op::index, {height});
      bucket_w = integers(context, Op::index, {width});
      const Tensor rows = integers(context, Op::mul, {height, 1});
      pos_ids_list.push_back(integers(context, Op::add, {height * width}));
      patches += height * width;
    }
    return integers(context, Op::cat, {patches});
  }

  Tensor operator()(const Tensor& argument, const TargetSizes& target_sizes) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    Tensor position_embeddings, pos_ids, embeddings, patch_embeds;
    patch_embeds = patch_embedding(call.argument(argument));
    require_input_grad(checkpointing, patch_embeds, patch_embedding.module);
    embeddings = transpose(view(patch_embeds, {1, patch_embeds.size(1), patch_embeds.size(3)}), 1, 2);
    pos_ids = position_ids(context, target_sizes);
    position_embeddings = unsqueeze(position_embedding(pos_ids), 0);
    embeddings = add(embeddings, position_embeddings);
    return call.result(embeddings);
  }

  Conv2d patch_embedding;
  Embedding position_embedding;
  std::int64_t num_patches_per_side = 0;
  CheckpointingConfig checkpointing;  ///< see require_input_grad
  ModuleId module = 0;
};

struct VisionAttention {
  VisionAttention() = default;
  VisionAttention(const Builder& builder, const ClipVisionConfig& c, AttentionKind kind)
      : head_dim(c.hidden_size / c.num_attention_heads),
        call{kind, false, c.attention_dropout},
        module(builder.module) {
    for (const auto& [name, projection] : {std::pair{"k_proj", &k_proj}, std::pair{"v_proj", &v_proj},
                                           std::pair{"q_proj", &q_proj}, std::pair{"out_proj", &out_proj}})
      *projection = Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, true);
  }

  Tensor operator()(const Tensor& given, const PatchSequences& sequences) const {
    ModuleCall self(given.context(), module);
    const Tensor hidden_states = self.keyword(given);
    Tensor attn_output;
    TensorList attn_outputs;
    List<TensorList> splits;
    Tensor lengths;
    const AttentionInputs states = project(hidden_states, q_proj, k_proj, v_proj, head_dim, false);
    if (is_flash_attention(call.kind)) {
      attn_output = attend_within(call, states.query, states.key, states.value, sequences).output;
    } else {
      lengths = empty(hidden_states.context(), Op::sub, {std::ssize(sequences.lengths)}, DType::int32);
      for (const Tensor* one : {&states.query, &states.key, &states.value})
        splits.push_back(split(*one, sequences.lengths, 2));
      attn_outputs.reserve(sequences.lengths.size());
      for (std::size_t i = 0; i < sequences.lengths.size(); ++i)
        attn_outputs.push_back(attention_forward(call, splits[0][i], splits[1][i], splits[2][i], {}).output);
      attn_output = cat(attn_outputs, 1);
    }
    attn_output = reshape(attn_output, hidden_states.sizes());
    return self.result(out_proj(attn_output));
  }

  Linear k_proj, v_proj, q_proj, out_proj;
  std::int64_t head_dim = 0;
  AttentionCall call;
  ModuleId module = 0;
};

struct VisionEncoderLayer {
  VisionEncoderLayer(const Builder& builder, const ClipVisionConfig& c, AttentionKind kind)
      : layer_norm1(builder.child("layer_norm1", "LayerNorm"), c.hidden_size),
        self_attn(builder.child("self_attn", c.family->attention), c, kind),
        layer_norm2(builder.child("layer_norm2", "LayerNorm"), c.hidden_size),
        mlp(builder.child("mlp", c.family->mlp), vision_layers(c, kind)),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const PatchSequences& sequences) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor hidden_states = layer_norm1(hidden_in);
    hidden_states = self_attn(hidden_states, sequences);
    hidden_states = add(hidden_in, hidden_states);
    const Tensor residual = hidden_states;
    hidden_states = layer_norm2(hidden_states);
    hidden_states = mlp(hidden_states);
    hidden_states = add(residual, hidden_states);
    return hidden_states;
  }

  LayerNorm layer_norm1;
  VisionAttention self_attn;
  LayerNorm layer_norm2;
  ClipMLP mlp;
  ModuleId module;
};

struct WindowAttentionMerger {
  WindowAttentionMerger() = default;
  WindowAttentionMerger(const Builder& builder, const ClipVisionConfig& c, AttentionKind kind)
      : module(builder.module) {
    const std::int64_t wide = kWindow * c.hidden_size;
    self_attn = VisionAttention(builder.child("self_attn", c.family->attention), c, kind);
    layer_norm1 = LayerNorm(builder.child("layer_norm1", "LayerNorm"), c.hidden_size);
    pre_norm = LayerNorm(builder.child("pre_norm", "LayerNorm"), wide);
    linear_1 = Linear(builder.child("linear_1", "Linear"), wide, kWindow * c.intermediate_size, true);
    linear_2 = Linear(builder.child("linear_2", "Linear"), kWindow * c.intermediate_size, c.hidden_size, true);
  }

  // get_vision_window_index (vision_utils.py), whose arithmetic is the host's
  static PatchSequences window_index(Context& context, const TargetSizes& target_sizes, Tensor& index) {
    PatchSequences windows;
    std::int64_t patches = 0, with_padding = 0;
    for (const auto& [rows, columns] : target_sizes) {
      patches += rows * columns;
      with_padding += (rows / kSide + 1) * (columns / kSide + 1);
    }
    windows.lengths.assign(static_cast<std::size_t>(patches / kWindow), kWindow);
    {
      const Tensor grid_thw = empty(context, Op::constant_pad_nd, {std::ssize(target_sizes), 3}, DType::int32);
      const Tensor all = empty(context, Op::to_copy, {with_padding + 1}, DType::int32);
      // unique_consecutive: windows of padding alone go.
      windows.cu_seqlens = empty(context, Op::empty, {with_padding + 1}, DType::int32);
      windows.cu_seqlens = slice(windows.cu_seqlens, 0, 0, std::ssize(windows.lengths) + 1);
      const Tensor count = integers(context, Op::empty, {});
      const Workspace select(context, Op::empty, kSmallScan);
    }
    index = integers(context, Op::to_copy, {patches});
    return windows;
  }

  Tensor operator()(const Tensor& residual, const TargetSizes& target_sizes) const {
    Context& context = residual.context();
    ModuleCall call(context, module);
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor hidden_state, patch_residual, flat, patch, index;
    PatchSequences windows;
    Tensor hidden_states = layer_norm1(residual);
    windows = window_index(context, target_sizes, index);
    hidden_states = oometer::index(hidden_states, 1, index);
    hidden_states = self_attn(hidden_states, windows);
    {
      const Tensor by_window = oometer::index(residual, 1, index);
      hidden_states = add(by_window, hidden_states);
    }
    const std::int64_t embed_dim = hidden_states.size(2), count = hidden_states.size(1) / kWindow;
    patch = view(hidden_states, {count, kWindow, embed_dim});
    flat = view(patch, {count, kWindow * embed_dim});
    patch_residual = mean(patch, 1, false);
    hidden_state = pre_norm(flat);
    hidden_state = linear_1(hidden_state);
    hidden_state = activate(Activation::gelu_tanh, hidden_state);
    hidden_state = linear_2(hidden_state);
    hidden_state = unsqueeze(add(hidden_state, patch_residual), 0);
    return call.result(hidden_state);
  }

  static constexpr std::int64_t kSide = MiniCpmVConfig::kMerge, kWindow = kSide * kSide;
  VisionAttention self_attn;
  LayerNorm layer_norm1, pre_norm;
  Linear linear_1, linear_2;
  ModuleId module = 0;
};

struct VisionModel {
  VisionModel() = default;
  VisionModel(const Builder& builder, const MiniCpmVConfig& c, const ModelOptions& options)
      : checkpointing(options.checkpointing),
        attention(options.attention),
        inserted(c.downsamples_16_times ? static_cast<std::size_t>(c.insert_layer_id + 1) : 0),
        module(builder.module) {
    embeddings = VisionEmbeddings(builder.child("embeddings", c.vision.family->embeddings), c.vision);
    embeddings.checkpointing = checkpointing;
    const Builder inner = builder.child("encoder", c.vision.family->encoder);
    encoder = inner.module;
    stack = BlockStack(inner);
    layers.reserve(static_cast<std::size_t>(c.vision.num_hidden_layers));
    for (std::int32_t i = 0; i < c.vision.num_hidden_layers; ++i) {
      layers.emplace_back(inner.child("layers", c.vision.family->encoder_layer, i), c.vision, attention);
      stack.add_block(inner);
    }
    post_layernorm = LayerNorm(builder.child("post_layernorm", "LayerNorm"), c.vision.hidden_size);
    vit_merger = WindowAttentionMerger(builder.child("vit_merger", c.family->window_merger), c.vision, attention);
  }

  Tensor operator()(const Tensor& pixel_values, const TargetSizes& sizes) const {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    Tensor hidden_states = embeddings(pixel_values, sizes);
    PatchSequences sequences = sequences_of(context, sizes);
    ask_max_seqlen(sequences, attention);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], sequences](const Tensor& hidden) { return layer(hidden, sequences); };
    };
    Tensor target_sizes;
    if (inserted > 0) {
      hidden_states = stack.run(0, inserted, std::move(hidden_states), checkpointing, block);
      hidden_states = vit_merger(hidden_states, sizes);
      target_sizes = empty(context, Op::floor_divide, {std::ssize(sizes), 2}, DType::int32);
      sequences = sequences_of(context, halved(sizes));
      hidden_states = stack.run(inserted, layers.size(), std::move(hidden_states), checkpointing, block);
    } else {
      ModuleCall inner(context, encoder);
      hidden_states =
          inner.result(stack.run(0, layers.size(), hidden_states, checkpointing, block, {.positional = true}));
    }
    return call.result(post_layernorm(hidden_states));
  }

  VisionEmbeddings embeddings;
  std::vector<VisionEncoderLayer> layers;
  BlockStack stack;
  LayerNorm post_layernorm;
  WindowAttentionMerger vit_merger;
  CheckpointingConfig checkpointing;
  AttentionKind attention = AttentionKind::sdpa;
  std::size_t inserted = 0;  ///< layers before vit_merger; 0: it is left out
  ModuleId module = 0, encoder = 0;
};

struct DownsampleMLP {
  DownsampleMLP() = default;
  DownsampleMLP(const Builder& builder, std::int64_t hidden_size, std::int64_t llm_embed_dim) : module(builder.module) {
    const std::int64_t merged = MiniCpmVConfig::kMerge * MiniCpmVConfig::kMerge * hidden_size;
    pre_norm = LayerNorm(builder.child("pre_norm", "LayerNorm"), merged);
    linear_1 = Linear(builder.child("linear_1", "Linear"), merged, merged, true);
    linear_2 = Linear(builder.child("linear_2", "Linear"), merged, llm_embed_dim, true);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = pre_norm(call.argument(argument));
    hidden_states = linear_1(hidden_states);
    hidden_states = activate(Activation::gelu, hidden_states);
    return call.result(linear_2(hidden_states));
  }

  LayerNorm pre_norm;
  Linear linear_1, linear_2;
  ModuleId module = 0;
};

struct Merger {
  Merger() = default;
  Merger(const Builder& builder, const MiniCpmVConfig& c)
      : mlp(builder.child("mlp", c.family->downsample_mlp, 0), c.vision.hidden_size, c.text.hidden_size),
        module(builder.module) {}

  TensorList operator()(const Tensor& argument, const TargetSizes& target_sizes) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor hidden_states = call.argument(argument);
    constexpr std::int64_t kMerge = MiniCpmVConfig::kMerge;
    const std::int64_t embed_dim = hidden_states.size(2);
    // The sizes are numbers on the device.
    const auto number = [&](Op op) { return empty(context, op, {}, DType::int32); };
    Tensor hidden_state, merged_w, merged_h, num_patches, start;
    TensorList processed_features;
    std::int64_t begin = 0;
    for (const auto& [height, width] : target_sizes) {
      num_patches = number(Op::mul);
      {
        Tensor rows = number(Op::floor_divide);
        Tensor columns = number(Op::floor_divide);
        merged_h = std::move(rows);
        merged_w = std::move(columns);
      }
      { const Tensor end = number(Op::add); }
      Tensor patches = slice(select(hidden_states, 0, 0), 0, begin, height * width);
      patches = view(patches, {height / kMerge, kMerge, width / kMerge, kMerge, embed_dim});
      patches = permute(patches, {0, 2, 1, 3, 4});
      {
        const Tensor tokens = number(Op::mul);
        hidden_state = reshape(patches, {(height / kMerge) * (width / kMerge), kMerge * kMerge * embed_dim});
      }
      patches.reset();
      hidden_state = mlp(hidden_state);
      if (!start) start = number(Op::add);  // afterwards in place
      begin += height * width;
      processed_features.push_back(hidden_state);
    }
    for (Tensor& features : processed_features) features = call.result(features);
    return processed_features;
  }

  DownsampleMLP mlp;
  ModuleId module = 0;
};

class MiniCpmV : public ImageTextModel {
 public:
  MiniCpmV(Context& context, const MiniCpmVConfig& config, const DataConfig& data, const ModelOptions& options)
      : ImageTextModel(context, config.family->class_name, Modality::none, data, options), config_(config) {
    const Builder model = root_.child("model", config.family->model);
    model_ = model.module;
    vision_tower_ =
        VisionModel(model.child("vision_tower", config.vision.family->model, Modality::vision), config, options);
    DecoderParts parts = qwen3_5_text_parts(config.text, options);
    complete_parts(parts, config.text);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options,
                 std::move(parts));
    language_model_.blocks.first_block = vision_tower_.stack.size();
    merger_ = Merger(model.child("merger", config.family->merger, Modality::projector), config);
    make_head(root_, config.text, config.tie_word_embeddings);
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    ImageTextModel::make_images(batch, images_per_sample);
    if (data_.images() > 0) batch.image_grid_thw = input({data_.all_tiles(), 2}, DType::int32);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    if (config_.family->has_canvas_positions) {
      if (has_images(inputs) && !inputs.position_ids)
        refusal = Error{"not-modelled", "/data",
                        "found images in a batch as a processor makes it (a trainer), for which the model finds "
                        "positions itself; this is not supported yet; expected a batch with position_ids"};
      return ImageTextModel::forward(inputs);
    }
    ModelInputs given = inputs;
    given.logits_to_keep = 0;  // forward does not take it
    return ImageTextModel::forward(given);
  }

 private:
  Shape pixel_sizes() const override {
    const ClipVisionConfig& v = config_.vision;
    return {1, v.num_channels, v.patch_size, checked_product(data_.all_patches(), v.patch_size)};
  }
  std::size_t features_of(std::int64_t) const override { return static_cast<std::size_t>(data_.all_tiles()); }
  bool joins_features() const override { return true; }
  bool gives_features() const override { return false; }

  void complete(ModelInputs& batch) override {
    make_images(batch, data_.images_per_sample);
    if (config_.family->has_canvas_positions && !data_.pixel_dtype)  // as a data collator finds them (get_rope_index)
      batch.position_ids = input({3, data_.micro_batch_size, data_.sequence_length});
  }

  Tensor find_placeholders(const Tensor& input_ids, const Tensor& inputs_embeds,
                           const Tensor& features) const override {
    return checked_placeholder_mask(input_ids, inputs_embeds, features);
  }

  // get_image_features
  ImageFeatures image_features(const ModelInputs& batch) const override {
    TargetSizes sizes;
    for (std::int64_t i = 0; i < data_.images(); ++i)
      for (const auto& size : config_.cut(data_.image(i).image_height, data_.image(i).image_width))
        sizes.push_back(size);
    const Tensor pixel_values = to(batch.pixel_values, vision_tower_.embeddings.patch_embedding.weight.dtype());
    ImageFeatures image;
    image.others.push_back(vision_tower_(pixel_values, sizes));
    Tensor target_sizes;
    if (config_.downsamples_16_times) {
      target_sizes = empty(context_, Op::floor_divide, {std::ssize(sizes), 2}, DType::int32);
      sizes = halved(sizes);
    }
    image.pooler_output = merger_(image.others.front(), sizes);
    return image;
  }

  MiniCpmVConfig config_;
  VisionModel vision_tower_;
  Merger merger_;
};

}  // namespace

std::unique_ptr<Model> build_minicpm_v(Context& context, const MiniCpmVConfig& config, const DataConfig& data,
                                       const ModelOptions& options) {
  return std::make_unique<MiniCpmV>(context, config, data, options);
}

}  // namespace oometer
