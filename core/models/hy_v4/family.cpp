#include "models/family.h"

#include <algorithm>

#include "config/reader.h"
#include "models/hy_v4/hy_v4.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"hy_v4", kHyV4.causal_lm}};
constexpr const char* kBlocks[] = {kHyV4.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  DeepseekConfig d = deepseek_v3_defaults();
  d.names = &kHyV4;
  d.vocab_size = 120'832;
  d.hidden_size = 2816;
  d.intermediate_size = 6912;
  d.moe_intermediate_size = 768;
  d.num_hidden_layers = 34;
  d.num_attention_heads = 32;
  d.q_lora_rank = 1536;
  d.kv_lora_rank = 512;
  d.qk_nope_head_dim = 192;
  d.qk_rope_head_dim = 64;
  d.v_head_dim = 256;
  d.first_k_dense_replace = 1;
  d.n_group = d.topk_group = 1;
  d.max_position_embeddings = 262'144;
  d.index_n_heads = 16;
  d.has_pad_token = true;
  HyV4Config c{read_deepseek_config(reader, d)};
  if (reader.texts("indexer_types").empty())
    for (std::size_t i = 0; i < c.shares_topk.size(); ++i) c.shares_topk[i] = i != 0 && (i - 1) % 4 != 0;
  c.hc_mult = reader.integer("hc_mult", 4);
  if (c.tie_word_embeddings)
    reader.fail_found("tie_word_embeddings", "not-modelled",
                      "a head in float32 that shares its weight is not supported yet: set it to false");
  reader.ignore({"hc_magnitude", "hc_eps", "learnable_sink_init", "swiglu_limit"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_hy_v4(context, config.as<HyV4Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<HyV4Config>();
  ModelTraits t = transformers_traits(kHyV4.causal_lm);
  t.takes_text = t.has_experts = true;
  t.has_idle_parts = true;  // the indexer, whose choice passes no gradient
  t.allow({Feature::finetune});
  t.has_no_liger();
  for (const Feature feature : {Feature::inference, Feature::zero3, Feature::deepspeed, Feature::fsdp,
                                Feature::quantization, Feature::chunked_cross_entropy})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  for (const Feature feature : {Feature::sdpa, Feature::flash_attention, Feature::flash_attention_2})
    t.refuse(feature, "inconsistent", "Hy 4 has attention sinks, which this has not: expected eager");
  t.oldest_transformers = {5, 23, 0};
  t.has_pad_token = c.has_pad_token;
  t.hidden_size = c.hidden_size;
  t.language = "model";
  t.default_sequence_length = std::min<std::int64_t>(2048, c.max_position_embeddings);
  t.text.max_position_embeddings = c.max_position_embeddings;
  t.no_split_modules = {kHyV4.decoder_layer};
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<HyV4Config>();
  const std::int64_t batch = data.micro_batch_size, length = data.sequence_length;
  return std::max(
      {2 * bytes_of({batch, length, c.hc_mult, c.hidden_size}),
       2 * bytes_of({batch, c.num_attention_heads, length, length + 1}),
       2 * bytes_of({batch, length, c.num_attention_heads, c.qk_head_dim() + c.v_head_dim}),
       2 * bytes_of({batch, length, c.index_n_heads, std::max(length, c.index_head_dim)}),
       2 * bytes_of({batch, length, c.index_head_dim, length}), bytes_of({batch, length, c.intermediate_size}),
       bytes_of({batch, length, c.num_experts_per_tok, std::max(c.hidden_size, 2 * c.moe_intermediate_size)}),
       bytes_of({c.n_routed_experts, 2 * c.moe_intermediate_size, c.hidden_size}),
       2 * bytes_of({batch, length, c.vocab_size}), 2 * bytes_of({c.vocab_size, c.hidden_size})});
}

}  // namespace

namespace family {
extern const Family hy_v4{.classes = kClasses,
                          .blocks = kBlocks,
                          .read = read,
                          .build = build,
                          .traits = traits,
                          .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
