#include "models/deberta_v2/deberta_v2.h"

#include <utility>

#include "nn/activation.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

DisentangledSelfAttention::DisentangledSelfAttention(const Builder& builder, const DebertaV2Config& c)
    : query_proj_(builder.child("query_proj", "Linear"), c.hidden_size, c.hidden_size, true),
      key_proj_(builder.child("key_proj", "Linear"), c.hidden_size, c.hidden_size, true),
      value_proj_(builder.child("value_proj", "Linear"), c.hidden_size, c.hidden_size, true),
      heads_(c.num_attention_heads),
      span_(c.span()),
      relative_attention_(c.relative_attention),
      share_att_key_(c.share_att_key),
      c2p_(c.c2p),
      p2c_(c.p2c),
      hidden_dropout_(c.hidden_dropout_prob),
      dropout_(c.attention_probs_dropout_prob),
      module_(builder.module) {
  if (!relative_attention_ || share_att_key_) return;
  if (c2p_) pos_key_proj_ = Linear(builder.child("pos_key_proj", "Linear"), c.hidden_size, c.hidden_size, true);
  if (p2c_) pos_query_proj_ = Linear(builder.child("pos_query_proj", "Linear"), c.hidden_size, c.hidden_size, true);
}

Tensor DisentangledSelfAttention::transpose_for_scores(const Tensor& x) const {
  const std::int64_t batch = x.size(0), length = x.size(1), head = x.size(2) / heads_;
  const Tensor heads = contiguous(permute(view(x, {batch, length, heads_, head}), {0, 2, 1, 3}));
  return view(heads, {batch * heads_, length, head});
}

Tensor DisentangledSelfAttention::disentangled_attention_bias(const Tensor& query_layer, const Tensor& key_layer,
                                                              const Tensor& relative_pos, const Tensor& rel_in) const {
  const std::int64_t rows = query_layer.size(0), length = query_layer.size(1);
  const Shape times{rows / heads_, 1, 1}, square{rows, length, length};
  const Tensor rel_embeddings = unsqueeze(slice(rel_in, 0, 0, 2 * span_), 0);
  Tensor pos_query_layer, pos_key_layer, score, c2p_att, c2p_pos, p2c_att, p2c_pos;
  const auto repeated = [&](const Linear& projection) {
    Tensor heads = projection(rel_embeddings);
    heads = transpose_for_scores(heads);
    return repeat(heads, times);
  };
  if (share_att_key_) {
    pos_query_layer = repeated(query_proj_);
    pos_key_layer = repeated(key_proj_);
  } else {
    if (c2p_) pos_key_layer = repeated(pos_key_proj_);
    if (p2c_) pos_query_layer = repeated(pos_query_proj_);
  }
  if (c2p_) {
    c2p_att = bmm(query_layer, transpose(pos_key_layer, 1, 2));
    {
      const Tensor shifted = add_scalar(relative_pos);
      c2p_pos = clamp(shifted, true);
    }
    c2p_att = gather(c2p_att, expand(view(c2p_pos, {1, length, length}), square));
    const Tensor scaled = mul_scalar(c2p_att);
    score = add_scalar(scaled);  // 0 + scaled
  }
  if (p2c_) {
    {
      Tensor shifted = neg(relative_pos);
      shifted = add_scalar(shifted);
      p2c_pos = clamp(shifted, true);
    }
    p2c_att = bmm(key_layer, transpose(pos_query_layer, 1, 2));
    p2c_att = transpose(gather(p2c_att, expand(view(p2c_pos, {1, length, length}), square)), 1, 2);
    const Tensor scaled = mul_scalar(p2c_att);
    score = score ? add_in_place(score, scaled) : add_scalar(scaled);
  }
  return score;
}

namespace {

/// torch.bmm, whose operands autocast makes lower.
Tensor lower_bmm(const Tensor& input, const Tensor& mat2) {
  const Tensor second = autocast_lower(mat2), first = autocast_lower(input);
  return bmm(first, second);
}

}  // namespace

Tensor DisentangledSelfAttention::operator()(const Tensor& argument, const DebertaV2Positions& positions) const {
  ModuleCall call(argument.context(), module_);
  const Tensor hidden_states = call.argument(argument);
  const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1), width = hidden_states.size(2);
  const auto heads_of_projection = [&](const Linear& projection) {
    return transpose_for_scores(projection(hidden_states));
  };
  const Tensor query_layer = heads_of_projection(query_proj_);
  const Tensor key_layer = heads_of_projection(key_proj_);
  const Tensor value_layer = heads_of_projection(value_proj_);
  Tensor attention_scores, rel_embeddings, rel_att;
  {
    const Tensor scaled = mul_scalar(transpose(key_layer, 1, 2));
    attention_scores = lower_bmm(query_layer, scaled);
  }
  if (relative_attention_) {
    rel_embeddings = dropout(positions.rel_embeddings, hidden_dropout_);
    rel_att = disentangled_attention_bias(query_layer, key_layer, positions.relative_pos, rel_embeddings);
  }
  if (rel_att) attention_scores = add(attention_scores, rel_att);
  attention_scores = view(attention_scores, {batch, heads_, length, length});
  const Tensor attention_mask = to(positions.attention_mask, DType::boolean);
  {
    const Tensor masked = pointwise(Op::bitwise_not, {&attention_mask}, DType::boolean);
    attention_scores = masked_fill(attention_scores, masked);
  }
  const bool lower = argument.context().autocast.enabled;
  Tensor attention_probs = softmax(attention_scores, lower ? DType::float32 : attention_scores.dtype());
  attention_probs = dropout(attention_probs, dropout_);
  Tensor context_layer = lower_bmm(view(attention_probs, {batch * heads_, length, length}), value_layer);
  context_layer = contiguous(permute(view(context_layer, {batch, heads_, length, width / heads_}), {0, 2, 1, 3}));
  return call.result(view(context_layer, {batch, length, width}));
}

DebertaV2Layer::DebertaV2Layer(const Builder& builder, const DebertaV2Config& c)
    : act(c.hidden_act), module(builder.module) {
  const DebertaClasses& classes = *c.classes;
  const Builder attention = builder.child("attention", classes.attention);
  attention_module = attention.module;
  self = classes.make_self(attention.child("self", "DisentangledSelfAttention"), c);
  attention_output = classes.make_output(attention.child("output", classes.self_output), c.hidden_size, c);
  const Builder its_intermediate = builder.child("intermediate", classes.intermediate);
  intermediate_module = its_intermediate.module;
  intermediate = Linear(its_intermediate.child("dense", "Linear"), c.hidden_size, c.intermediate_size, true);
  output = classes.make_output(builder.child("output", classes.output), c.intermediate_size, c);
}

Tensor DebertaV2Layer::operator()(const Tensor& hidden_in, const DebertaV2Positions& positions) const {
  Context& context = hidden_in.context();
  const ModuleScope scope(context, module);
  Tensor attended, intermediate_output;
  {
    ModuleCall call(context, attention_module);
    const Tensor hidden_states = call.argument(hidden_in);
    const Tensor self_output = self(hidden_states, positions);
    attended = call.result(attention_output(self_output, hidden_states));
  }
  {
    ModuleCall call(context, intermediate_module);
    Tensor hidden_states = intermediate(call.argument(attended));
    hidden_states = activate(act, hidden_states);
    intermediate_output = call.result(hidden_states);
  }
  return output(intermediate_output, attended);
}

DebertaV2Model::DebertaV2Model(const Builder& builder, const DebertaV2Config& c, const ModelOptions& options)
    : checkpointing(options.checkpointing),
      hidden_dropout(c.hidden_dropout_prob),
      buckets(c.position_buckets > 0),
      has_pad_token(c.has_pad_token),
      repeats_keys(c.classes->repeats_keys),
      module(builder.module) {
  const std::int64_t hidden = c.hidden_size;
  const Builder its_embeddings = builder.child("embeddings", c.classes->embeddings);
  embeddings = its_embeddings.module;
  const auto embedding = [&](const Builder& parent, const char* name, std::int64_t count) {
    return Embedding(parent.child(name, "Embedding"), count, hidden);
  };
  word_embeddings = embedding(its_embeddings, "word_embeddings", c.vocab_size);
  if (c.position_biased_input)
    position_embeddings = embedding(its_embeddings, "position_embeddings", c.max_position_embeddings);
  if (c.type_vocab_size > 0)
    token_type_embeddings = embedding(its_embeddings, "token_type_embeddings", c.type_vocab_size);
  layer_norm = c.classes->make_norm(its_embeddings.child("LayerNorm", "LayerNorm"), hidden);
  position_ids = its_embeddings.buffer({1, c.max_position_embeddings}, DType::int64);
  const Builder its_encoder = builder.child("encoder", c.classes->encoder);
  encoder = its_encoder.module;
  blocks = BlockStack(its_encoder);
  layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
  for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
    layers.emplace_back(its_encoder.child("layer", c.classes->layer, i), c);
    blocks.add_block(its_encoder);
  }
  if (c.relative_attention) rel_embeddings = embedding(its_encoder, "rel_embeddings", 2 * c.span());
  if (c.normalises_positions) rel_layer_norm = LayerNorm(its_encoder.child("LayerNorm", "LayerNorm"), hidden);
}

Tensor DebertaV2Model::embed(const Tensor& input_ids, const Tensor& token_type_ids, const Tensor& mask_in) const {
  ModuleCall call(input_ids.context(), embeddings);
  const Tensor inputs_embeds = word_embeddings(
      input_ids, [&](Tensor& embedded) { require_input_grad(checkpointing, embedded, word_embeddings.module); });
  Tensor positions = position_embeddings.weight ? position_embeddings(slice(position_ids, 1, 0, input_ids.size(1)))
                                                : empty_like(Op::zeros_like, inputs_embeds);
  Tensor its_embeddings = inputs_embeds, types;
  if (position_embeddings.weight) its_embeddings = add(its_embeddings, positions);
  if (token_type_embeddings.weight) {
    types = token_type_embeddings(token_type_ids);
    its_embeddings = add(its_embeddings, types);
  }
  its_embeddings = layer_norm(its_embeddings);
  const Tensor mask = to(unsqueeze(mask_in, 2), its_embeddings.dtype());
  its_embeddings = mul(its_embeddings, mask);
  return call.result(dropout(its_embeddings, hidden_dropout));
}

namespace {

/// make_log_bucket_position: of relative positions [s, s], in float32.
Tensor make_log_bucket_position(const Tensor& relative_pos) {
  Context& context = relative_pos.context();
  const Shape& square = relative_pos.sizes();
  const auto made = [&](Op op, DType dtype) { return empty(context, op, square, dtype); };
  const Tensor sign = made(Op::sub, DType::int64);
  Tensor abs_pos;
  {
    Tensor is_near;
    {
      const Tensor below = made(Op::lt, DType::boolean), above = made(Op::gt, DType::boolean);
      is_near = made(Op::bitwise_and, DType::boolean);
    }
    const Tensor middle = empty(context, Op::to_copy, {}, DType::int64), distance = made(Op::abs, DType::int64);
    abs_pos = made(Op::where, DType::int64);
  }
  Tensor log_pos = made(Op::div, DType::float32);
  for (const Op op : {Op::log, Op::div, Op::mul, Op::floor, Op::add}) log_pos = made(op, DType::float32);
  const Tensor is_exact = made(Op::le, DType::boolean), exact = made(Op::to_copy, DType::float32),
               signed_pos = made(Op::mul, DType::float32);
  return made(Op::where, DType::float32);
}

/// build_relative_position: [1, s, s].
Tensor build_relative_position(Context& context, std::int64_t length, bool buckets, bool repeats_keys) {
  const Tensor q_ids = empty(context, Op::arange, {length}, DType::int64);
  const Tensor k_ids = empty(context, Op::arange, {length}, DType::int64);
  Tensor repeated;
  if (repeats_keys) repeated = empty(context, Op::repeat, {length, length}, DType::int64);
  Tensor rel_pos_ids = empty(context, Op::sub, {length, length}, DType::int64);
  if (buckets) {
    rel_pos_ids = make_log_bucket_position(rel_pos_ids);
    rel_pos_ids = to(rel_pos_ids, DType::int64);
  }
  return unsqueeze(rel_pos_ids, 0);
}

}  // namespace

Tensor DebertaV2Model::operator()(const ModelInputs& inputs) const {
  Context& context = inputs.input_ids.context();
  ModuleCall call(context, module);
  const Shape& tokens = inputs.input_ids.sizes();
  if (checkpointing.mode == CheckpointMode::reentrant && rel_layer_norm.weight)
    context.refusal = Error{"inconsistent", "/training/activation_checkpointing",
                            "each layer's backward goes through the norm of the relative positions, which PyTorch "
                            "refuses the second time; expected \"non-reentrant\""};
  if (!inputs.attention_mask && has_pad_token) {  // warn_if_padding_and_no_attention_mask
    Tensor index = empty(context, Op::to_copy, {2}, DType::int64);
    const Tensor ends = empty(context, Op::index, {tokens[0], 2}, DType::int64);
    index.reset();
    const Tensor is_padding = pointwise(Op::eq, {&ends}, DType::boolean);
    const Tensor any_is = reduce(Op::any, is_padding, {0, 1}, false, DType::boolean);
  }
  const Tensor attention_mask =
      inputs.attention_mask ? inputs.attention_mask : empty(context, Op::ones_like, tokens, DType::float32);
  const Tensor token_type_ids = empty(context, Op::zeros, tokens, DType::int64);
  const Tensor embedding_output = embed(inputs.input_ids, token_type_ids, attention_mask);
  TensorList all_hidden_states;
  Tensor last;
  {
    ModuleCall encode(context, encoder);
    const Tensor hidden_states = encode.argument(embedding_output);
    DebertaV2Positions positions;
    positions.attention_mask = empty(context, Op::mul, {tokens[0], 1, tokens[1], tokens[1]}, attention_mask.dtype());
    if (rel_embeddings.weight) {
      positions.relative_pos = build_relative_position(context, tokens[1], buckets, repeats_keys);
      positions.relative_pos = unsqueeze(positions.relative_pos, 1);
      positions.rel_embeddings = rel_embeddings.weight;
      if (rel_layer_norm.weight) positions.rel_embeddings = rel_layer_norm(positions.rel_embeddings);
    }
    all_hidden_states.push_back(hidden_states);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], positions](const Tensor& hidden) { return layer(hidden, positions); };
    };
    // All of the layers' results are kept until this returns, so no layer's log is another's.
    last = hidden_states;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      last = blocks.run(i, i + 1, std::move(last), checkpointing, block);
      all_hidden_states.push_back(last);
    }
    last = encode.result(last);
  }
  return call.result(last);
}

namespace {

class DebertaV2For : public EncoderModel {
 public:
  DebertaV2For(Context& context, const DebertaV2Config& c, const DataConfig& data, const ModelOptions& options)
      : EncoderModel(context, c, data, options), config_(c) {
    model_ = DebertaV2Model(head_ == EncoderHead::none ? root_ : root_.child("deberta", c.classes->model), c, options);
    const std::int64_t hidden = c.hidden_size;
    switch (head_) {
      case EncoderHead::none:
        return;
      case EncoderHead::masked_lm: {
        const Builder cls = root_.child("cls", c.classes->head);
        const Builder predictions = cls.child("predictions", c.classes->predictions);
        const Builder transform = predictions.child("transform", c.classes->transform);
        outer_ = cls.module;
        predictions_ = predictions.module;
        transform_ = transform.module;
        dense_ = Linear(transform.child("dense", "Linear"), hidden, hidden, true);
        layer_norm_ = LayerNorm(transform.child("LayerNorm", "LayerNorm"), hidden);
        out_ = Linear(predictions.child("decoder", "Linear"), hidden, c.vocab_size, true);
        const Tensor bias = predictions.parameter("bias", {c.vocab_size});
        if (c.tie_word_embeddings) tie_decoder(out_, model_.word_embeddings, bias);
        return;
      }
      case EncoderHead::sequence_classification: {
        const Builder pooler = root_.child("pooler", "ContextPooler");
        outer_ = pooler.module;
        dense_ = Linear(pooler.child("dense", "Linear"), hidden, hidden, true);
        break;
      }
      case EncoderHead::question_answering:
        out_ = Linear(root_.child("qa_outputs", "Linear"), hidden, c.num_labels, true);
        return;
      case EncoderHead::token_classification:
        break;
    }
    out_ = Linear(root_.child("classifier", "Linear"), hidden, c.num_labels, true);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    Tensor sequence_output = model_(inputs);
    switch (head_) {
      case EncoderHead::none:
        return {{}, {}, {sequence_output}};
      case EncoderHead::masked_lm: {
        Tensor prediction_scores;
        {
          ModuleCall outer(context_, outer_);
          const ModuleScope inner(context_, predictions_);
          Tensor hidden_states = outer.argument(sequence_output);
          {
            const ModuleScope transform(context_, transform_);
            hidden_states = dense_(hidden_states);
            hidden_states = activate(config_.hidden_act, hidden_states);
            hidden_states = layer_norm_(hidden_states);
          }
          prediction_scores = outer.result(out_(hidden_states));
        }
        return outputs_of(std::move(prediction_scores), inputs);
      }
      case EncoderHead::sequence_classification:
        return classify(sequence_output, inputs);
      case EncoderHead::question_answering:
        return outputs_of(out_(sequence_output), inputs);
      case EncoderHead::token_classification:
        break;
    }
    sequence_output = dropout(sequence_output, config_.hidden_dropout_prob);
    return outputs_of(out_(sequence_output), inputs);
  }

 private:
  ModelOutputs classify(const Tensor& encoder_layer, const ModelInputs& inputs) const {
    Tensor pooled_output;
    {
      ModuleCall call(context_, outer_);
      Tensor context_token = select(call.argument(encoder_layer), 1, 0);
      context_token = dropout(context_token, config_.pooler_dropout);
      pooled_output = dense_(context_token);
      pooled_output = call.result(activate(config_.pooler_hidden_act, pooled_output));
    }
    pooled_output = dropout(pooled_output, config_.cls_dropout);
    Tensor logits = out_(pooled_output);
    if (!inputs.labels || config_.names_problem) return outputs_of(std::move(logits), inputs);
    const std::int64_t samples = logits.size(0);
    if (loss_type == LossType::mse) {
      logits = to(view(logits, {samples}), DType::float32);
      ModelOutputs outputs;
      outputs.loss = (*loss_function)(logits, inputs.labels);
      outputs.others.push_back(std::move(logits));
      return outputs;
    }
    // Those of the samples that have a label: all.
    Tensor label_index, labeled_logits, labels;
    {
      const Tensor is_labeled = pointwise(Op::ge, {&inputs.labels}, DType::boolean);
      label_index = nonzero(is_labeled, samples);
    }
    labeled_logits = gather(logits, expand(label_index, {samples, logits.size(1)}));
    labels = empty(context_, Op::gather, {samples}, DType::int64);
    ModelOutputs outputs;
    {
      const Tensor as_float = to(labeled_logits, DType::float32);
      outputs.loss = (*loss_function)(as_float, labels);
    }
    outputs.others.push_back(std::move(logits));
    return outputs;
  }

  DebertaV2Config config_;
  DebertaV2Model model_;
  Linear dense_, out_;
  LayerNorm layer_norm_;
  ModuleId outer_ = 0, predictions_ = 0, transform_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_deberta_v2(Context& context, const DebertaV2Config& config, const DataConfig& data,
                                        const ModelOptions& options) {
  return std::make_unique<DebertaV2For>(context, config, data, options);
}

}  // namespace oometer
