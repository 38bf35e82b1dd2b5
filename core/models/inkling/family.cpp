#include "models/family.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "config/reader.h"
#include "models/inkling/inkling.h"
#include "models/kit/mixture.h"
#include "models/kit/recurrent.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"inkling_text", kInkling.causal_lm}};
constexpr const char* kBlocks[] = {kInkling.decoder_layer};

/// layer_types, local_layer_ids, or as every sixth layer sees all.
void read_layers(ConfigReader& reader, InklingConfig& c) {
  const std::vector<std::string> types = reader.texts_of_layers("layer_types", c.num_hidden_layers);
  const bool names_local = reader.has("local_layer_ids");
  const std::vector<std::int64_t> local = reader.integers("local_layer_ids", Range{0, c.num_hidden_layers});
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    bool slides = (i + 1) % 6 != 0;
    if (at < types.size()) {
      slides = types[at] == "hybrid_sliding";
      if (!slides && types[at] != "hybrid")
        reader.fail("layer_types", "unknown-value",
                    "found \"" + types[at] + "\"; expected \"hybrid\" or \"hybrid_sliding\"");
    } else if (names_local) {
      slides = std::find(local.begin(), local.end(), i) != local.end();
    }
    c.layer_windows.push_back(slides ? c.sliding_window : 0);
  }
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  TextConfig d;
  d.names = &kInkling;
  d.vocab_size = 201'024;
  d.hidden_size = 6144;
  d.intermediate_size = 24'576;
  d.num_hidden_layers = 66;
  d.num_attention_heads = 64;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 131'072;
  InklingConfig c{read_text_sizes(reader, d, 128)};
  c.max_position_embeddings = reader.integer("model_max_length", c.max_position_embeddings);
  c.tie_word_embeddings = false;  // _tied_weights_keys is empty
  c.unpadded_vocab_size = reader.optional_integer("unpadded_vocab_size").value_or(0);
  if (c.unpadded_vocab_size >= c.vocab_size) c.unpadded_vocab_size = 0;
  c.swa_num_attention_heads = reader.integer("swa_num_attention_heads", 64);
  c.swa_num_key_value_heads = reader.integer("swa_num_key_value_heads", 16);
  c.swa_head_dim = reader.integer("swa_head_dim", 128);
  for (const auto& [heads, kv_heads, key] :
       {std::tuple{c.num_attention_heads, c.num_key_value_heads, "num_key_value_heads"},
        std::tuple{c.swa_num_attention_heads, c.swa_num_key_value_heads, "swa_num_key_value_heads"}})
    if (heads % kv_heads != 0)
      reader.fail_found(key, "inconsistent", "expected a divisor of the heads' number (" + std::to_string(heads) + ")");
  c.sliding_window = reader.integer("sliding_window_size", reader.integer("sliding_window", 512));
  c.d_rel = reader.integer("d_rel", 16);
  c.rel_extent = reader.integer("rel_extent", 1024);
  c.conv_kernel_size = reader.integer("conv_kernel_size", reader.integer("sconv_kernel_size", 4));
  c.scales_logarithmically = reader.has("log_scaling_n_floor");
  read_layers(reader, c);
  read_experts(reader, c, "n_routed_experts", "num_local_experts", {.num_experts = 256, .num_experts_per_tok = 6});
  c.experts.intermediate_size = reader.integer("moe_intermediate_size", 3072);
  if (reader.has("dense_intermediate_size")) {
    c.experts.intermediate_size = c.intermediate_size;
    c.intermediate_size = reader.integer("dense_intermediate_size", 1);
  }
  c.n_shared_experts = reader.integer("n_shared_experts", 2);
  c.experts.layers.clear();
  const std::int64_t dense = reader.integer("dense_mlp_idx", 0, Range{0, c.num_hidden_layers});
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) c.experts.layers.push_back(i >= dense);
  read_mlp_layer_types(reader, c);
  reader.ignore({"log_scaling_n_floor", "log_scaling_alpha", "shared_expert_sink", "route_scale",
                 "logits_mup_width_multiplier", "embedding_multiplier", "rms_norm_eps_moe_gate", "num_mtp_layers",
                 "chain_hidden_post_norm", "mtp_hidden_states_first", "mtp_local_layer_ids", "tie_word_embeddings"});
  return c;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<InklingConfig>());
  t.has_no_peft_targets();
  t.allow({Feature::quantization, Feature::zero3});
  t.refuse(Feature::fsdp, "inconsistent", "FSDP takes no layer of parameters of two types, as Inkling has in bfloat16");
  for (const Feature feature : {Feature::inference, Feature::lengths, Feature::packing, Feature::chunked_cross_entropy})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  for (const Feature feature : {Feature::flash_attention, Feature::flash_attention_2})
    t.refuse(feature, "inconsistent", "Inkling's attention has a bias, which this has not: expected sdpa or eager");
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<InklingConfig>();
  const std::int64_t batch = data.micro_batch_size, length = data.sequence_length,
                     heads = std::max(c.num_attention_heads, c.swa_num_attention_heads);
  return std::max(
      {largest_tensor_of_text(c, data),
       bytes_of({batch, length, heads, std::max({c.rel_extent, c.sliding_window, length})}),
       bytes_of({c.n_shared_experts, batch * length, std::max(c.hidden_size, c.experts.intermediate_size)})});
}

}  // namespace

namespace family {
extern const Family inkling{
    .classes = kClasses,
    .blocks = kBlocks,
    .read = read,
    .build =
        [](Context& context, const FamilyConfig& config, const DataConfig& data, const ModelOptions& options) {
          return build_inkling(context, config.as<InklingConfig>(), data, options);
        },
    .traits = traits,
    .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
