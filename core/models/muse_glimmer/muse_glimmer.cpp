#include "models/muse_glimmer/muse_glimmer.h"

#include <utility>
#include <vector>

#include "models/kit/interpolation.h"
#include "models/kit/norms.h"
#include "models/kit/packed_images.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/integers.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

Norm muse_glimmer_norm(const Builder& parent, const char* name) {  // with_scale=False
  Norm norm;
  norm.module = parent.child(name, "MuseGlimmerRMSNorm").module;
  norm.forward = rms_norm_by_pow;
  return norm;
}

struct MuseGlimmerVisionPatchEmbedder {
  MuseGlimmerVisionPatchEmbedder() = default;
  MuseGlimmerVisionPatchEmbedder(const Builder& builder, const MuseGlimmerVisionConfig& c)
      : patch_embedding(builder.child("patch_embedding", "Linear"), c.patch_elements(), c.hidden_size, false),
        position_embedding_table(builder.child("position_embedding_table", "Embedding"),
                                 c.pos_emb_height * c.pos_emb_height, c.hidden_size),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const DataConfig& data) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor pixel_values = call.argument(argument);
    if (context.modules) context.modules->read(patch_embedding.weight);  // `target_dtype`
    Tensor embeddings;
    {
      const Tensor typed = to(pixel_values, patch_embedding.weight.dtype());
      embeddings = patch_embedding(typed);
    }
    const Interpolation interp = interpolation(context, data, {.pads_with_zeros = true});
    Tensor pos_embeds;
    {
      Tensor mixed = position_embedding_table(interp.indices);
      mixed = mul(mixed, unsqueeze(interp.weights, -1));
      pos_embeds = sum(mixed, {1}, false);
    }
    {
      const Tensor typed = to(pos_embeds, embeddings.dtype());
      embeddings = add(embeddings, typed);
    }
    return call.result(embeddings);
  }

  Linear patch_embedding;
  Embedding position_embedding_table;
  ModuleId module = 0;
};

// get_vision_pixel_shuffle_index
Tensor pixel_shuffle_index(Context& context, const DataConfig& data) {
  Tensor permutation;
  TensorList indices;
  for (std::int64_t i = 0; i < data.images(); ++i) {
    const std::int64_t patches = data.image(i).patches();
    permutation = integers(context, Op::arange, {patches});
    permutation = integers(context, Op::clone, {patches});
    indices.push_back(integers(context, Op::add, {patches}));
  }
  return integers(context, Op::cat, {data.all_patches()});
}

struct MuseGlimmerVisionModel {
  MuseGlimmerVisionModel() = default;
  MuseGlimmerVisionModel(const Builder& builder, const MuseGlimmerVisionConfig& c, const ModelOptions& options)
      : config(c), checkpointing(options.checkpointing), module(builder.module) {
    patch_embedder = {builder.child("patch_embedder", "MuseGlimmerVisionPatchEmbedder"), c};
    LlamaConfig half;  // compute_axial_rope_parameters: frequencies of half a head
    half.head_dim = c.hidden_size / c.num_attention_heads / 2;
    rotary_emb = LlamaRotaryEmbedding(builder.child("rotary_emb", "MuseGlimmerVisionRotaryEmbedding"), half);
    ln_pre = LayerNorm(builder.child("ln_pre", "LayerNorm"), c.hidden_size);
    const PackedVisionConfig its{.layer = kMuseGlimmerVisionLayer,
                                 .attention = "MuseGlimmerVisionAttention",
                                 .mlp = "MuseGlimmerVisionMLP",
                                 .hidden_size = c.hidden_size,
                                 .intermediate_size = c.intermediate_size,
                                 .num_attention_heads = c.num_attention_heads,
                                 .hidden_act = c.hidden_act,
                                 .finds_longest = true};
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    stack = BlockStack(builder);
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(builder.child("layers", its.layer, i), its, options.attention);
      stack.add_block(builder);
    }
    ln_post = LayerNorm(builder.child("ln_post", "LayerNorm"), c.hidden_size);
  }

  /// [tokens, out_hidden_size]
  Tensor operator()(const Tensor& pixel_values, const DataConfig& data) const {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    const std::int64_t patches = pixel_values.size(0);
    const PatchSequences frames = vision_cu_seqlens(context, data, false),
                         windows = windows_of(context, {config.pos_emb_height, 1}, data);
    const Tensor inputs_embeds = patch_embedder(call.argument(pixel_values), data);
    Tensor hidden_states = ln_pre(inputs_embeds);
    hidden_states = index_from_host(hidden_states, patches);  // window_index
    Tensor position_ids = vision_position_ids(context, data);
    {
      const Tensor flipped = integers(context, Op::flip, position_ids.sizes());
      position_ids = integers(context, Op::add, flipped.sizes());
    }
    position_ids = index_from_host(position_ids, patches);
    const PositionEmbeddings positions = vision_rotary(rotary_emb, position_ids, hidden_states.dtype());
    const auto layer = [&](std::size_t i) -> BlockStack::Forward {
      const PatchSequences& sequences = config.attends_fully[i] ? frames : windows;
      return [&layer = layers[i], sequences, positions](const Tensor& hidden) {
        return layer(hidden, sequences, positions);
      };
    };
    hidden_states = stack.run(0, layers.size(), std::move(hidden_states), checkpointing, layer,
                              {.kind = [&](std::size_t i) { return int{config.attends_fully[i]}; }});
    hidden_states = index_from_host(hidden_states, patches);  // reverse_indices
    hidden_states = ln_post(hidden_states);
    return call.result(pixel_shuffle(hidden_states, data));
  }

  Tensor pixel_shuffle(const Tensor& argument, const DataConfig& data) const {
    const std::int64_t unit = config.merge_unit(), dim = config.hidden_size;
    const Tensor shuffle_index = pixel_shuffle_index(argument.context(), data);
    const Tensor hidden_states = index(argument, shuffle_index);
    const std::int64_t tokens = hidden_states.size(0) / unit;
    return reshape(permute(view(hidden_states, {tokens, unit, dim}), {0, 2, 1}), {tokens, dim * unit});
  }

  MuseGlimmerVisionConfig config;
  CheckpointingConfig checkpointing;
  MuseGlimmerVisionPatchEmbedder patch_embedder;
  LlamaRotaryEmbedding rotary_emb;
  LayerNorm ln_pre, ln_post;
  std::vector<PackedVisionLayer> layers;
  BlockStack stack;
  ModuleId module = 0;
};

struct MuseGlimmerVisionAdapter {
  MuseGlimmerVisionAdapter() = default;
  MuseGlimmerVisionAdapter(const Builder& builder, const MuseGlimmerConfig& c)
      : fc1(builder.child("fc1", "Linear"), c.out_hidden_size, c.projector_hidden_size, false),
        fc2(builder.child("fc2", "Linear"), c.projector_hidden_size, c.projector_hidden_size, false),
        act(c.projector_hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor x = fc1(call.argument(argument));
    x = activate(act, x);
    x = fc2(x);
    return call.result(activate(act, x));
  }

  Linear fc1, fc2;
  Activation act = Activation::gelu;
  ModuleId module = 0;
};

// MuseGlimmerForConditionalGeneration
class MuseGlimmer : public PackedImageModel {
 public:
  MuseGlimmer(Context& context, const MuseGlimmerConfig& config, const DataConfig& data, const ModelOptions& options)
      : PackedImageModel(context, kMuseGlimmerNames.causal_lm, data, options), config_(config) {
    const Builder model = root_.child("model", "MuseGlimmerModel");
    model_ = model.module;
    vision_tower_ = MuseGlimmerVisionModel(model.child("vision_tower", "MuseGlimmerVisionModel", Modality::vision),
                                           config.vision, options);
    const Builder language = model.child("language_model", kMuseGlimmerNames.model, Modality::language);
    make_decoder(language, config.text, options, muse_glimmer_text_parts(config.text, options));
    language_model_.blocks.first_block = vision_tower_.stack.size();
    Builder embedding = language;
    embedding.module = language_model_.embed_tokens.module;
    embed_norm_ = muse_glimmer_norm(embedding, "embed_norm");
    vision_adapter_ = MuseGlimmerVisionAdapter(
        model.child("vision_adapter", "MuseGlimmerVisionAdapter", Modality::projector), config);
    vision_projection_ = Linear(model.child("vision_projection", "Linear", Modality::projector),
                                config.projector_hidden_size, config.text.hidden_size, false);
    perception_emb_norm_ = muse_glimmer_norm(model, "perception_emb_norm");
    make_head(root_, config.text, config.tie_word_embeddings);
  }
  /// What MuseGlimmerTextNormedEmbedding gives was not compared with noise in it.
  bool activate_neftune() override { return false; }

 private:
  Shape pixel_sizes() const override { return {data_.all_patches(), config_.vision.patch_elements()}; }

  GridOutputs image_features(const Tensor& pixel_values) const override {
    GridOutputs outputs;
    outputs.last_hidden_state = vision_tower_(pixel_values, data_);
    Tensor vision_features = vision_adapter_(outputs.last_hidden_state);
    vision_features = vision_projection_(vision_features);
    outputs.pooler_output = perception_emb_norm_(vision_features);
    return outputs;
  }

  // MuseGlimmerTextNormedEmbedding.forward
  Tensor embed_tokens(const Tensor& input_ids) const override {
    const Embedding& table = language_model_.embed_tokens;
    if (table.wrapper)
      context_.refusal = Error{"not-modelled", "/training",
                               "found an adapter on embeddings that are normalised, which is not supported yet: leave "
                               "it out"};
    return table(input_ids, [&](Tensor& embeddings) {
      embeddings = embed_norm_(embeddings);
      require_input_grad(language_model_.checkpointing, embeddings, table.module);
    });
  }

  MuseGlimmerConfig config_;
  MuseGlimmerVisionModel vision_tower_;
  MuseGlimmerVisionAdapter vision_adapter_;
  Linear vision_projection_;
  Norm embed_norm_, perception_emb_norm_;
};

}  // namespace

std::unique_ptr<Model> build_muse_glimmer(Context& context, const MuseGlimmerConfig& config, const DataConfig& data,
                                          const ModelOptions& options) {
  return std::make_unique<MuseGlimmer>(context, config, data, options);
}

}  // namespace oometer
