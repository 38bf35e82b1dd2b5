#include <utility>

#include "config/reader.h"
#include "models/gpt2/gpt2.h"
#include "models/kit/positioned.h"
#include "ops/ops.h"

/// transformers 5.23, models/gpt2/modeling_gpt2.py. Conv1D (pytorch_utils.py) allocates what a Linear with a bias does:
/// its weight is the transposed one, and both call addmm.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"GPT2LMHeadModel", "GPT2Model", "GPT2Block", "GPT2Attention",
                                 "GPT2MLP",         "LayerNorm", ""};
constexpr ModelClass kClasses[] = {{"gpt2", kNames.causal_lm},
                                   {"gpt2", "GPT2ForSequenceClassification"},
                                   {"gpt2", "GPT2ForTokenClassification"},
                                   {"gpt2", "GPT2ForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig c = read_gpt2_config(reader, kNames, Activation::gelu_new);
  reader.refuse("reorder_and_upcast_attn", "it is not supported yet");
  reader.ignore({"n_ctx", "n_special", "predict_special_tokens", "scale_attn_by_inverse_layer_idx"});
  return c;
}

/// eager_attention_forward, whose softmax is of the weights' own type.
AttentionOutputs eager(const AttentionCall& call, const AttentionInputs& states, const Tensor& mask) {
  const Context& context = states.query.context();
  Tensor weights = matmul(states.query, transpose(states.key, 2, 3));
  weights = mul_scalar(weights);
  if (mask) weights = add(weights, mask);
  weights = softmax(weights, context.autocast.enabled ? DType::float32 : weights.dtype());
  weights = to(weights, states.value.dtype());
  weights = dropout(weights, call.dropout);
  const Tensor output = matmul(weights, states.value);
  return {contiguous(transpose(output, 1, 2)), weights};
}

struct GPT2Attention {
  GPT2Attention(const Builder& builder, const TextConfig& c, const ModelOptions& options)
      : c_attn(builder.child("c_attn", "Conv1D"), c.hidden_size, 3 * c.hidden_size, true),
        c_proj(builder.child("c_proj", "Conv1D"), c.hidden_size, c.hidden_size, true),
        width(c.hidden_size),
        head_dim(c.head_dim),
        resid_dropout(c.residual_dropout),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {}

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(hidden_states.context(), module);
    AttentionInputs states;
    {
      const TensorList pieces = split(c_attn(hidden_states), {width, width, width}, 2);
      states = {pieces[0], pieces[1], pieces[2]};
    }
    for (Tensor* heads : {&states.key, &states.value, &states.query}) *heads = heads_of(*heads, head_dim);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask, eager);
    attention.output = c_proj(attention.output);
    attention.output = self.result(dropout(attention.output, resid_dropout));
    return attention;
  }

  Linear c_attn, c_proj;
  std::int64_t width, head_dim;
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
  layer->self_attn = GPT2Attention(builder.child("attn", kNames.attention), c, options);
  layer->feedforward_norm = norm("ln_2");
  layer->mlp = PlainMLP(builder.child("mlp", kNames.mlp), c, "c_fc", "c_proj", true, "Conv1D");
  return layer;
}

class GPT2LMHeadModel : public PositionedLM {
 public:
  GPT2LMHeadModel(Context& context, const TextConfig& c, const DataConfig& data, const ModelOptions& options)
      : PositionedLM(context, c, data, options), drop_(c.embedding_dropout) {
    const Builder transformer = root_.child("transformer", kNames.model);
    begin_decoder(transformer, c, options);
    language_model_.embed_tokens = Embedding(transformer.child("wte", "Embedding"), c.vocab_size, c.hidden_size);
    wpe_ = Embedding(transformer.child("wpe", "Embedding"), c.max_position_embeddings, c.hidden_size);
    make_layers(transformer, "h", c, [&](const Builder& layer) { return make_layer(layer, c, options); });
    language_model_.norm = final_norm(torch_layer_norm, true)(transformer.child("ln_f", "LayerNorm"), c.hidden_size);
    make_head(root_, c);
  }

 private:
  Tensor decode(const Tensor& inputs_embeds, const MaskArguments& given) const override {
    const ModuleScope scope(context_, language_model_.module);
    MaskArguments with_positions = given;
    if (!given.position_ids) with_positions.position_ids = language_model_.positions(context_, inputs_embeds.size(1));
    const Tensor position_embeds = wpe_(with_positions.position_ids);
    Tensor hidden_states = add(inputs_embeds, position_embeds);
    const Tensor mask = causal_mask(inputs_embeds, with_positions);
    hidden_states = dropout(hidden_states, drop_);
    PositionEmbeddings positions;
    positions.position_ids = with_positions.position_ids;
    positions.rows = given.rows;
    hidden_states = run_layers(std::move(hidden_states), positions, mask);
    return language_model_.norm(hidden_states);
  }

  Embedding wpe_;
  double drop_;
};

/// Of peft's methods LoRA and (IA)^3 were compared on a Conv1D, which others do not know: with this, training.peft is
/// refused.
void convert_targets(ConfigReader&, const FamilyConfig&, LoraConfig&) {}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = gpt2_traits(config);
  allow_compared(t, {Feature::quantization});
  return t;
}

constexpr Family make_family() {
  Family family = positioned_family<TextConfig, read, GPT2LMHeadModel>(kClasses, kBlocks, traits);
  family.convert_targets = convert_targets;
  family.without_dropout = without_dropout<TextConfig, &TextConfig::residual_dropout, &TextConfig::embedding_dropout,
                                           &TextConfig::attention_dropout>;
  return family;
}

}  // namespace

namespace family {
extern const Family gpt2 = make_family();
}  // namespace family

}  // namespace oometer
