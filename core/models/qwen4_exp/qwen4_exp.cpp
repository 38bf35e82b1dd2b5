#include "models/qwen4_exp/qwen4_exp.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "models/kit/mixture.h"
#include "models/llama/llama.h"
#include "models/qwen3_5/qwen3_5.h"
#include "ops/experts.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

/// Qwen4ExpTextRMSNorm of the states of a token, each by itself: `hc_count` of them lie side by side.
struct GroupNorm {
  GroupNorm(const Builder& builder, const Qwen4Config& c)
      : norm(builder, nullptr, {c.hc_count * c.hidden_size}), groups(c.hc_count), size(c.hidden_size) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), norm.module);
    const Tensor x = call.argument(argument);
    Tensor output;
    {
      const Tensor as_float = to(x, DType::float32);
      const Tensor grouped = view(as_float, {x.size(0), x.size(1), groups, size});
      Tensor scale = pow(grouped, 2);
      scale = mean(scale, -1, true);
      scale = add_scalar(scale);
      scale = rsqrt(scale);
      output = view(mul(grouped, scale), x.sizes());
    }
    {
      Tensor factor = to(norm.weight, DType::float32);
      factor = add_scalar(factor);
      output = mul(output, factor);
    }
    return call.result(to(output, x.dtype()));
  }

  Norm norm;
  std::int64_t groups, size;
};

/// `x.unflatten(-1, (hc_count, hidden_size))` and back.
Tensor apart(const Tensor& x, std::int64_t groups) {
  return view(x, {x.size(0), x.size(1), groups, x.size(2) / groups});
}
Tensor side_by_side(const Tensor& x) { return view(x, {x.size(0), x.size(1), x.size(2) * x.size(3)}); }

/// Qwen4ExpTextGatedResidual.
struct GatedResidual {
  GatedResidual(const Builder& builder, const Qwen4Config& c, bool use_combine)
      : hc_norm(builder.child("hc_norm", kQwen4.rms_norm), c), hc_count(c.hc_count), module(builder.module) {
    const std::int64_t all = hc_count * c.hidden_size;
    input_mix_weight_down = Linear(builder.child("input_mix_weight_down", "Linear"), all, c.hc_lowrank, false);
    input_mix_weight_up = Linear(builder.child("input_mix_weight_up", "Linear"), c.hc_lowrank, all, false);
    if (use_combine) block_inject_weight.emplace(builder.child("block_inject_weight", "Linear"), all, hc_count, false);
  }

  /// What the layer's part gets; and, where it is combined again, how much of what that gives goes into each state.
  Tensor operator()(const Tensor& argument, Tensor* injection_weights = nullptr) const {
    ModuleCall call(argument.context(), module);
    const Tensor hyper_input = call.argument(argument);
    const Tensor hyper_input_normed = hc_norm(hyper_input);
    Tensor input_mix_weight = input_mix_weight_down(hyper_input_normed);
    input_mix_weight = div_scalar(input_mix_weight);
    input_mix_weight = silu(input_mix_weight);
    {
      const Tensor up = input_mix_weight_up(input_mix_weight);
      input_mix_weight = sigmoid(up);
    }
    input_mix_weight = apart(input_mix_weight, hc_count);
    Tensor mixed_input;
    {
      const Tensor mixed = mul(input_mix_weight, apart(hyper_input_normed, hc_count));
      mixed_input = mean(mixed, -2, false);
    }
    if (!injection_weights) return call.result(mixed_input);
    {
      Tensor injection = (*block_inject_weight)(hyper_input_normed);
      injection = div_scalar(injection);
      injection = sigmoid(injection);
      *injection_weights = call.result(mul_scalar(injection));
    }
    return call.result(mixed_input);
  }

  GroupNorm hc_norm;
  std::int64_t hc_count;
  Linear input_mix_weight_down, input_mix_weight_up;
  std::optional<Linear> block_inject_weight;
  ModuleId module;
};

/// Half of apply_rotary_pos_emb: queries, or keys. What is turned stays bound (`rope`).
Tensor turn_first(const Tensor& x, const Tensor& cos, const Tensor& sin, Tensor& rope) {
  const std::int64_t turned = cos.size(-1), all = x.size(-1);
  rope = slice(x, -1, 0, turned);
  const Tensor rest = slice(x, -1, turned, all - turned);
  rope = rotate(rope, cos, sin);
  return cat({rope, rest}, -1);
}

Tensor turn(const Tensor& x, const Tensor& cos, const Tensor& sin, int unsqueeze_dim) {
  Tensor rope;
  return turn_first(x, unsqueeze(cos, unsqueeze_dim), unsqueeze(sin, unsqueeze_dim), rope);
}

/// apply_rotary_pos_emb: queries are joined again before keys are turned.
std::pair<Tensor, Tensor> turn_both(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions) {
  const Tensor cos = unsqueeze(positions.cos, 1), sin = unsqueeze(positions.sin, 1);
  Tensor q_rope, k_rope;
  Tensor q_rotated = turn_first(q, cos, sin, q_rope);
  Tensor k_rotated = turn_first(k, cos, sin, k_rope);
  return {std::move(q_rotated), std::move(k_rotated)};
}

/// Qwen4ExpTextQSAIndexer: the tokens that each one sees, chosen query by query.
struct QsaIndexer {
  QsaIndexer(const Builder& builder, const Qwen4Config& c)
      : heads(c.indexer_n_heads),
        head_dim(c.indexer_head_dim),
        budget(c.indexer_budget),
        ratio(c.indexer_compress_ratio),
        index_qk_proj(builder.child("index_qk_proj", "Linear"), c.hidden_size, (heads + 1) * head_dim, false),
        q_layernorm(builder.child("q_layernorm", kQwen4.rms_norm), rms_norm_one_plus, {head_dim}),
        k_layernorm(builder.child("k_layernorm", kQwen4.rms_norm), rms_norm_one_plus, {head_dim}),
        module(builder.module) {}

  /// [b, 1, s, s], true where a token is seen. `attention_mask`: tokens see those before and themselves.
  Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const {
    Context& context = hidden_states.context();
    ModuleCall call(context, module);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1);
    const Tensor qk = index_qk_proj(hidden_states);
    const TensorList both = split(qk, {heads * head_dim, head_dim}, -1);
    Tensor q = reshape(both[0], {batch, length, heads, head_dim});
    const Tensor raw_keys = select(reshape(both[1], {batch, length, 1, head_dim}), 2, 0);
    q = q_layernorm(q);
    q = turn(q, positions.cos, positions.sin, 2);
    const Tensor visible_token_indices = attention_mask.dtype() == DType::boolean
                                             ? attention_mask
                                             : pointwise(Op::eq, {&attention_mask}, DType::boolean);
    const Tensor selected_token_indices =
        empty(context, Op::full_like, {batch, length, budget + ratio - 1}, DType::int32);
    Tensor local_visible_indices, block_token_indices, key_groups, pooled_keys, group_starts, block_key_states, scores,
        selected_block_indices, selected_tokens, tail;
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t query = 0; query < length; ++query) {
        const std::int64_t seen = query + 1, blocks = seen / ratio;
        local_visible_indices =
            flat(nonzero(select(select(select(visible_token_indices, 0, b), 0, 0), 0, query), seen));
        if (blocks > 0) {
          block_token_indices = view(slice(local_visible_indices, 0, 0, blocks * ratio), {blocks, ratio});
          key_groups = index_select(select(raw_keys, 0, b), 0, view(block_token_indices, {blocks * ratio}));
          key_groups = view(key_groups, {blocks, ratio, head_dim});
          {
            Tensor pooled = to(key_groups, DType::float32);
            pooled = mean(pooled, 1, false);
            pooled_keys = to(pooled, raw_keys.dtype());
          }
          pooled_keys = k_layernorm(pooled_keys);
          group_starts = select(block_token_indices, 1, 0);
          {
            const Tensor cos = index_select(select(positions.cos, 0, b), 0, group_starts);
            const Tensor sin = index_select(select(positions.sin, 0, b), 0, group_starts);
            block_key_states = select(turn(unsqueeze(pooled_keys, 1), cos, sin, 1), 1, 0);
          }
          {
            const Tensor of_query = to(select(select(q, 0, b), 0, query), DType::float32);
            const Tensor keys = to(block_key_states, DType::float32);
            scores = transpose(matmul(of_query, transpose(keys, 0, 1)), 0, 1);
          }
          {
            Tensor relevant = relu(scores);
            relevant = sum(relevant, {-1}, false);
            scores = div_scalar(relevant);
          }
          {
            TopK best = topk(scores, std::min(budget / ratio, blocks));
            best.values.reset();
            selected_block_indices = best.indices;
          }
          selected_tokens = flat(index_select(block_token_indices, 0, selected_block_indices));
        } else {
          selected_tokens = empty(context, Op::empty, {0}, DType::float32);
        }
        tail = slice(local_visible_indices, 0, blocks * ratio, seen - blocks * ratio);
        {
          const std::int64_t chosen = selected_tokens.size(0) + tail.size(0);
          const Tensor joined = empty(context, Op::cat, {chosen}, blocks > 0 ? DType::int64 : DType::float32);
          selected_tokens = to(joined, DType::int32);
        }
      }
    }
    const Shape sizes{batch, length, length + 1};
    Tensor mask = empty(context, Op::zeros, sizes, DType::boolean);
    Tensor scatter_indices;
    {
      const Tensor is_one = pointwise(Op::ge, {&selected_token_indices}, DType::boolean);
      const Tensor other = empty(context, Op::fill, {}, DType::int32);
      scatter_indices = pointwise(Op::where, {&is_one, &selected_token_indices}, DType::int32);
    }
    mask = empty(context, Op::clone, sizes, DType::boolean);  // scatter: a copy
    return call.result(unsqueeze(slice(mask, 2, 0, length), 1));
  }

  std::int64_t heads, head_dim, budget, ratio;
  Linear index_qk_proj;
  Norm q_layernorm, k_layernorm;
  ModuleId module;

 private:
  static Tensor flat(const Tensor& x) { return reshape(x, {x.numel()}); }
};

/// x.sign()
Tensor sign(const Tensor& x) {
  Record record(Op::sign, [](Backward& b) { b.give(0, empty_like(Op::zeros_like, b.grad())); }, {&x});
  return record.output(empty_like(Op::sign, x));
}

/// Qwen4ExpTextNGramEmbedding.
struct NGramEmbedding {
  NGramEmbedding(const Builder& builder, const Qwen4Config& c, std::int64_t rows)
      : ngram_size(c.ngram_size), heads_per_ngram(c.heads_per_ngram), module(builder.module) {
    const std::int64_t heads = (ngram_size - 1) * heads_per_ngram;
    layer_multipliers = builder.buffer({ngram_size}, DType::int64);
    head_vocab_sizes = builder.buffer({heads}, DType::int64);
    head_offsets = builder.buffer({heads}, DType::int64);
    ngram_embedding = Embedding(builder.child("ngram_embedding", "Embedding"), rows, c.ple_embed_dim / heads);
  }

  /// _shift_right_ignore_eos, of at least one token.
  static Tensor shift_right(const Tensor& token_ids) {
    Context& context = token_ids.context();
    const std::int64_t batch = token_ids.size(0), length = token_ids.size(1);
    const Shape row{length}, all{batch, length};
    const auto make = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::int64); };
    const auto test = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::boolean); };
    const Tensor positions = make(Op::arange, row);
    Tensor eos_positions;
    {
      const Tensor is_eos = test(Op::eq, all), none = make(Op::fill, {});
      eos_positions = make(Op::where, all);
    }
    Tensor previous_eos_inclusive = make(Op::cumsum, all);
    { const Tensor indices = make(Op::cumsum, all); }
    Tensor previous_eos;
    {
      const Tensor none = make(Op::full_like, {batch, 1});
      previous_eos = make(Op::cat, all);
    }
    const Tensor segment_start = make(Op::add, all), position_in_segment = make(Op::sub, all),
                 source_positions = make(Op::sub, row), gather_positions = make(Op::clamp, row),
                 shifted = make(Op::gather, all);
    Tensor valid;
    {
      const Tensor in_segment = test(Op::ge, all), in_row = test(Op::ge, {1, length});
      valid = test(Op::bitwise_and, all);
    }
    const Tensor eos = make(Op::full_like, {});
    return make(Op::where, all);
  }

  Tensor operator()(Context& context, std::int64_t batch, std::int64_t length) const {
    ModuleCall call(context, module);
    const auto make = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::int64); };
    const std::int64_t context_len = ngram_size - 1, known = context_len + length;
    const Shape all{batch, known}, of_heads{batch, known, heads_per_ngram};
    const Tensor previous_context = make(Op::full_like, {batch, context_len});
    const Tensor token_history = make(Op::cat, all);
    TensorList shifted_tokens;
    for (std::int64_t shift = 1; shift < ngram_size; ++shift) shifted_tokens.push_back(shift_right(token_history));
    Tensor mixed_ids, ngram_ids;
    {
      TensorList blocks;
      for (std::int64_t ngram = 2; ngram <= ngram_size; ++ngram) {
        mixed_ids = make(Op::mul, all);
        for (std::int64_t position = 1; position < ngram; ++position) {
          const Tensor multiplied = make(Op::mul, all);
          mixed_ids = make(Op::bitwise_or, all);
        }
        ngram_ids = make(Op::floor_divide, of_heads);
        blocks.push_back(make(Op::add, of_heads));
      }
      {
        const Tensor joined = make(Op::cat, {batch, known, context_len * heads_per_ngram});
        ngram_ids = slice(joined, 1, context_len, length);
      }
      const Tensor embedded = ngram_embedding(ngram_ids);
      return call.result(side_by_side(embedded));
    }
  }

  std::int64_t ngram_size, heads_per_ngram;
  Tensor layer_multipliers, head_vocab_sizes, head_offsets;
  Embedding ngram_embedding;
  ModuleId module;
};

/// Qwen4ExpTextPLELayer.
struct PleLayer {
  PleLayer(const Builder& builder, const Qwen4Config& c, std::int64_t rows)
      : ple_embedding(builder.child("ple_embedding", "Qwen4ExpTextNGramEmbedding"), c, rows),
        hc_count(c.hc_count),
        dilation(c.ngram_size),
        key_proj(builder.child("key_proj", "Linear"), c.ple_embed_dim, hc_count * c.hidden_size, false),
        value_proj(builder.child("value_proj", "Linear"), c.ple_embed_dim, c.hidden_size, false),
        norm_key(builder.child("norm_key", kQwen4.rms_norm), c),
        norm_query(builder.child("norm_query", kQwen4.rms_norm), c),
        norm_conv(builder.child("norm_conv", kQwen4.rms_norm), c),
        conv1d(builder.child("conv1d", "Conv1d")),
        module(builder.module) {
    conv_weight = conv1d.parameter("weight", {hc_count * c.hidden_size, 1, c.ple_conv_kernel});
  }

  Tensor short_conv(const Tensor& argument) const {
    const std::int64_t kernel = conv_weight.size(2), channels = argument.size(2);
    Tensor hidden_states = transpose(argument, 1, 2);
    hidden_states = pad(hidden_states, 2, (kernel - 1) * dilation);
    hidden_states = slice(hidden_states, 2, 0, hidden_states.size(2));
    {
      ModuleCall call(argument.context(), conv1d.module);
      const Tensor input = call.argument(hidden_states);
      Tensor out = call.result(convolution(
          input, conv_weight, {},
          {.stride = {1}, .padding = {0}, .dilation = {dilation}, .output_padding = {0}, .groups = channels}));
      hidden_states = silu(out);
    }
    return transpose(hidden_states, 1, 2);
  }
  Tensor operator()(const Tensor& argument, const Tensor& conv_mask) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor hidden_states = call.argument(argument);
    const Tensor embeddings = ple_embedding(context, hidden_states.size(0), hidden_states.size(1));
    Tensor key_normed;
    {
      const Tensor key = key_proj(embeddings);
      key_normed = apart(norm_key(key), hc_count);
    }
    const Tensor value = value_proj(embeddings);
    const Tensor query_normed = apart(norm_query(hidden_states), hc_count);
    Tensor gate;
    {
      Tensor product = mul(key_normed, query_normed);
      product = sum(product, {-1}, true);
      gate = div_scalar(product);
    }
    {
      Tensor size = abs(gate);
      size = clamp(size, false);
      size = sqrt(size);
      const Tensor of = sign(gate);
      gate = mul(size, of);
    }
    Tensor gated_value;
    {
      const Tensor share = sigmoid(gate);
      gated_value = mul(share, unsqueeze(value, -2));
    }
    Tensor gated_value_normed = norm_conv(side_by_side(gated_value));
    gated_value = side_by_side(gated_value);
    if (conv_mask) {
      gated_value = apply_mask_to_padding_states(gated_value, conv_mask);
      gated_value_normed = apply_mask_to_padding_states(gated_value_normed, conv_mask);
    }
    const Tensor conv = short_conv(gated_value_normed);
    return call.result(add(gated_value, conv));
  }

  NGramEmbedding ple_embedding;
  std::int64_t hc_count, dilation;
  Linear key_proj, value_proj;
  GroupNorm norm_key, norm_query, norm_conv;
  Builder conv1d;
  Tensor conv_weight;
  ModuleId module;
};

/// Qwen4ExpTextAttention: Qwen3.5's, of the tokens that the indexer chooses.
struct Qwen4Attention {
  Qwen4Attention(const Builder& builder, const Qwen4Config& c, const ModelOptions& options, const AttentionParts& parts)
      : attention(builder, c, options, parts),
        indexer(builder.child("indexer", "Qwen4ExpTextQSAIndexer"), c),
        module(builder.module) {}

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& given_mask) const {
    Tensor selected_token_mask, attention_mask;
    {
      const ModuleScope scope(hidden_states.context(), module);
      selected_token_mask = indexer(hidden_states, positions, given_mask);
      if (given_mask.dtype() == DType::boolean) {
        attention_mask = pointwise(Op::bitwise_and, {&given_mask, &selected_token_mask}, DType::boolean);
      } else {
        const Tensor hidden = pointwise(Op::bitwise_not, {&selected_token_mask}, DType::boolean);
        attention_mask = masked_fill(given_mask, hidden);
      }
    }
    return attention(hidden_states, positions, attention_mask);
  }

  TextAttention attention;
  QsaIndexer indexer;
  ModuleId module;
};

constexpr const char *kDeltaNet = "Qwen4ExpTextGatedDeltaNet", *kDeltaNorm = "Qwen4ExpTextRMSNormGated";

class Qwen4DecoderLayer : public DecoderLayer {
 public:
  Qwen4DecoderLayer(const Builder& builder, const Qwen4Config& c, const ModelOptions& options, std::size_t index)
      : module_(builder.module) {
    if (c.is_linear[index]) {
      is_linear_ = true;
      self_attn_ = GatedDeltaNet(builder.child("linear_attn", kDeltaNet), c, kDeltaNorm, false);
    } else {
      AttentionParts its;
      its.has_gate = true;
      its.rotate = turn_both;
      its.norms_at = HeadNorms::projected;
      its.norm = rms_norm_one_plus;
      its.norm_type = kQwen4.rms_norm;
      self_attn_ = Qwen4Attention(builder.child("self_attn", kQwen4.attention), c, options, its);
    }
    mlp_.emplace(builder.child("mlp", "Qwen4ExpTextSparseMoeBlock"), c, "Qwen4ExpTextTopKRouter", "Qwen4ExpTextExperts",
                 options.liger, ExpertsParts{.checkpoint = {}});
    const auto& ids = c.ple_layer_ids;
    const auto id = std::find(ids.begin(), ids.end(), static_cast<std::int64_t>(index) + 1);
    if (id != ids.end())
      ple_.emplace(builder.child("ple", "Qwen4ExpTextPLELayer"), c,
                   c.ngram_rows[static_cast<std::size_t>(id - ids.begin())]);
    attn_hyper_connection_.emplace(builder.child("attn_hyper_connection", "Qwen4ExpTextGatedResidual"), c, true);
    mlp_hyper_connection_.emplace(builder.child("mlp_hyper_connection", "Qwen4ExpTextGatedResidual"), c, true);
  }

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions, const Tensor& mask) const override {
    const ModuleScope scope(hidden_in.context(), module_);
    Tensor hyper_input = hidden_in, injection_weights, hidden_states, injection;
    if (ple_) {
      const Tensor more = (*ple_)(hidden_in, positions.padding_mask);
      hyper_input = add(hidden_in, more);
    }
    hidden_states = (*attn_hyper_connection_)(hyper_input, &injection_weights);
    AttentionOutputs attention =
        self_attn_(hidden_states, positions, is_linear_ ? positions.padding_mask : mask);  // the weights stay in `_`
    hidden_states = std::move(attention.output);
    const auto combine = [&] {
      injection = mul(unsqueeze(hidden_states, -2), unsqueeze(injection_weights, -1));
      hidden_states = add(hyper_input, side_by_side(injection));
    };
    combine();
    {
      Tensor weights, mixed = (*mlp_hyper_connection_)(hidden_states, &weights);
      hyper_input = std::move(hidden_states);
      hidden_states = std::move(mixed);
      injection_weights = std::move(weights);
    }
    hidden_states = (*mlp_)(hidden_states);
    combine();
    return hidden_states;
  }

 private:
  bool is_linear_ = false;
  std::function<AttentionOutputs(const Tensor&, const PositionEmbeddings&, const Tensor&)> self_attn_;
  std::optional<BlockWithGatedShared> mlp_;
  std::optional<PleLayer> ple_;
  std::optional<GatedResidual> attn_hyper_connection_, mlp_hyper_connection_;
  ModuleId module_;
};

/// Qwen4ExpTextModel's streams.
class Qwen4Streams : public Streams {
 public:
  Qwen4Streams(const Builder& mixer, const Qwen4Config& c) : hc_count_(c.hc_count), mixer_(mixer, c, false) {}

  Tensor open(const Tensor& inputs_embeds, TensorList& /*names*/) const override {
    return repeat(inputs_embeds, {1, 1, hc_count_});
  }
  Tensor close(Tensor& hidden_states, TensorList& /*names*/) const override { return mixer_(hidden_states); }

 private:
  std::int64_t hc_count_;
  GatedResidual mixer_;
};

}  // namespace

DecoderParts qwen4_parts(const Qwen4Config& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& layer, std::size_t index) {
    return std::make_unique<Qwen4DecoderLayer>(layer, config, options, index);
  };
  parts.norm = [](const Builder&, std::int64_t) {
    return [](const Tensor& x) { return x; };
  };  // the mixer's stands there
  parts.positions_by_sample = parts.always_masks = true;
  parts.rotary = embed_interleaved_positions;
  parts.is_recurrent = [](std::size_t) { return false; };
  parts.kind = [config](std::size_t i) {
    const auto& ids = config.ple_layer_ids;
    const bool has_ple = std::find(ids.begin(), ids.end(), static_cast<std::int64_t>(i) + 1) != ids.end();
    return has_ple ? 2 + static_cast<int>(i) : int{config.is_linear[i]};
  };
  parts.streams = [config](const Builder& decoder) -> std::unique_ptr<Streams> {
    return std::make_unique<Qwen4Streams>(decoder.child("hyper_connection_mixer", "Qwen4ExpTextGatedResidual"), config);
  };
  return parts;
}

}  // namespace oometer
