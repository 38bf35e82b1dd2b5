#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "models/bert/config.h"
#include "models/bert/family.h"
#include "models/model.h"
#include "nn/activation.h"
#include "nn/module.h"
#include "ops/ops.h"

/// What stands on BERT, on its copies and on MPNet.
namespace oometer {

/// BertLMPredictionHead, RobertaLMHead and ElectraGeneratorPredictions.
struct MaskedLMHead {
  MaskedLMHead() = default;
  MaskedLMHead(const Builder& root, const BertConfig& c) : act_fn(c.hidden_act) {
    if (c.names->is_electra) {
      const Builder predictions = root.child("generator_predictions", c.names->lm_head);
      act_fn = Activation::gelu;
      modules = {predictions.module};
      layer_norm = LayerNorm(predictions.child("LayerNorm", "LayerNorm"), c.width_of_embeddings());
      dense = Linear(predictions.child("dense", "Linear"), c.hidden_size, c.width_of_embeddings(), true);
      decoder = Linear(root.child("generator_lm_head", "Linear"), c.width_of_embeddings(), c.vocab_size, true);
      is_beside_decoder = true;
      return;
    }
    if (c.names->has_roberta_heads) {
      const Builder head = root.child("lm_head", c.names->lm_head);
      act_fn = Activation::gelu;
      modules = {head.module};
      make(head, head, "layer_norm", c);
      return;
    }
    const Builder cls = root.child("cls", c.names->lm_head);
    const Builder predictions = cls.child("predictions", "BertLMPredictionHead");
    const Builder transform = predictions.child("transform", "BertPredictionHeadTransform");
    modules = {cls.module, predictions.module, transform.module};
    make(predictions, transform, "LayerNorm", c);
  }

  void make(const Builder& predictions, const Builder& transform, const char* norm, const BertConfig& c) {
    dense = Linear(transform.child("dense", "Linear"), c.hidden_size, c.hidden_size, true);
    layer_norm = LayerNorm(transform.child(norm, "LayerNorm"), c.hidden_size);
    decoder = Linear(predictions.child("decoder", "Linear"), c.hidden_size, c.vocab_size, true);
    if (c.names->lm_head_bias) bias = predictions.parameter("bias", {c.vocab_size});
  }

  Tensor operator()(const Tensor& sequence_output) const {
    Context& context = sequence_output.context();
    ModuleCall outer(context, modules[0]);
    const ModuleScope inner(context, modules[modules.size() > 1 ? 1 : 0]);
    Tensor hidden_states = outer.argument(sequence_output);
    {
      const ModuleScope transform(context, modules.back());
      hidden_states = dense(hidden_states);
      hidden_states = activate(act_fn, hidden_states);
      hidden_states = layer_norm(hidden_states);
    }
    return is_beside_decoder ? decoder(outer.result(hidden_states)) : outer.result(decoder(hidden_states));
  }

  Linear dense, decoder;
  LayerNorm layer_norm;
  Tensor bias;
  Activation act_fn = Activation::gelu;
  bool is_beside_decoder = false;  ///< the decoder is no part of it (ElectraGeneratorPredictions)
  std::vector<ModuleId> modules;   ///< from the outermost on
};

/// A classification of the whole text, by BERT's pooler, RobertaClassificationHead or ElectraClassificationHead, or of
/// each token.
struct ClassificationHead {
  ClassificationHead() = default;
  ClassificationHead(const Builder& root, const BertConfig& c, bool has_dense)
      : classifier_dropout(c.classifier_dropout) {
    if (!has_dense) {
      out_proj = Linear(root.child("classifier", "Linear"), c.hidden_size, c.num_labels, true);
      return;
    }
    const Builder head = root.child("classifier", c.names->classification_head);
    dense = Linear(head.child("dense", "Linear"), c.hidden_size, c.hidden_size, true);
    out_proj = Linear(head.child("out_proj", "Linear"), c.hidden_size, c.num_labels, true);
    has_gelu = c.names->is_electra;
    module = head.module;
  }

  Tensor operator()(const Tensor& features) const {
    if (!dense.weight) {
      const Tensor dropped = dropout(features, classifier_dropout);
      return out_proj(dropped);
    }
    ModuleCall call(features.context(), module);
    Tensor x = select(call.argument(features), 1, 0);
    x = dropout(x, classifier_dropout);
    x = dense(x);
    x = has_gelu ? activate(Activation::gelu, x) : tanh(x);
    x = dropout(x, classifier_dropout);
    return call.result(out_proj(x));
  }

  Linear dense, out_proj;
  double classifier_dropout = 0;
  bool has_gelu = false;  ///< in place of tanh (ElectraClassificationHead)
  ModuleId module = 0;
};

/// An encoder that is built as BertModel is, and BERT's heads.
template <typename Encoder>
class BertFor : public EncoderModel {
 public:
  BertFor(Context& context, const BertConfig& c, const DataConfig& data, const ModelOptions& options)
      : EncoderModel(context, c, data, options) {
    const bool classifies_text = head_ == EncoderHead::sequence_classification;
    const bool has_own_head = (c.names->has_roberta_heads && c.names->classification_head[0]) || c.names->is_electra;
    const bool pools =
        head_ == EncoderHead::none ? c.names->model_pools && !c.names->is_electra : classifies_text && !has_own_head;
    if (head_ == EncoderHead::none) {
      model_ = Encoder(root_, c, options, pools);
      return;
    }
    const bool predicts = head_ == EncoderHead::masked_lm;
    const auto make_head = [&] {
      if (predicts)
        masked_lm_ = MaskedLMHead(root_, c);
      else if (head_ == EncoderHead::question_answering)
        qa_outputs_ = Linear(root_.child("qa_outputs", "Linear"), c.hidden_size, c.num_labels, true);
      else
        classifier_ = ClassificationHead(root_, c, classifies_text && has_own_head);
    };
    if (c.names->head_first) make_head();
    Builder base = root_.child(c.names->base, c.names->model);
    // Trainer.get_decay_parameter_names takes all below "roberta_prelayernorm" for norms (transformers 5.23,
    // trainer.py).
    base.in_norm = std::string_view(c.names->base).find("layernorm") != std::string_view::npos;
    model_ = Encoder(base, c, options, pools);
    if (!c.names->head_first) make_head();
    // _tied_weights_keys: the head's own bias, too
    if (predicts && c.tie_word_embeddings)
      tie_decoder(masked_lm_.decoder, model_.embeddings.word_embeddings, masked_lm_.bias);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    typename Encoder::Output outputs = model_(inputs);
    if (head_ == EncoderHead::none) return {{}, outputs.pooler_output, {outputs.last_hidden_state}};
    if (head_ == EncoderHead::question_answering) return outputs_of(qa_outputs_(outputs.last_hidden_state), inputs);
    return outputs_of(head_ == EncoderHead::masked_lm
                          ? masked_lm_(outputs.last_hidden_state)
                          : classifier_(outputs.pooler_output ? outputs.pooler_output : outputs.last_hidden_state),
                      inputs);
  }

 private:
  Encoder model_;
  MaskedLMHead masked_lm_;
  ClassificationHead classifier_;
  Linear qa_outputs_;
};

/// bert_family of such an encoder.
template <const BertClassNames& names, typename Encoder>
constexpr Family own_encoder_family(std::span<const ModelClass> classes, std::span<const char* const> blocks,
                                    ModelTraits (*traits)(const FamilyConfig&) = own_encoder_traits) {
  Family family = bert_family<names>(classes, blocks, traits);
  family.build = [](Context& context, const FamilyConfig& config, const DataConfig& data,
                    const ModelOptions& options) -> std::unique_ptr<Model> {
    return std::make_unique<BertFor<Encoder>>(context, config.as<BertConfig>(), data, options);
  };
  return family;
}

}  // namespace oometer
