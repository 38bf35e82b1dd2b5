#include "config/reader.h"
#include "models/kit/mixture.h"
#include "nn/quantizer.h"

/// transformers 5.23, models/minimax_m2/modeling_minimax_m2.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"MiniMaxM2ForCausalLM",    "MiniMaxM2Model",          "MiniMaxM2DecoderLayer",
                                 "MiniMaxM2Attention",      "MiniMaxM2SparseMoeBlock", "MiniMaxM2RMSNorm",
                                 "MiniMaxM2RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"minimax_m2", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 200064;
  d.hidden_size = 3072;
  d.intermediate_size = 1536;
  d.num_hidden_layers = 62;
  d.num_attention_heads = 48;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 196608;
  TextConfig c = read_text_sizes(reader, d, 128);
  const std::int64_t rotary_dim = reader.integer("rotary_dim", c.head_dim);  // as released files have it
  read_partial_rotary(reader, c, static_cast<double>(rotary_dim) / static_cast<double>(c.head_dim));
  check_llama_heads(reader, c);
  read_experts(reader, c, "num_local_experts", "num_experts",
               {.num_experts = 256, .num_experts_per_tok = 8, .balances = true});
  c.experts.intermediate_size = c.intermediate_size;
  if (reader.number("router_jitter_noise", 0, 0, 1) != 0)
    reader.fail_found("router_jitter_noise", "not-modelled", "noise on what the router gets is not supported yet");
  // What the modelling code of 5.x never reads.
  reader.ignore({"attn_type_list", "qk_norm_type", "use_qk_norm", "use_routing_bias", "scoring_func",
                 "shared_intermediate_size", "use_mtp", "mtp_transformer_layers", "num_mtp_modules"});
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  AttentionParts its;
  its.rotate = rotate_first_halves;
  its.norms_at = HeadNorms::whole;
  its.norm = rms_norm;
  its.norm_type = kNames.rms_norm;
  return pre_norm_layer(builder, c, options, its, [&](const Builder& layer) {
    const Builder at = layer.child("mlp", kNames.mlp);
    if (at.quantizer) at.quantizer->renames(at.module, "block_sparse_moe");
    SparseMoeBlock block(at);
    Router gate(at.child("gate", "MiniMaxM2TopKRouter"), c, best_sigmoids);
    block.experts = make_experts(at, "MiniMaxM2Experts", c, {.checkpoint = kNumberedProjections});
    gate.e_score_correction_bias = at.buffer({c.experts.num_experts}, layer.dtype);
    block.gate = std::move(gate);
    return block;
  });
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

}  // namespace

namespace family {
extern const Family minimax_m2 = mixture_family<read, parts>(
    kClasses, kBlocks, convert_mixtral_targets, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
