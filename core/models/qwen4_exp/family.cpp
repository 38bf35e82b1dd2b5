#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/kit/mixture.h"
#include "models/kit/recurrent.h"
#include "models/qwen4_exp/qwen4_exp.h"
#include "models/sizes.h"
#include "rounding.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"qwen4_exp_text", kQwen4.causal_lm}};
constexpr const char* kBlocks[] = {kQwen4.decoder_layer};

/// Those that attend have an indexer, whatever they are called (Qwen4ExpTextConfig.__post_init__).
void read_layers(ConfigReader& reader, Qwen4Config& c) {
  const std::int64_t pattern = reader.integer("full_attention_interval", 4);
  const std::vector<std::string> types = reader.texts_of_layers("layer_types", c.num_hidden_layers);
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool attends =
        at < types.size() ? types[at] == "full_attention" || types[at] == "indexed_attention" : (i + 1) % pattern == 0;
    c.is_linear.push_back(!attends);
    if (at < types.size() && !attends && types[at] != "linear_attention")
      reader.fail(
          "layer_types", "not-modelled",
          "found \"" + types[at] + "\"; \"indexed_attention\" and \"linear_attention\" are what this class knows");
  }
}

/// Qwen4ExpTextQSAIndexer's.
void read_indexer(ConfigReader& reader, Qwen4Config& c) {
  const bool attends = std::find(c.is_linear.begin(), c.is_linear.end(), false) != c.is_linear.end();
  const auto read_one = [&](const char* key) -> std::int64_t {
    const std::optional<std::int64_t> given = reader.optional_integer(key);
    if (!given && attends) reader.fail(key, "inconsistent", "found none; layers that attend need it");
    return given.value_or(1);
  };
  c.indexer_n_heads = read_one("indexer_n_heads");
  if (read_one("indexer_kv_heads") != 1) reader.fail_found("indexer_kv_heads", "inconsistent", "expected 1");
  c.indexer_head_dim = read_one("indexer_head_dim");
  c.indexer_budget = read_one("indexer_budget");
  c.indexer_compress_ratio = read_one("indexer_compress_ratio");
  if (c.indexer_budget % c.indexer_compress_ratio != 0)
    reader.fail_found("indexer_budget", "inconsistent", "expected a multiple of indexer_compress_ratio");
  if (attends && c.rotary_dim > c.indexer_head_dim)
    reader.fail_found("indexer_head_dim", "inconsistent",
                      "expected at least as many as are rotated (" + std::to_string(c.rotary_dim) + ")");
}

bool is_prime(std::int64_t value) {
  if (value < 2 || value % 2 == 0) return value == 2;
  for (std::int64_t divisor = 3; divisor * divisor <= value; divisor += 2)
    if (value % divisor == 0) return false;
  return true;
}

/// Qwen4ExpTextNGramEmbedding's tables: each head of each layer has as many rows as the next prime says.
void read_ngrams(ConfigReader& reader, Qwen4Config& c) {
  c.ple_layer_ids = reader.integers("ple_layer_ids");
  std::sort(c.ple_layer_ids.begin(), c.ple_layer_ids.end());
  c.ple_layer_ids.erase(std::unique(c.ple_layer_ids.begin(), c.ple_layer_ids.end()), c.ple_layer_ids.end());
  c.ple_embed_dim = reader.optional_integer("ple_embed_dim").value_or(c.hidden_size);
  c.ple_conv_kernel = reader.integer("ple_conv_kernel_size", 4);
  c.ngram_size = reader.integer("ngram_size", 3);
  c.heads_per_ngram = reader.integer("heads_per_ngram", 8);
  const std::int64_t base = reader.integer("ngram_vocab_size_base", 20'000'000),
                     divisor = reader.integer("make_ngram_vocab_size_divisible_by", 128),
                     heads = (c.ngram_size - 1) * c.heads_per_ngram;
  const bool has_eos = reader.has("eos_token_id");
  if (c.ple_layer_ids.empty()) return;
  if (!has_eos) reader.fail("eos_token_id", "inconsistent", "found none; ple_layer_ids need it");
  if (heads <= 0 || c.ple_embed_dim % heads != 0)
    return reader.fail_found("ple_embed_dim", "inconsistent",
                             "expected a multiple of (ngram_size - 1) * heads_per_ngram");
  std::int64_t prime = base - 1;
  for (const std::int64_t id : c.ple_layer_ids) {
    if (id > c.num_hidden_layers || !c.is_linear[static_cast<std::size_t>(id - 1)])
      return reader.fail_found("ple_layer_ids", "inconsistent", "expected layers of linear attention");
    std::int64_t rows = 0;
    for (std::int64_t head = 0; head < heads; ++head) {
      do ++prime;
      while (!is_prime(prime));
      rows += prime;
    }
    c.ngram_rows.push_back(round_up(rows, divisor));
  }
}

Qwen4Config read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kQwen4;
  d.vocab_size = 248'320;
  d.hidden_size = 2048;
  d.num_hidden_layers = 40;
  d.num_attention_heads = 16;
  d.num_key_value_heads = 2;
  d.max_position_embeddings = 32'768;
  Qwen4Config c{read_text_sizes(reader, d, 256)};
  read_gated_heads(reader, c, 1.0);
  read_layers(reader, c);
  read_experts(reader, c, "num_experts", "num_local_experts",
               {.num_experts = 512, .num_experts_per_tok = 10, .balances = true});
  c.experts.intermediate_size = reader.integer("moe_intermediate_size", 512);
  c.experts.shared_intermediate_size = reader.integer("shared_expert_intermediate_size", 512);
  c.experts.norm_topk_prob = reader.boolean("norm_topk_prob", true);
  c.hc_count = reader.integer("hc_count", 4);
  if (c.hc_count == 1) reader.fail_found("hc_count", "inconsistent", "expected at least 2");
  c.hc_lowrank = reader.integer("hc_lowrank", 320);
  read_indexer(reader, c);
  read_ngrams(reader, c);
  if (reader.activation("output_gate_type", c.hidden_act) != Activation::silu)
    reader.fail_found("output_gate_type", "not-modelled", "another one than silu is not supported yet");
  reader.ignore({"seed", "split_ngram_parts", "attn_output_gate", "mamba_ssm_dtype", "mtp_num_hidden_layers",
                 "mtp_use_dedicated_embeddings"});
  return c;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<Qwen4Config>());
  t.has_no_peft_targets();
  t.allow({Feature::quantization, Feature::zero3, Feature::fsdp});
  t.has_idle_parts = true;  // the indexer, whose choice passes no gradient
  for (const Feature feature : {Feature::inference, Feature::lengths, Feature::packing, Feature::chunked_cross_entropy})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  for (const Feature feature : {Feature::flash_attention, Feature::flash_attention_2})
    t.refuse(feature, "inconsistent", "Qwen 4's indexer needs a mask, which this has not: expected sdpa or eager");
  return t;
}

}  // namespace

namespace family {
extern const Family qwen4_exp =
    text_family_of<Qwen4Config, read, balanced<qwen4_parts, Qwen4Config>>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
