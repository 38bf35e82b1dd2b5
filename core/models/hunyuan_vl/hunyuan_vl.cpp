#include "models/hunyuan_vl/hunyuan_vl.h"

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "models/clip/clip.h"
#include "models/hunyuan_v1_dense/hunyuan_v1_dense.h"
#include "models/kit/conv2d.h"
#include "models/kit/grids.h"
#include "models/kit/image_text.h"
#include "models/kit/recurrent.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/integers.h"
#include "ops/ops.h"
#include "ops/upsample.h"

namespace oometer {

namespace {

struct VisionPatchEmbed {
  VisionPatchEmbed() = default;
  VisionPatchEmbed(const Builder& builder, const HunyuanVlConfig& c)
      : vision(c.vision),
        side(c.side()),
        patch_embedding(builder.child("patch_embedding", "Conv2d"), c.vision.num_channels, c.vision.hidden_size,
                        c.vision.patch_size, true),
        position_embedding(builder.child("position_embedding", "Embedding"), side * side + 1, c.vision.hidden_size),
        module(builder.module) {}

  Tensor interpolate_pos_encoding(DType dtype, std::int64_t height, std::int64_t width) const {
    const std::int64_t embed_dim = vision.hidden_size;
    Tensor patch_pos_embed = view(slice(position_embedding.weight, 0, 1, side * side), {1, side, side, embed_dim});
    patch_pos_embed = to(permute(patch_pos_embed, {0, 3, 1, 2}), DType::float32);
    patch_pos_embed = upsample_bilinear2d(patch_pos_embed, height, width);
    return to(reshape(permute(patch_pos_embed, {0, 2, 3, 1}), {1, height * width, embed_dim}), dtype);
  }

  Tensor operator()(const Tensor& argument, const DataConfig& data) const {
    ModuleCall call(argument.context(), module);
    const Tensor given = call.argument(argument);
    const std::int64_t patches = given.size(0), size = vision.patch_size;
    const Tensor pixel_values = view(given, {patches, vision.num_channels, size, size});
    Tensor patch_embeds;
    {
      const Tensor typed = to(pixel_values, patch_embedding.weight.dtype());
      patch_embeds = patch_embedding(typed);
    }
    const Tensor embeddings = view(patch_embeds, {patches, vision.hidden_size});
    TensorList position_embeddings_list;
    for (std::int64_t i = 0; i < data.images(); ++i) {
      const ImageShape& image = data.image(i);
      const Tensor positions = interpolate_pos_encoding(embeddings.dtype(), image.grid_h, image.grid_w);
      position_embeddings_list.push_back(clone(view(positions, {positions.size(1), vision.hidden_size})));  // repeat
    }
    const Tensor position_embeddings = cat(position_embeddings_list, 0);
    return call.result(unsqueeze(add(embeddings, position_embeddings), 0));
  }

  ClipVisionConfig vision;
  std::int64_t side = 0;
  Conv2d patch_embedding;
  Embedding position_embedding;
  ModuleId module = 0;
};

struct VisionBlock {
  VisionBlock(const Builder& builder, const ClipLayerConfig& c)
      : layer_norm1(builder.child("layer_norm1", "LayerNorm"), c.hidden_size),
        self_attn(PatchAttention::apart(builder.child("self_attn", c.family->attention), c.hidden_size,
                                        c.num_attention_heads, c.call.kind,
                                        {{"q_proj", &PatchAttention::q_proj},
                                         {"k_proj", &PatchAttention::k_proj},
                                         {"v_proj", &PatchAttention::v_proj},
                                         {"o_proj", &PatchAttention::proj}})),
        layer_norm2(builder.child("layer_norm2", "LayerNorm"), c.hidden_size),
        mlp(builder.child("mlp", c.family->mlp), c),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const PatchSequences& sequences) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in;
    Tensor hidden_states = layer_norm1(hidden_in);
    const Shape& sizes = hidden_in.sizes();
    hidden_states = view(self_attn(view(hidden_states, {sizes[1], sizes[2]}), sequences, {}), sizes);
    hidden_states = add(residual, hidden_states);
    residual = hidden_states;
    hidden_states = layer_norm2(hidden_states);
    hidden_states = mlp(hidden_states);
    return add(residual, hidden_states);
  }

  LayerNorm layer_norm1;
  PatchAttention self_attn;
  LayerNorm layer_norm2;
  ClipMLP mlp;
  ModuleId module;
};

struct VisionPatchMerger {
  VisionPatchMerger() = default;
  VisionPatchMerger(const Builder& builder, const HunyuanVlConfig& c)
      : act(c.vision.hidden_act),
        proj_conv(builder.child("proj_conv", "Conv2d"), c.vision.hidden_size, 2 * c.vision.hidden_size,
                  {.kernel = c.spatial_merge_size, .stride = c.spatial_merge_size}),
        proj_out(builder.child("proj_out", "Conv2d"), 2 * c.vision.hidden_size, 4 * c.vision.hidden_size, {}),
        mlp(builder.child("mlp", "Linear"), 4 * c.vision.hidden_size, c.text.hidden_size, true),
        module(builder.module) {
    builder.children_are_through();
    image_newline = builder.parameter("image_newline", {4 * c.vision.hidden_size});
    image_begin = builder.parameter("image_begin", {c.text.hidden_size});
    image_end = builder.parameter("image_end", {c.text.hidden_size});
    image_sep = builder.parameter("image_sep", {c.text.hidden_size});
    before_rms = LlamaRMSNorm(builder.child("before_rms", c.text.names->rms_norm), c.vision.hidden_size);
    after_rms = LlamaRMSNorm(builder.child("after_rms", c.text.names->rms_norm), c.text.hidden_size);
  }

  Tensor operator()(const Tensor& argument, std::int64_t height, std::int64_t width) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    Tensor hidden_states = before_rms(call.argument(argument));
    const DType dtype = hidden_states.dtype();
    hidden_states = permute(hidden_states, {0, 2, 1});
    hidden_states = reshape(hidden_states, {hidden_states.size(0), hidden_states.size(1), height, width});
    hidden_states = proj_conv(hidden_states);
    hidden_states = activate(act, hidden_states);
    hidden_states = proj_out(hidden_states);
    const std::int64_t channels = hidden_states.size(1), rows = hidden_states.size(2), columns = hidden_states.size(3);
    {
      const Tensor newline = to(expand(view(image_newline, {1, channels, 1, 1}), {1, channels, rows, 1}), dtype);
      hidden_states = cat({hidden_states, newline}, -1);
    }
    hidden_states = permute(reshape(hidden_states, {1, channels, rows * (columns + 1)}), {0, 2, 1});
    hidden_states = mlp(hidden_states);
    const auto mark = [&](const Tensor& parameter) { return to(view(parameter, {1, 1, parameter.size(0)}), dtype); };
    const Tensor begin = mark(image_begin), end = mark(image_end);
    hidden_states = cat({begin, hidden_states, end}, 1);
    return call.result(after_rms(hidden_states));
  }

  Activation act = Activation::gelu;
  AnyConv2d proj_conv, proj_out;
  Linear mlp;
  LlamaRMSNorm before_rms, after_rms;
  Tensor image_newline, image_begin, image_end, image_sep;
  ModuleId module = 0;
};

struct VisionTransformer {
  VisionTransformer() = default;
  VisionTransformer(const Builder& builder, const HunyuanVlConfig& c, const ModelOptions& options)
      : checkpointing(options.checkpointing),
        embeddings(builder.child("embeddings", c.vision.family->embeddings), c),
        stack(builder),
        module(builder.module) {
    const ClipLayerConfig sizes = vision_layers(c.vision, options.attention);
    layers.reserve(static_cast<std::size_t>(c.vision.num_hidden_layers));
    for (std::int32_t i = 0; i < c.vision.num_hidden_layers; ++i) {
      layers.emplace_back(builder.child("layers", c.vision.family->encoder_layer, i), sizes);
      stack.add_block(builder);
    }
    patch_merger = VisionPatchMerger(builder.child("patch_merger", "HunYuanVLVisionPatchMerger"), c);
  }

  GridOutputs operator()(const Tensor& argument, const DataConfig& data) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    Tensor hidden_states = embeddings(call.argument(argument), data);
    const PatchSequences sequences = frames_of(context, data, layers.front().self_attn.call.kind);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], sequences](const Tensor& hidden) { return layer(hidden, sequences); };
    };
    hidden_states = stack.run(0, layers.size(), std::move(hidden_states), checkpointing, block);
    std::vector<std::int64_t> split_sizes;
    for (std::int64_t i = 0; i < data.images(); ++i) split_sizes.push_back(data.image(i).patches());
    { const Tensor of_images = integers(context, Op::mul, {data.images()}); }
    const TensorList split_items = split(hidden_states, split_sizes, 1);
    TensorList processed_items;
    for (std::size_t i = 0; i < split_items.size(); ++i) {
      const ImageShape& image = data.image(static_cast<std::int64_t>(i));
      processed_items.push_back(patch_merger(split_items[i], image.grid_h, image.grid_w));
    }
    const Tensor image_features = cat(processed_items, 1);
    return {call.result(hidden_states), call.result(image_features)};
  }

  CheckpointingConfig checkpointing;
  VisionPatchEmbed embeddings;
  std::vector<VisionBlock> layers;
  BlockStack stack;
  VisionPatchMerger patch_merger;
  ModuleId module = 0;
};

// HunYuanVLRotaryEmbedding.forward: of the angles of all axes each section takes one's.
PositionEmbeddings rotary(const LlamaRotaryEmbedding& rotary_emb, const Tensor& given, std::int64_t axes, DType dtype) {
  Context& context = given.context();
  ModuleCall call(context, rotary_emb.module);
  const NoGrad no_grad(context);
  const int last = given.ndim() - 1;
  const Tensor of_one = given.ndim() == 2 ? unsqueeze(given, 0) : slice(given, 0, 0, 1);
  const Tensor position_ids = expand(of_one, {axes, given.size(last - 1), given.size(last)});
  Tensor cos, sin;  // they go after freqs, cos first
  Tensor freqs = rotary_angles(position_ids, rotary_emb.inv_freq);
  const auto of = [&](Op op) {
    const Tensor values = pointwise(op, {&freqs}, DType::float32);
    return mul_scalar(values);
  };
  cos = of(Op::cos);
  sin = of(Op::sin);
  const auto recomposition_frequencies = [&](const Tensor& freq) {
    const Tensor both = cat({freq, freq}, -1);
    return empty(context, Op::cat, select(both, 0, 0).sizes(), DType::float32);
  };
  sin = recomposition_frequencies(sin);
  cos = recomposition_frequencies(cos);
  PositionEmbeddings result{to(cos, dtype), to(sin, dtype)};
  freqs.reset();
  cos.reset();
  return {call.result(result.cos), call.result(result.sin)};
}

// apply_rotary_pos_emb, in float32
std::pair<Tensor, Tensor> rotate_in_float32(const Tensor& q_in, const Tensor& k_in,
                                            const PositionEmbeddings& positions) {
  const Tensor q = to(q_in, DType::float32), k = to(k_in, DType::float32);
  const Tensor cos = to(unsqueeze(positions.cos, 1), DType::float32),
               sin = to(unsqueeze(positions.sin, 1), DType::float32);
  const Tensor q_embed = rotate(q, cos, sin), k_embed = rotate(k, cos, sin);
  return {to(q_embed, q_in.dtype()), to(k_embed, k_in.dtype())};
}

// HunYuanVLDenseV1DecoderLayer. Its attention is not told the positions.
DecoderParts text_parts(const HunyuanVlConfig& config, const ModelOptions& options) {
  DecoderParts parts =
      parts_of(config.text, options,
               [](const Builder& builder, const TextConfig& c, const ModelOptions& of,
                  std::size_t) -> std::unique_ptr<DecoderLayer> {
                 AttentionParts its = hunyuan_attention(*c.names);
                 its.rotate = rotate_in_float32;
                 auto layer = pre_norm_layer(builder, c, of, its);
                 layer->self_attn = [attend = layer->self_attn](
                                        const Tensor& hidden, const PositionEmbeddings& positions, const Tensor& mask) {
                   PositionEmbeddings angles = positions;
                   angles.position_ids = {};
                   return attend(hidden, angles, mask);
                 };
                 return layer;
               });
  parts.rotary = [axes = config.axes](const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids, DType dtype) {
    return rotary(rotary_emb, position_ids, axes, dtype);
  };
  parts.masks_know_positions = false;
  parts.positions_by_sample = true;
  complete_parts(parts, config.text);
  return parts;
}

class HunyuanVl : public ImageTextModel {
 public:
  HunyuanVl(Context& context, const HunyuanVlConfig& config, const DataConfig& data, const ModelOptions& options)
      : ImageTextModel(context, config.text.names->causal_lm, Modality::none, data, options), config_(config) {
    const Builder model = root_.child("model", "HunYuanVLModel");
    model_ = model.module;
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options,
                 text_parts(config, options));
    vision_tower_ =
        VisionTransformer(model.child("vision_tower", config.vision.family->model, Modality::vision), config, options);
    vision_tower_.stack.first_block = language_model_.layers.size();
    make_head(root_, config.text, config.tie_word_embeddings);
  }

  /// Its outputs have no features of images, which those of the model in it have.
  ModelOutputs forward(const ModelInputs& inputs) override {
    ModelOutputs outputs = ImageTextModel::forward(inputs);
    if (has_images(inputs)) outputs.others.pop_back();
    return outputs;
  }

  /// With positions, as get_rope_index makes them in a data collator; a processor's own batch has none.
  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    data_.images_per_sample = images_per_sample;
    if (!data_.pixel_dtype) batch.position_ids = input({config_.axes, data_.micro_batch_size, data_.sequence_length});
    if (data_.images() == 0) return;
    if (data_.pixel_dtype) batch.mm_token_type_ids = input({data_.micro_batch_size, data_.sequence_length});
    batch.pixel_values = input(pixel_sizes(), data_.pixel_dtype.value_or(dtype_));
    batch.image_grid_thw = input({data_.images(), 3});
  }

 private:
  Shape pixel_sizes() const override {
    const ClipVisionConfig& v = config_.vision;
    return {data_.all_patches(), v.num_channels * v.patch_size * v.patch_size};
  }
  std::size_t features_of(std::int64_t images) const override { return static_cast<std::size_t>(images); }
  bool joins_features() const override { return true; }
  Tensor find_placeholders(const Tensor& input_ids, const Tensor& inputs_embeds,
                           const Tensor& features) const override {
    return checked_placeholder_mask(input_ids, inputs_embeds, features);
  }

  // get_image_features
  ImageFeatures image_features(const ModelInputs& batch) const override {
    const Tensor pixel_values = to(batch.pixel_values, vision_tower_.embeddings.patch_embedding.weight.dtype());
    const GridOutputs outputs = vision_tower_(pixel_values, data_);
    const std::int64_t images = data_.images();
    {
      const Tensor merged = integers(context_, Op::floor_divide, {images, 2});
      const Tensor split_sizes = [&] {
        const Tensor with_ends = integers(context_, Op::add, {images});
        return integers(context_, Op::mul, {images});
      }();
      const Tensor with_marks = integers(context_, Op::add, {images});
    }
    std::vector<std::int64_t> sizes;
    for (std::int64_t i = 0; i < images; ++i) sizes.push_back(config_.tokens(data_.image(i)));
    return {split(select(outputs.pooler_output, 0, 0), sizes, 0), {outputs.last_hidden_state}};
  }

  // compute_3d_position_ids; without images the text model makes its own.
  Tensor run_language(const Tensor& inputs_embeds, const ModelInputs& inputs) const override {
    ModelInputs positioned = inputs;
    if (!inputs.position_ids && inputs.mm_token_type_ids) positioned.position_ids = rope_index(inputs);
    // Four axes are not those of a text and three more: the layers are not told them.
    if (positioned.position_ids && positioned.position_ids.ndim() == 3)
      positioned.position_ids = slice(positioned.position_ids, 0, 0, 3);
    return ImageTextModel::run_language(inputs_embeds, positioned);
  }

  // get_vision_position_ids: a token more a row of the merged grid, which ends it.
  Tensor vision_position_ids(const ImageShape& image) const {
    const std::int64_t height = image.grid_h / config_.spatial_merge_size,
                       width = image.grid_w / config_.spatial_merge_size + 1;
    const Tensor rows = integers(context_, Op::arange, {height}), columns = integers(context_, Op::arange, {width});
    const Tensor position_width = integers(context_, Op::clone, {height * width}),
                 position_height = integers(context_, Op::clone, {height * width});
    return integers(context_, Op::stack, {2, height * width});
  }

  // get_rope_index
  Tensor rope_index(const ModelInputs& inputs) const {
    const std::int64_t batch = inputs.input_ids.size(0), length = inputs.input_ids.size(1);
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor of_image, current_position_ids, valid_token_mask, input_token_type, current_input_ids;
    TensorList rope_deltas;
    Tensor position_ids = integers(context_, Op::zeros, {config_.axes, batch, length});
    std::int64_t image = 0;
    for (std::int64_t row = 0; row < batch; ++row) {
      std::int64_t tokens = length;
      current_input_ids.reset();  // the row's own is a view
      input_token_type.reset();
      valid_token_mask.reset();
      if (inputs.attention_mask) {
        if (inputs.rows && !inputs.rows->documents.empty()) {
          const std::vector<std::int64_t>& documents = inputs.rows->documents[static_cast<std::size_t>(row)];
          tokens = std::accumulate(documents.begin(), documents.end(), std::int64_t{0});
        }
        valid_token_mask = empty(context_, Op::to_copy, {length}, DType::boolean);
        current_input_ids = index_mask(select(inputs.input_ids, 0, row), valid_token_mask, tokens);
        input_token_type = index_mask(select(inputs.mm_token_type_ids, 0, row), valid_token_mask, tokens);
      }
      current_position_ids = integers(context_, Op::arange, {tokens});
      current_position_ids = integers(context_, Op::clone, {config_.axes, tokens});
      for (std::int64_t i = 0; i < data_.images_per_sample; ++i) of_image = vision_position_ids(data_.image(image++));
      if (valid_token_mask) const Tensor where = nonzero(valid_token_mask, tokens);
      Tensor delta = integers(context_, Op::max, {});
      delta = integers(context_, Op::add, {});
      delta = integers(context_, Op::sub, {});
      rope_deltas.push_back(std::move(delta));
    }
    rope_deltas_ = integers(context_, Op::to_copy, {batch});
    return position_ids;
  }

  HunyuanVlConfig config_;
  VisionTransformer vision_tower_;
  mutable Tensor rope_deltas_;  ///< the model's, until it finds others
};

}  // namespace

std::unique_ptr<Model> build_hunyuan_vl(Context& context, const HunyuanVlConfig& config, const DataConfig& data,
                                        const ModelOptions& options) {
  return std::make_unique<HunyuanVl>(context, config, data, options);
}

}  // namespace oometer
