#include "models/llama4/llama4.h"

#include <utility>
#include <vector>

#include "models/kit/image_text.h"
#include "models/kit/recurrent.h"
#include "nn/attention.h"
#include "nn/block_stack.h"
#include "ops/integers.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

// vision_eager_attention_forward: the softmax has the weights' own type
AttentionOutputs vision_eager(const AttentionInputs& states, double attention_dropout) {
  const Context& context = states.query.context();
  Tensor weights;
  {
    const Tensor products = matmul(states.query, transpose(states.key, 2, 3));
    weights = mul_scalar(products);
  }
  weights = softmax(weights, context.autocast.enabled ? DType::float32 : weights.dtype());
  weights = dropout(weights, attention_dropout);
  const Tensor output = matmul(weights, states.value);
  return {contiguous(transpose(output, 1, 2)), weights};
}

struct Llama4VisionAttention {
  Llama4VisionAttention(const Builder& builder, const Llama4VisionConfig& c, const ModelOptions& options)
      : head_dim(c.head_dim()), call{options.attention, false, c.attention_dropout}, module(builder.module) {
    const auto linear = [&](const char* name) {
      return Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, true);
    };
    q_proj = linear("q_proj");
    k_proj = linear("k_proj");
    v_proj = linear("v_proj");
    o_proj = linear("o_proj");
  }

  AttentionOutputs operator()(const Tensor& argument, const Tensor& turns) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1), width = hidden_states.size(2);
    const auto heads = [&](const Linear& projection) {
      const Tensor x = projection(hidden_states);
      return view(x, {batch, length, width / head_dim, head_dim});
    };
    AttentionInputs states;
    states.query = heads(q_proj);
    states.key = heads(k_proj);
    states.value = heads(v_proj);
    {
      auto [query, key] = rotate_polar(states.query, states.key, turns);
      states.query = std::move(query);
      states.key = std::move(key);
    }
    for (Tensor* x : {&states.query, &states.key, &states.value}) *x = transpose(*x, 1, 2);
    AttentionOutputs attention = call.kind == AttentionKind::eager
                                     ? vision_eager(states, call.dropout)
                                     : attention_forward(call, states.query, states.key, states.value, {});
    attention.output = reshape(attention.output, {batch, length, width});
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  std::int64_t head_dim;
  AttentionCall call;
  ModuleId module;
};

struct Llama4VisionMLP {
  Llama4VisionMLP(const Builder& builder, const Llama4VisionConfig& c)
      : fc1(builder.child("fc1", "Linear"), c.hidden_size, c.intermediate_size, true),
        fc2(builder.child("fc2", "Linear"), c.intermediate_size, c.hidden_size, true),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = fc1(call.argument(argument));
    hidden_states = gelu(hidden_states);
    return call.result(fc2(hidden_states));
  }

  Linear fc1, fc2;
  ModuleId module;
};

struct Llama4VisionEncoderLayer {
  Llama4VisionEncoderLayer(const Builder& builder, const Llama4VisionConfig& c, const ModelOptions& options)
      : self_attn(builder.child("self_attn", "Llama4VisionAttention"), c, options),
        mlp(builder.child("mlp", "Llama4VisionMLP"), c),
        input_layernorm(builder.child("input_layernorm", "LayerNorm"), c.hidden_size),
        post_attention_layernorm(builder.child("post_attention_layernorm", "LayerNorm"), c.hidden_size),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const Tensor& turns) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in;
    Tensor hidden_state = input_layernorm(hidden_in);
    AttentionOutputs attention = self_attn(hidden_state, turns);  // hidden_state, attn_weights
    hidden_state = std::move(attention.output);
    hidden_state = add(residual, hidden_state);
    residual = hidden_state;
    hidden_state = post_attention_layernorm(hidden_state);
    hidden_state = mlp(hidden_state);
    return add(residual, hidden_state);
  }

  Llama4VisionAttention self_attn;
  Llama4VisionMLP mlp;
  LayerNorm input_layernorm, post_attention_layernorm;
  ModuleId module;
};

// `self.scale * torch.randn(...)`
Tensor scaled_parameter(const Builder& builder, const char* name, const Shape& sizes) {
  const Tensor noise = empty(*builder.context, Op::randn, sizes, builder.dtype);
  return builder.parameter(name, sizes);
}

/// Llama4VisionRotaryEmbedding.__init__: freqs_ci, complex, as pairs of float32.
Tensor make_freqs_ci(const Builder& builder, const Llama4VisionConfig& c) {
  Context& context = *builder.context;
  const ModuleScope scope(context, builder.module);
  const std::int64_t positions = c.num_positions(), half = c.head_dim() / 2, quarter = half / 2;
  const auto int32 = [&](Op op) { return empty(context, op, {positions, 1}, DType::int32); };
  const auto floats = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::float32); };
  // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
  Tensor freq_cis, freqs, freqs_y, freqs_x, rope_freq, frequencies_y, frequencies_x, img_idx;
  {
    const Tensor steps = empty(context, Op::arange, {positions - 1}, DType::int32);
    img_idx = int32(Op::cat);
  }
  frequencies_x = int32(Op::floor_divide);
  frequencies_y = int32(Op::floor_divide);
  {
    Tensor powers;
    {
      Tensor exponents;
      {
        const Tensor steps = integers(context, Op::arange, {quarter});
        exponents = floats(Op::to_copy, {quarter});
      }
      exponents = floats(Op::div, {quarter});
      powers = floats(Op::pow, {quarter});
      const Tensor base = empty(context, Op::empty, {}, DType::float64);
    }
    const Tensor inverse = floats(Op::reciprocal, {quarter});
    rope_freq = floats(Op::mul, {quarter});
  }
  const auto along = [&] {
    Tensor angles;
    {
      const Tensor next = int32(Op::add);
      angles = floats(Op::mul, {positions, 1, quarter});
    }
    return floats(Op::clone, {positions, 1, half});
  };
  freqs_x = along();
  freqs_y = along();
  freqs = floats(Op::cat, {positions, 1, 2 * half});
  {
    const Tensor is_class = empty(context, Op::lt, {positions, 1, 1}, DType::boolean);
    freqs = floats(Op::masked_fill, {positions, 1, half});
  }
  {
    const Tensor cosines = floats(Op::cos, freqs.sizes()), sines = floats(Op::sin, freqs.sizes());
    freq_cis = builder.buffer({positions, 1, half, 2}, DType::float32);
  }
  return freq_cis;
}

struct Llama4VisionAdapter {
  Llama4VisionAdapter() = default;
  Llama4VisionAdapter(const Builder& builder, const Llama4ImageConfig& config)
      : side(config.tokens_per_side()), dropout_p(config.vision.projector_dropout), module(builder.module) {
    const Llama4VisionConfig& c = config.vision;
    const Builder its_mlp = builder.child("mlp", "Llama4VisionMLP2");
    mlp = its_mlp.module;
    fc1 = Linear(its_mlp.child("fc1", "Linear"), c.intermediate_size, c.projector_input_dim, false);
    fc2 = Linear(its_mlp.child("fc2", "Linear"), c.projector_output_dim, c.projector_output_dim, false);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor encoded_patches = pixel_shuffle(call.argument(argument));
    return call.result(project(encoded_patches));
  }

  Tensor pixel_shuffle(const Tensor& given) const {
    const std::int64_t batch = given.size(0);
    std::int64_t patches = 1;
    while (patches * patches < given.size(1)) ++patches;
    const std::int64_t factor = patches / side, channels = given.size(2) * factor;
    const Tensor input_tensor = view(given, {batch, patches, patches, given.size(2)});
    Tensor reshaped_tensor = view(input_tensor, {batch, patches, side, channels});
    reshaped_tensor = contiguous(permute(reshaped_tensor, {0, 2, 1, 3}));
    reshaped_tensor = view(reshaped_tensor, {batch, side, side, channels * factor});
    reshaped_tensor = contiguous(permute(reshaped_tensor, {0, 2, 1, 3}));
    return view(reshaped_tensor, {batch, side * side, channels * factor});
  }

  Tensor project(const Tensor& argument) const {
    ModuleCall call(argument.context(), mlp);
    Tensor hidden_states = fc1(call.argument(argument));
    hidden_states = gelu(hidden_states);
    hidden_states = dropout(hidden_states, dropout_p);
    const Tensor projected = fc2(hidden_states);
    return call.result(gelu(projected));
  }

  Linear fc1, fc2;
  std::int64_t side = 0;
  double dropout_p = 0;
  ModuleId mlp = 0, module = 0;
};

struct Llama4VisionModel {
  Llama4VisionModel() = default;
  Llama4VisionModel(const Builder& builder, const Llama4ImageConfig& config, const ModelOptions& options)
      : image_size(config.vision.image_size),
        patch_size(config.vision.patch_size),
        checkpointing(options.checkpointing),
        module(builder.module) {
    const Llama4VisionConfig& c = config.vision;
    const Builder embedding = builder.child("patch_embedding", "Llama4UnfoldConvolution");
    patch_embedding = embedding.module;
    unfold = embedding.child("unfold", "Unfold").module;
    linear = Linear(embedding.child("linear", "Linear"), c.patch_elements(), c.hidden_size, false);
    builder.children_are_through();
    class_embedding = scaled_parameter(builder, "class_embedding", {c.hidden_size});
    positional_embedding_vlm =
        scaled_parameter(builder, "positional_embedding_vlm", {c.num_positions(), c.hidden_size});
    const Builder rotary = builder.child("rotary_embedding", "Llama4VisionRotaryEmbedding");
    rotary_embedding = rotary.module;
    freqs_ci = make_freqs_ci(rotary, c);
    layernorm_pre = LayerNorm(builder.child("layernorm_pre", "LayerNorm"), c.hidden_size);
    layernorm_post = LayerNorm(builder.child("layernorm_post", "LayerNorm"), c.hidden_size);
    const Builder inner = builder.child("model", "Llama4VisionEncoder");
    encoder = inner.module;
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    stack = BlockStack(inner);
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(inner.child("layers", kLlama4VisionLayer, i), c, options);
      stack.add_block(inner);
    }
    vision_adapter = Llama4VisionAdapter(builder.child("vision_adapter", "Llama4VisionPixelShuffleMLP"), config);
  }

  Tensor operator()(const Tensor& pixel_values) const {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    Tensor hidden_state = embed_patches(call.argument(pixel_values));
    const std::int64_t batch = hidden_state.size(0), width = hidden_state.size(2);
    const Tensor class_embeds = expand(class_embedding, {batch, 1, width});
    hidden_state = cat({hidden_state, class_embeds}, 1);
    const std::int64_t positions = hidden_state.size(1);
    hidden_state = view(hidden_state, {batch, 1, positions, width});
    hidden_state = add(hidden_state, to(positional_embedding_vlm, hidden_state.dtype()));
    hidden_state = layernorm_pre(hidden_state);
    hidden_state = view(hidden_state, {batch, positions, width});
    const Shape& pairs = freqs_ci.sizes();
    const Tensor turns = view(freqs_ci, {1, positions, 1, pairs[2], 2});
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], turns](const Tensor& hidden) { return layer(hidden, turns); };
    };
    Tensor output;
    {
      ModuleCall inner(context, encoder);
      if (checkpointing.mode == CheckpointMode::reentrant)
        context.refusal = Error{"not-modelled", "/training/activation_checkpointing",
                                "found reentrant checkpoints, in which this class's tower gets no gradients, as its "
                                "layers are called with keywords alone; that is not supported yet: expected "
                                "non-reentrant ones"};
      output = inner.result(stack.run(0, layers.size(), hidden_state, checkpointing, block));
    }
    hidden_state = output;
    hidden_state = layernorm_post(hidden_state);
    hidden_state = slice(hidden_state, 1, 0, positions - 1);
    hidden_state = vision_adapter(hidden_state);
    return call.result(hidden_state);
  }

  // Llama4UnfoldConvolution.forward
  Tensor embed_patches(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, patch_embedding);
    const Tensor pixel_values = call.argument(argument);
    if (pixel_values.dtype() != linear.weight.dtype() && !linear.quantized && !context.autocast.enabled)
      context.refusal = Error{"inconsistent", "/training/precision",
                              "found weights of another type than the processor's bfloat16 images, which this class "
                              "gives to a layer as they are: expected bfloat16, or autocast"};
    const std::int64_t side = image_size / patch_size;
    Tensor hidden_states = unfolded(pixel_values, side * side);
    hidden_states = permute(hidden_states, {0, 2, 1});
    hidden_states = linear(hidden_states);
    require_input_grad(checkpointing, hidden_states, patch_embedding);
    return call.result(hidden_states);
  }

  Tensor unfolded(const Tensor& argument, std::int64_t patches) const {
    ModuleCall call(argument.context(), unfold);
    return call.result(
        im2col(call.argument(argument), {argument.size(0), argument.size(1) * patch_size * patch_size, patches}));
  }

  std::int64_t image_size = 0, patch_size = 0;
  Linear linear;
  Tensor class_embedding, positional_embedding_vlm, freqs_ci;
  LayerNorm layernorm_pre, layernorm_post;
  std::vector<Llama4VisionEncoderLayer> layers;
  Llama4VisionAdapter vision_adapter;
  CheckpointingConfig checkpointing;
  BlockStack stack;
  ModuleId patch_embedding = 0, unfold = 0, rotary_embedding = 0, encoder = 0, module = 0;
};

class Llama4 : public LanguageModel {
 public:
  Llama4(Context& context, const Llama4ImageConfig& config, const DataConfig& data, const ModelOptions& options)
      : LanguageModel(context, kLlama4, Modality::none, data, options), config_(config) {
    vision_model_ =
        Llama4VisionModel(root_.child("vision_model", "Llama4VisionModel", Modality::vision), config, options);
    const Builder projector = root_.child("multi_modal_projector", "Llama4MultiModalProjector", Modality::projector);
    multi_modal_projector_ = projector.module;
    linear_1_ =
        Linear(projector.child("linear_1", "Linear"), config.vision.vision_output_dim, config.text.hidden_size, false);
    const Builder language = root_.child("language_model", kLlama4TextNames.causal_lm, Modality::language);
    causal_lm_ = language.module;
    DecoderParts parts = llama4_text_parts(config.text, options);
    complete_parts(parts, config.text);
    make_decoder(language.child("model", kLlama4TextNames.model), config.text, options, std::move(parts));
    language_model_.blocks.first_block = vision_model_.stack.size();
    make_head(language, config.text, config.text.tie_word_embeddings);
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    data_.images_per_sample = images_per_sample;
    if (data_.images() == 0) return;
    const Llama4VisionConfig& v = config_.vision;
    // Llama4ImageProcessor gives them in bfloat16.
    batch.pixel_values = input({data_.all_tiles(), v.num_channels, v.image_size, v.image_size},
                               data_.pixel_dtype ? DType::bfloat16 : dtype_);
  }

  TensorList encoded_images(const ModelInputs& batch) override {
    if (!batch.pixel_values) return {};
    return {vision_model_(batch.pixel_values)};
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor special_image_mask, projected_vision_flat, image_features;
    Tensor inputs_embeds = language_model_.embed(inputs.input_ids);
    if (has_images(inputs)) {
      image_features = inputs.images ? inputs.images->front() : vision_model_(inputs.pixel_values);
      const std::int64_t width = image_features.size(-1);
      projected_vision_flat = project(view(image_features, {image_features.numel() / width, width}));
      projected_vision_flat = to(projected_vision_flat, inputs_embeds.dtype());
      special_image_mask = placeholder_mask(inputs.input_ids);
      inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, projected_vision_flat);
    }
    Tensor logits = run_causal_lm(inputs_embeds, inputs);
    ModelOutputs outputs;
    if (inputs.labels) outputs.loss = (*loss_function)(logits, inputs.labels);
    outputs.others.push_back(std::move(logits));
    if (image_features) outputs.others.push_back(image_features);
    return outputs;
  }

 private:
  void complete(ModelInputs& batch) override { make_images(batch, data_.images_per_sample); }

  Tensor project(const Tensor& argument) const {
    ModuleCall call(context_, multi_modal_projector_);
    return call.result(linear_1_(call.argument(argument)));
  }

  // Llama4ForCausalLM.forward, which is given no labels
  Tensor run_causal_lm(const Tensor& inputs_embeds, const ModelInputs& inputs) const {
    ModuleCall call(context_, causal_lm_);
    Tensor hidden_states =
        run_decoder(inputs_embeds, {inputs.position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q});
    const std::int64_t length = hidden_states.size(1), kept = inputs.logits_to_keep;
    if (kept != 0 && kept < length) hidden_states = slice(hidden_states, 1, length - kept, kept);
    return call.result(lm_head_(hidden_states));
  }

  Llama4ImageConfig config_;
  Llama4VisionModel vision_model_;
  Linear linear_1_;
  ModuleId multi_modal_projector_ = 0, causal_lm_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_llama4(Context& context, const Llama4ImageConfig& config, const DataConfig& data,
                                    const ModelOptions& options) {
  return std::make_unique<Llama4>(context, config, data, options);
}

}  // namespace oometer
