#include "models/lfm3_vl/lfm3_vl.h"

#include <optional>
#include <utility>
#include <vector>

#include "models/kit/conv2d.h"
#include "models/kit/packed_images.h"
#include "models/kit/patch_projection.h"
#include "models/kit/recurrent.h"
#include "models/lfm2/lfm2.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

PatchAttention lfm3_vl_attention(const Builder& builder, const Lfm3VlVisionConfig& c, AttentionKind attention) {
  const std::int64_t kv_heads = c.num_key_value_heads;
  PatchAttention its = PatchAttention::apart(builder, c.hidden_size, c.num_attention_heads, attention,
                                             {{"q_proj", &PatchAttention::q_proj, false},
                                              {"k_proj", &PatchAttention::k_proj, false, kv_heads},
                                              {"v_proj", &PatchAttention::v_proj, false, kv_heads},
                                              {"out_proj", &PatchAttention::proj, false}});
  its.q_norm = Norm(builder.child("q_norm", "Lfm3VlVisionRMSNorm"), rms_norm, {its.head_dim});
  its.k_norm = Norm(builder.child("k_norm", "Lfm3VlVisionRMSNorm"), rms_norm, {its.head_dim});
  return its;
}

struct Lfm3VlVisionShortConv {
  Lfm3VlVisionShortConv(const Builder& builder, const Lfm3VlVisionConfig& c)
      : spatial_merge_size(c.spatial_merge_size),
        in_proj(builder.child("in_proj", "Linear"), c.hidden_size, 3 * c.hidden_size, false),
        spatial_conv(
            builder.child("spatial_conv", "Conv2d"), c.hidden_size, c.hidden_size,
            {.kernel = c.conv_kernel_size, .padding = c.conv_kernel_size / 2, .groups = c.hidden_size, .bias = false}),
        out_proj(builder.child("out_proj", "Linear"), c.hidden_size, c.hidden_size, false),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const DataConfig& data) const {
    ModuleCall call(argument.context(), module);
    const Tensor given = call.argument(argument);
    const std::int64_t channels = given.size(1), merge = spatial_merge_size;
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor frames;
    TensorList conv_outputs;
    Tensor gated;
    TensorList chunks;  // input_gate, output_gate, conv_input
    {
      const Tensor projected = in_proj(given);
      chunks = split(projected, {channels, channels, channels}, -1);
    }
    gated = mul(chunks[0], chunks[2]);
    {
      const TensorList pieces =
          split(gated, data.of_each_image([](const ImageShape& one) { return one.patches(); }), 0);
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const ImageShape& image = data.image(static_cast<std::int64_t>(i));
        const std::int64_t temporal = image.grid_t, height = image.grid_h, width = image.grid_w;
        frames = view(pieces[i], {temporal, height / merge, width / merge, merge, merge, channels});
        frames = reshape(permute(frames, {0, 5, 1, 3, 2, 4}), {temporal, channels, height, width});
        frames = spatial_conv(frames);
        frames = view(frames, {temporal, channels, height / merge, merge, width / merge, merge});
        conv_outputs.push_back(reshape(permute(frames, {0, 2, 4, 3, 5, 1}), {temporal * height * width, channels}));
      }
    }
    Tensor hidden_states = cat(conv_outputs, 0);
    hidden_states = mul(chunks[1], hidden_states);
    return call.result(out_proj(hidden_states));
  }

  std::int64_t spatial_merge_size;
  Linear in_proj;
  AnyConv2d spatial_conv;
  Linear out_proj;
  ModuleId module;
};

struct Lfm3VlVisionLayer {
  Lfm3VlVisionLayer(const Builder& builder, const Lfm3VlVisionConfig& c, const ModelOptions& options, bool attends)
      : module(builder.module) {
    if (attends)
      self_attn = lfm3_vl_attention(builder.child("self_attn", "Lfm3VlVisionAttention"), c, options.attention);
    else
      conv.emplace(builder.child("conv", "Lfm3VlVisionShortConv"), c);
    feed_forward.emplace(builder.child("feed_forward", "Lfm3VlVisionMLP"), c.hidden_size, c.intermediate_size);
    const auto norm = [&](const char* name) {
      return Norm(builder.child(name, "Lfm3VlVisionRMSNorm"), rms_norm, {c.hidden_size});
    };
    operator_norm = norm("operator_norm");
    ffn_norm = norm("ffn_norm");
  }

  Tensor operator()(const Tensor& residual, const PatchSequences& sequences, const PositionEmbeddings& positions,
                    const DataConfig& data) const {
    const ModuleScope scope(residual.context(), module);
    TensorList attn_weights;  // `_`
    Tensor hidden_states;
    {
      const Tensor normalised = operator_norm(residual);
      hidden_states = conv ? (*conv)(normalised, data) : (*self_attn)(normalised, sequences, positions, &attn_weights);
    }
    hidden_states = add(hidden_states, residual);
    Tensor transformed;
    {
      const Tensor normalised = ffn_norm(hidden_states);
      transformed = (*feed_forward)(normalised);
    }
    hidden_states = add(hidden_states, transformed);
    return hidden_states;
  }

  std::optional<PatchAttention> self_attn;
  std::optional<Lfm3VlVisionShortConv> conv;
  std::optional<Lfm2MLP> feed_forward;
  Norm operator_norm, ffn_norm;
  ModuleId module;
};

struct Lfm3VlVisionModel {
  Lfm3VlVisionModel() = default;
  Lfm3VlVisionModel(const Builder& builder, const Lfm3VlVisionConfig& c, const ModelOptions& options)
      : attends(c.attends),
        attention(options.attention),
        checkpointing(options.checkpointing),
        patch_embed(builder.child("patch_embed", "Linear"), c.patch_elements(), c.hidden_size, false),
        module(builder.module) {
    LlamaConfig half;  // compute_axial_rope_parameters: frequencies of half a head
    half.head_dim = c.hidden_size / c.num_attention_heads / 2;
    rotary_pos_emb = LlamaRotaryEmbedding(builder.child("rotary_pos_emb", "Lfm3VlVisionRotaryEmbedding"), half);
    embedding_norm = Norm(builder.child("embedding_norm", "Lfm3VlVisionRMSNorm"), rms_norm, {c.hidden_size});
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    stack = BlockStack(builder);
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(builder.child("layers", kLfm3VlVisionLayer, i), c, options,
                          c.attends[static_cast<std::size_t>(i)]);
      stack.add_block(builder);
    }
  }

  Tensor operator()(const Tensor& pixel_values, const DataConfig& data) const {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    const Tensor pixels = call.argument(pixel_values);
    if (pixels.dtype() != patch_embed.weight.dtype() && !patch_embed.quantized && !context.autocast.enabled)
      context.refusal = Error{"inconsistent", "/training/precision",
                              "found weights of another type than the processor's float32 images, which this class "
                              "gives to a layer as they are: expected autocast, or float32"};
    const Tensor position_ids = vision_position_ids(context, data);
    const PatchSequences sequences = frames_of(context, data, attention);
    Tensor hidden_states = project_patches(patch_embed, pixels, checkpointing);
    hidden_states = embedding_norm(hidden_states);
    const PositionEmbeddings positions = vision_rotary(rotary_pos_emb, position_ids);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], sequences, positions = cast_forward_input(positions, layers[i].module),
              &data](const Tensor& hidden) { return layer(hidden, sequences, positions, data); };
    };
    hidden_states = stack.run(0, layers.size(), std::move(hidden_states), checkpointing, block,
                              {.kind = [&](std::size_t i) { return int{attends[i]}; }});
    return call.result(hidden_states);
  }

  std::vector<bool> attends;
  AttentionKind attention = AttentionKind::sdpa;
  CheckpointingConfig checkpointing;
  Linear patch_embed;
  LlamaRotaryEmbedding rotary_pos_emb;
  Norm embedding_norm;
  std::vector<Lfm3VlVisionLayer> layers;
  BlockStack stack;
  ModuleId module = 0;
};

struct Lfm3VlMultiModalProjector {
  Lfm3VlMultiModalProjector() = default;
  Lfm3VlMultiModalProjector(const Builder& builder, const Lfm3VlConfig& c)
      : merged_hidden_size(c.merged_size()),
        layer_norm(builder.child("layer_norm", "LayerNorm"), c.vision.hidden_size),
        linear_1(builder.child("linear_1", "Linear"), c.merged_size(), c.projector_hidden_size, c.projector_bias),
        act(c.projector_hidden_act),
        linear_2(builder.child("linear_2", "Linear"), c.projector_hidden_size, c.text.hidden_size, c.projector_bias),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = layer_norm(call.argument(argument));
    hidden_states = view(hidden_states, {hidden_states.numel() / merged_hidden_size, merged_hidden_size});
    hidden_states = linear_1(hidden_states);
    hidden_states = activate(act, hidden_states);
    return call.result(linear_2(hidden_states));
  }

  std::int64_t merged_hidden_size = 0;
  LayerNorm layer_norm;
  Linear linear_1;
  Activation act = Activation::gelu;
  Linear linear_2;
  ModuleId module = 0;
};

// Lfm3VlForConditionalGeneration
class Lfm3Vl : public PackedImageModel {
 public:
  Lfm3Vl(Context& context, const Lfm3VlConfig& config, const DataConfig& data, const ModelOptions& options)
      : PackedImageModel(context, kLfm3Vl, data, options), patch_elements_(config.vision.patch_elements()) {
    accepts_loss_kwargs = true;  // the class does not say otherwise, its model does
    const Builder model = root_.child("model", "Lfm3VlModel");
    model_ = model.module;
    DecoderParts parts = lfm3_text_parts(config.text, options);
    complete_parts(parts, config.text);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options,
                 std::move(parts));
    vision_tower_ =
        Lfm3VlVisionModel(model.child("vision_tower", "Lfm3VlVisionModel", Modality::vision), config.vision, options);
    vision_tower_.stack.first_block = language_model_.blocks.size();
    multi_modal_projector_ = Lfm3VlMultiModalProjector(
        model.child("multi_modal_projector", "Lfm3VlMultiModalProjector", Modality::projector), config);
    make_head(root_, config.text, config.tie_word_embeddings);
  }

 private:
  Shape pixel_sizes() const override { return {data_.all_patches(), patch_elements_}; }
  bool masks_images() const override { return false; }
  bool gives_features() const override { return true; }

  GridOutputs image_features(const Tensor& pixel_values) const override {
    GridOutputs outputs;
    outputs.last_hidden_state = vision_tower_(pixel_values, data_);
    outputs.pooler_output = multi_modal_projector_(outputs.last_hidden_state);
    return outputs;
  }

  std::int64_t patch_elements_;
  Lfm3VlVisionModel vision_tower_;
  Lfm3VlMultiModalProjector multi_modal_projector_;
};

}  // namespace

std::unique_ptr<Model> build_lfm3_vl(Context& context, const Lfm3VlConfig& config, const DataConfig& data,
                                     const ModelOptions& options) {
  return std::make_unique<Lfm3Vl>(context, config, data, options);
}

}  // namespace oometer
