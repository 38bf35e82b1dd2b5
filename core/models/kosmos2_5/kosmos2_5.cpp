#include "models/kosmos2_5/kosmos2_5.h"

#include <utility>
#include <vector>

#include "models/bart/bart.h"
#include "models/bert/bert.h"
#include "models/kit/patch_projection.h"
#include "models/kit/positioned.h"
#include "models/t5/t5.h"
#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/block_stack.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

constexpr std::int64_t kOffset = 2;  ///< Kosmos2_5TextSinusoidalPositionalEmbedding.offset

/// F.normalize over the last dimension.
Tensor normalize(const Tensor& x) {
  Tensor denom = linalg_vector_norm(x);
  denom = clamp(denom, false);
  return div(x, expand(denom, x.sizes()));
}

struct Kosmos2_5VisionMlp {
  Kosmos2_5VisionMlp(const Builder& builder, const Kosmos2_5VisionConfig& c)
      : wi_0(builder.child("wi_0", "Linear"), c.hidden_size, c.intermediate_size, false),
        wi_1(builder.child("wi_1", "Linear"), c.hidden_size, c.intermediate_size, false),
        wo(builder.child("wo", "Linear"), c.intermediate_size, c.hidden_size, false),
        dropout_rate(c.dropout_rate),
        act(c.dense_act_fn),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = call.argument(argument);
    Tensor hidden_gelu = wi_0(hidden_states);
    hidden_gelu = activate(act, hidden_gelu);
    const Tensor hidden_linear = wi_1(hidden_states);
    hidden_states = mul(hidden_gelu, hidden_linear);
    hidden_states = dropout(hidden_states, dropout_rate);
    if (!wo.quantized) hidden_states = to(hidden_states, wo.weight.dtype());
    return call.result(wo(hidden_states));
  }

  Linear wi_0, wi_1, wo;
  double dropout_rate;
  Activation act;
  ModuleId module;
};

struct Kosmos2_5VisionAttention {
  Kosmos2_5VisionAttention(const Builder& builder, const Kosmos2_5VisionConfig& c)
      : query(builder.child("query", "Linear"), c.hidden_size, c.inner_dim(), false),
        key(builder.child("key", "Linear"), c.hidden_size, c.inner_dim(), false),
        value(builder.child("value", "Linear"), c.hidden_size, c.inner_dim(), false),
        output(builder.child("output", "Linear"), c.inner_dim(), c.hidden_size, false),
        head_dim(c.head_dim),
        inner_dim(c.inner_dim()),
        // It looks for a function of that name among the attributes of ALL_ATTENTION_FUNCTIONS, where none is.
        attention{.kind = AttentionKind::eager, .dropout = c.attention_dropout},
        module(builder.module) {}

  AttentionOutputs operator()(const Tensor& argument, const Tensor& attention_mask) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = call.argument(argument);
    const AttentionInputs states = project(hidden_states, query, key, value, head_dim, false);
    AttentionOutputs its = attention_forward(attention, states.query, states.key, states.value, attention_mask);
    its.output = reshape(its.output, {hidden_states.size(0), hidden_states.size(1), inner_dim});
    its.output = call.result(output(its.output));
    return its;
  }

  Linear query, key, value, output;
  std::int64_t head_dim, inner_dim;
  AttentionCall attention;
  ModuleId module;
};

struct Kosmos2_5VisionLayer {
  Kosmos2_5VisionLayer(const Builder& builder, const Kosmos2_5VisionConfig& c)
      : attention(builder.child("attention", "Kosmos2_5VisionAttention"), c),
        mlp(builder.child("mlp", "Kosmos2_5VisionMlp"), c),
        pre_mlp_layer_norm(builder.child("pre_mlp_layer_norm", "Kosmos2_5LayerNorm"), t5::t5_layer_norm,
                           {c.hidden_size}),
        pre_attention_layer_norm(builder.child("pre_attention_layer_norm", "Kosmos2_5LayerNorm"), t5::t5_layer_norm,
                                 {c.hidden_size}),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const Tensor& attention_mask) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor hidden_states = pre_attention_layer_norm(hidden_in);
    const AttentionOutputs its = attention(hidden_states, attention_mask);
    hidden_states = add(its.output, hidden_in);
    Tensor layer_output = pre_mlp_layer_norm(hidden_states);
    {
      const Tensor of_mlp = mlp(layer_output);
      layer_output = add(of_mlp, hidden_states);
    }
    return layer_output;
  }

  Kosmos2_5VisionAttention attention;
  Kosmos2_5VisionMlp mlp;
  Norm pre_mlp_layer_norm, pre_attention_layer_norm;
  ModuleId module;
};

struct Kosmos2_5VisionModel {
  Kosmos2_5VisionModel() = default;
  Kosmos2_5VisionModel(const Builder& builder, const Kosmos2_5VisionConfig& c, const ModelOptions& options)
      : dropout_rate(c.dropout_rate), checkpointing(options.checkpointing), module(builder.module) {
    const Builder of_embeddings = builder.child("embeddings", "Kosmos2_5VisionEmbeddings");
    embeddings = of_embeddings.module;
    patch_projection =
        Linear(of_embeddings.child("patch_projection", "Linear"), c.patch_embed_hidden_size, c.hidden_size, true);
    row_embedder = Embedding(of_embeddings.child("row_embedder", "Embedding"), c.max_num_patches, c.hidden_size);
    column_embedder = Embedding(of_embeddings.child("column_embedder", "Embedding"), c.max_num_patches, c.hidden_size);
    const Builder of_encoder = builder.child("encoder", "Kosmos2_5VisionEncoder");
    encoder = of_encoder.module;
    blocks = BlockStack(of_encoder);
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(of_encoder.child("layer", kKosmos2_5VisionLayer, i), c);
      blocks.add_block(of_encoder);
    }
    layernorm = Norm(builder.child("layernorm", "Kosmos2_5LayerNorm"), t5::t5_layer_norm, {c.hidden_size});
  }

  Tensor embed(const Tensor& given) const {
    ModuleCall call(given.context(), embeddings);
    const Tensor patches = call.argument(given);
    const Tensor row_indices = to(select(patches, 2, 0), DType::int64),
                 col_indices = to(select(patches, 2, 1), DType::int64),
                 flattened_patches = slice(patches, 2, 2, patches.size(2) - 2);
    Tensor projected = project_patches(patch_projection, flattened_patches, checkpointing);
    const Tensor row_embeddings = row_embedder(row_indices), col_embeddings = column_embedder(col_indices);
    Tensor sum = add(projected, row_embeddings);
    projected = add(sum, col_embeddings);
    sum.reset();
    return call.result(dropout(projected, dropout_rate));
  }

  /// _expand_mask
  static Tensor expand_mask(const Tensor& mask, DType dtype) {
    Context& context = mask.context();
    const Shape pairs{mask.size(0), 1, mask.size(1), mask.size(1)};
    Tensor expanded_mask;
    if (dtype != DType::float32) expanded_mask = empty(context, Op::to_copy, pairs, dtype);
    const Tensor inverted_mask = empty(context, Op::sub, pairs, dtype),
                 masked = empty(context, Op::to_copy, pairs, DType::boolean);
    return empty(context, Op::masked_fill, pairs, dtype);
  }

  Tensor operator()(const Tensor& given) const {
    Context& context = given.context();
    ModuleCall call(context, module);
    const Tensor flattened_patches = call.keyword(given);
    Tensor attention_mask;
    {
      const Tensor total = sum(flattened_patches, {2}, false);
      attention_mask = pointwise(Op::ne, {&total}, DType::boolean);
    }
    attention_mask = to(attention_mask, DType::float32);
    const Tensor embedding_output = embed(flattened_patches);
    Tensor sequence_output;
    {
      ModuleCall encode(context, encoder);
      Tensor hidden_states = encode.argument(embedding_output);
      const Tensor pairs = expand_mask(attention_mask, hidden_states.dtype());
      const auto block = [&](std::size_t i) -> BlockStack::Forward {
        return [&layer = layers[i], pairs](const Tensor& hidden) { return layer(hidden, pairs); };
      };
      TensorList positional;
      positional.push_back(pairs);
      hidden_states = blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block,
                                 {.nested = std::move(positional), .positional = true});
      sequence_output = encode.result(hidden_states);
    }
    const Tensor encoder_outputs = sequence_output;
    sequence_output = layernorm(sequence_output);
    return call.result(sequence_output);
  }

  Linear patch_projection;
  Embedding row_embedder, column_embedder;
  std::vector<Kosmos2_5VisionLayer> layers;
  BlockStack blocks;
  Norm layernorm;
  double dropout_rate = 0;
  CheckpointingConfig checkpointing;
  ModuleId embeddings = 0, encoder = 0, module = 0;
};

struct Kosmos2_5TextAttention {
  Kosmos2_5TextAttention() = default;
  Kosmos2_5TextAttention(const Builder& builder, const Kosmos2_5TextConfig& c, const ModelOptions& options,
                         bool is_causal)
      : head_dim(c.head_dim), call(attention_call(c, options)), module(builder.module) {
    call.causal = is_causal;
    if (is_causal) layer_idx = layer_index(builder);
    for (auto [projection, name] : {std::pair{&k_proj, "k_proj"}, std::pair{&v_proj, "v_proj"},
                                    std::pair{&q_proj, "q_proj"}, std::pair{&out_proj, "out_proj"}})
      *projection = Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, true);
  }

  AttentionOutputs operator()(const Tensor& argument, const Tensor& encoder_hidden_states,
                              const PositionEmbeddings& positions, const Tensor& attention_mask) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.keyword(argument),
                 current_states = encoder_hidden_states ? self.keyword(encoder_hidden_states) : hidden_states;
    AttentionInputs states;
    states.key = heads_of(k_proj(current_states), head_dim);
    states.value = heads_of(v_proj(current_states), head_dim);
    states.query = heads_of(q_proj(hidden_states), head_dim);
    states.query = mul_scalar(states.query);
    AttentionOutputs attention;
    if (encoder_hidden_states) {
      attention = attention_forward(call, states.query, states.key, states.value, attention_mask);
      attention.output = reshape(attention.output, hidden_states.sizes());
    } else {
      attention = attend(call, layer_idx, states, positions, attention_mask);
    }
    attention.output = self.result(out_proj(attention.output));
    return attention;
  }

  Linear k_proj, v_proj, q_proj, out_proj;
  std::int64_t head_dim = 0;
  AttentionCall call;
  std::size_t layer_idx = 0;
  ModuleId module = 0;
};

struct Kosmos2_5TextFFN {
  Kosmos2_5TextFFN(const Builder& builder, const Kosmos2_5TextConfig& c)
      : fc1(builder.child("fc1", "Linear"), c.hidden_size, c.intermediate_size, true),
        fc2(builder.child("fc2", "Linear"), c.intermediate_size, c.hidden_size, true),
        ffn_layernorm(builder.child("ffn_layernorm", "LayerNorm"), c.intermediate_size),
        dropout_rate(c.layer_dropout),
        activation_dropout(c.activation_dropout),
        activation_fn(c.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = call.argument(argument);
    {
      const Tensor inner = fc1(hidden_states);
      hidden_states = activate(activation_fn, inner);
    }
    hidden_states = dropout(hidden_states, activation_dropout);
    hidden_states = ffn_layernorm(hidden_states);
    hidden_states = fc2(hidden_states);
    return call.result(dropout(hidden_states, dropout_rate));
  }

  Linear fc1, fc2;
  LayerNorm ffn_layernorm;
  double dropout_rate, activation_dropout;
  Activation activation_fn;
  ModuleId module;
};

class Kosmos2_5TextBlock : public DecoderLayer {
 public:
  Kosmos2_5TextBlock(const Builder& builder, const Kosmos2_5TextConfig& c, const ModelOptions& options)
      : self_attn_(builder.child("self_attn", c.names->attention), c, options, true),
        self_attn_layer_norm_(builder.child("self_attn_layer_norm", "LayerNorm"), c.hidden_size),
        ffn_(builder.child("ffn", c.names->mlp), c),
        final_layer_norm_(builder.child("final_layer_norm", "LayerNorm"), c.hidden_size),
        dropout_(c.layer_dropout),
        module_(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    const ModuleScope scope(hidden_in.context(), module_);
    Tensor hidden_states = self_attn_layer_norm_(hidden_in);
    AttentionOutputs attention = self_attn_(hidden_states, {}, positions, attention_mask);
    hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
    hidden_states = dropout(hidden_states, dropout_);
    hidden_states = add(hidden_in, hidden_states);
    const Tensor residual = hidden_states;
    hidden_states = final_layer_norm_(hidden_states);
    hidden_states = ffn_(hidden_states);
    return add(residual, hidden_states);
  }

 private:
  Kosmos2_5TextAttention self_attn_;
  LayerNorm self_attn_layer_norm_;
  Kosmos2_5TextFFN ffn_;
  LayerNorm final_layer_norm_;
  double dropout_;
  ModuleId module_;
};

class Kosmos2_5 : public PositionedLM {
 public:
  Kosmos2_5(Context& context, const Kosmos2_5Config& c, const DataConfig& data, const ModelOptions& options)
      : PositionedLM(context, c.text.names->causal_lm, data, options),
        patches_{c.vision.max_num_patches, kOffset + c.vision.patch_embed_hidden_size},
        dropout_(c.text.layer_dropout) {
    const Builder causal_lm = root_.child("text_model", "Kosmos2_5TextForCausalLM", Modality::language);
    text_model_ = causal_lm.module;
    make_text(causal_lm, c.text, options);
    vision_model_ =
        Kosmos2_5VisionModel(root_.child("vision_model", "Kosmos2_5VisionModel", Modality::vision), c.vision, options);
    vision_model_.blocks.first_block = language_model_.layers.size();
    const Builder projection =
        root_.child("image_to_text_projection", "Kosmos2_5ImageToTextProjection", Modality::projector);
    projection_ = projection.module;
    dense_ = Linear(projection.child("dense", "Linear"), c.vision.hidden_size, c.text.hidden_size, true);
    latent_query_ = projection.parameter("latent_query", {c.latent_query_num, c.text.hidden_size});
    x_attn_ = Kosmos2_5TextAttention(projection.child("x_attn", c.text.names->attention), c.text, options, false);
  }

  bool activate_neftune() override { return false; }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    data_.images_per_sample = images_per_sample;
    if (data_.images() == 0) return;
    batch.pixel_values = empty(context_, Op::input, {data_.images(), patches_.first, patches_.second},
                               data_.pixel_dtype.value_or(dtype_), Role::input);
    batch.others.push_back(input({data_.micro_batch_size, data_.sequence_length}));
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    Tensor vision_model_output, image_embeds, projection_attentions;
    if (inputs.pixel_values) {
      vision_model_output = vision_model_(inputs.pixel_values);
      image_embeds = normalize(vision_model_output);
      AttentionOutputs projected = project_images(image_embeds);
      image_embeds = std::move(projected.output);
      projection_attentions = std::move(projected.weights);
    }
    ModelOutputs outputs;
    {
      const ModuleScope scope(context_, text_model_);
      image_embeds_ = image_embeds;
      image_embeds_position_mask_ = inputs.pixel_values ? inputs.others.front() : Tensor();
      Tensor hidden_states;
      {
        ModuleCall call(context_, language_model_.module);
        const MaskArguments given{inputs.position_ids, inputs.attention_mask, inputs.rows};
        hidden_states = call.result(decode(inputs.input_ids, given));
      }
      for (Tensor* own : {&image_embeds_, &image_embeds_position_mask_}) own->reset();
      outputs = causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function);
    }
    for (Tensor* own : {&image_embeds, &projection_attentions, &vision_model_output})
      if (*own) outputs.others.push_back(std::move(*own));
    return outputs;
  }

 private:
  void complete(ModelInputs& batch) override { make_images(batch, data_.images_per_sample); }

  void make_text(const Builder& causal_lm, const Kosmos2_5TextConfig& c, const ModelOptions& options) {
    const Builder model = causal_lm.child("model", c.names->model);
    begin_decoder(model, c, options);
    language_model_.embed_tokens = Embedding(model.child("embed_tokens", "Embedding"), c.vocab_size, c.hidden_size);
    const Builder positions = model.child("embed_positions", "Kosmos2_5TextSinusoidalPositionalEmbedding");
    embed_positions_ = positions.module;
    sines_ = make_sines(positions, c.max_position_embeddings + kOffset, c.hidden_size, options.dtype);
    segment_emb_ = Embedding(model.child("segment_emb", "Embedding"), 2, c.hidden_size);
    make_layers(model, "layers", c,
                [&](const Builder& layer) { return std::make_unique<Kosmos2_5TextBlock>(layer, c, options); });
    language_model_.norm = final_norm(torch_layer_norm, true)(model.child("layer_norm", "LayerNorm"), c.hidden_size);
    make_head(causal_lm, c, c.tie_word_embeddings);
  }

  AttentionOutputs project_images(const Tensor& given) const {
    ModuleCall call(context_, projection_);
    const Tensor features = call.argument(given);
    Tensor hidden_states = dense_(features);
    const Tensor latent_query =
        expand(unsqueeze(latent_query_, 0), {hidden_states.size(0), latent_query_.size(0), latent_query_.size(1)});
    const Tensor key_value_states = cat({hidden_states, latent_query}, 1);
    AttentionOutputs attention = x_attn_(latent_query, key_value_states, {}, {});
    attention.output = call.result(attention.output);
    return attention;
  }

  Tensor positions_of(const Tensor& input_ids) const {
    ModuleCall call(context_, embed_positions_);
    const NoGrad no_grad(context_);
    const Tensor position_ids = create_position_ids(input_ids);
    const Tensor rows = index_select(sines_, 0, view(position_ids, {position_ids.numel()}));
    return call.result(view(rows, {input_ids.size(0), input_ids.size(1), rows.size(1)}));
  }

  /// Of tokens.
  Tensor decode(const Tensor& input_ids, const MaskArguments& given) const override {
    Tensor inputs_embeds = embed(input_ids);
    if (image_embeds_) {
      inputs_embeds = clone(inputs_embeds);
      const Tensor typed = to(image_embeds_, inputs_embeds.dtype());
      const Tensor values = reshape(typed, {typed.size(0) * typed.size(1), typed.size(2)}),
                   mask = pointwise(Op::eq, {&image_embeds_position_mask_}, DType::boolean);
      inputs_embeds = index_put_mask_(std::move(inputs_embeds), mask, values);
    }
    inputs_embeds = mul_scalar(inputs_embeds);
    Tensor positions = positions_of(input_ids), segments, segment_embeds;
    if (image_embeds_) {
      {
        const Tensor marked = pointwise(Op::ne, {&image_embeds_position_mask_}, DType::boolean);
        segments = to(marked, DType::int64);
      }
      segment_embeds = segment_emb_(segments);
    } else {
      const Tensor zeros = empty(context_, Op::zeros, {positions.size(0), 1}, DType::int64);
      segment_embeds = segment_emb_(zeros);
    }
    positions = add_in_place(positions, segment_embeds);
    Tensor hidden_states = add(inputs_embeds, positions);
    hidden_states = dropout(hidden_states, dropout_);
    const Tensor attention_mask = causal_mask(inputs_embeds, given);
    hidden_states = dropout(hidden_states, dropout_);
    PositionEmbeddings of_layers;
    of_layers.rows = given.rows;
    hidden_states = run_layers(std::move(hidden_states), of_layers, attention_mask);
    return language_model_.norm(hidden_states);
  }

  std::pair<std::int64_t, std::int64_t> patches_;  ///< of an image, and what is known of each
  double dropout_;
  ModuleId text_model_ = 0, embed_positions_ = 0, projection_ = 0;
  Tensor sines_, latent_query_;
  Embedding segment_emb_;
  Kosmos2_5VisionModel vision_model_;
  Linear dense_;
  Kosmos2_5TextAttention x_attn_;
  Tensor image_embeds_, image_embeds_position_mask_;  ///< while forward runs
};

}  // namespace

std::unique_ptr<Model> build_kosmos2_5(Context& context, const Kosmos2_5Config& config, const DataConfig& data,
                                       const ModelOptions& options) {
  return std::make_unique<Kosmos2_5>(context, config, data, options);
}

}  // namespace oometer
