#include "models/deepseek_v4/config.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/deepseek_v4/deepseek_v4.h"

namespace oometer {

LlamaConfig DeepseekV4Config::as_llama() const {
  LlamaConfig c;
  c.names = &kDeepseekV4;
  c.vocab_size = vocab_size;
  c.hidden_size = hidden_size;
  c.num_hidden_layers = num_hidden_layers;
  c.head_dim = qk_rope_head_dim;
  c.max_position_embeddings = max_position_embeddings;
  c.tie_word_embeddings = tie_word_embeddings;
  c.has_pad_token = has_pad_token;
  c.float32_frequencies = true;
  c.sliding_window = sliding_window;
  for (const CompressedAttention layer : layers)
    c.layer_windows.push_back(layer == CompressedAttention::none ? sliding_window : 0);
  return c;
}

LlamaConfig DeepseekV4Config::as_mlp() const {
  LlamaConfig c;
  c.hidden_size = hidden_size;
  c.intermediate_size = moe_intermediate_size;
  c.mlp_bias = mlp_bias;
  return c;
}

namespace {

constexpr Name<CompressedAttention> kLayerTypes[] = {{"sliding_attention", CompressedAttention::none},
                                                     {"compressed_sparse_attention", CompressedAttention::sparse},
                                                     {"heavily_compressed_attention", CompressedAttention::heavy}};

/// layer_types, or the compress_ratios of released files (_COMPRESS_RATIO_TO_LAYER_TYPE); in neither's place two layers
/// of heavy compression, and then both kinds in turn.
void read_layer_types(ConfigReader& reader, DeepseekV4Config& c) {
  const auto layers = static_cast<std::size_t>(c.num_hidden_layers);
  for (const std::string& text : reader.texts_of_layers("layer_types", c.num_hidden_layers)) {
    const auto* const type = std::find_if(std::begin(kLayerTypes), std::end(kLayerTypes),
                                          [&](const auto& name) { return name.text == text; });
    if (type == std::end(kLayerTypes))
      return reader.fail("layer_types", "unknown-value",
                         "found \"" + text +
                             "\"; expected \"sliding_attention\", \"compressed_sparse_attention\" or "
                             "\"heavily_compressed_attention\"");
    c.layers.push_back(type->value);
  }
  const std::vector<std::int64_t> ratios = reader.integers("compress_ratios", non_negative);
  if (c.layers.empty())
    for (const std::int64_t ratio : ratios) {
      if (ratio != 0 && ratio != 4 && ratio != 128)
        return reader.fail("compress_ratios", "inconsistent",
                           "found " + std::to_string(ratio) + "; the class knows 0, 4 and 128");
      c.layers.push_back(ratio == 0   ? CompressedAttention::none
                         : ratio == 4 ? CompressedAttention::sparse
                                      : CompressedAttention::heavy);
    }
  if (c.layers.empty())
    for (std::size_t i = 0; i < layers; ++i)
      c.layers.push_back(i >= 2 && i % 2 == 1 ? CompressedAttention::sparse : CompressedAttention::heavy);
  if (c.layers.size() < layers)
    reader.fail("compress_ratios", "inconsistent",
                "found " + std::to_string(c.layers.size()) + "; expected one for each of num_hidden_layers (" +
                    std::to_string(layers) + ")");
  c.layers.resize(layers);
}

/// mlp_layer_types, or num_hash_layers.
void read_mlp_types(ConfigReader& reader, DeepseekV4Config& c) {
  const std::vector<std::string> types = reader.texts_of_layers("mlp_layer_types", c.num_hidden_layers);
  const std::int64_t hashed = reader.integer("num_hash_layers", 3, non_negative);
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const auto layer = static_cast<std::size_t>(i);
    c.hashes.push_back(layer < types.size() ? types[layer] == "hash_moe" : i < hashed);
    if (layer < types.size() && types[layer] != "hash_moe" && types[layer] != "moe")
      return reader.fail("mlp_layer_types", "unknown-value",
                         "found \"" + types[layer] + "\"; expected \"hash_moe\" or \"moe\"");
  }
}

/// int(head_dim * partial_rotary_factor), which released files give as qk_rope_head_dim.
void read_rotary(ConfigReader& reader, DeepseekV4Config& c) {
  const auto head_dim = static_cast<double>(c.head_dim);
  double factor = static_cast<double>(reader.integer("qk_rope_head_dim", c.head_dim / 8)) / head_dim;
  if (!reader.has("qk_rope_head_dim")) factor = 64.0 / 512.0;  // default_partial_rotary_factor
  if (reader.has("partial_rotary_factor")) factor = reader.number("partial_rotary_factor", factor, 0, 1);
  if (reader.is_object("rope_parameters")) {
    ConfigReader both = reader.object("rope_parameters");
    if (both.is_object("main") && both.is_object("compress")) {
      factor = both.object("main").number("partial_rotary_factor", 1, 0, 1);
      if (both.object("compress").number("partial_rotary_factor", 1, 0, 1) != factor)
        reader.fail("rope_parameters", "not-modelled",
                    "main and compress turn different parts of a head, which is not supported yet");
    }
  }
  c.qk_rope_head_dim = static_cast<std::int64_t>(head_dim * factor);
  if (c.qk_rope_head_dim < 2 || c.qk_rope_head_dim % 2 != 0 || c.qk_rope_head_dim >= c.head_dim ||
      c.qk_rope_head_dim >= c.index_head_dim)
    reader.fail("partial_rotary_factor", "inconsistent",
                "of each head " + std::to_string(c.qk_rope_head_dim) +
                    " elements are turned; expected an even number, and fewer than head_dim (" +
                    std::to_string(c.head_dim) + ") and index_head_dim (" + std::to_string(c.index_head_dim) + ")");
}

}  // namespace

DeepseekV4Config read_deepseek_v4_config(ConfigReader& reader) {
  DeepseekV4Config c;
  struct Field {
    const char* key;
    std::int64_t& value;
  };
  for (const Field& field :
       {Field{"vocab_size", c.vocab_size}, Field{"hidden_size", c.hidden_size},
        Field{"moe_intermediate_size", c.moe_intermediate_size}, Field{"num_attention_heads", c.num_attention_heads},
        Field{"head_dim", c.head_dim}, Field{"q_lora_rank", c.q_lora_rank}, Field{"o_groups", c.o_groups},
        Field{"o_lora_rank", c.o_lora_rank}, Field{"num_experts_per_tok", c.num_experts_per_tok},
        Field{"n_routed_experts", c.n_routed_experts}, Field{"max_position_embeddings", c.max_position_embeddings},
        Field{"sliding_window", c.sliding_window}, Field{"hc_mult", c.hc_mult},
        Field{"hc_sinkhorn_iters", c.hc_sinkhorn_iters}, Field{"index_n_heads", c.index_n_heads},
        Field{"index_head_dim", c.index_head_dim}, Field{"index_topk", c.index_topk}})
    field.value = reader.integer(field.key, field.value);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  if (reader.is_object("compress_rates")) {
    ConfigReader rates = reader.object("compress_rates");
    c.sparse_rate = rates.integer("compressed_sparse_attention", c.sparse_rate);
    c.heavy_rate = rates.integer("heavily_compressed_attention", c.heavy_rate);
  }
  c.sparse_rate = reader.integer("compress_rate_csa", c.sparse_rate);
  c.heavy_rate = reader.integer("compress_rate_hca", c.heavy_rate);
  read_layer_types(reader, c);
  read_mlp_types(reader, c);
  read_rotary(reader, c);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  c.has_pad_token = reader.optional_integer("pad_token_id", {-c.vocab_size, c.vocab_size - 1}).has_value();
  if (reader.activation("hidden_act", Activation::silu) != Activation::silu)
    reader.fail_found("hidden_act", "not-modelled",
                      "experts of another activation are not supported yet: expected silu");
  if (reader.text("scoring_func", "sqrtsoftplus") != "sqrtsoftplus")
    reader.fail_found("scoring_func", "not-modelled", "other scores are not supported yet: expected sqrtsoftplus");
  if (c.num_experts_per_tok > c.n_routed_experts)
    reader.fail_found("num_experts_per_tok", "inconsistent",
                      "expected at most n_routed_experts (" + std::to_string(c.n_routed_experts) + ")");
  if (c.num_attention_heads * c.head_dim % c.o_groups != 0)
    reader.fail_found("o_groups", "inconsistent", "expected a divisor of num_attention_heads * head_dim");
  if (c.index_topk > 4096)
    reader.fail_found("index_topk", "not-modelled",
                      "more than 4096 entries are sorted otherwise; expected 4096 at most");
  reader.refuse("output_router_logits", "routers' logits among the outputs are not supported yet: set it to false");
  // The modelling code never reads these.
  reader.ignore({"intermediate_size", "num_key_value_heads", "n_shared_experts", "norm_topk_prob",
                 "routed_scaling_factor", "compress_rope_theta", "hc_eps", "swiglu_limit", "num_nextn_predict_layers",
                 "router_aux_loss_coef", "router_jitter_noise", "attention_bias", "num_local_experts", "topk_method",
                 "expert_dtype"});
  return c;
}

}  // namespace oometer
