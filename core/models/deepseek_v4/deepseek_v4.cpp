#include "models/deepseek_v4/deepseek_v4.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "models/gpt_oss/gpt_oss.h"
#include "models/kit/kept_in_float32.h"
#include "models/kit/mixture.h"
#include "models/kit/norms.h"
#include "models/kit/text_attention.h"
#include "models/llama/llama.h"
#include "nn/activation.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "ops/xielu.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

Norm rms_norm_at(const Builder& parent, const char* name, std::int64_t size, const LigerConfig& kernels = {}) {
  return Norm(kept_in_float32(parent.child(name, kDeepseekV4.rms_norm)), norm_of(kernels, rms_norm_float32), {size});
}

/// DeepseekV4UnweightedRMSNorm.forward
Tensor unweighted_rms_norm(const Norm& norm, const Tensor& argument) {
  ModuleCall call(argument.context(), norm.module);
  const Tensor x = call.argument(argument);
  Tensor scale;
  {
    const Tensor as_float = to(x, DType::float32);
    scale = pow(as_float, 2);
  }
  scale = mean(scale, -1, true);
  scale = add_scalar(scale);
  scale = rsqrt(scale);
  scale = to(scale, x.dtype());
  return call.result(mul(x, scale));
}

Norm unweighted_norm_at(const Builder& parent, const char* name) {
  Norm norm;
  norm.module = parent.child(name, "DeepseekV4UnweightedRMSNorm").module;
  norm.forward = unweighted_rms_norm;
  return norm;
}

/// Of the last elements of each head; `x`: [b, heads, s, d].
Tensor apply_rotary_pos_emb(const Tensor& x, const Tensor& of_pairs_cos, Tensor of_pairs_sin) {
  Tensor cos = repeat_interleave(of_pairs_cos, 2, -1), sin = repeat_interleave(of_pairs_sin, 2, -1);
  of_pairs_sin.reset();
  cos = unsqueeze(cos, 1);
  sin = unsqueeze(sin, 1);
  const std::int64_t rope_dim = cos.size(-1), nope_dim = x.size(-1) - rope_dim;
  const Tensor nope = slice(x, -1, 0, nope_dim), rope = slice(x, -1, nope_dim, rope_dim);
  Tensor rotated;
  {
    Tensor straight = to(rope, DType::float32);
    straight = mul(straight, cos);
    Tensor turned = rotate_half(rope);
    turned = to(turned, DType::float32);
    turned = mul(turned, sin);
    rotated = add(straight, turned);
  }
  rotated = to(rotated, x.dtype());
  Tensor joined = cat({nope, rotated}, -1);
  cos.reset();
  sin.reset();
  return joined;
}

/// DeepseekV4RotaryEmbedding, of which every compressor and indexer has one.
struct BothRotaryEmbeddings {
  BothRotaryEmbeddings(const Builder& parent, const LlamaConfig& c) {
    const Builder tables = parent.child("rotary_emb", kDeepseekV4.rotary_embedding);
    main = LlamaRotaryEmbedding(tables, c);
    compress = LlamaRotaryEmbedding(tables, c);
  }

  LlamaRotaryEmbedding main, compress;
};

/// What makes one entry of so many tokens, a compressor's or an indexer's. `overlaps`: an entry is made of the tokens
/// before these, too, for which a second series is projected.
struct Windows {
  /// Names of its owner's forward, which live until that returns.
  struct Frame {
    Tensor kv, gate, chunk_kv, chunk_gate, new_kv, new_gate, positions, cos, sin, compressed;

    void let_go() {  // in the order in which they were bound
      for (Tensor* name : {&kv, &gate, &chunk_kv, &chunk_gate, &new_kv, &new_gate, &positions, &cos, &sin, &compressed})
        name->reset();
    }
  };

  Windows(const Builder& builder, std::int64_t hidden_size, std::int64_t rate_in, std::int64_t head_dim_in,
          bool overlaps_in)
      : kv_proj(builder.child("kv_proj", "Linear"), hidden_size, head_dim_in * (overlaps_in ? 2 : 1), false),
        gate_proj(builder.child("gate_proj", "Linear"), hidden_size, head_dim_in * (overlaps_in ? 2 : 1), false),
        position_bias(
            kept_in_float32(builder).parameter("position_bias", {rate_in, head_dim_in * (overlaps_in ? 2 : 1)})),
        kv_norm(rms_norm_at(builder, "kv_norm", head_dim_in)),
        rate(rate_in),
        head_dim(head_dim_in),
        overlaps(overlaps_in) {}

  /// Its `compressed`: [b, entries, head_dim]; without any where there are fewer tokens than an entry has.
  void compress(const Tensor& hidden_states, const LlamaRotaryEmbedding& rotary_emb, Frame& f) const {
    Context& context = hidden_states.context();
    const std::int64_t batch = hidden_states.size(0), n_windows = hidden_states.size(1) / rate;
    f.kv = kv_proj(hidden_states);
    f.gate = gate_proj(hidden_states);
    if (n_windows == 0) {
      f.compressed = empty(context, Op::zeros, {batch, 0, head_dim}, f.kv.dtype());
      return;
    }
    const auto chunks = [&](const Tensor& projected) {
      const std::int64_t usable = n_windows * rate;
      const Tensor cut = usable == projected.size(1) ? projected : slice(projected, 1, 0, usable);
      return view(cut, {batch, n_windows, rate, projected.size(2)});
    };
    f.chunk_kv = chunks(f.kv);
    f.chunk_gate = chunks(f.gate);
    f.chunk_gate = add(f.chunk_gate, position_bias);
    if (overlaps) overlap(f, batch, n_windows);
    {
      const Tensor &states = overlaps ? f.new_kv : f.chunk_kv, &gates = overlaps ? f.new_gate : f.chunk_gate;
      Tensor weights = softmax(gates, DType::float32);
      weights = to(weights, states.dtype());
      weights = mul(states, weights);
      weights = sum(weights, {2}, false);
      f.compressed = kv_norm(weights);
    }
    f.positions = empty(context, Op::arange, {n_windows}, DType::int64);
    {
      const Tensor first_tokens = mul_scalar(f.positions);
      f.positions = add_scalar(first_tokens);
    }
    f.positions = expand(unsqueeze(f.positions, 0), {batch, n_windows});
    PositionEmbeddings angles = embed_half_positions(rotary_emb, f.positions, f.compressed.dtype());
    f.cos = std::move(angles.cos);
    f.sin = std::move(angles.sin);
    f.compressed = apply_rotary_pos_emb(unsqueeze(f.compressed, 1), f.cos, f.sin);
    f.compressed = view(f.compressed, {batch, n_windows, head_dim});
  }

  /// Both series side by side: the one of the window before, then its own.
  void overlap(Frame& f, std::int64_t batch, std::int64_t n_windows) const {
    Context& context = f.kv.context();
    const Shape sizes{batch, n_windows, 2 * rate, head_dim};
    f.new_kv = empty(context, Op::zeros, sizes, f.chunk_kv.dtype());
    f.new_gate = empty(context, Op::full_like, sizes, f.chunk_gate.dtype());
    f.new_kv = copy_into(std::move(f.new_kv), slice(f.chunk_kv, -1, head_dim, head_dim));
    f.new_gate = copy_into(std::move(f.new_gate), slice(f.chunk_gate, -1, head_dim, head_dim));
    if (n_windows == 1) return;
    const auto of_previous = [&](const Tensor& chunk) {
      return slice(slice(chunk, 1, 0, n_windows - 1), -1, 0, head_dim);
    };
    f.new_kv = copy_into(std::move(f.new_kv), of_previous(f.chunk_kv));
    f.new_gate = copy_into(std::move(f.new_gate), of_previous(f.chunk_gate));
  }

  Linear kv_proj, gate_proj;
  Tensor position_bias;
  Norm kv_norm;
  std::int64_t rate, head_dim;
  bool overlaps;
};

/// `(position_ids + 1) // rate`: as many entries a token may see.
Tensor causal_threshold_of(const Tensor& position_ids) {
  const Tensor next = add_scalar(position_ids);
  return empty_like(Op::floor_divide, next);
}

/// What of a frame's where(condition, indices, full_like(indices, number)) stays.
Tensor where_or_number(const Tensor& condition, const Tensor& indices) {
  const Tensor number = empty_like(Op::full_like, indices);
  return pointwise(Op::where, {&condition, &indices, &number}, DType::int64);
}

/// DeepseekV4IndexerScorer
struct IndexerScorer {
  IndexerScorer(const Builder& builder, const DeepseekV4Config& c)
      : weights_proj(builder.child("weights_proj", "Linear"), c.hidden_size, c.index_n_heads, false),
        module(builder.module) {}

  /// [b, s, entries], of q [b, s, heads, d] and compressed_kv [b, entries, d].
  Tensor operator()(const Tensor& q, const Tensor& compressed_kv, const Tensor& hidden_states) const {
    ModuleCall call(hidden_states.context(), module);
    Tensor weights, scores;
    {
      Tensor queries = to(q, DType::float32);
      const Tensor keys = to(transpose(compressed_kv, 1, 2), DType::float32);
      const Tensor lowered = autocast_lower(unsqueeze(keys, 1));
      scores = matmul(queries, expand(lowered, {q.size(0), q.size(1), q.size(3), compressed_kv.size(1)}));
      queries.reset();
    }
    {
      const Tensor positive = relu(scores);
      scores = mul_scalar(positive);
    }
    weights = weights_proj(hidden_states);
    weights = to(weights, DType::float32);
    weights = mul_scalar(weights);
    const Tensor weighted = mul(scores, unsqueeze(weights, -1));
    return call.result(sum(weighted, {2}, false));
  }

  Linear weights_proj;
  ModuleId module;
};

/// DeepseekV4Indexer: no gradient comes to it.
struct DeepseekV4Indexer {
  DeepseekV4Indexer(const Builder& builder, const DeepseekV4Config& c)
      : windows(builder, c.hidden_size, c.sparse_rate, c.index_head_dim, true),
        q_b_proj(builder.child("q_b_proj", "Linear"), c.q_lora_rank, c.index_n_heads * c.index_head_dim, false),
        rotary_emb(builder, c.as_llama()),
        scorer(builder.child("scorer", "DeepseekV4IndexerScorer"), c),
        index_topk(c.index_topk),
        module(builder.module) {}

  /// [b, s, k]: which entries each token sees; -1: none.
  Tensor operator()(const Tensor& hidden_states, const Tensor& q_residual, const Tensor& position_ids) const {
    Context& context = hidden_states.context();
    ModuleCall call(context, module);
    const std::int64_t batch = hidden_states.size(0), seq_len = hidden_states.size(1);
    Windows::Frame frame;
    windows.compress(hidden_states, rotary_emb.compress, frame);
    const Tensor& compressed_kv = frame.compressed;
    PositionEmbeddings of_queries = embed_half_positions(rotary_emb.compress, position_ids, hidden_states.dtype());
    Tensor q = heads_of(q_b_proj(q_residual), windows.head_dim);
    q = transpose(apply_rotary_pos_emb(q, of_queries.cos, of_queries.sin), 1, 2);
    Tensor index_scores = scorer(q, compressed_kv, hidden_states);
    const std::int64_t compressed_len = compressed_kv.size(1), top_k = std::min(index_topk, compressed_len);
    Tensor causal_threshold = causal_threshold_of(position_ids);
    Tensor entry_indices = empty(context, Op::arange, {compressed_len}, DType::int64);
    Tensor future_mask = empty(context, Op::ge, {position_ids.size(0), seq_len, compressed_len}, DType::boolean);
    index_scores = masked_fill(index_scores, future_mask);
    TopK best = topk(index_scores, top_k);
    best.values.reset();
    const Tensor invalid = empty(context, Op::ge, {batch, seq_len, top_k}, DType::boolean);
    Tensor chosen = call.result(where_or_number(invalid, best.indices));
    frame.let_go();
    for (Tensor* name : {&of_queries.cos, &of_queries.sin, &q, &index_scores, &causal_threshold, &entry_indices,
                         &future_mask, &best.indices})
      name->reset();
    return chosen;
  }

  Windows windows;
  Linear q_b_proj;
  BothRotaryEmbeddings rotary_emb;
  IndexerScorer scorer;
  std::int64_t index_topk;
  ModuleId module;
};

/// Entries [b, 1, entries, d], and which token sees which: [b, 1, s, entries], or null where there are none.
struct Compressed {
  Tensor kv, block_bias;
};

/// DeepseekV4HCACompressor, and DeepseekV4CSACompressor, which has an indexer.
struct Compressor {
  Compressor(const Builder& builder, const DeepseekV4Config& c, bool is_sparse)
      : windows(builder, c.hidden_size, is_sparse ? c.sparse_rate : c.heavy_rate, c.head_dim, is_sparse),
        rotary_emb(builder, c.as_llama()),
        module(builder.module) {
    if (is_sparse) indexer.emplace(builder.child("indexer", "DeepseekV4Indexer"), c);
  }

  Compressed operator()(const Tensor& hidden_states, const Tensor& q_residual, const Tensor& position_ids) const {
    Context& context = hidden_states.context();
    ModuleCall call(context, module);
    const std::int64_t batch = hidden_states.size(0), seq_len = hidden_states.size(1);
    Windows::Frame frame;
    windows.compress(hidden_states, rotary_emb.compress, frame);
    Compressed result{unsqueeze(frame.compressed, 1), {}};
    const std::int64_t compressed_len = result.kv.size(2);
    if (indexer && compressed_len == 0)
      context.refusal = Error{"not-modelled", "/data/sequence_length",
                              "sequences of fewer tokens than one compressed entry are not supported yet"};
    if (compressed_len == 0 || (!indexer && seq_len == 1)) {
      frame.let_go();
      return result;
    }
    if (indexer) {
      Tensor top_k_indices = (*indexer)(hidden_states, q_residual, position_ids);
      Tensor valid = empty_like(Op::ge, top_k_indices, DType::boolean);
      Tensor safe_indices = where_or_number(valid, top_k_indices);
      const Tensor with_one_more =
          empty(context, Op::full_like, {batch, 1, seq_len, compressed_len + 1}, result.kv.dtype());
      result.block_bias = slice(with_one_more, -1, 0, compressed_len);
      frame.let_go();
      for (Tensor* name : {&top_k_indices, &valid, &safe_indices}) name->reset();
      return result;
    }
    Tensor entry_indices = empty(context, Op::arange, {compressed_len}, DType::int64);
    Tensor causal_threshold = causal_threshold_of(position_ids);
    result.block_bias = empty(context, Op::zeros, {batch, 1, seq_len, compressed_len}, result.kv.dtype());
    {
      Tensor is_later = empty(context, Op::ge, {position_ids.size(0), 1, seq_len, compressed_len}, DType::boolean);
      Tensor filled = masked_fill(result.block_bias, is_later);
      is_later.reset();
      result.block_bias = std::move(filled);
    }
    frame.let_go();
    for (Tensor* name : {&entry_indices, &causal_threshold}) name->reset();
    return result;
  }

  Windows windows;
  BothRotaryEmbeddings rotary_emb;
  std::optional<DeepseekV4Indexer> indexer;
  ModuleId module;
};

/// DeepseekV4GroupedLinear: each group of heads has a part of the weight.
struct GroupedLinear {
  GroupedLinear(const Builder& builder, std::int64_t in_features_per_group, std::int64_t out_features,
                std::int64_t n_groups)
      : linear(builder, in_features_per_group, out_features, false), groups(n_groups) {}

  /// [b, s, groups, out_features / groups], of x [b, s, groups, in_features_per_group].
  Tensor operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, linear.module);
    if (linear.wrapper)
      context.refusal = Error{"inconsistent", "/training",
                              "found an adapter on o_a_proj, whose groups it does not know: leave o_a_proj out"};
    const Tensor x = call.argument(argument);
    const std::int64_t batch = x.size(0), length = x.size(1), hidden_dim = x.size(3),
                       rank = linear.weight.size(0) / groups;
    const Tensor w = transpose(view(linear.weight, {groups, rank, hidden_dim}), 1, 2);
    const Tensor by_group = transpose(reshape(x, {batch * length, groups, hidden_dim}), 0, 1);
    Tensor y;
    {
      const Tensor weights = autocast_lower(w), rows = autocast_lower(by_group);
      y = transpose(bmm(rows, weights), 0, 1);
    }
    return call.result(reshape(y, {batch, length, groups, rank}));
  }

  Linear linear;
  std::int64_t groups;
};

struct DeepseekV4AttentionLayer {
  DeepseekV4AttentionLayer(const Builder& builder, const DeepseekV4Config& c, const ModelOptions& options,
                           CompressedAttention kind)
      : q_a_proj(builder.child("q_a_proj", "Linear"), c.hidden_size, c.q_lora_rank, false),
        q_a_norm(rms_norm_at(builder, "q_a_norm", c.q_lora_rank)),
        q_b_proj(builder.child("q_b_proj", "Linear"), c.q_lora_rank, c.num_attention_heads * c.head_dim, false),
        q_b_norm(unweighted_norm_at(builder, "q_b_norm")),
        kv_proj(builder.child("kv_proj", "Linear"), c.hidden_size, c.head_dim, false),
        kv_norm(rms_norm_at(builder, "kv_norm", c.head_dim)),
        o_a_proj(builder.child("o_a_proj", "DeepseekV4GroupedLinear"), c.num_attention_heads * c.head_dim / c.o_groups,
                 c.o_groups * c.o_lora_rank, c.o_groups),
        o_b_proj(builder.child("o_b_proj", "Linear"), c.o_groups * c.o_lora_rank, c.hidden_size, false),
        sinks(kept_in_float32(builder).parameter("sinks", {c.num_attention_heads})),
        head_dim(c.head_dim),
        call{options.attention, true, c.attention_dropout},
        module(builder.module) {
    if (kind == CompressedAttention::none) return;
    const bool is_sparse = kind == CompressedAttention::sparse;
    compressor.emplace(builder.child("compressor", is_sparse ? "DeepseekV4CSACompressor" : "DeepseekV4HCACompressor"),
                       c, is_sparse);
  }

  AttentionOutputs operator()(const Tensor& argument, const PositionEmbeddings& positions,
                              const Tensor& mask_in) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1);
    Tensor q_residual;
    {
      const Tensor projected = q_a_proj(hidden_states);
      q_residual = q_a_norm(projected);
    }
    Tensor q = heads_of(q_b_proj(q_residual), head_dim);
    q = q_b_norm(q);
    q = apply_rotary_pos_emb(q, positions.cos, positions.sin);
    Tensor kv;
    {
      const Tensor projected = kv_proj(hidden_states);
      kv = heads_of(kv_norm(projected), head_dim);
    }
    kv = apply_rotary_pos_emb(kv, positions.cos, positions.sin);
    Compressed compressed;
    if (compressor) {
      compressed = (*compressor)(hidden_states, q_residual, positions.position_ids);
      kv = cat({kv, compressed.kv}, 2);
    }
    Tensor attention_mask = mask_in;
    if (compressed.block_bias) {
      const Tensor of_entries = to(compressed.block_bias, attention_mask.dtype());
      attention_mask = cat({attention_mask, of_entries}, -1);
    }
    AttentionOutputs attention = attend_with_sinks(call, {q, kv, kv}, attention_mask, sinks);
    {  // it is turned back, as keys were values
      Tensor back = neg(positions.sin);
      attention.output =
          transpose(apply_rotary_pos_emb(transpose(attention.output, 1, 2), positions.cos, std::move(back)), 1, 2);
    }
    Tensor grouped =
        reshape(attention.output, {batch, length, o_a_proj.groups, q.size(1) * head_dim / o_a_proj.groups});
    {
      Tensor by_group = o_a_proj(grouped);
      Tensor flat = reshape(by_group, {batch, length, by_group.size(2) * by_group.size(3)});
      by_group.reset();
      grouped = std::move(flat);
    }
    Tensor output = self.result(o_b_proj(grouped));
    for (Tensor* name :
         {&attention_mask, &q_residual, &q, &kv, &compressed.block_bias, &compressed.kv, &attention.output})
      name->reset();  // as a frame lets its names go
    attention.output = std::move(output);
    return attention;
  }

  Linear q_a_proj;
  Norm q_a_norm;
  Linear q_b_proj;
  Norm q_b_norm;
  Linear kv_proj;
  Norm kv_norm;
  GroupedLinear o_a_proj;
  Linear o_b_proj;
  Tensor sinks;
  std::int64_t head_dim;
  AttentionCall call;
  std::optional<Compressor> compressor;
  ModuleId module;
};

/// What a layer's part gets of the streams, and how what it gives comes back into them.
struct Mixing {
  Tensor post, comb, collapsed;
};

/// `(pre.unsqueeze(-1) * streams).sum(dim=2).to(streams.dtype)`
Tensor collapse(const Tensor& pre, const Tensor& streams) {
  Tensor collapsed = mul(unsqueeze(pre, -1), streams);
  collapsed = sum(collapsed, {2}, false);
  return to(collapsed, streams.dtype());
}

/// `sigmoid(weights * scale + base)`
Tensor gates(const Tensor& weights, const Tensor& scale, const Tensor& base) {
  Tensor gate = mul(weights, scale);
  gate = add(gate, base);
  return sigmoid(gate);
}

struct DeepseekV4HyperConnection {
  DeepseekV4HyperConnection(const Builder& builder, const DeepseekV4Config& c)
      : hc_mult(c.hc_mult), sinkhorn_iters(c.hc_sinkhorn_iters), module(builder.module) {
    input_norm = unweighted_norm_at(builder, "input_norm");
    const Builder own = kept_in_float32(builder);
    const std::int64_t weights = (2 + hc_mult) * hc_mult;
    fn = own.parameter("fn", {weights, hc_mult * c.hidden_size});
    base = own.parameter("base", {weights});
    scale = own.parameter("scale", {3});
  }

  Mixing operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_streams = call.argument(argument);
    const std::int64_t batch = hidden_streams.size(0), seq_len = hidden_streams.size(1), hc = hc_mult;
    Tensor pre;  // of the names the last to go
    Tensor flattened = to(view(hidden_streams, {batch, seq_len, hc * hidden_streams.size(3)}), DType::float32);
    flattened = input_norm(flattened);
    {
      const Tensor weight = to(fn, DType::float32);
      flattened = linear(flattened, weight, {});
    }
    const TensorList weights = split(flattened, {hc, hc, hc * hc}, -1), bases = split(base, {hc, hc, hc * hc}, 0),
                     scales = unbind(scale);
    const Tensor comb_w = view(weights[2], {batch, seq_len, hc, hc}), comb_b = view(bases[2], {hc, hc});
    Mixing mixing;
    pre = gates(weights[0], scales[0], bases[0]);
    pre = add_scalar(pre);
    mixing.post = gates(weights[1], scales[1], bases[1]);
    mixing.post = mul_scalar(mixing.post);
    Tensor comb = mul(comb_w, scales[2]);
    comb = add(comb, comb_b);
    comb = softmax(comb, DType::float32);
    comb = add_scalar(comb);
    const auto normalise = [&](int dim) {
      Tensor total = sum(comb, {dim}, true);
      total = add_scalar(total);
      Tensor normalised = div(comb, total);
      total.reset();  // before the comb that was
      comb = std::move(normalised);
    };
    normalise(-2);
    for (std::int64_t i = 1; i < sinkhorn_iters; ++i) {
      normalise(-1);
      normalise(-2);
    }
    mixing.comb = std::move(comb);
    mixing.collapsed = call.result(collapse(pre, hidden_streams));
    return mixing;
  }

  Norm input_norm;
  Tensor fn, base, scale;
  std::int64_t hc_mult, sinkhorn_iters;
  ModuleId module;
};

/// DeepseekV4Model's streams, and DeepseekV4HyperHead.
class HyperConnections : public Streams {
 public:
  HyperConnections(const Builder& decoder, const DeepseekV4Config& c) : hc_mult_(c.hc_mult) {
    const Builder head = decoder.child("hc_head", "DeepseekV4HyperHead");
    module_ = head.module;
    input_norm_ = unweighted_norm_at(head, "input_norm");
    const Builder own = kept_in_float32(head);
    hc_fn_ = own.parameter("hc_fn", {hc_mult_, hc_mult_ * c.hidden_size});
    hc_base_ = own.parameter("hc_base", {hc_mult_});
    hc_scale_ = own.parameter("hc_scale", {1});
  }

  Tensor open(const Tensor& inputs_embeds, TensorList& /*names*/) const override {
    const std::int64_t batch = inputs_embeds.size(0), length = inputs_embeds.size(1), hidden = inputs_embeds.size(2);
    return contiguous(expand(unsqueeze(inputs_embeds, 2), {batch, length, hc_mult_, hidden}));
  }

  Tensor close(Tensor& hidden_states, TensorList& /*names*/) const override {
    ModuleCall call(hidden_states.context(), module_);
    const Tensor x = call.argument(hidden_states);
    Tensor flat = to(view(x, {x.size(0), x.size(1), x.size(2) * x.size(3)}), DType::float32);
    flat = input_norm_(flat);
    Tensor mixes;
    {
      const Tensor weight = to(hc_fn_, DType::float32);
      mixes = linear(flat, weight, {});
    }
    Tensor pre;
    {
      Tensor scale = to(hc_scale_, DType::float32);
      Tensor gate = mul(mixes, scale);
      scale.reset();
      const Tensor base = to(hc_base_, DType::float32);
      gate = add(gate, base);
      pre = sigmoid(gate);
    }
    pre = add_scalar(pre);
    Tensor collapsed = call.result(collapse(pre, x));
    for (Tensor* name : {&flat, &mixes}) name->reset();  // as a frame lets its names go
    return collapsed;
  }

 private:
  Norm input_norm_;
  Tensor hc_fn_, hc_base_, hc_scale_;
  std::int64_t hc_mult_;
  ModuleId module_ = 0;
};

/// DeepseekV4MLP: both halves are limited.
struct LimitedMLP {
  LimitedMLP(const Builder& builder, const LlamaConfig& c)
      : gate_proj(builder.child("gate_proj", "Linear"), c.hidden_size, c.intermediate_size, c.mlp_bias),
        up_proj(builder.child("up_proj", "Linear"), c.hidden_size, c.intermediate_size, c.mlp_bias),
        down_proj(builder.child("down_proj", "Linear"), c.intermediate_size, c.hidden_size, c.mlp_bias),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor x = call.argument(argument);
    Tensor gate = gate_proj(x);
    gate = clamp(gate, false);
    Tensor up = up_proj(x);
    up = clamp(up, true);
    Tensor product = silu(gate);
    product = mul(product, up);
    return call.result(down_proj(product));
  }

  Linear gate_proj, up_proj, down_proj;
  ModuleId module;
};

}  // namespace

Tensor limited_gate(const Tensor& gate_up) {
  const std::int64_t half = gate_up.size(-1) / 2;
  const TensorList halves = split(gate_up, {half, half}, -1);
  const Tensor gate = clamp(halves[0], false), up = clamp(halves[1], true);
  const Tensor activated = silu(gate);
  return mul(activated, up);
}

namespace {

/// The experts that are chosen by now, and with what weights; `routing`: with the logits.
Routing weighted(ModuleCall& call, Routing routing, Tensor scores) {
  Tensor weights = gather(scores, routing.topk_indices);
  {
    Tensor total = sum(weights, {-1}, true);
    total = add_scalar(total);
    Tensor normalised = div(weights, total);
    total.reset();
    weights = std::move(normalised);
  }
  routing.topk_weights = call.result(mul_scalar(weights));
  scores.reset();
  routing.router_logits = call.result(std::move(routing.router_logits));
  return routing;
}

/// SqrtSoftplusActivation
Tensor sqrt_softplus(const Tensor& logits) {
  const Tensor positive = softplus(logits);
  return sqrt(positive);
}

/// `hidden_states.reshape(-1, hidden_dim)` by the weight.
Routing logits_of(const Router& router, const Tensor& hidden_states) {
  Routing routing;
  const std::int64_t hidden_dim = hidden_states.size(-1);
  routing.router_logits =
      linear(view(hidden_states, {hidden_states.numel() / hidden_dim, hidden_dim}), router.weight, {});
  return routing;
}

/// DeepseekV4TopKRouter.forward
Routing best_sqrt_softplus(const Router& router, const Tensor& hidden_in) {
  ModuleCall call(hidden_in.context(), router.module);
  Routing routing = logits_of(router, call.argument(hidden_in));
  Tensor scores = sqrt_softplus(routing.router_logits);
  {
    Tensor for_choice = add(scores, router.e_score_correction_bias);
    TopK best = topk(for_choice, router.top_k);
    for_choice.reset();
    routing.topk_indices = std::move(best.indices);
  }
  return weighted(call, std::move(routing), std::move(scores));
}

/// DeepseekV4HashRouter.forward: `tid2eid[input_ids.reshape(-1)]`
Routing of_tokens(const Router& router, const Tensor& hidden_in) {
  Context& context = hidden_in.context();
  ModuleCall call(context, router.module);
  Routing routing = logits_of(router, call.argument(hidden_in));
  Tensor scores = sqrt_softplus(routing.router_logits);
  routing.topk_indices = empty(context, Op::index, {scores.size(0), router.top_k}, DType::int64);
  return weighted(call, std::move(routing), std::move(scores));
}

struct DeepseekV4SparseMoeBlock {
  DeepseekV4SparseMoeBlock(const Builder& builder, const DeepseekV4Config& c, bool is_hash)
      : gate(make_gate(builder.child("gate", is_hash ? "DeepseekV4HashRouter" : "DeepseekV4TopKRouter"), c, is_hash)),
        experts(builder.child("experts", "DeepseekV4Experts"), c.n_routed_experts, c.hidden_size,
                c.moe_intermediate_size, Activation::silu, {.apply_gate = limited_gate}),
        shared_experts(builder.child("shared_experts", kDeepseekV4.mlp), c.as_mlp()),
        module(builder.module) {}

  static Router make_gate(const Builder& builder, const DeepseekV4Config& c, bool is_hash) {
    ExpertsConfig its;
    its.num_experts = c.n_routed_experts;
    its.num_experts_per_tok = c.num_experts_per_tok;
    Router router(builder, c.hidden_size, its, is_hash ? of_tokens : best_sqrt_softplus);
    if (is_hash)
      builder.buffer({c.vocab_size, c.num_experts_per_tok}, DType::int64);  // tid2eid
    else
      router.e_score_correction_bias = builder.kept_buffer({c.n_routed_experts});
    return router;
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor residual = call.argument(argument);
    const Tensor flat = view(residual, {residual.numel() / residual.size(-1), residual.size(-1)});
    Routing routing = gate(residual);
    Tensor routed = experts(flat, routing.topk_indices, routing.topk_weights);
    routed = view(routed, residual.sizes());
    Tensor shared = shared_experts(residual);
    Tensor sum = call.result(add(routed, shared));
    for (Tensor* name : {&shared, &routing.router_logits, &routing.topk_weights, &routing.topk_indices, &routed})
      name->reset();  // as a frame lets its names go
    return sum;
  }

  Router gate;
  Experts experts;
  LimitedMLP shared_experts;
  ModuleId module;
};

class DeepseekV4DecoderLayer : public DecoderLayer {
 public:
  DeepseekV4DecoderLayer(const Builder& builder, const DeepseekV4Config& c, const ModelOptions& options,
                         std::size_t layer)
      : self_attn_(builder.child("self_attn", kDeepseekV4.attention), c, options, c.layers[layer]),
        mlp_(builder.child("mlp", "DeepseekV4SparseMoeBlock"), c, c.hashes[layer]),
        input_layernorm_(rms_norm_at(builder, "input_layernorm", c.hidden_size, options.liger)),
        post_attention_layernorm_(rms_norm_at(builder, "post_attention_layernorm", c.hidden_size, options.liger)),
        attn_hc_(builder.child("attn_hc", "DeepseekV4HyperConnection"), c),
        ffn_hc_(builder.child("ffn_hc", "DeepseekV4HyperConnection"), c),
        module_(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    const ModuleScope scope(hidden_in.context(), module_);
    Mixing mixing = attn_hc_(hidden_in);
    AttentionOutputs attention;  // the weights stay in `_`
    {
      const Tensor normed = input_layernorm_(mixing.collapsed);
      attention = self_attn_(normed, positions, attention_mask);
    }
    Tensor hidden_states = mixed(mixing, attention.output, hidden_in);
    mixing = ffn_hc_(hidden_states);
    Tensor mlp_output;
    {
      const Tensor normed = post_attention_layernorm_(mixing.collapsed);
      mlp_output = mlp_(normed);
    }
    Tensor result = mixed(mixing, mlp_output, hidden_states);
    for (Tensor* name :
         {&hidden_states, &mixing.post, &mixing.comb, &mixing.collapsed, &attention.output, &attention.weights})
      name->reset();  // as a frame lets its names go
    return result;
  }

 private:
  /// `post.to(dtype).unsqueeze(-1) * output.unsqueeze(-2) + torch.matmul(comb.to(dtype).transpose(-1, -2), streams)`
  static Tensor mixed(const Mixing& mixing, const Tensor& output, const Tensor& streams) {
    Tensor expanded, residual;
    {
      const Tensor post = to(mixing.post, streams.dtype());
      expanded = mul(unsqueeze(post, -1), unsqueeze(output, -2));
    }
    {
      const Tensor comb = to(mixing.comb, streams.dtype());
      residual = matmul(transpose(comb, -1, -2), streams);
    }
    return add(expanded, residual);
  }

  DeepseekV4AttentionLayer self_attn_;
  DeepseekV4SparseMoeBlock mlp_;
  Norm input_layernorm_, post_attention_layernorm_;
  DeepseekV4HyperConnection attn_hc_, ffn_hc_;
  ModuleId module_;
};

}  // namespace

DecoderParts deepseek_v4_parts(const DeepseekV4Config& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& layer, std::size_t index) -> std::unique_ptr<DecoderLayer> {
    return std::make_unique<DeepseekV4DecoderLayer>(layer, config, options, index);
  };
  parts.kind = [config](std::size_t i) { return 2 * static_cast<int>(config.layers[i]) + config.hashes[i]; };
  parts.rotary = embed_half_positions;
  parts.norm = [forward = norm_of(options.liger, rms_norm_float32)](const Builder& norm, std::int64_t hidden_size) {
    return [its = Norm(kept_in_float32(norm), forward, {hidden_size})](const Tensor& x) { return its(x); };
  };
  parts.rotary_by_type = parts.layers_choose_angles = true;
  parts.streams = [config](const Builder& decoder) -> std::unique_ptr<Streams> {
    return std::make_unique<HyperConnections>(decoder, config);
  };
  return parts;
}

}  // namespace oometer
