#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/kit/mixture.h"
#include "models/kit/recurrent.h"
#include "ops/experts.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// The language model of transformers 5.23, models/minimax_m3_vl/modeling_minimax_m3_vl.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"MiniMaxM3VLForCausalLM",    "MiniMaxM3VLTextModel", "MiniMaxM3VLDecoderLayer",
                                 "MiniMaxM3VLAttention",      "MiniMaxM3VLDenseMLP",  "MiniMaxM3VLRMSNorm",
                                 "MiniMaxM3VLRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"minimax_m3_vl_text", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct MiniMaxM3Config : TextConfig {
  std::vector<bool> sparse{};  ///< which layers choose blocks of keys
  std::int64_t index_n_heads = 4, index_head_dim = 128, index_block_size = 128, index_topk_blocks = 16;
  std::int64_t index_local_blocks = 1;
  std::int64_t dense_intermediate_size = 12'288;

  bool chooses(std::size_t layer) const { return sparse[layer]; }
  bool operator==(const MiniMaxM3Config&) const = default;
};

void read_indexer(ConfigReader& reader, MiniMaxM3Config& c) {
  const auto layers = static_cast<std::size_t>(c.num_hidden_layers);
  c.sparse.assign(layers, false);
  c.index_n_heads = reader.integer("index_n_heads", c.index_n_heads);
  c.index_head_dim = reader.integer("index_head_dim", c.index_head_dim);
  c.index_block_size = reader.integer("index_block_size", c.index_block_size);
  c.index_topk_blocks = reader.integer("index_topk_blocks", c.index_topk_blocks);
  c.index_local_blocks = reader.integer("index_local_blocks", c.index_local_blocks, non_negative);
  const std::vector<std::string> types = reader.texts_of_layers("layer_types", c.num_hidden_layers);
  for (std::size_t i = 0; i < std::min(layers, types.size()); ++i) {
    c.sparse[i] = types[i] == "minimax_m3_sparse";
    if (!c.sparse[i] && types[i] != "full_attention")
      reader.fail("layer_types", "not-modelled",
                  "found \"" + types[i] + "\"; \"full_attention\" and \"minimax_m3_sparse\" are what this class knows");
  }
  if (reader.is_object("sparse_attention_config")) {  // as released files have it
    ConfigReader released = reader.object("sparse_attention_config");
    c.index_n_heads = released.integer("sparse_num_index_heads", c.index_n_heads);
    c.index_head_dim = released.integer("sparse_index_dim", c.index_head_dim);
    c.index_block_size = released.integer("sparse_block_size", c.index_block_size);
    c.index_topk_blocks = released.integer("sparse_topk_blocks", c.index_topk_blocks);
    c.index_local_blocks = released.integer("sparse_local_block", c.index_local_blocks, non_negative);
    const std::vector<std::int64_t> frequencies = released.integers("sparse_attention_freq", non_negative);
    if (types.empty() && !frequencies.empty()) {
      if (frequencies.size() != layers)
        released.fail_found("sparse_attention_freq", "inconsistent", "expected a number for each layer");
      for (std::size_t i = 0; i < std::min(layers, frequencies.size()); ++i) c.sparse[i] = frequencies[i] != 0;
    }
  }
  if (c.num_attention_heads % c.index_n_heads != 0)
    reader.fail("index_n_heads", "inconsistent",
                "expected a divisor of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  if (c.index_head_dim < std::min(c.rotary_dim, c.head_dim))
    reader.fail("index_head_dim", "not-modelled",
                "found less than what is rotated of a head (" + std::to_string(c.rotary_dim) +
                    "), which is not supported yet: expected as much or more");
}

MiniMaxM3Config read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 200'064;
  d.hidden_size = 6144;
  d.intermediate_size = 3072;
  d.num_hidden_layers = 60;
  d.num_attention_heads = 64;
  d.num_key_value_heads = 4;
  d.max_position_embeddings = 524'288;
  MiniMaxM3Config c{read_text_sizes(reader, d, 128)};
  read_partial_rotary(reader, c, 1);
  check_llama_heads(reader, c);
  read_experts(reader, c, "num_local_experts", "num_experts",
               {.num_experts = 128, .num_experts_per_tok = 4, .balances = true});
  c.experts.intermediate_size = c.intermediate_size;
  c.experts.shared_intermediate_size = reader.integer("shared_intermediate_size", 3072);
  c.dense_intermediate_size = reader.integer("dense_intermediate_size", c.dense_intermediate_size);
  read_mlp_layer_types(reader, c);
  const std::vector<std::int64_t> frequencies = reader.integers("moe_layer_freq", non_negative);
  if (!reader.has("mlp_layer_types") && !frequencies.empty()) {
    if (std::ssize(frequencies) != c.num_hidden_layers)
      reader.fail_found("moe_layer_freq", "inconsistent", "expected a number for each layer");
    c.experts.layers.assign(static_cast<std::size_t>(c.num_hidden_layers), true);
    for (std::size_t i = 0; i < std::min(frequencies.size(), c.experts.layers.size()); ++i)
      c.experts.layers[i] = frequencies[i] != 0;
  }
  read_indexer(reader, c);
  if (reader.number("router_jitter_noise", 0, 0, 1) != 0)
    reader.fail_found("router_jitter_noise", "not-modelled", "noise on what the router gets is not supported yet");
  // Numbers that decide no memory, and what the modelling code never reads.
  reader.ignore({"rotary_dim", "swiglu_alpha", "swiglu_limit", "routed_scaling_factor", "hidden_act", "qk_norm_type",
                 "use_qk_norm", "use_routing_bias", "scoring_func", "use_gemma_norm", "num_mtp_modules"});
  return c;
}

/// SwiGLU-OAI, of halves that are not interleaved. `names`: of the caller's, which live until it returns.
Tensor swiglu_oai(const Tensor& gate_up, TensorList& names) {
  const std::int64_t half = gate_up.size(-1) / 2;
  Tensor gate, up, glu;
  {
    const TensorList halves = split(gate_up, {half, half}, -1);
    gate = halves[0];
    up = halves[1];
  }
  gate = clamp(gate, false);
  up = clamp(up, true);
  {
    Tensor share = mul_scalar(gate);
    share = sigmoid(share);
    glu = mul(gate, share);
  }
  for (const Tensor* name : {&gate, &up, &glu}) names.push_back(*name);
  const Tensor shifted = add_scalar(up);
  return mul(shifted, glu);
}

Tensor apply_gate(const Tensor& gate_up) {
  TensorList names;
  return swiglu_oai(gate_up, names);
}

struct MiniMaxM3VLDenseMLP {
  MiniMaxM3VLDenseMLP(const Builder& builder, std::int64_t hidden_size, std::int64_t inter)
      : gate_up_proj(builder.child("gate_up_proj", "Linear"), hidden_size, 2 * inter, false),
        down_proj(builder.child("down_proj", "Linear"), inter, hidden_size, false),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    TensorList names;
    const Tensor gate_up = gate_up_proj(call.argument(argument));
    const Tensor gated = swiglu_oai(gate_up, names);
    return call.result(down_proj(gated));
  }

  Linear gate_up_proj, down_proj;
  ModuleId module;
};

/// MiniMaxM3VLIndexer: which blocks of keys a token of a layer attends to. Nothing that it gives has a gradient.
struct MiniMaxM3VLIndexer {
  MiniMaxM3VLIndexer(const Builder& builder, const MiniMaxM3Config& c)
      : q_proj(builder.child("q_proj", "Linear"), c.hidden_size, c.index_n_heads * c.index_head_dim, false),
        k_proj(builder.child("k_proj", "Linear"), c.hidden_size, c.index_head_dim, false),
        q_norm(builder.child("q_norm", kNames.rms_norm), rms_norm_one_plus, {c.index_head_dim}),
        k_norm(builder.child("k_norm", kNames.rms_norm), rms_norm_one_plus, {c.index_head_dim}),
        heads(c.index_n_heads),
        head_dim(c.index_head_dim),
        block_size(c.index_block_size),
        topk_blocks(c.index_topk_blocks),
        local_blocks(c.index_local_blocks),
        repeats(c.num_attention_heads / c.index_n_heads),
        module(builder.module) {}

  std::int64_t blocks_of(std::int64_t keys) const { return (keys + block_size - 1) / block_size; }

  /// k_positions > position_ids
  static Tensor future(Context& context, std::int64_t batch, std::int64_t length) {
    return empty(context, Op::gt, {batch, 1, length, length}, DType::boolean);
  }

  Tensor operator()(const Tensor& argument, const PositionEmbeddings& positions) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor hidden_states = call.argument(argument);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1), blocks = blocks_of(length),
                       pad_length = blocks * block_size - length;
    Tensor topk_scores, local_idx, local, q_block, block_scores, token_future, k_positions, scores;
    Tensor idx_q = view(q_proj(hidden_states), {batch, length, heads, head_dim});
    idx_q = transpose(q_norm(idx_q), 1, 2);
    Tensor idx_k = view(k_proj(hidden_states), {batch, length, 1, head_dim});
    idx_k = transpose(k_norm(idx_k), 1, 2);
    std::tie(idx_q, idx_k) = rotate_first_halves(idx_q, idx_k, positions);
    {
      const Tensor queries = to(idx_q, DType::float32), keys = to(idx_k, DType::float32);
      const Tensor lowered = autocast_lower(transpose(keys, -1, -2));
      scores = matmul(queries, expand(lowered, {batch, heads, head_dim, length}));
    }
    k_positions = integers(context, Op::arange, {length});
    token_future = future(context, batch, length);
    scores = masked_fill(scores, token_future);
    if (pad_length != 0) scores = pad(scores, 3, pad_length);
    scores = view(scores, {batch, heads, length, blocks, block_size});
    block_scores = amax(scores, {4}, false);
    q_block = integers(context, Op::floor_divide, {batch, length});
    if (local_blocks > 0) {
      local = integers(context, Op::arange, {local_blocks});
      const Tensor before = integers(context, Op::sub, {batch, length, local_blocks});
      local_idx = integers(context, Op::clamp, {batch, length, local_blocks});
    }
    TopK best = topk(block_scores, std::min(topk_blocks, blocks));
    topk_scores = std::move(best.values);
    const Tensor is_empty = pointwise(Op::eq, {&topk_scores}, DType::boolean);
    return call.result(integers(context, Op::masked_fill, best.indices.sizes()));
  }

  Tensor build_block_mask(const Tensor& block_indices, const Tensor& attention_mask, std::int64_t length,
                          DType dtype) const {
    Context& context = block_indices.context();
    const std::int64_t batch = block_indices.size(0), blocks = blocks_of(length);
    const auto booleans = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::boolean); };
    Tensor keep, padding_mask, token_future, k_positions, block_keep, bias, safe;
    {
      const Tensor is_empty = booleans(Op::lt, block_indices.sizes());
      safe = integers(context, Op::masked_fill, block_indices.sizes());
    }
    bias = empty(context, Op::fill, {batch, heads, length, blocks + 1}, dtype);
    {
      const Tensor kept = booleans(Op::eq, {batch, heads, length, blocks});
      block_keep = booleans(Op::clone, {batch, heads, length, blocks * block_size});
    }
    block_keep = booleans(Op::clone, {batch, heads * repeats, length, length});
    if (attention_mask) {
      padding_mask = attention_mask.dtype() == DType::boolean ? attention_mask
                                                              : pointwise(Op::eq, {&attention_mask}, DType::boolean);
      keep = booleans(Op::bitwise_and, block_keep.sizes());
    } else {
      k_positions = integers(context, Op::arange, {length});
      token_future = future(context, batch, length);
      const Tensor past = booleans(Op::bitwise_not, token_future.sizes());
      keep = booleans(Op::bitwise_and, block_keep.sizes());
    }
    const Tensor zeros = empty(context, Op::zeros, keep.sizes(), dtype),
                 dropped = booleans(Op::bitwise_not, keep.sizes());
    return empty(context, Op::masked_fill, keep.sizes(), dtype);
  }

  Linear q_proj, k_proj;
  Norm q_norm, k_norm;
  std::int64_t heads, head_dim, block_size, topk_blocks, local_blocks, repeats;
  ModuleId module;
};

struct MiniMaxM3VLAttention {
  MiniMaxM3VLAttention(const Builder& builder, const MiniMaxM3Config& c, const ModelOptions& options, std::size_t layer)
      : head_dim(c.head_dim), call(attention_call(c, options)), layer_idx(layer), module(builder.module) {
    const std::int64_t width = c.num_attention_heads * head_dim, kv_width = c.num_key_value_heads * head_dim;
    q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, width, false);
    k_proj = Linear(builder.child("k_proj", "Linear"), c.hidden_size, kv_width, false);
    v_proj = Linear(builder.child("v_proj", "Linear"), c.hidden_size, kv_width, false);
    o_proj = Linear(builder.child("o_proj", "Linear"), width, c.hidden_size, false);
    q_norm = Norm(builder.child("q_norm", kNames.rms_norm), rms_norm_one_plus, {head_dim});
    k_norm = Norm(builder.child("k_norm", kNames.rms_norm), rms_norm_one_plus, {head_dim});
    if (c.chooses(layer)) indexer.emplace(builder.child("indexer", "MiniMaxM3VLIndexer"), c);
  }

  AttentionOutputs operator()(const Tensor& argument, const PositionEmbeddings& positions, const Tensor& mask) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.keyword(argument);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1);
    const auto by_head = [&](const Tensor& x) { return view(x, {batch, length, x.size(2) / head_dim, head_dim}); };
    Tensor block_indices, attention_mask = mask;
    AttentionInputs states;
    states.query = by_head(q_proj(hidden_states));
    states.query = transpose(q_norm(states.query), 1, 2);
    states.key = by_head(k_proj(hidden_states));
    states.key = transpose(k_norm(states.key), 1, 2);
    states.value = transpose(by_head(v_proj(hidden_states)), 1, 2);
    std::tie(states.query, states.key) = rotate_first_halves(states.query, states.key, positions);
    if (indexer) {
      block_indices = (*indexer)(hidden_states, positions);
      attention_mask = indexer->build_block_mask(block_indices, attention_mask, length, states.query.dtype());
    }
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask);
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  Norm q_norm, k_norm;
  std::optional<MiniMaxM3VLIndexer> indexer;
  std::int64_t head_dim;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

struct MiniMaxM3VLSparseMoeBlock {
  MiniMaxM3VLSparseMoeBlock(const Builder& at, const MiniMaxM3Config& c)
      : gate(at.child("gate", "MiniMaxM3VLTopKRouter"), c, best_sigmoids), module(at.module) {
    gate.e_score_correction_bias = at.buffer({c.experts.num_experts}, at.dtype);
    experts = make_experts(at, "MiniMaxM3VLExperts", c, {.checkpoint = {}, .apply_gate = apply_gate});
    shared_experts.emplace(at.child("shared_experts", kNames.mlp), c.hidden_size, c.experts.shared_intermediate_size);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_in = call.argument(argument);
    const std::int64_t hidden = hidden_in.size(-1);
    Tensor hidden_states = view(hidden_in, {hidden_in.numel() / hidden, hidden});
    const Tensor shared_output = (*shared_experts)(hidden_states);
    const Routing routing = gate(hidden_states);  // the logits stay in `_`
    hidden_states = experts(hidden_states, routing.topk_indices, routing.topk_weights);
    hidden_states = mul_scalar(hidden_states);
    hidden_states = add(hidden_states, shared_output);
    return call.result(view(hidden_states, hidden_in.sizes()));
  }

  Router gate;
  Experts experts;
  std::optional<MiniMaxM3VLDenseMLP> shared_experts;
  ModuleId module;
};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const MiniMaxM3Config& c, const ModelOptions& options,
                                         std::size_t index) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  layer->self_attn = MiniMaxM3VLAttention(builder.child("self_attn", kNames.attention), c, options, index);
  if (c.experts.are_in(index))
    layer->mlp = MiniMaxM3VLSparseMoeBlock(builder.child("mlp", "MiniMaxM3VLSparseMoeBlock"), c);
  else
    layer->mlp = MiniMaxM3VLDenseMLP(builder.child("mlp", kNames.mlp), c.hidden_size, c.dense_intermediate_size);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), rms_norm_one_plus, {c.hidden_size});
  };
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  return layer;
}

DecoderParts parts(const MiniMaxM3Config& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& layer, std::size_t index) {
    return make_layer(layer, config, options, index);
  };
  parts.norm = final_norm(rms_norm_one_plus);
  parts.kind = [config](std::size_t i) { return 2 * config.experts.are_in(i) + config.chooses(i); };
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<MiniMaxM3Config>();
  ModelTraits t = text_traits(c);
  t.has_no_peft_targets();
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp});
  t.has_idle_parts = std::count(c.sparse.begin(), c.sparse.end(), true) != 0;  // indexers
  t.refuse(Feature::flash_attention, "inconsistent", "the class has no flash attention: expected sdpa or eager");
  t.refuse(Feature::flash_attention_2, "inconsistent", "the class has no flash attention: expected sdpa or eager");
  if (!t.has_idle_parts) return t;
  t.generates = false;
  for (const Feature feature : {Feature::inference, Feature::generate_options})
    t.refuse(feature, "not-modelled",
             "layers that choose blocks of keys keep more than keys and values, which is not supported yet");
  return t;
}

}  // namespace

namespace family {
extern const Family minimax_m3_vl =
    text_family_of<MiniMaxM3Config, read, balanced<parts, MiniMaxM3Config>>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
