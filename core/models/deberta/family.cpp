#include "models/family.h"

#include <algorithm>
#include <utility>

#include "config/reader.h"
#include "models/deberta_v2/deberta_v2.h"
#include "models/kit/norms.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

/// transformers 5.23, models/deberta/modeling_deberta.py: DeBERTa's first version, whose attention and norm are its
/// own.
namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"deberta", "DebertaForMaskedLM"},
                                   {"deberta", "DebertaModel"},
                                   {"deberta", "DebertaForSequenceClassification"},
                                   {"deberta", "DebertaForTokenClassification"},
                                   {"deberta", "DebertaForQuestionAnswering"}};
constexpr const char* kBlocks[] = {"DebertaLayer"};

/// DebertaLayerNorm.forward
Tensor deberta_layer_norm(const Norm& norm, const Tensor& argument) {
  ModuleCall call(argument.context(), norm.module);
  const Tensor given = call.argument(argument);
  Tensor hidden_states = to(given, DType::float32);
  const Tensor average = mean(hidden_states, -1, true);
  Tensor variance = sub(hidden_states, average);
  variance = pow(variance, 2);
  variance = mean(variance, -1, true);
  {
    const Tensor centred = sub(hidden_states, average);
    Tensor deviation = add_scalar(variance);
    deviation = sqrt(deviation);
    hidden_states = div(centred, deviation);
  }
  hidden_states = to(hidden_states, given.dtype());
  const Tensor weighted = mul(norm.weight, hidden_states);
  return call.result(add(weighted, norm.bias));
}

/// DebertaSelfOutput, DebertaOutput.
struct DebertaOutput {
  DebertaOutput(const Builder& builder, std::int64_t in_features, const DebertaV2Config& c)
      : dense(builder.child("dense", "Linear"), in_features, c.hidden_size, true),
        layer_norm(builder.child("LayerNorm", "DebertaLayerNorm"), deberta_layer_norm, {c.hidden_size}, true),
        dropout(c.hidden_dropout_prob),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const Tensor& input_in) const {
    ModuleCall call(hidden_in.context(), module);
    Tensor hidden_states = call.argument(hidden_in);
    const Tensor input_tensor = call.argument(input_in);
    hidden_states = dense(hidden_states);
    hidden_states = oometer::dropout(hidden_states, dropout);
    const Tensor sum = add(hidden_states, input_tensor);
    return call.result(layer_norm(sum));
  }

  Linear dense;
  Norm layer_norm;
  double dropout;
  ModuleId module;
};

/// x /= number
Tensor div_scalar_(const Tensor& x) {
  Record record(Op::div, [](Backward& b) { b.give(0, div_scalar(b.grad())); }, {&x});
  return in_place(record, Op::div, x);
}

struct FirstAttention {
  FirstAttention(const Builder& builder, const DebertaV2Config& c)
      : heads(c.num_attention_heads),
        max_relative_positions(c.max_relative_positions),
        c2p(c.relative_attention && c.c2p),
        p2c(c.relative_attention && c.p2c),
        relative_attention(c.relative_attention),
        pos_dropout(c.hidden_dropout_prob),
        dropout(c.attention_probs_dropout_prob),
        in_proj(builder.child("in_proj", "Linear"), c.hidden_size, 3 * c.hidden_size, false),
        q_bias(builder.parameter("q_bias", {c.hidden_size})),
        v_bias(builder.parameter("v_bias", {c.hidden_size})),
        module(builder.module) {
    if (c2p) pos_proj = Linear(builder.child("pos_proj", "Linear"), c.hidden_size, c.hidden_size, false);
    if (p2c) pos_q_proj = Linear(builder.child("pos_q_proj", "Linear"), c.hidden_size, c.hidden_size, true);
  }

  Tensor transpose_for_scores(const Tensor& x) const {
    return permute(view(x, {x.size(0), x.size(1), heads, x.size(2) / heads}), {0, 2, 1, 3});
  }

  Tensor operator()(const Tensor& argument, const DebertaV2Positions& positions) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = call.argument(argument);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1), width = hidden_states.size(2),
                       head = width / heads;
    const Tensor qp = in_proj(hidden_states);
    Tensor query_layer, key_layer, value_layer;
    {
      const TensorList parts = split(transpose_for_scores(qp), {head, head, head}, -1);
      query_layer = parts[0];
      key_layer = parts[1];
      value_layer = parts[2];
    }
    const auto biased = [&](const Tensor& x, const Tensor& bias) {
      return add(x, transpose_for_scores(view(bias, {1, 1, width})));
    };
    query_layer = biased(query_layer, q_bias);
    value_layer = biased(value_layer, v_bias);
    query_layer = div_scalar(query_layer);
    Tensor attention_scores = matmul(query_layer, transpose(key_layer, 2, 3)), rel_embeddings, rel_att;
    if (relative_attention) {
      rel_embeddings = oometer::dropout(positions.rel_embeddings, pos_dropout);
      rel_att = disentangled_att_bias(query_layer, key_layer, positions.relative_pos, rel_embeddings);
    }
    attention_scores = rel_att ? add(attention_scores, rel_att) : add_scalar(attention_scores);
    const Tensor attention_mask = to(positions.attention_mask, DType::boolean);
    {
      const Tensor masked = pointwise(Op::bitwise_not, {&attention_mask}, DType::boolean);
      attention_scores = masked_fill(attention_scores, masked);
    }
    const bool lower = argument.context().autocast.enabled;
    Tensor attention_probs = softmax(attention_scores, lower ? DType::float32 : attention_scores.dtype());
    attention_probs = oometer::dropout(attention_probs, dropout);
    Tensor context_layer = matmul(attention_probs, value_layer);
    context_layer = contiguous(permute(context_layer, {0, 2, 1, 3}));
    return call.result(view(context_layer, {batch, length, width}));
  }

  Tensor disentangled_att_bias(const Tensor& query_layer, const Tensor& key_layer, const Tensor& relative_pos,
                               const Tensor& rel_in) const {
    const std::int64_t batch = query_layer.size(0), length = query_layer.size(2),
                       att_span = std::min(length, max_relative_positions);
    const Shape square{batch, heads, length, length};
    const Tensor rel_embeddings = unsqueeze(slice(rel_in, 0, max_relative_positions - att_span, 2 * att_span), 0);
    Tensor score, pos_key_layer, c2p_att, c2p_pos, pos_query_layer, p2c_pos, p2c_att;
    if (c2p) {
      pos_key_layer = pos_proj(rel_embeddings);
      pos_key_layer = transpose_for_scores(pos_key_layer);
      c2p_att = matmul(query_layer, transpose(pos_key_layer, 2, 3));
      {
        const Tensor shifted = add_scalar(relative_pos);
        c2p_pos = clamp(shifted, true);
      }
      c2p_att = gather(c2p_att, expand(view(c2p_pos, {1, 1, length, length}), square));
      score = add_scalar(c2p_att);  // 0 + c2p_att
    }
    if (p2c) {
      pos_query_layer = pos_q_proj(rel_embeddings);
      pos_query_layer = transpose_for_scores(pos_query_layer);
      pos_query_layer = div_scalar_(pos_query_layer);
      {
        Tensor shifted = neg(relative_pos);
        shifted = add_scalar(shifted);
        p2c_pos = clamp(shifted, true);
      }
      p2c_att = matmul(key_layer, transpose(pos_query_layer, 2, 3));
      p2c_att = transpose(gather(p2c_att, expand(view(p2c_pos, {1, 1, length, length}), square)), 2, 3);
      score = score ? add_in_place(score, p2c_att) : add_scalar(p2c_att);
    }
    return score;
  }

  std::int64_t heads, max_relative_positions;
  bool c2p, p2c, relative_attention;
  double pos_dropout, dropout;
  Linear in_proj;
  Tensor q_bias, v_bias;
  Linear pos_proj, pos_q_proj;
  ModuleId module;
};

constexpr DebertaClasses kVersion1{
    "DebertaModel",
    "DebertaEmbeddings",
    "DebertaEncoder",
    "DebertaLayer",
    "DebertaAttention",
    "DebertaSelfOutput",
    "DebertaIntermediate",
    "DebertaOutput",
    "LegacyDebertaOnlyMLMHead",
    "LegacyDebertaLMPredictionHead",
    "LegacyDebertaPredictionHeadTransform",
    [](const Builder& builder, const DebertaV2Config& c) -> DebertaClasses::SelfAttention {
      return FirstAttention(builder, c);
    },
    [](const Builder& builder, std::int64_t in_features, const DebertaV2Config& c) -> DebertaClasses::Output {
      return DebertaOutput(builder, in_features, c);
    },
    [](const Builder& builder, std::int64_t hidden_size) -> std::function<Tensor(const Tensor&)> {
      return Norm(builder, deberta_layer_norm, {hidden_size}, true);
    },
    true};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  DebertaV2Config c;
  c.classes = &kVersion1;
  c.vocab_size = 50'265;
  read_deberta_config(reader, of, c);
  reader.refuse("talking_head", "heads that talk to each other are not supported yet: set it to false");
  c.position_buckets = 0;
  c.normalises_positions = c.share_att_key = false;
  return c;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = encoder_traits(config.as<DebertaV2Config>(), "deberta");
  t.has_no_peft_targets();
  t.lora_targets = {"in_proj"};  // peft 0.21, utils/constants.py
  t.ia3_targets = {"in_proj", "output.dense"};
  t.ia3_feedforward = {"output.dense"};
  t.precisions = {Precision::bf16, Precision::fp32, Precision::fp16};
  t.precisions_why = "under autocast the class fills masked scores with a number that their type has not";
  for (const Feature feature : {Feature::sdpa, Feature::flash_attention_2})
    t.refuse(feature, "inconsistent", "the class has attention of its own: expected eager");
  return t;
}

}  // namespace

namespace family {
extern const Family deberta{
    .classes = kClasses,
    .blocks = kBlocks,
    .read = read,
    .build =
        [](Context& context, const FamilyConfig& config, const DataConfig& data, const ModelOptions& options) {
          return build_deberta_v2(context, config.as<DebertaV2Config>(), data, options);
        },
    .traits = traits,
    .largest_tensor =
        [](const FamilyConfig& config, const DataConfig& data) {
          return largest_tensor_of_encoder(config.as<DebertaV2Config>(), data);
        }};
}  // namespace family

}  // namespace oometer
