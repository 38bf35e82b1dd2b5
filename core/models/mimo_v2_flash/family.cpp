#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "config/reader.h"
#include "models/kit/mixture.h"
#include "models/kit/recurrent.h"
#include "ops/experts.h"
#include "ops/ops.h"

/// transformers 5.23, models/mimo_v2_flash/modeling_mimo_v2_flash.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"MiMoV2FlashForCausalLM",    "MiMoV2FlashModel", "MiMoV2FlashDecoderLayer",
                                 "MiMoV2FlashAttention",      "MiMoV2FlashMLP",   "MiMoV2FlashRMSNorm",
                                 "MiMoV2FlashRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"mimo_v2_flash", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct MiMoV2FlashConfig : TextConfig {
  std::int64_t v_head_dim = 128;

  bool operator==(const MiMoV2FlashConfig&) const = default;
};

/// rope_parameters, by the layers' type: which share of a head is rotated.
void read_rotated(ConfigReader& reader, TextConfig& c) {
  const auto of = [&](const char* type) {
    ConfigReader its = reader.object("rope_parameters").object(type);
    if (its.text("rope_type", "default") != "default")
      its.fail_found("rope_type", "not-modelled", "this is not supported yet: expected \"default\"");
    return static_cast<std::int64_t>(static_cast<double>(c.head_dim) *
                                     its.number("partial_rotary_factor", 0.334, 0, 1));
  };
  c.rotary_dim = of("full_attention");
  if (of("sliding_attention") != c.rotary_dim)
    reader.fail("rope_parameters", "not-modelled",
                "layers that slide and rotate another part of a head are not supported yet");
  if (c.rotary_dim % 2 != 0 || c.rotary_dim == 0)
    reader.fail("rope_parameters", "inconsistent",
                "of each head " + std::to_string(c.rotary_dim) + " elements are rotated; expected an even number");
}

MiMoV2FlashConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 152'576;
  d.intermediate_size = 16'384;
  d.num_hidden_layers = 48;
  d.num_attention_heads = 64;
  d.num_key_value_heads = 4;
  d.max_position_embeddings = 131'072;
  MiMoV2FlashConfig c{read_text_sizes(reader, d, 192)};
  c.v_head_dim = reader.integer("v_head_dim", 128);
  c.qkv_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  if (c.num_attention_heads % (2 * c.num_key_value_heads) != 0)
    reader.fail_found("num_key_value_heads", "inconsistent",
                      "layers that slide have twice as many: expected half a divisor of num_attention_heads (" +
                          std::to_string(c.num_attention_heads) + ")");
  // The query's own token comes on top of sliding_window_size.
  const auto seen = reader.optional_integer("sliding_window_size");
  read_mixed_layers(reader, c, 6, seen ? *seen + 1 : 129);
  if (!reader.has("layer_types")) c.layer_windows.front() = 0;
  if (seen)
    for (std::int64_t& window : c.layer_windows) window = window == 0 ? 0 : *seen + 1;
  c.sliding_window = *std::max_element(c.layer_windows.begin(), c.layer_windows.end());
  if (c.sliding_window != 0 && !c.has_both_types()) c.layer_windows.clear();  // masks are made of the types there are
  read_rotated(reader, c);
  read_experts(reader, c, "n_routed_experts", "num_local_experts",
               {.num_experts = 256, .num_experts_per_tok = 8, .intermediate_size = 2048, .norm_topk_prob = true});
  read_expert_groups(reader, c, "moe_intermediate_size", 0, 1);
  c.experts.shared_intermediate_size = 0;
  read_mlp_layer_types(reader, c);
  // The modelling code leaves these out, or always does as the published config says.
  reader.ignore({"attention_value_scale", "n_shared_experts", "scoring_func", "topk_method", "moe_layer_freq",
                 "hybrid_layer_pattern", "hybrid_block_size", "add_full_attention_sink_bias",
                 "add_swa_attention_sink_bias", "swa_num_attention_heads", "swa_num_key_value_heads", "swa_head_dim",
                 "swa_v_head_dim", "swa_rope_theta", "attention_chunk_size", "layernorm_epsilon"});
  return c;
}

/// eager_attention_forward: with `sinks`, one number a head, there is one more key, which is cut off again.
AttentionOutputs eager_attention(const AttentionCall& call, const AttentionInputs& states, const Tensor& mask,
                                 const Tensor& sinks_in) {
  const Tensor& query = states.query;
  const std::int64_t heads = query.size(1);
  const Tensor key_states = repeat_kv(states.key, heads), value_states = repeat_kv(states.value, heads);
  Tensor weights = matmul(query, transpose(key_states, 2, 3));
  weights = mul_scalar(weights);
  if (mask) weights = add(weights, mask);
  Tensor sinks;
  if (sinks_in) {
    sinks = expand(reshape(sinks_in, {1, heads, 1, 1}), {query.size(0), heads, query.size(2), 1});
    weights = cat({weights, sinks}, -1);
  }
  {
    TopK largest = max(weights);
    largest.indices.reset();
    Tensor shifted = sub(weights, largest.values);
    largest.values.reset();
    weights = std::move(shifted);
  }
  Tensor probs = softmax(weights, weights.dtype());
  if (sinks_in) probs = slice(probs, -1, 0, probs.size(-1) - 1);
  weights = to(dropout(probs, call.dropout), value_states.dtype());
  const Tensor output = matmul(weights, value_states);
  return {contiguous(transpose(output, 1, 2)), weights};
}

/// MiMoV2FlashAttention: heads of values have a size of their own, and layers that slide have sinks and twice as many
/// heads of keys.
struct MiMoV2FlashAttention {
  MiMoV2FlashAttention(const Builder& builder, const MiMoV2FlashConfig& c, const ModelOptions& options, bool slides)
      : head_dim(c.head_dim),
        v_head_dim(c.v_head_dim),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    const std::int64_t heads = c.num_attention_heads,
                       kv_heads = slides ? 2 * c.num_key_value_heads : c.num_key_value_heads;
    const auto projection = [&](const char* name, std::int64_t width) {
      return Linear(builder.child(name, "Linear"), c.hidden_size, width, c.qkv_bias);
    };
    q_proj = projection("q_proj", heads * head_dim);
    k_proj = projection("k_proj", kv_heads * head_dim);
    v_proj = projection("v_proj", kv_heads * v_head_dim);
    o_proj = Linear(builder.child("o_proj", "Linear"), heads * v_head_dim, c.hidden_size, false);
    if (slides) sinks = builder.parameter("sinks", {heads});
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(hidden_states.context(), module);
    AttentionInputs states;
    states.query = heads_of(q_proj(hidden_states), head_dim);
    states.key = heads_of(k_proj(hidden_states), head_dim);
    {
      const Tensor value = heads_of(v_proj(hidden_states), v_head_dim);
      states.value = mul_scalar(value);
    }
    std::tie(states.query, states.key) = rotate_first_halves(states.query, states.key, positions);
    const auto own_eager = [this](const AttentionCall& its, const AttentionInputs& inputs, const Tensor& mask) {
      return eager_attention(its, inputs, mask, sinks);
    };
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask, own_eager);
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  Tensor sinks;
  std::int64_t head_dim, v_head_dim;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

/// MiMoV2FlashMoE: DeepseekV3MoE without what it shares.
SparseMoeBlock make_moe(const Builder& at, const TextConfig& c) {
  SparseMoeBlock block(at);
  block.experts = make_experts(at, "MiMoV2FlashExperts", c);
  const Builder gate_at = at.child("gate", "MiMoV2FlashTopkRouter");
  Router gate(gate_at, c, best_of_groups);
  gate.e_score_correction_bias = gate_at.kept_buffer({c.experts.num_experts});
  block.gate = std::move(gate);
  return block;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const MiMoV2FlashConfig& c,
                                         const ModelOptions& options, std::size_t index) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  layer->self_attn =
      MiMoV2FlashAttention(builder.child("self_attn", kNames.attention), c, options, c.window_of(index) != 0);
  if (c.experts.are_in(index))
    layer->mlp = make_moe(builder.child("mlp", "MiMoV2FlashMoE"), c);
  else
    layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c);
  layer->input_norm = Norm(builder.child("input_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
  layer->feedforward_norm = Norm(builder.child("post_attention_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
  return layer;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  const auto& c = config.as<MiMoV2FlashConfig>();
  DecoderParts parts;
  parts.layer = [c, options](const Builder& layer, std::size_t index) { return make_layer(layer, c, options, index); };
  parts.rotary_by_type = parts.masks_by_type = c.has_both_types();
  TextConfig decoder = c;
  decoder.head_dim = c.rotary_dim;  // of its tables: layers of both types rotate as much
  return build_text_family(context, decoder, data, options, std::move(parts));
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<MiMoV2FlashConfig>());
  t.has_no_peft_targets();
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp});
  t.refuse(Feature::sdpa, "inconsistent", "MiMo-V2-Flash has attention sinks, which SDPA has not: expected eager");
  t.refuse(Feature::flash_attention_2, "inconsistent",
           "MiMo-V2-Flash has attention sinks, which it has not: expected eager");
  return t;
}

}  // namespace

namespace family {
extern const Family mimo_v2_flash = {
    .classes = kClasses,
    .blocks = kBlocks,
    .read = [](ConfigReader& reader, const ModelClass&, Framework) -> FamilyConfig { return read(reader); },
    .build = build,
    .traits = traits,
    .largest_tensor =
        [](const FamilyConfig& config, const DataConfig& data) {
          return largest_tensor_of_text(config.as<MiMoV2FlashConfig>(), data);
        }};
}  // namespace family

}  // namespace oometer
