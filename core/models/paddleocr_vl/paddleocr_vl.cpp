#include "models/paddleocr_vl/paddleocr_vl.h"

#include <utility>
#include <vector>

#include "models/clip/clip.h"
#include "models/kit/grids.h"
#include "models/kit/image_text.h"
#include "models/kit/interpolation.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/integers.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

struct PaddleOCRVisionEmbeddings {
  PaddleOCRVisionEmbeddings() = default;
  PaddleOCRVisionEmbeddings(const Builder& builder, const PaddleOcrVlConfig& c)
      : patch_embedding(builder.child("patch_embedding", "Conv2d"), c.vision.num_channels, c.vision.hidden_size,
                        c.vision.patch_size, true),
        position_embedding(builder.child("position_embedding", "Embedding"), c.side() * c.side(), c.vision.hidden_size),
        position_ids(builder.buffer({1, c.side() * c.side()}, DType::int64)),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const DataConfig& data) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor pixel_values = call.argument(argument);
    if (context.modules) context.modules->read(patch_embedding.weight);  // `target_dtype`
    const Tensor patch_embeds = patch_embedding(to(pixel_values, patch_embedding.weight.dtype()));
    const Tensor embeddings = view(patch_embeds, {patch_embeds.size(0), patch_embeds.size(1)});
    const Interpolation interp = interpolation(context, data, {});
    Tensor pos_embeds;
    {
      Tensor mixed = position_embedding(interp.indices);
      mixed = mul(mixed, unsqueeze(interp.weights, -1));
      pos_embeds = sum(mixed, {1}, false);
    }
    const Tensor typed = to(pos_embeds, embeddings.dtype());
    return call.result(add(embeddings, typed));
  }

  Conv2d patch_embedding;
  Embedding position_embedding;
  Tensor position_ids;
  ModuleId module = 0;
};

struct PaddleOCRVisionEncoderLayer {
  PaddleOCRVisionEncoderLayer(const Builder& builder, const ClipLayerConfig& c)
      : layer_norm1(builder.child("layer_norm1", "LayerNorm"), c.hidden_size),
        self_attn(PatchAttention::apart(builder.child("self_attn", c.family->attention), c.hidden_size,
                                        c.num_attention_heads, c.call.kind,
                                        {{"k_proj", &PatchAttention::k_proj},
                                         {"v_proj", &PatchAttention::v_proj},
                                         {"q_proj", &PatchAttention::q_proj},
                                         {"out_proj", &PatchAttention::proj}})),
        layer_norm2(builder.child("layer_norm2", "LayerNorm"), c.hidden_size),
        mlp(builder.child("mlp", c.family->mlp), c),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const PatchSequences& sequences,
                    const PositionEmbeddings& positions) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in;
    Tensor hidden_states = layer_norm1(hidden_in);
    TensorList attn_weights;  // they stay in `_` until the layer returns
    hidden_states = self_attn(hidden_states, sequences, positions, &attn_weights);
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

struct PaddleOCRVisionEncoder {
  PaddleOCRVisionEncoder() = default;
  PaddleOCRVisionEncoder(const Builder& builder, const PaddleOcrVlConfig& c, const ModelOptions& options)
      : checkpointing(options.checkpointing), stack(builder), module(builder.module) {
    const ClipLayerConfig sizes = vision_layers(c.vision, options.attention);
    layers.reserve(static_cast<std::size_t>(c.vision.num_hidden_layers));
    for (std::int32_t i = 0; i < c.vision.num_hidden_layers; ++i) {
      layers.emplace_back(builder.child("layers", c.vision.family->encoder_layer, i), sizes);
      stack.add_block(builder);
    }
    LlamaConfig half;  // compute_axial_rope_parameters: frequencies of half a head
    half.head_dim = c.vision.hidden_size / c.vision.num_attention_heads / 2;
    rotary_pos_emb = LlamaRotaryEmbedding(builder.child("rotary_pos_emb", "PaddleOCRVisionRotaryEmbedding"), half);
  }

  Tensor operator()(const Tensor& inputs_embeds, const DataConfig& data) const {
    Context& context = inputs_embeds.context();
    ModuleCall call(context, module);
    const Tensor position_ids = vision_position_ids(context, data);
    const PatchSequences sequences = frames_of(context, data, layers.front().self_attn.call.kind);
    const PositionEmbeddings positions = vision_rotary(rotary_pos_emb, position_ids);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], sequences, positions = cast_forward_input(positions, layers[i].module)](
                 const Tensor& hidden) { return layer(hidden, sequences, positions); };
    };
    return call.result(stack.run(0, layers.size(), inputs_embeds, checkpointing, block));
  }

  CheckpointingConfig checkpointing;
  std::vector<PaddleOCRVisionEncoderLayer> layers;
  BlockStack stack;
  LlamaRotaryEmbedding rotary_pos_emb;
  ModuleId module = 0;
};

/// And PaddleOCRVisionTransformer, which it calls.
struct PaddleOCRVisionModel {
  PaddleOCRVisionModel() = default;
  PaddleOCRVisionModel(const Builder& builder, const PaddleOcrVlConfig& c, const ModelOptions& options)
      : module(builder.module) {
    const Builder transformer = builder.child("vision_model", "PaddleOCRVisionTransformer");
    vision_model = transformer.module;
    embeddings = PaddleOCRVisionEmbeddings(transformer.child("embeddings", c.vision.family->embeddings), c);
    encoder = PaddleOCRVisionEncoder(transformer.child("encoder", c.vision.family->encoder), c, options);
    post_layernorm = LayerNorm(transformer.child("post_layernorm", "LayerNorm"), c.vision.hidden_size);
  }

  Tensor operator()(const Tensor& argument, const DataConfig& data) const {
    ModuleCall call(argument.context(), module);
    ModuleCall inner(argument.context(), vision_model);
    const Tensor hidden_states = embeddings(inner.argument(call.argument(argument)), data);
    const Tensor encoded = encoder(hidden_states, data);
    const Tensor last_hidden_state = post_layernorm(encoded);
    return call.result(inner.result(last_hidden_state));
  }

  PaddleOCRVisionEmbeddings embeddings;
  PaddleOCRVisionEncoder encoder;
  LayerNorm post_layernorm;
  ModuleId module = 0, vision_model = 0;
};

struct PaddleOCRProjector {
  PaddleOCRProjector() = default;
  PaddleOCRProjector(const Builder& builder, const PaddleOcrVlConfig& c)
      : merge_size(c.spatial_merge_size),
        pre_norm(builder.child("pre_norm", "LayerNorm"), c.vision.hidden_size),
        linear_1(builder.child("linear_1", "Linear"), c.merged_size(), c.merged_size(), true),
        act(builder.child("act", "GELUActivation").module),
        linear_2(builder.child("linear_2", "Linear"), c.merged_size(), c.text.hidden_size, true),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const DataConfig& data) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor image_features = call.argument(argument);
    const auto number = [&](Op op) { return integers(context, op, {}); };
    std::vector<std::int64_t> patches;
    for (std::int64_t i = 0; i < data.images(); ++i) patches.push_back(data.image(i).patches());
    { const Tensor of_images = integers(context, Op::mul, {data.images()}); }
    const TensorList image_features_chunks = split(image_features, patches, 0);
    TensorList processed_features;
    Tensor hidden_states, w_block, h_block, image_feature;
    for (std::size_t i = 0; i < image_features_chunks.size(); ++i) {
      const ImageShape& image = data.image(static_cast<std::int64_t>(i));
      const std::int64_t t = image.grid_t, rows = image.grid_h / merge_size, columns = image.grid_w / merge_size,
                         d = image_features.size(1);
      image_feature = image_features_chunks[i];  // the loop's name
      image_feature = pre_norm(image_feature);
      h_block = number(Op::floor_divide);
      w_block = number(Op::floor_divide);
      image_feature = transpose(view(image_feature, {t, rows, merge_size, columns, merge_size, d}), 2, 3);
      {
        const Tensor tokens = [&] {
          const Tensor of_frame = number(Op::mul);
          return number(Op::mul);
        }();
        image_feature = reshape(image_feature, {t * rows * columns, merge_size * merge_size * d});
      }
      hidden_states = linear_1(image_feature);
      {
        const ModuleScope scope(context, act);
        hidden_states = activate(Activation::gelu, hidden_states);
      }
      hidden_states = linear_2(hidden_states);
      processed_features.push_back(hidden_states);
    }
    return call.result(cat(processed_features, 0));
  }

  std::int64_t merge_size = 2;
  LayerNorm pre_norm;
  Linear linear_1;
  ModuleId act = 0;
  Linear linear_2;
  ModuleId module = 0;
};

class PaddleOcrVl : public GridLanguageModel {
 public:
  PaddleOcrVl(Context& context, const PaddleOcrVlConfig& c, const DataConfig& data, const ModelOptions& options)
      : GridLanguageModel(context, c.text.names->causal_lm, data, options,
                          c.vision.num_channels * c.vision.patch_size * c.vision.patch_size, false),
        vision_(c.vision) {
    accepts_loss_kwargs = true;  // PaddleOCRVLModel alone says that it does not
    const Builder model = root_.child("model", "PaddleOCRVLModel");
    model_ = model.module;
    visual_ = PaddleOCRVisionModel(model.child("visual", c.vision.family->model, Modality::vision), c, options);
    make_decoder(model.child("language_model", c.text.names->model, Modality::language), c.text, options);
    projector_ = PaddleOCRProjector(model.child("projector", "PaddleOCRProjector", Modality::projector), c);
    language_model_.blocks.first_block = visual_.encoder.stack.size();
    make_head(root_, c.text, c.tie_word_embeddings);
  }

 private:
  GridOutputs run_tower(const Tensor& pixel_values) const override {
    const Tensor patches =
        view(pixel_values, {pixel_values.size(0), vision_.num_channels, vision_.patch_size, vision_.patch_size});
    Tensor image_embeds = visual_(patches, data_);
    Tensor projected = projector_(image_embeds, data_);
    return {std::move(image_embeds), std::move(projected), {}};
  }
  const Tensor& first_of_tower() const override { return visual_.embeddings.patch_embedding.weight; }
  Tensor find_placeholders(const Tensor& input_ids, Tensor&, bool) const override {
    return placeholder_mask(input_ids);
  }

  ClipVisionConfig vision_;
  PaddleOCRVisionModel visual_;
  PaddleOCRProjector projector_;
};

}  // namespace

std::unique_ptr<Model> build_paddleocr_vl(Context& context, const PaddleOcrVlConfig& config, const DataConfig& data,
                                          const ModelOptions& options) {
  return std::make_unique<PaddleOcrVl>(context, config, data, options);
}

}  // namespace oometer
