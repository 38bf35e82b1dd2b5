#include <utility>

#include "config/reader.h"
#include "models/gpt2/gpt2.h"
#include "models/kit/positioned.h"
#include "ops/ops.h"

/// transformers 5.23, models/gpt_bigcode/modeling_gpt_bigcode.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"GPTBigCodeForCausalLM",
                                 "GPTBigCodeModel",
                                 "GPTBigCodeBlock",
                                 "GPTBigCodeAttention",
                                 "GPTBigCodeMLP",
                                 "LayerNorm",
                                 ""};
constexpr ModelClass kClasses[] = {{"gpt_bigcode", kNames.causal_lm},
                                   {"gpt_bigcode", "GPTBigCodeForSequenceClassification"},
                                   {"gpt_bigcode", "GPTBigCodeForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig c = read_gpt2_config(reader, kNames, Activation::gelu_tanh);
  if (reader.boolean("multi_query", true)) c.num_key_value_heads = 1;
  reader.ignore({"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "inference_runner",
                 "validate_runner_input", "pre_allocate_kv_cache", "max_sequence_length", "max_batch_size",
                 "pad_key_length"});
  return c;
}

struct GPTBigCodeAttention {
  GPTBigCodeAttention(const Builder& builder, const TextConfig& c, const ModelOptions& options)
      : num_heads(c.num_attention_heads),
        kv_heads(c.num_key_value_heads),
        head_dim(c.head_dim),
        resid_dropout(c.residual_dropout),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    const std::int64_t embed_dim = c.hidden_size;
    c_attn = Linear(builder.child("c_attn", "Linear"), embed_dim, embed_dim + 2 * kv_heads * head_dim, true);
    c_proj = Linear(builder.child("c_proj", "Linear"), embed_dim, embed_dim, true);
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(hidden_states.context(), module);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1);
    AttentionInputs states;
    if (kv_heads == 1) {
      const TensorList pieces =
          split(unsqueeze(c_attn(hidden_states), 1), {num_heads * head_dim, head_dim, head_dim}, 3);
      states = {pieces[0], pieces[1], pieces[2]};
      states.query = transpose(view(states.query, {batch, length, num_heads, head_dim}), 1, 2);
    } else {
      const Tensor fused = transpose(view(c_attn(hidden_states), {batch, length, num_heads, 3 * head_dim}), 1, 2);
      const TensorList pieces = split(fused, {head_dim, head_dim, head_dim}, 3);
      states = {pieces[0], pieces[1], pieces[2]};
    }
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask);
    attention.output = c_proj(attention.output);
    attention.output = self.result(dropout(attention.output, resid_dropout));
    return attention;
  }

  Linear c_attn, c_proj;
  std::int64_t num_heads, kv_heads, head_dim;
  double resid_dropout;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options) {
  auto layer = std::make_unique<TextLayer>(builder, gpt2_block);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), torch_layer_norm, {c.hidden_size}, true);
  };
  layer->input_norm = norm("ln_1");
  layer->self_attn = GPTBigCodeAttention(builder.child("attn", kNames.attention), c, options);
  layer->feedforward_norm = norm("ln_2");
  layer->mlp = PlainMLP(builder.child("mlp", kNames.mlp), c, "c_fc", "c_proj", true);
  return layer;
}

class GPTBigCodeForCausalLM : public PositionedLM {
 public:
  GPTBigCodeForCausalLM(Context& context, const TextConfig& c, const DataConfig& data, const ModelOptions& options)
      : PositionedLM(context, c, data, options), drop_(c.embedding_dropout) {
    const Builder transformer = root_.child("transformer", kNames.model);
    begin_decoder(transformer, c, options);
    language_model_.embed_tokens = Embedding(transformer.child("wte", "Embedding"), c.vocab_size, c.hidden_size);
    wpe_ = Embedding(transformer.child("wpe", "Embedding"), c.max_position_embeddings, c.hidden_size);
    make_layers(transformer, "h", c, [&](const Builder& layer) { return make_layer(layer, c, options); });
    language_model_.norm = final_norm(torch_layer_norm, true)(transformer.child("ln_f", "LayerNorm"), c.hidden_size);
    {
      const Shape sizes{c.max_position_embeddings, c.max_position_embeddings};
      const Tensor ones = empty(context, Op::ones_like, sizes, DType::boolean);
      transformer.buffer(sizes, DType::boolean);  // a mask that nothing reads any more
    }
    make_head(root_, c);
  }

 private:
  Tensor decode(const Tensor& inputs_embeds, const MaskArguments& given) const override {
    const ModuleScope scope(context_, language_model_.module);
    MaskArguments with_positions = given;
    if (!given.position_ids) with_positions.position_ids = language_model_.positions(context_, inputs_embeds.size(1));
    const Tensor mask = causal_mask(inputs_embeds, with_positions);
    const Tensor position_embeds = wpe_(with_positions.position_ids);
    Tensor hidden_states = add(inputs_embeds, position_embeds);
    hidden_states = dropout(hidden_states, drop_);
    PositionEmbeddings positions;
    positions.rows = given.rows;
    hidden_states = run_layers(std::move(hidden_states), positions, mask);
    return language_model_.norm(hidden_states);
  }

  Embedding wpe_;
  double drop_;
};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = gpt2_traits(config);
  allow_compared(t, {Feature::quantization, Feature::zero3});
  return t;
}

}  // namespace

namespace family {
extern const Family gpt_bigcode = positioned_family<TextConfig, read, GPTBigCodeForCausalLM>(
    kClasses, kBlocks, traits,
    without_dropout<TextConfig, &TextConfig::residual_dropout, &TextConfig::embedding_dropout>);
}  // namespace family

}  // namespace oometer
