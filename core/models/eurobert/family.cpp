#include <string>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/kit/encoder.h"
#include "models/kit/text_layer.h"
#include "models/llama/llama.h"
#include "models/masking.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, models/eurobert/modeling_eurobert.py: Llama's layers, whose tokens see both sides.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"EuroBertForMaskedLM",    "EuroBertModel", "EuroBertDecoderLayer",
                                 "EuroBertAttention",      "EuroBertMLP",   "EuroBertRMSNorm",
                                 "EuroBertRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"eurobert", kNames.causal_lm},
                                   {"eurobert", kNames.model},
                                   {"eurobert", "EuroBertForSequenceClassification"},
                                   {"eurobert", "EuroBertForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

enum class Pooling : std::uint8_t { late, bos, mean };

struct EuroBertConfig : EncoderConfig {
  LlamaConfig layers;
  Pooling classifier_pooling = Pooling::late;

  bool operator==(const EuroBertConfig&) const = default;
};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  EuroBertConfig c;
  c.vocab_size = 128256;
  c.max_position_embeddings = 8192;
  c.tie_word_embeddings = false;
  c.hidden_act = Activation::silu;
  read_encoder(reader, of, c);
  LlamaConfig d;
  d.names = &kNames;
  d.vocab_size = c.vocab_size;
  d.hidden_size = 768;
  d.intermediate_size = 3072;
  d.num_hidden_layers = 12;
  d.num_attention_heads = 12;
  d.max_position_embeddings = c.max_position_embeddings;
  LlamaConfig& layers = c.layers = read_llama_sizes(reader, d);
  if (!reader.has("num_key_value_heads")) layers.num_key_value_heads = layers.num_attention_heads;
  if (!reader.has("tie_word_embeddings")) c.tie_word_embeddings = false;
  layers.qkv_bias = layers.output_bias = reader.boolean("attention_bias", false);
  layers.mlp_bias = reader.boolean("mlp_bias", false);
  c.hidden_size = layers.hidden_size;
  c.num_hidden_layers = layers.num_hidden_layers;
  c.num_attention_heads = layers.num_attention_heads;
  c.intermediate_size = layers.intermediate_size;
  c.hidden_act = layers.hidden_act;
  c.classifier_pooling = reader.choice("classifier_pooling", Pooling::late,
                                       {{"late", Pooling::late}, {"bos", Pooling::bos}, {"mean", Pooling::mean}});
  check_encoder_heads(reader, c);
  check_llama_heads(reader, layers);
  reader.ignore(
      {"pretraining_tp", "mask_token_id", "mask_token", "bos_token", "eos_token", "pad_token", "clf_pooling"});
  return c;
}

/// EuroBertModel.
struct EuroBertModel {
  EuroBertModel(const Builder& builder, const EuroBertConfig& c, const ModelOptions& options)
      : embed_tokens(builder.child("embed_tokens", "Embedding"), c.vocab_size, c.hidden_size),
        blocks(builder),
        masked(masked_by(options.attention)),
        checkpointing(options.checkpointing),
        module(builder.module) {
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.push_back(make_layer(builder.child("layers", kNames.decoder_layer, i), c.layers, options));
      blocks.add_block(builder);
    }
    norm = LlamaRMSNorm(builder.child("norm", kNames.rms_norm), c.hidden_size);
    rotary_emb = LlamaRotaryEmbedding(builder.child("rotary_emb", kNames.rotary_embedding), c.layers);
  }

  static TextLayer make_layer(const Builder& builder, const LlamaConfig& c, const ModelOptions& options) {
    TextLayer layer(builder, pre_norm);
    LlamaAttention self_attn(builder.child("self_attn", kNames.attention), c, options);
    self_attn.call.causal = false;
    layer.self_attn = std::move(self_attn);
    layer.mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c);
    layer.input_norm = Norm(builder.child("input_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
    layer.feedforward_norm =
        Norm(builder.child("post_attention_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
    return layer;
  }

  Tensor operator()(const ModelInputs& inputs) const {
    Context& context = inputs.input_ids.context();
    ModuleCall call(context, module);
    const Tensor inputs_embeds = embed_tokens(
        inputs.input_ids, [&](Tensor& embedded) { require_input_grad(checkpointing, embedded, embed_tokens.module); });
    Tensor position_ids = inputs.position_ids;
    if (!position_ids)
      position_ids = unsqueeze(empty(context, Op::arange, {inputs.input_ids.size(1)}, DType::int64), 0);
    const Tensor bidirectional_mask =
        create_bidirectional_mask(inputs_embeds, {{}, inputs.attention_mask, inputs.rows}, masked);
    PositionEmbeddings positions = rotary_emb(inputs_embeds, position_ids);
    positions.position_ids = position_ids;
    positions.rows = inputs.rows;
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], bidirectional_mask, positions](const Tensor& hidden) {
        return layer(hidden, positions, bidirectional_mask);
      };
    };
    const Tensor hidden_states = blocks.run(0, layers.size(), inputs_embeds, checkpointing, block);
    return call.result(norm(hidden_states));
  }

  Embedding embed_tokens;
  std::vector<TextLayer> layers;
  BlockStack blocks;
  LlamaRMSNorm norm;
  LlamaRotaryEmbedding rotary_emb;
  MaskedBy masked;
  CheckpointingConfig checkpointing;
  ModuleId module;
};

class EuroBertFor : public EncoderModel {
 public:
  EuroBertFor(Context& context, const EuroBertConfig& c, const DataConfig& data, const ModelOptions& options)
      : EncoderModel(context, c, data, options),
        pooling_(c.classifier_pooling),
        model_(head_ == EncoderHead::none ? root_ : root_.child("model", kNames.model), c, options) {
    switch (head_) {
      case EncoderHead::none:
        return;
      case EncoderHead::masked_lm:
        loss_type = LossType::masked_lm;
        out_ = Linear(root_.child("lm_head", "Linear"), c.hidden_size, c.vocab_size, c.layers.mlp_bias);
        if (c.tie_word_embeddings) tie_decoder(out_, model_.embed_tokens);
        return;
      case EncoderHead::sequence_classification:
        dense_ = Linear(root_.child("dense", "Linear"), c.hidden_size, c.hidden_size, true);
        break;
      case EncoderHead::token_classification:
      case EncoderHead::question_answering:  // EuroBERT has none
        break;
    }
    out_ = Linear(root_.child("classifier", "Linear"), c.hidden_size, c.num_labels, true);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const Tensor last_hidden_state = model_(inputs);
    if (head_ == EncoderHead::none) return {{}, {}, {last_hidden_state}};
    if (head_ != EncoderHead::sequence_classification) return outputs_of(out_(last_hidden_state), inputs);
    if (pooling_ == Pooling::late) {
      Tensor x = dense_(last_hidden_state);
      x = gelu(x);
      const Tensor logits = out_(x);
      return outputs_of(mean_of(logits, inputs.attention_mask), inputs);
    }
    Tensor pooled_output =
        pooling_ == Pooling::bos ? select(last_hidden_state, 1, 0) : mean_of(last_hidden_state, inputs.attention_mask);
    pooled_output = dense_(pooled_output);
    pooled_output = gelu(pooled_output);
    return outputs_of(out_(pooled_output), inputs);
  }

 private:
  /// Of the tokens that are not padding.
  static Tensor mean_of(const Tensor& x, const Tensor& attention_mask) {
    if (!attention_mask) return mean(x, 1, false);
    Tensor total;
    {
      const Tensor attended = mul(x, unsqueeze(attention_mask, -1));
      total = sum(attended, {1}, false);
    }
    const Tensor count = reduce(Op::sum, attention_mask, {1}, true, DType::int64);
    return div_in_place(std::move(total), count);
  }

  Pooling pooling_;
  EuroBertModel model_;
  Linear dense_, out_;
};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = encoder_traits(config.as<EuroBertConfig>(), "model");
  t.allow({Feature::zero3, Feature::fsdp});
  t.no_split_modules = {kNames.decoder_layer};
  if (config.as<EuroBertConfig>().head == EncoderHead::masked_lm) t.allow({Feature::quantization});
  return t;
}

}  // namespace

namespace family {
extern const Family eurobert{.classes = kClasses,
                             .blocks = kBlocks,
                             .read = read,
                             .build = [](Context& context, const FamilyConfig& config, const DataConfig& data,
                                         const ModelOptions& options) -> std::unique_ptr<Model> {
                               return std::make_unique<EuroBertFor>(context, config.as<EuroBertConfig>(), data,
                                                                    options);
                             },
                             .traits = traits,
                             .largest_tensor =
                                 [](const FamilyConfig& config, const DataConfig& data) {
                                   return largest_tensor_of_encoder(config.as<EuroBertConfig>(), data);
                                 }};
}  // namespace family

}  // namespace oometer
