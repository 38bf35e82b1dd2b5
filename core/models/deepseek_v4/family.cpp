#include "models/family.h"

#include <algorithm>

#include "models/deepseek_v4/deepseek_v4.h"
#include "models/model.h"
#include "models/sizes.h"

/// transformers 5.23, models/deepseek_v4/modeling_deepseek_v4.py.
namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"deepseek_v4", kDeepseekV4.causal_lm}};
constexpr const char* kBlocks[] = {kDeepseekV4.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) { return read_deepseek_v4_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  const auto& c = config.as<DeepseekV4Config>();
  return std::make_unique<CausalLM>(context, c.as_llama(), data, options, deepseek_v4_parts(c, options));
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<DeepseekV4Config>();
  ModelTraits t = transformers_traits(kDeepseekV4.causal_lm);
  t.takes_text = t.has_experts = true;
  t.has_idle_parts = true;  // the indexer, whose choice passes no gradient
  t.allow({Feature::finetune, Feature::chunked_cross_entropy, Feature::lengths, Feature::packing, Feature::liger});
  t.liger.usual.rope = t.liger.usual.swiglu = false;
  t.liger.ignores.rope = t.liger.ignores.swiglu = true;  // interleaved pairs, and experts that clamp
  for (const Feature feature : {Feature::inference, Feature::zero3})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  for (const Feature feature : {Feature::sdpa, Feature::flash_attention, Feature::flash_attention_2})
    t.refuse(feature, "inconsistent", "DeepSeek-V4 has attention sinks, which this has not: expected eager");
  t.oldest_transformers = {5, 23, 0};
  t.ties_embeddings = c.tie_word_embeddings;
  t.has_pad_token = c.has_pad_token;
  t.hidden_size = c.hidden_size;
  t.language = "model";
  t.default_sequence_length = std::min<std::int64_t>(2048, c.max_position_embeddings);
  t.text.max_position_embeddings = c.max_position_embeddings;
  t.text.sliding_window = c.sliding_window;
  t.no_split_modules = {kDeepseekV4.decoder_layer};
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<DeepseekV4Config>();
  const std::int64_t batch = data.micro_batch_size, length = data.sequence_length;
  const std::int64_t entries = length / std::min(c.sparse_rate, c.heavy_rate);
  return std::max(
      {2 * bytes_of({batch, length, c.hc_mult, c.hidden_size}),
       2 * bytes_of({batch, c.num_attention_heads, length, length + entries}),
       2 * bytes_of({batch, c.num_attention_heads, length + entries, c.head_dim}),
       2 * bytes_of({batch, length, c.index_n_heads, std::max(entries, c.index_head_dim)}),
       2 * bytes_of({batch, length, c.index_head_dim, entries}),
       bytes_of({batch, length, c.num_experts_per_tok, std::max(c.hidden_size, 2 * c.moe_intermediate_size)}),
       bytes_of({c.n_routed_experts, 2 * c.moe_intermediate_size, c.hidden_size}),
       bytes_of({batch, length, c.vocab_size}), bytes_of({c.vocab_size, c.hidden_size})});
}

}  // namespace

namespace family {
extern const Family deepseek_v4{.classes = kClasses,
                                .blocks = kBlocks,
                                .read = read,
                                .build = build,
                                .traits = traits,
                                .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
