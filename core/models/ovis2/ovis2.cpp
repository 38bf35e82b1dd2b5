#include "models/ovis2/ovis2.h"

#include <utility>
#include <vector>

#include "models/clip/clip.h"
#include "models/kit/image_text.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/put_row.h"
#include "ops/vision.h"

namespace oometer {

namespace {

struct Ovis2VisionEmbeddings {
  Ovis2VisionEmbeddings() = default;
  Ovis2VisionEmbeddings(const Builder& builder, const ClipVisionConfig& c)
      : patch_embedding(builder.child("patch_embedding", "Conv2d"), c.num_channels, c.hidden_size, c.patch_size, true),
        position_embedding(builder.child("position_embedding", "Embedding"), c.num_positions(), c.hidden_size),
        position_ids(builder.buffer({1, c.num_positions()}, DType::int64)),
        rms_norm(builder.child("rms_norm", "Ovis2RMSNorm"), c.hidden_size),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor pixel_values = call.argument(argument);
    if (context.modules) context.modules->read(patch_embedding.weight);  // `target_dtype`
    Tensor pixels = to(pixel_values, patch_embedding.weight.dtype());
    const Tensor patch_embeds = patch_embedding(pixels);
    pixels.reset();
    const std::int64_t patches = checked_product(patch_embeds.size(2), patch_embeds.size(3));
    Tensor embeddings = transpose(view(patch_embeds, {patch_embeds.size(0), patch_embeds.size(1), patches}), 1, 2);
    embeddings = rms_norm(embeddings);
    {
      const Tensor positions = position_embedding(position_ids);
      embeddings = add(embeddings, positions);
    }
    return call.result(embeddings);
  }

  Conv2d patch_embedding;
  Embedding position_embedding;
  Tensor position_ids;
  LlamaRMSNorm rms_norm;
  ModuleId module = 0;
};

struct Ovis2VisionAttention {
  Ovis2VisionAttention(const Builder& builder, const Ovis2Config& config, AttentionKind kind)
      : head_dim(config.vision.hidden_size / config.vision.num_attention_heads),
        call{kind, false, config.vision.attention_dropout},
        module(builder.module) {
    const std::int64_t width = config.vision.hidden_size;
    for (const auto& [name, projection] : {std::pair{"k_proj", &k_proj}, std::pair{"v_proj", &v_proj},
                                           std::pair{"q_proj", &q_proj}, std::pair{"out_proj", &out_proj}})
      *projection = Linear(builder.child(name, "Linear"), width, width, config.qkv_bias);
  }

  AttentionOutputs operator()(const Tensor& given) const {
    ModuleCall self(given.context(), module);
    const Tensor hidden_states = self.keyword(given);
    const auto [queries, keys, values] = project(hidden_states, q_proj, k_proj, v_proj, head_dim, false);
    AttentionOutputs attention = attention_forward(call, queries, keys, values, {});
    attention.output = reshape(attention.output, hidden_states.sizes());
    attention.output = self.result(out_proj(attention.output));
    return attention;
  }

  Linear k_proj, v_proj, q_proj, out_proj;
  std::int64_t head_dim;
  AttentionCall call;
  ModuleId module;
};

LlamaMLP ovis2_mlp(const Builder& builder, const Ovis2Config& config) {
  LlamaConfig sizes;
  sizes.hidden_size = config.vision.hidden_size;
  sizes.intermediate_size = config.vision.intermediate_size;
  sizes.hidden_act = config.vision.hidden_act;
  sizes.mlp_bias = config.mlp_bias;
  return {builder, sizes};
}

struct Ovis2VisionEncoderLayer {
  Ovis2VisionEncoderLayer(const Builder& builder, const Ovis2Config& config, AttentionKind kind)
      : attention(builder.child("attention", kOvis2Vision.attention), config, kind),
        ffn(ovis2_mlp(builder.child("ffn", kOvis2Vision.mlp), config)),
        rms_norm1(builder.child("rms_norm1", "Ovis2RMSNorm"), config.vision.hidden_size),
        rms_norm2(builder.child("rms_norm2", "Ovis2RMSNorm"), config.vision.hidden_size),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor norm_hidden_states = rms_norm1(hidden_in);
    const AttentionOutputs attn_output = attention(norm_hidden_states);  // the weights stay in `_`
    Tensor hidden_states = add(hidden_in, attn_output.output);
    norm_hidden_states = rms_norm2(hidden_states);
    const Tensor mlp_output = ffn(norm_hidden_states);
    hidden_states = add(hidden_states, mlp_output);
    return hidden_states;
  }

  Ovis2VisionAttention attention;
  LlamaMLP ffn;
  LlamaRMSNorm rms_norm1, rms_norm2;
  ModuleId module;
};

struct Ovis2VisionTransformer {
  Ovis2VisionTransformer() = default;
  Ovis2VisionTransformer(const Builder& builder, const Ovis2Config& config, const ModelOptions& options)
      : checkpointing(options.checkpointing), module(builder.module) {
    embeddings = Ovis2VisionEmbeddings(builder.child("embeddings", kOvis2Vision.embeddings), config.vision);
    const Builder inner = builder.child("encoder", kOvis2Vision.encoder);
    encoder = inner.module;
    stack = BlockStack(inner);
    layers.reserve(static_cast<std::size_t>(config.vision.num_hidden_layers));
    for (std::int32_t i = 0; i < config.vision.num_hidden_layers; ++i) {
      layers.emplace_back(inner.child("layers", kOvis2Vision.encoder_layer, i), config, options.attention);
      stack.add_block(inner);
    }
    rms_norm = LlamaRMSNorm(builder.child("rms_norm", "Ovis2RMSNorm"), config.vision.hidden_size);
  }

  Tensor operator()(const Tensor& pixel_values) const {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    const Tensor hidden_states = embeddings(call.argument(pixel_values));
    Tensor encoder_outputs;
    {
      ModuleCall inner(context, encoder);
      const auto block = [&](std::size_t i) -> BlockStack::Forward {
        return [&layer = layers[i]](const Tensor& hidden) { return layer(hidden); };
      };
      encoder_outputs =
          inner.result(stack.run(0, layers.size(), hidden_states, checkpointing, block, {.positional = true}));
    }
    const Tensor last_hidden_state = rms_norm(encoder_outputs);
    return call.result(last_hidden_state);
  }

  Ovis2VisionEmbeddings embeddings;
  std::vector<Ovis2VisionEncoderLayer> layers;
  BlockStack stack;
  LlamaRMSNorm rms_norm;
  CheckpointingConfig checkpointing;
  ModuleId module = 0, encoder = 0;
};

struct Ovis2VisionOutputs {
  Tensor last_hidden_state, prob_token;
};

struct Ovis2VisionModel {
  Ovis2VisionModel() = default;
  Ovis2VisionModel(const Builder& builder, const Ovis2Config& config, const ModelOptions& options)
      : hidden_stride(config.hidden_stride),
        side(config.side()),
        transformer(builder.child("transformer", "Ovis2VisionTransformer"), config, options),
        head_linear(builder.child("head_linear", "Linear"), config.merged_size(), config.words(), false),
        head_norm(builder.child("head_norm", "LayerNorm"), config.words()),
        module(builder.module) {}

  Ovis2VisionOutputs operator()(const Tensor& pixel_values) const {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    const Tensor outputs = transformer(call.argument(pixel_values));
    Tensor last_hidden_state = outputs;
    if (hidden_stride > 1) {
      const std::int64_t num_images = outputs.size(0), hidden_dim = outputs.size(2), fewer = side / hidden_stride;
      last_hidden_state = pad(last_hidden_state, 1, 0);
      last_hidden_state = view(last_hidden_state, {num_images, fewer, hidden_stride, fewer, hidden_stride, hidden_dim});
      last_hidden_state = permute(last_hidden_state, {0, 1, 3, 2, 4, 5});
      last_hidden_state =
          reshape(last_hidden_state, {num_images, fewer * fewer, hidden_stride * hidden_stride * hidden_dim});
    }
    Tensor logits = head_linear(last_hidden_state);
    logits = head_norm(logits);
    const Tensor prob_token = softmax(logits, context.autocast.enabled ? DType::float32 : logits.dtype());
    return {call.result(last_hidden_state), call.result(prob_token)};
  }

  std::int64_t hidden_stride = 1, side = 0;
  Ovis2VisionTransformer transformer;
  Linear head_linear;
  LayerNorm head_norm;
  ModuleId module = 0;
};

class Ovis2 : public ImageTextModel {
 public:
  Ovis2(Context& context, const Ovis2Config& config, const DataConfig& data, const ModelOptions& options)
      : ImageTextModel(context, "Ovis2ForConditionalGeneration", Modality::none, data, options), config_(config) {
    const Builder model = root_.child("model", "Ovis2Model");
    model_ = model.module;
    vision_tower_ =
        Ovis2VisionModel(model.child("vision_tower", kOvis2Vision.model, Modality::vision), config, options);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options);
    language_model_.blocks.first_block = vision_tower_.transformer.stack.size();
    visual_embeddings_table_ =
        Embedding(model.child("visual_embeddings_table", "Ovis2VisualEmbeddingTable", Modality::projector),
                  config.visual_vocab_size, config.text.hidden_size);
    make_head(root_, config.text, config.tie_word_embeddings);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    Tensor image_hidden_states;
    const Tensor hidden_states = model_forward(inputs, image_hidden_states);
    ModelOutputs outputs = causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function);
    if (image_hidden_states) outputs.others.push_back(image_hidden_states);
    return outputs;
  }

 private:
  Shape pixel_sizes() const override {
    const ClipVisionConfig& v = config_.vision;
    return {data_.images(), v.num_channels, v.image_size, v.image_size};
  }

  /// Ovis2VisualEmbeddingTable.forward, of probabilities of all words.
  Tensor mixed(const Tensor& visual_tokens) const {
    ModuleCall call(context_, visual_embeddings_table_.module);
    return call.result(matmul(call.argument(visual_tokens), visual_embeddings_table_.weight));
  }

  // get_image_features; `others`: the tower's own, and the visual indicators'
  ImageFeatures image_features(const ModelInputs& batch) const override {
    Ovis2VisionOutputs image_outputs = vision_tower_(batch.pixel_values);
    Tensor visual_indicator, image_features;
    const Shape& sizes = image_outputs.prob_token.sizes();
    const Tensor padding_tensor = empty(context_, Op::zeros, {sizes[0], sizes[1], config_.num_visual_indicator_tokens},
                                        image_outputs.prob_token.dtype());
    image_features = cat({image_outputs.prob_token, padding_tensor}, 2);
    image_features = mixed(image_features);
    visual_indicator = integers(context_, Op::to_copy, {config_.num_visual_indicator_tokens});
    image_outputs.prob_token.reset();  // pooler_output is bound anew
    const Tensor visual_indicator_features = visual_embeddings_table_(visual_indicator);
    return {{image_features}, {image_outputs.last_hidden_state, visual_indicator_features}};
  }

  // Ovis2Model.forward
  Tensor model_forward(const ModelInputs& inputs, Tensor& image_hidden_states) const {
    ModuleCall call(context_, model_);
    Tensor inputs_embeds = language_model_.embed(inputs.input_ids);
    ImageFeatures image;
    Tensor mask, special_image_mask, image_features;  // bound until forward returns
    if (has_images(inputs)) {
      if (inputs.images)
        image = {{inputs.images->front()}, {(*inputs.images)[1], (*inputs.images)[2]}};
      else
        image = this->image_features(inputs);
      special_image_mask = placeholder_mask(inputs.input_ids);
      image_features = to(image.pooler_output.front(), inputs_embeds.dtype());
      inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, image_features);
      // An image begins, is one tile, which has no rows and columns, and ends.
      constexpr bool kOccurs[] = {true, true, false, false, true};
      for (std::int64_t i = 0; i < std::ssize(kOccurs); ++i) {
        mask = pointwise(Op::eq, {&inputs.input_ids}, DType::boolean);
        { const Tensor any = empty(context_, Op::any, {}, DType::boolean); }
        if (!kOccurs[i]) continue;
        const Tensor feature = to(select(image.others.back(), 0, i), inputs_embeds.dtype());
        inputs_embeds = put_row_in_place(inputs_embeds, mask, feature, data_.images());
      }
      image_hidden_states = image_features;
    }
    return call.result(run_language(inputs_embeds, inputs));
  }

  Ovis2Config config_;
  Ovis2VisionModel vision_tower_;
  Embedding visual_embeddings_table_;
};

}  // namespace

std::unique_ptr<Model> build_ovis2(Context& context, const Ovis2Config& config, const DataConfig& data,
                                   const ModelOptions& options) {
  return std::make_unique<Ovis2>(context, config, data, options);
}

}  // namespace oometer
