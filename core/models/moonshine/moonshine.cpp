#include "models/moonshine/moonshine.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "models/cross_mask.h"
#include "models/kit/audio_input.h"
#include "models/kit/norms.h"
#include "models/kit/shift_tokens.h"
#include "models/kit/text_attention.h"
#include "models/llama/llama.h"
#include "models/masking.h"
#include "models/wav2vec2/parts.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

std::int64_t MoonshineConfig::samples(double seconds) {
  return static_cast<std::int64_t>(std::llround(seconds * 16'000));
}

std::int64_t MoonshineConfig::states(std::int64_t samples) {
  const auto convolved = [](std::int64_t length, std::int64_t kernel, std::int64_t stride) {
    return length < kernel ? 0 : (length - kernel) / stride + 1;
  };
  return convolved(convolved(convolved(samples, 127, 64), 7, 3), 3, 2);
}

namespace {

/// enable_input_require_grads, which adapters call; the main input is no text.
void require_grad_for_adapters(const CheckpointingConfig& checkpointing, Tensor& embeddings, ModuleId module) {
  if (checkpointing.input_require_grads) require_input_grad(checkpointing, embeddings, module);
}

/// nn.LayerNorm(bias=False)
Norm make_norm(const Builder& parent, const char* name, const MoonshineConfig& c) {
  return Norm(parent.child(name, "LayerNorm"), torch_layer_norm, {c.hidden_size});
}

struct Conv1d {
  Conv1d() = default;
  Conv1d(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel,
         std::int64_t stride, bool has_bias)
      : options{.stride = {stride}, .padding = {0}, .dilation = {1}, .output_padding = {0}}, module(builder.module) {
    weight = builder.parameter("weight", {out_channels, in_channels, kernel});
    if (has_bias) bias = builder.parameter("bias", {out_channels});
  }

  Tensor operator()(const Tensor& x) const {
    ModuleCall call(x.context(), module);
    return call.result(convolution(call.argument(x), weight, bias, options));
  }

  Tensor weight, bias;
  ConvolutionOptions options;
  ModuleId module = 0;
};

struct MoonshineAttention {
  MoonshineAttention(const Builder& builder, const MoonshineConfig& c, const ModelOptions& options, bool is_causal)
      : head_dim(c.head_size),
        head_dim_padding(c.padded_size - c.head_size),
        call{.kind = options.attention, .causal = is_causal, .dropout = c.attention_dropout},
        module(builder.module) {
    const std::int64_t width = c.num_attention_heads * head_dim;
    const auto projection = [&](const char* name) {
      return Linear(builder.child(name, "Linear"), c.hidden_size, width, c.attention_bias);
    };
    q_proj = projection("q_proj");
    k_proj = projection("k_proj");
    v_proj = projection("v_proj");
    o_proj = Linear(builder.child("o_proj", "Linear"), width, c.hidden_size, false);
  }

  /// `key_value_states`: null in self-attention. `positions`: of self-attention.
  AttentionOutputs operator()(const Tensor& argument, const Tensor& key_value_states,
                              const PositionEmbeddings& positions, const Tensor& mask) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    AttentionInputs states;
    states.query = heads_of(q_proj(hidden_states), head_dim);
    const Tensor& current_states = key_value_states ? key_value_states : hidden_states;
    states.key = heads_of(k_proj(current_states), head_dim);
    states.value = heads_of(v_proj(current_states), head_dim);
    if (!key_value_states) {
      auto [query, key] = rotate_first_pairs(states.query, states.key, positions);
      states.query = std::move(query);
      states.key = std::move(key);
    }
    if (head_dim_padding > 0) {
      states.query = pad(states.query, 3, head_dim_padding);
      states.key = pad(states.key, 3, head_dim_padding);
      states.value = pad(states.value, 3, head_dim_padding);
    }
    AttentionOutputs attention = attention_forward(call, states.query, states.key, states.value, mask);
    if (head_dim_padding > 0) attention.output = slice(attention.output, 3, 0, head_dim);
    const Shape& heads = attention.output.sizes();
    attention.output = reshape(attention.output, {heads[0], heads[1], checked_product(heads[2], heads[3])});
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  std::int64_t head_dim, head_dim_padding;
  Linear q_proj, k_proj, v_proj, o_proj;
  AttentionCall call;
  ModuleId module;
};

/// MoonshineEncoderMLP, and MoonshineDecoderMLP, which has a gate.
struct MoonshineMLP {
  MoonshineMLP(const Builder& builder, const MoonshineConfig& c, bool its_gate)
      : fc1(builder.child("fc1", "Linear"), c.hidden_size, (its_gate ? 2 : 1) * c.intermediate_size, true),
        fc2(builder.child("fc2", "Linear"), c.intermediate_size, c.hidden_size, true),
        activation_fn(its_gate ? c.decoder_hidden_act : c.hidden_act),
        has_gate(its_gate),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor gate, hidden_states = fc1(call.argument(argument));
    if (has_gate) {
      const std::int64_t width = hidden_states.size(-1) / 2;
      {
        TensorList halves = split(hidden_states, {width, width}, 2);
        hidden_states = halves[0];
        gate = halves[1];
      }
      const Tensor activated = activate(activation_fn, gate);
      hidden_states = mul(activated, hidden_states);
    } else {
      hidden_states = activate(activation_fn, hidden_states);
    }
    return call.result(fc2(hidden_states));
  }

  Linear fc1, fc2;
  Activation activation_fn;
  bool has_gate;
  ModuleId module;
};

/// MoonshineEncoderLayer, MoonshineDecoderLayer: the second has attention to what the encoder gave, too.
struct MoonshineLayer {
  MoonshineLayer(const Builder& builder, const MoonshineConfig& c, const ModelOptions& options, bool is_decoder)
      : self_attn(builder.child("self_attn", "MoonshineAttention"), c, options, is_decoder), module(builder.module) {
    if (is_decoder) encoder_attn.emplace(builder.child("encoder_attn", "MoonshineAttention"), c, options, false);
    mlp.emplace(builder.child("mlp", is_decoder ? "MoonshineDecoderMLP" : "MoonshineEncoderMLP"), c, is_decoder);
    input_layernorm = make_norm(builder, "input_layernorm", c);
    post_attention_layernorm = make_norm(builder, "post_attention_layernorm", c);
    if (is_decoder) final_layernorm = make_norm(builder, "final_layernorm", c);
  }

  /// `encoder_hidden_states`: of a decoder's layer, and which of them it sees.
  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions, const Tensor& mask,
                    const Tensor& encoder_hidden_states, const Tensor& encoder_attention_mask) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in, weights;  // `_`
    Tensor hidden_states = input_layernorm(hidden_in);
    const auto attend_with = [&](const MoonshineAttention& attention, const Tensor& keys, const Tensor& its_mask) {
      AttentionOutputs outputs = attention(hidden_states, keys, positions, its_mask);
      hidden_states = std::move(outputs.output);
      weights = std::move(outputs.weights);
      hidden_states = add(residual, hidden_states);
      residual = hidden_states;
    };
    attend_with(self_attn, {}, mask);
    hidden_states = post_attention_layernorm(hidden_states);
    if (encoder_attn) {
      attend_with(*encoder_attn, encoder_hidden_states, encoder_attention_mask);
      hidden_states = final_layernorm(hidden_states);
    }
    hidden_states = (*mlp)(hidden_states);
    return add(residual, hidden_states);
  }

  MoonshineAttention self_attn;
  std::optional<MoonshineAttention> encoder_attn;
  std::optional<MoonshineMLP> mlp;
  Norm input_layernorm, post_attention_layernorm, final_layernorm;
  ModuleId module;
};

LlamaRotaryEmbedding make_rotary(const Builder& parent, const MoonshineConfig& c) {
  LlamaConfig of_rotary;
  of_rotary.head_dim = c.rotary_dim;
  return LlamaRotaryEmbedding(parent.child("rotary_emb", "MoonshineRotaryEmbedding"), of_rotary);
}

struct MoonshineEncoder {
  MoonshineEncoder() = default;
  MoonshineEncoder(const Builder& builder, const MoonshineConfig& c, const ModelOptions& options)
      : conv1(builder.child("conv1", "Conv1d"), 1, c.hidden_size, 127, 64, false),
        conv2(builder.child("conv2", "Conv1d"), c.hidden_size, 2 * c.hidden_size, 7, 3, true),
        conv3(builder.child("conv3", "Conv1d"), 2 * c.hidden_size, c.hidden_size, 3, 2, true),
        masked(masked_by(options.attention)),
        checkpointing(options.checkpointing),
        module(builder.module) {
    const Builder norm = builder.child("groupnorm", "GroupNorm");
    groupnorm_module = norm.module;
    groupnorm_weight = norm.parameter("weight", {c.hidden_size});
    groupnorm_bias = norm.parameter("bias", {c.hidden_size});
    blocks = BlockStack(builder);
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(builder.child("layers", "MoonshineEncoderLayer", i), c, options, false);
      blocks.add_block(builder);
    }
    layer_norm = make_norm(builder, "layer_norm", c);
    rotary_emb = make_rotary(builder, c);
  }

  /// `source`: the mask of the states.
  Tensor operator()(const Tensor& argument, const MaskArguments& source) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor given = call.argument(argument);
    check_audio_input(context, given, conv1.weight);
    const Tensor input_values = unsqueeze(given, 1);
    Tensor hidden_states;
    {
      Tensor convolved = conv1(input_values);
      require_grad_for_adapters(checkpointing, convolved, conv1.module);
      hidden_states = tanh(convolved);
    }
    {
      ModuleCall norm(context, groupnorm_module);
      hidden_states = norm.result(group_norm(norm.argument(hidden_states), 1, groupnorm_weight, groupnorm_bias));
    }
    for (const Conv1d* conv : {&conv2, &conv3}) {
      const Tensor convolved = (*conv)(hidden_states);
      hidden_states = activate(Activation::gelu, convolved);
    }
    hidden_states = permute(hidden_states, {0, 2, 1});
    const Tensor attention_mask = create_cross_mask(hidden_states, hidden_states, source, masked);
    const Tensor position_ids = integers(context, Op::arange, {1, hidden_states.size(1)});
    PositionEmbeddings positions = rotary_emb(hidden_states, position_ids);
    positions.position_ids = position_ids;  // each layer is given them, too
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], positions, attention_mask](const Tensor& hidden) {
        return layer(hidden, positions, attention_mask, {}, {});
      };
    };
    hidden_states = blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block);
    hidden_states = layer_norm(hidden_states);
    return call.result(hidden_states);
  }

  Conv1d conv1, conv2, conv3;
  Tensor groupnorm_weight, groupnorm_bias;
  std::vector<MoonshineLayer> layers;
  BlockStack blocks;
  Norm layer_norm;
  LlamaRotaryEmbedding rotary_emb;
  MaskedBy masked = MaskedBy::sdpa;
  CheckpointingConfig checkpointing;
  ModuleId module = 0, groupnorm_module = 0;
};

struct MoonshineDecoder {
  MoonshineDecoder() = default;
  MoonshineDecoder(const Builder& builder, const MoonshineConfig& c, const ModelOptions& options)
      : embed_tokens(builder.child("embed_tokens", "Embedding"), c.vocab_size, c.hidden_size),
        blocks(builder),
        masked(masked_by(options.attention)),
        checkpointing(options.checkpointing),
        module(builder.module) {
    layers.reserve(static_cast<std::size_t>(c.decoder_layers));
    for (std::int32_t i = 0; i < c.decoder_layers; ++i) {
      layers.emplace_back(builder.child("layers", "MoonshineDecoderLayer", i), c, options, true);
      blocks.add_block(builder);
    }
    norm = make_norm(builder, "norm", c);
    rotary_emb = make_rotary(builder, c);
  }

  Tensor operator()(const Tensor& input_ids, const Tensor& encoder_hidden_states, const MaskArguments& source) const {
    Context& context = input_ids.context();
    ModuleCall call(context, module);
    const Tensor inputs_embeds = embed_tokens(input_ids, [&](Tensor& embeddings) {
      require_grad_for_adapters(checkpointing, embeddings, embed_tokens.module);
    });
    Tensor position_ids;
    {
      const Tensor range = integers(context, Op::arange, {input_ids.size(1)});
      position_ids = integers(context, Op::add, {1, input_ids.size(1)});
    }
    const Tensor causal_mask = create_causal_mask(inputs_embeds, {position_ids, {}}, masked);
    const Tensor encoder_attention_mask = create_cross_mask(inputs_embeds, encoder_hidden_states, source, masked);
    Tensor hidden_states = inputs_embeds;
    PositionEmbeddings positions = rotary_emb(hidden_states, position_ids);
    positions.position_ids = position_ids;  // each layer is given them, too
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], positions, causal_mask, encoder_hidden_states,
              encoder_attention_mask](const Tensor& hidden) {
        return layer(hidden, positions, causal_mask, encoder_hidden_states, encoder_attention_mask);
      };
    };
    hidden_states = blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block, {.positional = true});
    hidden_states = norm(hidden_states);
    return call.result(hidden_states);
  }

  Embedding embed_tokens;
  std::vector<MoonshineLayer> layers;
  BlockStack blocks;
  Norm norm;
  LlamaRotaryEmbedding rotary_emb;
  MaskedBy masked = MaskedBy::sdpa;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

class MoonshineForConditionalGeneration : public EncoderModel {
 public:
  MoonshineForConditionalGeneration(Context& context, const MoonshineConfig& c, const DataConfig& data,
                                    const ModelOptions& options)
      : EncoderModel(context, c, data, options),
        dtype_(options.dtype),
        is_reentrant_(options.checkpointing.mode == CheckpointMode::reentrant) {
    loss_type = LossType::masked_lm;  // ForCausalLMLoss with labels that are shifted already: the same
    ModelOptions its = options;
    if (is_reentrant_) its.checkpointing.mode = CheckpointMode::none;  // it is refused
    const Builder model = root_.child("model", "MoonshineModel");
    model_ = model.module;
    encoder_ = MoonshineEncoder(model.child("encoder", "MoonshineEncoder"), c, its);
    decoder_ = MoonshineDecoder(model.child("decoder", "MoonshineDecoder"), c, its);
    decoder_.blocks.first_block = encoder_.layers.size();
    proj_out_ = Linear(root_.child("proj_out", "Linear"), c.hidden_size, c.vocab_size, false);
    if (c.tie_word_embeddings) tie_weight(proj_out_.weight, proj_out_.module, decoder_.embed_tokens.weight);
  }

  ModelInputs make_inputs(bool with_labels) override {
    // What is shorter than a state is refused by forward.
    const Shape samples{data_.micro_batch_size,
                        std::max<std::int64_t>(MoonshineConfig::samples(data_.audio_seconds), 895)};
    ModelInputs batch;
    batch.input_features = empty(context_, Op::input, samples, data_.pixel_dtype.value_or(dtype_), Role::input);
    batch.attention_mask = empty(context_, Op::input, samples, DType::int32, Role::input);
    Tensor& targets = with_labels ? batch.labels : batch.input_ids;
    targets = empty(context_, Op::input, {data_.micro_batch_size, data_.sequence_length}, DType::int64, Role::input);
    batch.rows = &data_.rows;
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    if (is_reentrant_)
      context_.refusal =
          Error{"not-modelled", "/training/activation_checkpointing",
                "found \"reentrant\", which is not supported yet with decoders that see an encoder's states; expected "
                "\"non-reentrant\""};
    if (MoonshineConfig::states(MoonshineConfig::samples(data_.audio_seconds)) < 1)
      context_.refusal = too_few_states(1, 895);
    const Tensor decoder_input_ids = inputs.labels ? shift_tokens_right(inputs.labels) : inputs.input_ids;
    const std::int64_t batch = inputs.attention_mask.size(0), samples = inputs.attention_mask.size(1),
                       states = MoonshineConfig::states(samples);
    // attention_mask[..., ::384][..., :states]
    Rows rows;
    rows.has_mask = true;
    rows.documents.assign(static_cast<std::size_t>(batch), {states});
    MaskArguments source;
    source.attention_mask = make_view(inputs.attention_mask, {batch, states}, {samples, 384});
    source.rows = &rows;
    Tensor encoder_states, decoder_states;
    {
      ModuleCall call(context_, model_);
      encoder_states = encoder_(inputs.input_features, source);
      decoder_states = call.result(decoder_(decoder_input_ids, encoder_states, source));
    }
    ModelOutputs outputs = outputs_of(proj_out_(decoder_states), inputs);
    outputs.others.push_back(std::move(encoder_states));
    return outputs;
  }

 private:
  DType dtype_;
  bool is_reentrant_;
  ModuleId model_ = 0;
  MoonshineEncoder encoder_;
  MoonshineDecoder decoder_;
  Linear proj_out_;
};

}  // namespace

std::unique_ptr<Model> build_moonshine(Context& context, const MoonshineConfig& config, const DataConfig& data,
                                       const ModelOptions& options) {
  return std::make_unique<MoonshineForConditionalGeneration>(context, config, data, options);
}

}  // namespace oometer
