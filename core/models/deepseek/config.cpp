#include "models/deepseek/config.h"

#include <algorithm>
#include <string>
#include <vector>

#include "config/reader.h"

namespace oometer {

LlamaConfig DeepseekConfig::as_llama(std::int64_t mlp_width) const {
  LlamaConfig c;
  c.names = names;
  c.vocab_size = vocab_size;
  c.hidden_size = hidden_size;
  c.intermediate_size = mlp_width;
  c.num_hidden_layers = num_hidden_layers;
  c.head_dim = qk_rope_head_dim;
  c.max_position_embeddings = max_position_embeddings;
  c.hidden_act = hidden_act;
  c.mlp_bias = mlp_bias;
  c.tie_word_embeddings = tie_word_embeddings;
  c.has_pad_token = has_pad_token;
  c.classifier = classifier;
  return c;
}

DeepseekConfig deepseek_v3_defaults() {
  DeepseekConfig c;
  c.names = &kDeepseekV3;
  c.vocab_size = 129280;
  c.hidden_size = 7168;
  c.intermediate_size = 18432;
  c.moe_intermediate_size = 2048;
  c.num_hidden_layers = 61;
  c.num_attention_heads = 128;
  c.n_routed_experts = 256;
  c.n_shared_experts = 1;
  c.num_experts_per_tok = 8;
  c.first_k_dense_replace = 3;
  c.n_group = 8;
  c.topk_group = 4;
  c.max_position_embeddings = 4096;
  return c;
}

namespace {

/// mlp_layer_types: dense layers first. Returns how many.
std::int64_t read_dense_layers(ConfigReader& reader, const DeepseekConfig& c) {
  const std::vector<std::string> types = reader.texts_of_layers("mlp_layer_types", c.num_hidden_layers);
  if (types.empty()) return c.first_k_dense_replace;
  const auto dense = std::find(types.begin(), types.end(), "sparse");
  if (std::find_if(types.begin(), dense, [](const std::string& type) { return type != "dense"; }) != dense ||
      std::find_if(dense, types.end(), [](const std::string& type) { return type != "sparse"; }) != types.end())
    reader.fail("mlp_layer_types", "not-modelled",
                "layers of both types in another order are not supported yet; expected those that are \"dense\" before "
                "those that are \"sparse\"");
  return dense - types.begin();
}

/// indexer_types, or what GlmMoeDsaConfig makes of index_topk_pattern or of index_topk_freq and index_skip_topk_offset.
std::vector<bool> read_shared(ConfigReader& reader, const DeepseekConfig& c) {
  const std::size_t layers = static_cast<std::size_t>(c.num_hidden_layers);
  std::vector<std::string> types = reader.texts("indexer_types");
  if (types.empty()) {
    const std::string pattern = reader.text("index_topk_pattern", "");
    for (const char letter : pattern) types.push_back(letter == 'F' ? "full" : letter == 'S' ? "shared" : "?");
  }
  const std::int64_t freq = std::max<std::int64_t>(1, reader.integer("index_topk_freq", 1, non_negative));
  const std::int64_t offset = reader.integer("index_skip_topk_offset", 2, non_negative);
  std::vector<bool> shared;
  if (types.empty())
    for (std::int64_t i = 0; i < c.num_hidden_layers; ++i)
      shared.push_back(std::max<std::int64_t>(i - offset + 1, 0) % freq != 0);
  for (const std::string& type : types) shared.push_back(type == "shared");
  const bool are_known =
      std::all_of(types.begin(), types.end(), [](const auto& type) { return type == "full" || type == "shared"; });
  if (!are_known || shared.size() < layers)
    reader.fail("indexer_types", "inconsistent", "expected \"full\" or \"shared\" for each layer");
  else if (shared.front())
    reader.fail("indexer_types", "inconsistent", "expected \"full\" of the first layer: it takes no other's tokens");
  shared.resize(layers);
  return shared;
}

/// DeepSeek Sparse Attention.
void read_indexer(ConfigReader& reader, DeepseekConfig& c) {
  c.index_n_heads = reader.integer("index_n_heads", c.index_n_heads);
  c.index_head_dim = reader.integer("index_head_dim", c.index_head_dim);
  c.index_topk = reader.integer("index_topk", c.index_topk);
  if (c.index_head_dim <= c.qk_rope_head_dim)
    reader.fail_found("index_head_dim", "inconsistent",
                      "expected more than qk_rope_head_dim (" + std::to_string(c.qk_rope_head_dim) + ")");
  if (c.index_topk > 4096)
    reader.fail_found("index_topk", "not-modelled",
                      "more than 4096 tokens are sorted otherwise; expected 4096 at most");
  if (c.names->its.shares_topk) c.shares_topk = read_shared(reader, c);
  reader.ignore({"layer_types", "mlp_bias", "rope_interleave", "indexer_rope_interleave", "index_topk_freq",
                 "index_topk_pattern", "index_skip_topk_offset"});
}

}  // namespace

DeepseekConfig read_deepseek_config(ConfigReader& reader, const DeepseekConfig& defaults) {
  DeepseekConfig c = defaults;
  const DeepseekClassNames& names = *c.names;
  struct Field {
    const char* key;
    std::int64_t& value;
  };
  for (const Field& field :
       {Field{"vocab_size", c.vocab_size}, Field{"hidden_size", c.hidden_size},
        Field{"intermediate_size", c.intermediate_size}, Field{"moe_intermediate_size", c.moe_intermediate_size},
        Field{"num_attention_heads", c.num_attention_heads}, Field{"kv_lora_rank", c.kv_lora_rank},
        Field{"qk_nope_head_dim", c.qk_nope_head_dim}, Field{"qk_rope_head_dim", c.qk_rope_head_dim},
        Field{"v_head_dim", c.v_head_dim}, Field{"n_routed_experts", c.n_routed_experts},
        Field{"n_shared_experts", c.n_shared_experts}, Field{"max_position_embeddings", c.max_position_embeddings}})
    field.value = reader.integer(field.key, field.value);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  if (names.its.has_layer_types) {
    if (c.chooses_tokens())
      c.first_k_dense_replace = reader.integer("first_k_dense_replace", c.first_k_dense_replace, non_negative);
    else
      reader.ignore({"first_k_dense_replace"});
    c.first_k_dense_replace = read_dense_layers(reader, c);
  } else {
    c.first_k_dense_replace = reader.integer("first_k_dense_replace", c.first_k_dense_replace, non_negative);
  }
  if (c.chooses_tokens()) read_indexer(reader, c);
  if (names.its.is_gated) c.gated_norm_rank = reader.integer("gated_norm_rank", c.gated_norm_rank);
  if (reader.is_null("q_lora_rank") && !c.chooses_tokens())
    c.q_lora_rank = 0;
  else
    c.q_lora_rank = reader.integer("q_lora_rank", c.q_lora_rank);
  c.n_group = reader.optional_integer("n_group").value_or(c.n_group);
  c.topk_group = reader.optional_integer("topk_group").value_or(c.topk_group);
  const bool has_experts = c.first_k_dense_replace < c.num_hidden_layers;
  c.num_experts_per_tok = reader.optional_integer("num_experts_per_tok").value_or(c.num_experts_per_tok);
  if (has_experts && (c.num_experts_per_tok < 1 || c.num_experts_per_tok > c.n_routed_experts))
    reader.fail("num_experts_per_tok", "inconsistent",
                "found " + std::to_string(c.num_experts_per_tok) + "; expected 1 to n_routed_experts (" +
                    std::to_string(c.n_routed_experts) + ")");
  if (names.its.is_v3) {
    c.chooses_groups = c.n_group != 0;
    c.norm_topk_prob = reader.boolean("norm_topk_prob", true);
    if (!c.chooses_tokens()) c.rope_interleave = reader.boolean("rope_interleave", true);
  } else {
    // DeepseekV2TopkRouter knows two; with another its forward has no weights to give.
    const std::string method = reader.is_null("topk_method") ? "greedy" : reader.text("topk_method", "greedy");
    c.chooses_groups = method == "group_limited_greedy";
    if (!c.chooses_groups && method != "greedy")
      reader.fail_found("topk_method", "unknown-value", "expected \"greedy\" or \"group_limited_greedy\"");
    reader.ignore({"norm_topk_prob"});
    c.mlp_bias = reader.boolean("mlp_bias", false);
  }
  if (has_experts && c.chooses_groups && c.n_routed_experts % c.n_group != 0)
    reader.fail_found("n_group", "inconsistent",
                      "expected a divisor of n_routed_experts (" + std::to_string(c.n_routed_experts) + ")");
  else if (has_experts && c.chooses_groups &&
           (c.topk_group > c.n_group || (names.its.is_v3 && c.n_routed_experts / c.n_group < 2)))
    reader.fail_found(
        "topk_group", "inconsistent",
        "expected at most n_group (" + std::to_string(c.n_group) + "), and groups of two experts at least");
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.attention_dropout = reader.number("attention_dropout", 0.0, 0.0, 1.0);
  c.attention_bias = reader.boolean("attention_bias", false);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  const auto pad_token_id = reader.optional_integer("pad_token_id", {-c.vocab_size, c.vocab_size - 1});
  if (reader.has("pad_token_id") || reader.is_null("pad_token_id")) c.has_pad_token = pad_token_id.has_value();
  if (!reader.is_null("num_key_value_heads") &&
      reader.integer("num_key_value_heads", c.num_attention_heads) != c.num_attention_heads)
    reader.fail_found("num_key_value_heads", "inconsistent",
                      "keys are expanded to every head; expected num_attention_heads (" +
                          std::to_string(c.num_attention_heads) + ")");
  if (c.qk_rope_head_dim % 2 != 0)
    reader.fail_found("qk_rope_head_dim", "inconsistent", "rotary embeddings need an even size");
  // Complex numbers are made of pairs: view_as_complex wants even strides.
  else if (!names.its.is_v3 && (c.kv_lora_rank % 2 != 0 || c.qk_nope_head_dim % 2 != 0))
    reader.fail_found(c.kv_lora_rank % 2 != 0 ? "kv_lora_rank" : "qk_nope_head_dim", "inconsistent",
                      "view_as_complex needs an even size before the rotated part");
  if (!names.its.is_v3 && c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  // The modelling code of 5.x never reads these: losses of balance, prediction of several tokens, what the original
  // code does otherwise.
  reader.ignore({"head_dim", "qk_head_dim", "aux_loss_alpha", "seq_aux", "scoring_func", "topk_method",
                 "moe_layer_freq", "ep_size", "pretraining_tp", "routed_scaling_factor", "num_nextn_predict_layers",
                 "num_mtp_layers"});
  reader.refuse("output_router_logits", "routers' logits among the outputs are not supported yet: set it to false");
  return c;
}

}  // namespace oometer
