#include "models/family.h"

#include <string>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/bert/bert.h"
#include "models/kit/encoder.h"
#include "models/kit/positioned.h"
#include "models/kit/text_attention.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/ops.h"

/// transformers 5.23, models/distilbert/modeling_distilbert.py. Names and order of steps are that file's.
namespace oometer {

namespace {

/// class DistilBertConfig: the fields that decide memory.
struct DistilBertConfig : EncoderConfig {
  double dropout = 0.1, attention_dropout = 0.1, seq_classif_dropout = 0.2, qa_dropout = 0.1;

  bool operator==(const DistilBertConfig&) const = default;
};

struct TransformerBlock {
  TransformerBlock(const Builder& builder, const DistilBertConfig& c, const ModelOptions& options)
      : call{.kind = options.attention, .dropout = c.attention_dropout},
        head_dim(c.head_dim()),
        hidden_dropout(c.dropout),
        activation(c.hidden_act),
        module(builder.module) {
    const std::int64_t dim = c.hidden_size;
    const Builder its_attention = builder.child("attention", "DistilBertSelfAttention");
    attention = its_attention.module;
    q_lin = Linear(its_attention.child("q_lin", "Linear"), dim, dim, true);
    k_lin = Linear(its_attention.child("k_lin", "Linear"), dim, dim, true);
    v_lin = Linear(its_attention.child("v_lin", "Linear"), dim, dim, true);
    out_lin = Linear(its_attention.child("out_lin", "Linear"), dim, dim, true);
    sa_layer_norm = LayerNorm(builder.child("sa_layer_norm", "LayerNorm"), dim);
    const Builder its_ffn = builder.child("ffn", "FFN");
    ffn = its_ffn.module;
    lin1 = Linear(its_ffn.child("lin1", "Linear"), dim, c.intermediate_size, true);
    lin2 = Linear(its_ffn.child("lin2", "Linear"), c.intermediate_size, dim, true);
    output_layer_norm = LayerNorm(builder.child("output_layer_norm", "LayerNorm"), dim);
  }

  AttentionOutputs attend_to(const Tensor& argument, const Tensor& attention_mask, const Rows* rows) const {
    ModuleCall self(argument.context(), attention);
    const Tensor hidden_states = self.argument(argument);
    AttentionInputs states = project(hidden_states, q_lin, k_lin, v_lin, head_dim, false);
    AttentionOutputs outputs =
        attend(call, 0, states, {.cos = {}, .sin = {}, .rows = rows}, attention_mask, eager_in_own_type);
    outputs.output = self.result(out_lin(outputs.output));
    return outputs;
  }

  Tensor feed_forward(const Tensor& argument) const {
    ModuleCall self(argument.context(), ffn);
    Tensor x = lin1(self.argument(argument));
    x = activate(activation, x);
    x = lin2(x);
    return self.result(dropout(x, hidden_dropout));
  }

  Tensor operator()(const Tensor& hidden_states, const Tensor& attention_mask, const Rows* rows) const {
    const ModuleScope scope(hidden_states.context(), module);
    AttentionOutputs attended = attend_to(hidden_states, attention_mask, rows);  // the weights stay in `_`
    Tensor& attention_output = attended.output;
    {
      const Tensor sum = add(attention_output, hidden_states);
      attention_output = sa_layer_norm(sum);
    }
    const Tensor ffn_output = feed_forward(attention_output);
    const Tensor sum = add(ffn_output, attention_output);
    return output_layer_norm(sum);
  }

  Linear q_lin, k_lin, v_lin, out_lin, lin1, lin2;
  LayerNorm sa_layer_norm, output_layer_norm;
  AttentionCall call;
  std::int64_t head_dim = 0;
  double hidden_dropout = 0;
  Activation activation = Activation::gelu;
  ModuleId attention = 0, ffn = 0, module = 0;
};

class DistilBertFor : public EncoderModel {
 public:
  DistilBertFor(Context& context, const DistilBertConfig& c, const DataConfig& data, const ModelOptions& options)
      : EncoderModel(context, c, data, options),
        config_(c),
        masked_(masked_by(options.attention)),
        checkpointing_(options.checkpointing) {
    make_model(head_ == EncoderHead::none ? root_ : root_.child("distilbert", "DistilBertModel"), options);
    const std::int64_t dim = c.hidden_size;
    if (head_ == EncoderHead::masked_lm) {
      dense_ = Linear(root_.child("vocab_transform", "Linear"), dim, dim, true);
      vocab_layer_norm_ = LayerNorm(root_.child("vocab_layer_norm", "LayerNorm"), dim);
      out_ = Linear(root_.child("vocab_projector", "Linear"), dim, c.vocab_size, true);
      if (c.tie_word_embeddings) tie_decoder(out_, word_embeddings_);
    } else if (head_ != EncoderHead::none) {
      if (head_ == EncoderHead::sequence_classification)
        dense_ = Linear(root_.child("pre_classifier", "Linear"), dim, dim, true);
      const bool answers = head_ == EncoderHead::question_answering;
      out_ = Linear(root_.child(answers ? "qa_outputs" : "classifier", "Linear"), dim, c.num_labels, true);
    }
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const Tensor distilbert_output = run_model(inputs);
    Tensor hidden_states = distilbert_output;
    switch (head_) {
      case EncoderHead::none:
        return {{}, {}, {hidden_states}};
      case EncoderHead::masked_lm: {
        Tensor prediction_logits = dense_(hidden_states);
        prediction_logits = activate(config_.hidden_act, prediction_logits);
        prediction_logits = vocab_layer_norm_(prediction_logits);
        prediction_logits = out_(prediction_logits);
        return outputs_of(std::move(prediction_logits), inputs);
      }
      case EncoderHead::sequence_classification: {
        Tensor pooled_output = select(hidden_states, 1, 0);
        pooled_output = dense_(pooled_output);
        pooled_output = relu(pooled_output);
        pooled_output = dropout(pooled_output, config_.seq_classif_dropout);
        return outputs_of(out_(pooled_output), inputs);
      }
      case EncoderHead::token_classification:
      case EncoderHead::question_answering:
        break;
    }
    hidden_states =
        dropout(hidden_states, head_ == EncoderHead::question_answering ? config_.qa_dropout : config_.dropout);
    return outputs_of(out_(hidden_states), inputs);
  }

 private:
  void make_model(const Builder& builder, const ModelOptions& options) {
    const DistilBertConfig& c = config_;
    model_ = builder.module;
    const Builder embeddings = builder.child("embeddings", "Embeddings");
    embeddings_ = embeddings.module;
    word_embeddings_ = Embedding(embeddings.child("word_embeddings", "Embedding"), c.vocab_size, c.hidden_size);
    position_embeddings_ =
        Embedding(embeddings.child("position_embeddings", "Embedding"), c.max_position_embeddings, c.hidden_size);
    layer_norm_ = LayerNorm(embeddings.child("LayerNorm", "LayerNorm"), c.hidden_size);
    position_ids_ = embeddings.buffer({1, c.max_position_embeddings}, DType::int64);
    const Builder transformer = builder.child("transformer", "Transformer");
    transformer_ = transformer.module;
    blocks_ = BlockStack(transformer);
    layers_.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers_.emplace_back(transformer.child("layer", "TransformerBlock", i), c, options);
      blocks_.add_block(transformer);
    }
  }

  Tensor embed_inputs(const Tensor& input_ids) const {
    ModuleCall call(context_, embeddings_);
    const Tensor inputs_embeds = word_embeddings_(
        input_ids, [&](Tensor& embedded) { require_input_grad(checkpointing_, embedded, word_embeddings_.module); });
    const Tensor positions = position_embeddings_(slice(position_ids_, 1, 0, input_ids.size(1)));
    Tensor embeddings = add(inputs_embeds, positions);
    embeddings = layer_norm_(embeddings);
    return call.result(dropout(embeddings, config_.dropout));
  }

  Tensor run_model(const ModelInputs& inputs) const {
    ModuleCall call(context_, model_);
    const Tensor embeddings = embed_inputs(inputs.input_ids);
    const Tensor attention_mask =
        create_bidirectional_mask(embeddings, {{}, inputs.attention_mask, inputs.rows}, masked_);
    ModuleCall transform(context_, transformer_);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers_[i], attention_mask, rows = inputs.rows](const Tensor& hidden) {
        return layer(hidden, attention_mask, rows);
      };
    };
    const Tensor hidden_states = transform.argument(embeddings);
    const Tensor last =
        transform.result(blocks_.run(0, layers_.size(), hidden_states, checkpointing_, block, {.positional = true}));
    return call.result(last);
  }

  DistilBertConfig config_;
  MaskedBy masked_;
  CheckpointingConfig checkpointing_;
  Embedding word_embeddings_, position_embeddings_;
  LayerNorm layer_norm_, vocab_layer_norm_;
  Tensor position_ids_;
  std::vector<TransformerBlock> layers_;
  BlockStack blocks_;
  Linear dense_, out_;
  ModuleId model_ = 0, embeddings_ = 0, transformer_ = 0;
};

constexpr ModelClass kClasses[] = {{"distilbert", "DistilBertForMaskedLM"},
                                   {"distilbert", "DistilBertModel"},
                                   {"distilbert", "DistilBertForSequenceClassification"},
                                   {"distilbert", "DistilBertForTokenClassification"},
                                   {"distilbert", "DistilBertForQuestionAnswering"}};
constexpr const char* kBlocks[] = {"TransformerBlock"};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  DistilBertConfig c;
  read_encoder(reader, of, c);
  c.hidden_size = read_mapped(reader, "dim", "hidden_size", c.hidden_size);
  c.num_hidden_layers = read_mapped(reader, "n_layers", "num_hidden_layers", 6, layer_count);
  c.num_attention_heads = read_mapped(reader, "n_heads", "num_attention_heads", c.num_attention_heads);
  c.intermediate_size = reader.integer("hidden_dim", c.intermediate_size);
  c.hidden_act = reader.activation("activation", c.hidden_act);
  c.dropout = reader.number("dropout", c.dropout, 0, 1);
  c.attention_dropout = reader.number("attention_dropout", c.attention_dropout, 0, 1);
  c.seq_classif_dropout = reader.number("seq_classif_dropout", c.seq_classif_dropout, 0, 1);
  check_encoder_heads(reader, c, "dim");
  if (reader.optional_integer("chunk_size_feed_forward", non_negative).value_or(0) != 0)
    reader.fail_found("chunk_size_feed_forward", "not-modelled", "this is not supported yet: expected 0");
  c.qa_dropout = reader.number("qa_dropout", c.qa_dropout, 0, 1);
  reader.ignore({"sinusoidal_pos_embds"});
  return c;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = encoder_traits(config.as<DistilBertConfig>(), "distilbert");
  t.allow({Feature::zero3});
  if (config.as<DistilBertConfig>().head == EncoderHead::masked_lm) t.allow({Feature::quantization});
  return t;
}

}  // namespace

namespace family {
extern const Family distilbert{.classes = kClasses,
                               .blocks = kBlocks,
                               .read = read,
                               .build = [](Context& context, const FamilyConfig& config, const DataConfig& data,
                                           const ModelOptions& options) -> std::unique_ptr<Model> {
                                 return std::make_unique<DistilBertFor>(context, config.as<DistilBertConfig>(), data,
                                                                        options);
                               },
                               .traits = traits,
                               .largest_tensor =
                                   [](const FamilyConfig& config, const DataConfig& data) {
                                     return largest_tensor_of_encoder(config.as<DistilBertConfig>(), data);
                                   }};
}  // namespace family

}  // namespace oometer
