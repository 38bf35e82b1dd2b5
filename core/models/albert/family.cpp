#include <algorithm>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/bert/bert.h"
#include "models/bert/heads.h"
#include "models/kit/text_attention.h"
#include "nn/activation.h"
#include "ops/ops.h"

/// transformers 5.23, models/albert/modeling_albert.py: an encoder whose layers are a few, called again and again.
namespace oometer {

namespace {

constexpr BertClassNames kNames{.base = "albert",
                                .model = "AlbertModel",
                                .embeddings = "AlbertEmbeddings",
                                .encoder = "AlbertTransformer",
                                .layer = "AlbertLayer",
                                .attention = "AlbertAttention",
                                .self_attention = "",
                                .self_output = "",
                                .intermediate = "",
                                .output = "",
                                .pooler = "Linear",
                                .masked_lm = "AlbertForMaskedLM",
                                .sequence_classification = "AlbertForSequenceClassification",
                                .token_classification = "AlbertForTokenClassification",
                                .lm_head = "AlbertMLMHead",
                                .vocab_size = 30'000,
                                .pad_token_id = 0,
                                .hidden_size = 4096,
                                .num_attention_heads = 64,
                                .intermediate_size = 16'384,
                                .hidden_act = Activation::gelu_new,
                                .dropout = 0,
                                .attention_dropout = 0};
constexpr ModelClass kClasses[] = {{"albert", kNames.masked_lm},
                                   {"albert", kNames.model},
                                   {"albert", kNames.sequence_classification},
                                   {"albert", kNames.token_classification},
                                   {"albert", "AlbertForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.layer};

struct AlbertConfig : BertConfig {
  std::int64_t num_hidden_groups = 1, inner_group_num = 1;

  bool operator==(const AlbertConfig&) const = default;
};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  AlbertConfig c;
  static_cast<BertConfig&>(c) = read_bert_config(reader, kNames, of);
  c.embedding_size = reader.integer("embedding_size", 128);
  c.classifier_dropout = reader.optional_number("classifier_dropout_prob", 0, 1).value_or(0.1);
  c.num_hidden_groups = reader.integer("num_hidden_groups", 1, layer_count);
  c.inner_group_num = reader.integer("inner_group_num", 1, layer_count);
  reader.ignore({"net_structure_type", "gap_size", "num_memory_blocks", "down_scale_factor"});
  return c;
}

struct AlbertAttention {
  AlbertAttention(const Builder& builder, const AlbertConfig& c, const ModelOptions& options)
      : query(builder.child("query", "Linear"), c.hidden_size, c.hidden_size, true),
        key(builder.child("key", "Linear"), c.hidden_size, c.hidden_size, true),
        value(builder.child("value", "Linear"), c.hidden_size, c.hidden_size, true),
        dense(builder.child("dense", "Linear"), c.hidden_size, c.hidden_size, true),
        layer_norm(builder.child("LayerNorm", "LayerNorm"), c.hidden_size),
        output_dropout(c.hidden_dropout_prob),
        attention_head_size(c.head_dim()),
        call{.kind = options.attention, .dropout = c.attention_probs_dropout_prob},
        module(builder.module) {}

  AttentionOutputs operator()(const Tensor& argument, const Tensor& attention_mask, const Rows* rows) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    AttentionInputs states = project(hidden_states, query, key, value, attention_head_size, false);
    AttentionOutputs attention =
        attend(call, 0, states, {.cos = {}, .sin = {}, .rows = rows}, attention_mask, eager_in_own_type);
    attention.output = dense(attention.output);
    attention.output = dropout(attention.output, output_dropout);
    {
      const Tensor sum = add(hidden_states, attention.output);
      attention.output = layer_norm(sum);
    }
    attention.output = self.result(attention.output);
    return attention;
  }

  Linear query, key, value, dense;
  LayerNorm layer_norm;
  double output_dropout;
  std::int64_t attention_head_size;
  AttentionCall call;
  ModuleId module;
};

struct AlbertLayer {
  AlbertLayer(const Builder& builder, const AlbertConfig& c, const ModelOptions& options)
      : full_layer_layer_norm(builder.child("full_layer_layer_norm", "LayerNorm"), c.hidden_size),
        attention(builder.child("attention", kNames.attention), c, options),
        ffn(builder.child("ffn", "Linear"), c.hidden_size, c.intermediate_size, true),
        ffn_output(builder.child("ffn_output", "Linear"), c.intermediate_size, c.hidden_size, true),
        activation(c.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_states, const Tensor& attention_mask, const Rows* rows) const {
    ModuleCall call(hidden_states.context(), module);
    const AttentionOutputs attended = attention(call.argument(hidden_states), attention_mask, rows);
    Tensor output = ffn(attended.output);
    output = activate(activation, output);
    output = ffn_output(output);
    const Tensor sum = add(output, attended.output);
    return call.result(full_layer_layer_norm(sum));
  }

  LayerNorm full_layer_layer_norm;
  AlbertAttention attention;
  Linear ffn, ffn_output;
  Activation activation;
  ModuleId module;
};

struct AlbertLayerGroup {
  AlbertLayerGroup(const Builder& builder, const AlbertConfig& c, const ModelOptions& options)
      : module(builder.module) {
    for (std::int32_t i = 0; i < c.inner_group_num; ++i)
      albert_layers.emplace_back(builder.child("albert_layers", kNames.layer, i), c, options);
  }

  Tensor operator()(const Tensor& argument, const Tensor& attention_mask, const Rows* rows) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = call.argument(argument);
    for (const AlbertLayer& albert_layer : albert_layers)
      hidden_states = albert_layer(hidden_states, attention_mask, rows);
    return call.result(hidden_states);
  }

  std::vector<AlbertLayer> albert_layers;
  ModuleId module;
};

struct AlbertModel {
  AlbertModel() = default;
  AlbertModel(const Builder& builder, const AlbertConfig& c, const ModelOptions& options, bool add_pooling_layer)
      : embeddings(builder.child("embeddings", kNames.embeddings), c, options),
        num_hidden_layers(c.num_hidden_layers),
        masked(masked_by(options.attention)),
        module(builder.module) {
    const Builder encoder_builder = builder.child("encoder", kNames.encoder);
    encoder = encoder_builder.module;
    embedding_hidden_mapping_in =
        Linear(encoder_builder.child("embedding_hidden_mapping_in", "Linear"), c.embedding_size, c.hidden_size, true);
    for (std::int32_t i = 0; i < c.num_hidden_groups; ++i)
      albert_layer_groups.emplace_back(encoder_builder.child("albert_layer_groups", "AlbertLayerGroup", i), c, options);
    if (add_pooling_layer) pooler = Linear(builder.child("pooler", "Linear"), c.hidden_size, c.hidden_size, true);
  }

  BertModel::Output operator()(const ModelInputs& inputs) const {
    Context& context = inputs.input_ids.context();
    ModuleCall call(context, module);
    const Tensor embedding_output = embeddings(inputs.input_ids, {});
    const Tensor attention_mask =
        create_bidirectional_mask(embedding_output, {{}, inputs.attention_mask, inputs.rows}, masked);
    BertModel::Output out;
    {
      ModuleCall encode(context, encoder);
      Tensor hidden_states = embedding_hidden_mapping_in(encode.argument(embedding_output));
      const std::int64_t groups = std::ssize(albert_layer_groups);
      for (std::int64_t i = 0; i < num_hidden_layers; ++i)
        hidden_states = albert_layer_groups[static_cast<std::size_t>(i * groups / num_hidden_layers)](
            hidden_states, attention_mask, inputs.rows);
      out.last_hidden_state = encode.result(hidden_states);
    }
    if (pooler.weight) {
      const Tensor pooled = pooler(select(out.last_hidden_state, 1, 0));
      out.pooler_output = tanh(pooled);
    }
    out.last_hidden_state = call.result(out.last_hidden_state);
    return out;
  }

  BertEmbeddings embeddings;
  Linear embedding_hidden_mapping_in, pooler;
  std::vector<AlbertLayerGroup> albert_layer_groups;
  std::int64_t num_hidden_layers = 0;
  MaskedBy masked = MaskedBy::sdpa;
  ModuleId encoder = 0, module = 0;
};

struct AlbertMLMHead {
  AlbertMLMHead() = default;
  AlbertMLMHead(const Builder& builder, const AlbertConfig& c)
      : layer_norm(builder.child("LayerNorm", "LayerNorm"), c.embedding_size),
        bias(builder.parameter("bias", {c.vocab_size})),
        dense(builder.child("dense", "Linear"), c.hidden_size, c.embedding_size, true),
        decoder(builder.child("decoder", "Linear"), c.embedding_size, c.vocab_size, true),
        activation(c.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = dense(call.argument(argument));
    hidden_states = activate(activation, hidden_states);
    hidden_states = layer_norm(hidden_states);
    return call.result(decoder(hidden_states));
  }

  LayerNorm layer_norm;
  Tensor bias;
  Linear dense, decoder;
  Activation activation = Activation::gelu_new;
  ModuleId module = 0;
};

/// AlbertModel and those with a head.
class AlbertFor : public EncoderModel {
 public:
  AlbertFor(Context& context, const AlbertConfig& c, const DataConfig& data, const ModelOptions& options)
      : EncoderModel(context, c, data, options) {
    if (head_ == EncoderHead::none) {
      albert_ = AlbertModel(root_, c, options, true);
      return;
    }
    albert_ =
        AlbertModel(root_.child(kNames.base, kNames.model), c, options, head_ == EncoderHead::sequence_classification);
    if (head_ == EncoderHead::question_answering) {
      qa_outputs_ = Linear(root_.child("qa_outputs", "Linear"), c.hidden_size, c.num_labels, true);
      return;
    }
    if (head_ != EncoderHead::masked_lm) {
      classifier_ = ClassificationHead(root_, c, false);
      return;
    }
    predictions_ = AlbertMLMHead(root_.child("predictions", kNames.lm_head), c);
    if (c.tie_word_embeddings) tie_decoder(predictions_.decoder, albert_.embeddings.word_embeddings, predictions_.bias);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    BertModel::Output outputs = albert_(inputs);
    if (head_ == EncoderHead::none) return {{}, outputs.pooler_output, {outputs.last_hidden_state}};
    if (head_ == EncoderHead::masked_lm) return outputs_of(predictions_(outputs.last_hidden_state), inputs);
    if (head_ == EncoderHead::question_answering) return outputs_of(qa_outputs_(outputs.last_hidden_state), inputs);
    return outputs_of(classifier_(outputs.pooler_output ? outputs.pooler_output : outputs.last_hidden_state), inputs);
  }

 private:
  AlbertModel albert_;
  AlbertMLMHead predictions_;
  Linear qa_outputs_;
  ClassificationHead classifier_;
};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = own_encoder_traits(config);
  t.no_split_modules = {};
  t.refuse(Feature::zero3, "not-modelled", "this is not supported yet with layers that are called again and again");
  t.refuse(Feature::checkpointing, "inconsistent", "the class has no gradient checkpointing: expected \"none\"");
  if (config.as<AlbertConfig>().head == EncoderHead::masked_lm) t.allow({Feature::quantization});
  return t;
}

}  // namespace

namespace family {
extern const Family albert{.classes = kClasses,
                           .blocks = kBlocks,
                           .read = read,
                           .build = [](Context& context, const FamilyConfig& config, const DataConfig& data,
                                       const ModelOptions& options) -> std::unique_ptr<Model> {
                             return std::make_unique<AlbertFor>(context, config.as<AlbertConfig>(), data, options);
                           },
                           .traits = traits,
                           .largest_tensor =
                               [](const FamilyConfig& config, const DataConfig& data) {
                                 return largest_tensor_of_encoder(config.as<AlbertConfig>(), data);
                               }};
}  // namespace family

}  // namespace oometer
