#include "models/molmo2/molmo2.h"

#include <tuple>
#include <utility>
#include <vector>

#include "models/blockwise_mask.h"
#include "models/cross_mask.h"
#include "models/kit/image_text.h"
#include "models/kit/text_attention.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"
#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/block_stack.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, models/molmo2/modeling_molmo2.py. Names and order of steps are that file's.
namespace oometer {

namespace {

constexpr std::int64_t kPool = 2;  ///< patches each way that are a token: its processor's pooling_size

struct Molmo2VisionAttention {
  Molmo2VisionAttention() = default;
  Molmo2VisionAttention(const Builder& builder, const Molmo2AttentionConfig& c, AttentionKind kind)
      : head_dim(c.head_dim), call{.kind = kind, .dropout = c.attention_dropout}, module(builder.module) {
    const std::int64_t width = c.num_attention_heads * c.head_dim, kv_width = c.num_key_value_heads * c.head_dim;
    q_proj = Linear(builder.child("q_proj", "Linear"), c.in, width, c.attention_bias);
    k_proj = Linear(builder.child("k_proj", "Linear"), c.in, kv_width, c.attention_bias);
    v_proj = Linear(builder.child("v_proj", "Linear"), c.in, kv_width, c.attention_bias);
    o_proj = Linear(builder.child("o_proj", "Linear"), width, c.out, c.attention_bias);
    inner = width;
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const Tensor& keys, const Tensor& mask) const {
    ModuleCall self(hidden_states.context(), module);
    const Tensor& encoder_hidden_states = keys ? keys : hidden_states;
    AttentionInputs states;
    states.query = heads_of(q_proj(hidden_states), head_dim);
    states.key = heads_of(k_proj(encoder_hidden_states), head_dim);
    states.value = heads_of(v_proj(encoder_hidden_states), head_dim);
    AttentionOutputs attention = attention_forward(call, states.query, states.key, states.value, mask);
    attention.output = reshape(attention.output, {hidden_states.size(0), hidden_states.size(1), inner});
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  std::int64_t head_dim = 0, inner = 0;
  AttentionCall call;
  ModuleId module = 0;
};

struct Molmo2VisionMLP {
  Molmo2VisionMLP(const Builder& builder, const Molmo2Config& c)
      : fc1(builder.child("fc1", "Linear"), c.attention.out, c.intermediate_size, true),
        fc2(builder.child("fc2", "Linear"), c.intermediate_size, c.attention.out, true),
        activation_fn(c.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = fc1(call.argument(argument));
    hidden_states = activate(activation_fn, hidden_states);
    return call.result(fc2(hidden_states));
  }

  Linear fc1, fc2;
  Activation activation_fn;
  ModuleId module;
};

struct Molmo2VisionLayer {
  Molmo2VisionLayer(const Builder& builder, const Molmo2Config& c, AttentionKind kind)
      : layer_norm1(builder.child("layer_norm1", "LayerNorm"), c.attention.out),
        self_attn(builder.child("self_attn", "Molmo2VisionAttention"), c.attention, kind),
        layer_norm2(builder.child("layer_norm2", "LayerNorm"), c.attention.out),
        mlp(builder.child("mlp", "Molmo2VisionMLP"), c),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in, hidden_states = layer_norm1(hidden_in);
    AttentionOutputs attention = self_attn(hidden_states, {}, {});
    hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
    hidden_states = add(residual, hidden_states);
    residual = hidden_states;
    hidden_states = layer_norm2(hidden_states);
    hidden_states = mlp(hidden_states);
    return add(residual, hidden_states);
  }

  LayerNorm layer_norm1;
  Molmo2VisionAttention self_attn;
  LayerNorm layer_norm2;
  Molmo2VisionMLP mlp;
  ModuleId module;
};

struct Molmo2VisionModel {
  Molmo2VisionModel() = default;
  Molmo2VisionModel(const Builder& builder, const Molmo2Config& c, const ModelOptions& options)
      : positional_embedding(builder.parameter("positional_embedding", {c.num_position_embeddings, c.attention.out})),
        patch_embedding(builder.child("patch_embedding", "Linear"), c.pixels_per_patch(), c.attention.out, true),
        blocks(builder),
        checkpointing(options.checkpointing),
        module(builder.module) {
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(builder.child("layers", kMolmo2VisionLayer, i), c, options.attention);
      blocks.add_block(builder);
    }
  }

  /// The last hidden state and the pooled one; `captured`: those behind no layer, the first, the second, ...
  Tensor operator()(const Tensor& given, TensorList& captured, Tensor& pooler_output) const {
    Context& context = given.context();
    ModuleCall call(context, module);
    Tensor hidden_states;
    {
      const Tensor pixel_values = to(call.argument(given), positional_embedding.dtype());
      hidden_states = patch_embedding(pixel_values);
    }
    {
      const Tensor positions = to(unsqueeze(positional_embedding, 0), hidden_states.dtype());
      hidden_states = add(hidden_states, positions);
    }
    captured.push_back(hidden_states);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i]](const Tensor& hidden) { return layer(hidden); };
    };
    for (std::size_t i = 0; i < layers.size(); ++i) {
      hidden_states = blocks.run(i, i + 1, std::move(hidden_states), checkpointing, block, {.positional = true});
      captured.push_back(hidden_states);
    }
    pooler_output = call.result(mean(hidden_states, 1, false));
    return call.result(hidden_states);
  }

  Tensor positional_embedding;
  Linear patch_embedding;
  std::vector<Molmo2VisionLayer> layers;
  BlockStack blocks;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

struct Molmo2Adapter {
  Molmo2Adapter() = default;
  Molmo2Adapter(const Builder& builder, const Molmo2Config& c, const ModelOptions& options)
      : image_pooling_2d(builder.child("image_pooling_2d", "Molmo2VisionAttention"), c.pooling, options.attention),
        act_fn(c.adapter_act),
        masked(masked_by(options.attention)),
        is_padded(c.side() % kPool != 0),
        module(builder.module) {
    const Builder projector = builder.child("image_projector", "Molmo2ImageProjectorMLP");
    image_projector = projector.module;
    gate_proj = Linear(projector.child("gate_proj", "Linear"), c.pooling.out, c.adapter_intermediate_size, c.mlp_bias);
    up_proj = Linear(projector.child("up_proj", "Linear"), c.pooling.out, c.adapter_intermediate_size, c.mlp_bias);
    down_proj = Linear(projector.child("down_proj", "Linear"), c.adapter_intermediate_size, c.text.hidden_size, false);
  }

  Tensor project(const Tensor& given) const {
    ModuleCall call(given.context(), image_projector);
    const Tensor x = call.argument(given);
    Tensor product;
    {
      Tensor gate = gate_proj(x);
      gate = activate(act_fn, gate);
      const Tensor up = up_proj(x);
      product = mul(gate, up);
    }
    return call.result(down_proj(product));
  }

  Tensor operator()(const Tensor& given, const Tensor& pooled_patches_idx) const {
    Context& context = given.context();
    ModuleCall call(context, module);
    const Tensor image_features = call.argument(given);
    const std::int64_t width = image_features.size(2);
    const Tensor flat_features = reshape(image_features, {image_features.size(0) * image_features.size(1), width}),
                 valid_mask = pointwise(Op::ge, {&pooled_patches_idx}, DType::boolean),
                 valid_token_mask = all(Op::any, valid_mask, {1}, false);
    Tensor patches_to_pool;
    {
      const Tensor clipped = pointwise(Op::clamp, {&pooled_patches_idx}, pooled_patches_idx.dtype());
      const Tensor as_int64 = to(clipped, DType::int64);
      patches_to_pool = index(flat_features, 0, clipped);
    }
    {
      const Tensor kept = unsqueeze(to(valid_mask, patches_to_pool.dtype()), 2);
      patches_to_pool = mul(patches_to_pool, kept);
    }
    Tensor num_valid_patches;
    {
      const Tensor as_float = to(valid_mask, DType::float32);
      num_valid_patches = sum(as_float, {1}, false);
    }
    {
      const Tensor none = pointwise(Op::eq, {&num_valid_patches}, DType::boolean),
                   one = empty(context, Op::empty, {}, DType::float32);
      num_valid_patches = where(none, one, num_valid_patches);
    }
    Tensor query;
    {
      const Tensor total = sum(patches_to_pool, {1}, true);
      const Tensor count = to(unsqueeze(unsqueeze(num_valid_patches, 1), 2), patches_to_pool.dtype());
      query = div(total, count);
    }
    Tensor attention_mask;
    {
      Rows rows;
      if (is_padded) rows.documents = {{1}};  // at the edges windows lack patches
      attention_mask = create_cross_mask(query, patches_to_pool, {{}, valid_mask, &rows}, masked);
    }
    AttentionOutputs attention = image_pooling_2d(query, patches_to_pool, attention_mask);
    Tensor pooled_features = std::move(attention.output);
    pooled_features = view(pooled_features, {pooled_features.size(0), pooled_features.size(2)});
    pooled_features = project(pooled_features);
    return call.result(index_mask(pooled_features, valid_token_mask, pooled_features.size(0)));
  }

  Molmo2VisionAttention image_pooling_2d;
  Linear gate_proj, up_proj, down_proj;
  Activation act_fn = Activation::silu;
  MaskedBy masked = MaskedBy::sdpa;
  bool is_padded = false;
  ModuleId module = 0, image_projector = 0;
};

struct Molmo2Attention {
  Molmo2Attention(const Builder& builder, const TextConfig& c, const ModelOptions& options, bool is_olmo)
      : head_dim(c.head_dim),
        norms_heads(!is_olmo),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    const std::int64_t width = c.num_attention_heads * head_dim, kv_width = c.num_key_value_heads * head_dim;
    q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, width, c.qkv_bias);
    k_proj = Linear(builder.child("k_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    v_proj = Linear(builder.child("v_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    o_proj = Linear(builder.child("o_proj", "Linear"), width, c.hidden_size, false);
    q_norm = Norm(builder.child("q_norm", kMolmo2Names.rms_norm), rms_norm, {is_olmo ? width : head_dim});
    k_norm = Norm(builder.child("k_norm", kMolmo2Names.rms_norm), rms_norm, {is_olmo ? kv_width : head_dim});
  }

  AttentionOutputs operator()(const Tensor& argument, const PositionEmbeddings& positions, const Tensor& mask) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.keyword(argument);
    AttentionInputs states;
    states.query = q_proj(hidden_states);
    states.key = k_proj(hidden_states);
    states.value = heads_of(v_proj(hidden_states), head_dim);
    const auto normalise = [&] {
      states.query = q_norm(states.query);
      states.key = k_norm(states.key);
    };
    if (!norms_heads) normalise();
    for (Tensor* of : {&states.query, &states.key})
      *of = view(*of, {of->size(0), of->size(1), of->size(2) / head_dim, head_dim});
    if (norms_heads) normalise();
    for (Tensor* of : {&states.query, &states.key}) *of = transpose(*of, 1, 2);
    std::tie(states.query, states.key) = rotate_halves(states.query, states.key, positions);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, mask);
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  Norm q_norm, k_norm;
  std::int64_t head_dim;
  bool norms_heads;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

DecoderParts text_parts(const Molmo2Config& c, const ModelOptions& options,
                        const std::shared_ptr<PositionEmbeddings>& unscaled) {
  DecoderParts parts =
      parts_of(c.text, options,
               [norms_after = c.norm_after, is_olmo = c.norms_whole](const Builder& builder, const TextConfig& text,
                                                                     const ModelOptions& its_options, std::size_t) {
                 auto layer = std::make_unique<TextLayer>(builder, norms_after ? post_norm : pre_norm);
                 layer->self_attn =
                     Molmo2Attention(builder.child("self_attn", kMolmo2Names.attention), text, its_options, is_olmo);
                 layer->mlp = LlamaMLP(builder.child("mlp", kMolmo2Names.mlp), text, its_options.liger);
                 const auto norm = [&](const char* name) {
                   return Norm(builder.child(name, kMolmo2Names.rms_norm), rms_norm, {text.hidden_size});
                 };
                 (norms_after ? layer->attention_norm : layer->input_norm) = norm("input_layernorm");
                 (norms_after ? layer->output_norm : layer->feedforward_norm) = norm("post_attention_layernorm");
                 return layer;
               });
  const auto rotary_emb_unscaled = std::make_shared<LlamaRotaryEmbedding>();
  parts.rest = [rotary_emb_unscaled, text = c.text](const Builder& decoder) {
    *rotary_emb_unscaled =
        LlamaRotaryEmbedding(decoder.child("rotary_emb_unscaled", kMolmo2Names.rotary_embedding), text);
  };
  parts.rotary = [rotary_emb_unscaled, unscaled](const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids,
                                                 DType dtype) {
    const Tensor of_type = empty(position_ids.context(), Op::empty, {0}, dtype);
    PositionEmbeddings scaled = rotary_emb(of_type, position_ids);
    *unscaled = (*rotary_emb_unscaled)(of_type, position_ids);
    return scaled;
  };
  return parts;
}

class Molmo2 : public LanguageModel {
 public:
  Molmo2(Context& context, const Molmo2Config& c, const DataConfig& data, const ModelOptions& options)
      : LanguageModel(context, kMolmo2Names.causal_lm, Modality::none, data, options),
        config_(c),
        unscaled_(std::make_shared<PositionEmbeddings>()) {
    accepts_loss_kwargs = false;
    const Builder model = root_.child("model", "Molmo2Model");
    model_ = model.module;
    vision_tower_ = Molmo2VisionModel(model.child("vision_tower", "Molmo2VisionModel", Modality::vision), c, options);
    multi_modal_projector_ =
        Molmo2Adapter(model.child("multi_modal_projector", "Molmo2Adapter", Modality::projector), c, options);
    TextConfig with_more = c.text;
    with_more.vocab_size += c.additional_vocab_size;
    make_decoder(model.child("language_model", c.text.names->model, Modality::language), with_more, options,
                 text_parts(c, options, unscaled_));
    language_model_.blocks.first_block = vision_tower_.layers.size();
    make_head(root_, c.text, false);
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    data_.images_per_sample = images_per_sample;
    if (data_.images() == 0) return;
    const Molmo2Crops all = molmo2_crops(config_, data_.image_height, data_.image_width);
    pooled_ = checked_product(data_.images(), all.pooled);
    batch.pixel_values =
        input({checked_product(data_.images(), all.crops), config_.side() * config_.side(), config_.pixels_per_patch()},
              data_.pixel_dtype.value_or(dtype_));
    batch.others.push_back(input({pooled_, kPool * kPool}, DType::int32));
    batch.image_grid_thw = input({data_.images(), 4});
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    Tensor image_hidden_states;
    const Tensor hidden_states = model_forward(inputs, image_hidden_states);
    ModelOutputs outputs = causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function);
    if (image_hidden_states) outputs.others.push_back(image_hidden_states);
    return outputs;
  }

 private:
  void complete(ModelInputs& batch) override {
    batch.mm_token_type_ids = input({data_.micro_batch_size, data_.sequence_length});
    make_images(batch, data_.images_per_sample);
  }

  // get_image_features
  TensorList image_features(const ModelInputs& inputs, Tensor& last_hidden_state) const {
    TensorList captured;
    Tensor pooler_output, features;
    last_hidden_state = vision_tower_(inputs.pixel_values, captured, pooler_output);
    {
      std::vector<Tensor> chosen;
      for (const std::int64_t layer : config_.vision_feature_layer)
        chosen.push_back(captured[static_cast<std::size_t>(layer + 1)]);
      features = cat(chosen, -1);
    }
    const Tensor pooled_features = multi_modal_projector_(features, inputs.others.front());
    {
      const Shape images{data_.images()};
      const Tensor low = integers(context_, Op::mul, images), high = integers(context_, Op::mul, images),
                   split_sizes = integers(context_, Op::add, images);
    }
    const auto images = static_cast<std::size_t>(data_.images());
    return split(pooled_features, std::vector<std::int64_t>(images, pooled_ / data_.images()), 0);
  }

  Tensor model_forward(const ModelInputs& inputs, Tensor& image_hidden_states) const {
    ModuleCall call(context_, model_);
    Tensor inputs_embeds = language_model_.embed(inputs.input_ids);
    Tensor last_hidden_state, features, special_image_mask;  // bound until forward returns
    TensorList pooled;
    if (inputs.pixel_values) {
      pooled = image_features(inputs, last_hidden_state);
      features = cat(pooled, 0);
      special_image_mask = expand(placeholder_mask(inputs.input_ids), inputs_embeds.sizes());
      {
        Tensor source = index_mask(inputs_embeds, special_image_mask, features.numel());
        source = add(source, view(features, {features.numel()}));
        inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, source);
      }
      image_hidden_states = features;
    }
    MaskArguments given{inputs.position_ids, inputs.attention_mask, inputs.rows};
    Tensor block_sequence_ids;
    {
      const Tensor is_image = pointwise(Op::eq, {&inputs.mm_token_type_ids}, DType::boolean),
                   block = integers(context_, Op::empty, {}), none = integers(context_, Op::empty, {});
      block_sequence_ids = integers(context_, Op::where, inputs.input_ids.sizes());
    }
    CausalMasks masks;
    masks.full_attention = create_blockwise_mask(inputs_embeds, given, language_model_.masked, block_sequence_ids, 0);
    given.masks = &masks;
    Tensor hidden_states = run_decoder(inputs_embeds, given);
    *unscaled_ = {};
    return call.result(hidden_states);
  }

  Molmo2Config config_;
  std::shared_ptr<PositionEmbeddings> unscaled_;  ///< while the text model's forward runs
  std::int64_t pooled_ = 0;
  ModuleId model_ = 0;
  Molmo2VisionModel vision_tower_;
  Molmo2Adapter multi_modal_projector_;
};

}  // namespace

std::unique_ptr<Model> build_molmo2(Context& context, const Molmo2Config& config, const DataConfig& data,
                                    const ModelOptions& options) {
  return std::make_unique<Molmo2>(context, config, data, options);
}

}  // namespace oometer
