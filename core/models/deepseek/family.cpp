#include "models/family.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "config/pattern.h"
#include "config/reader.h"
#include "models/deepseek/deepseek.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"deepseek_v2", kDeepseekV2.causal_lm}, {"deepseek_v3", kDeepseekV3.causal_lm}};
constexpr const char* kBlocks[] = {kDeepseekV2.decoder_layer, kDeepseekV3.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  return read_deepseek_config(reader, &of == &kClasses[0] ? kDeepseekV2 : kDeepseekV3);
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  DeepseekConfig c = config.as<DeepseekConfig>();
  c.temporal_stride = options.temporal_stride;
  return build_deepseek(context, c, data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<DeepseekConfig>();
  ModelTraits t = transformers_traits(c.names->causal_lm);
  t.takes_text = t.generates = t.has_experts = true;
  t.allow({Feature::finetune, Feature::chunked_cross_entropy, Feature::generate_options, Feature::turn_images,
           Feature::mtla, Feature::lengths, Feature::packing});
  t.refuse(Feature::liger, "not-modelled", "Liger's kernels for " + t.class_name + " are not modelled: leave it out");
  for (const Feature sharding : {Feature::zero3, Feature::fsdp})
    t.refuse(sharding, "not-modelled", "experts on shards are not supported yet; expected another strategy");
  if (c.qk_head_dim() != c.v_head_dim)
    t.refuse(Feature::flash_attention, "inconsistent",
             "this kernel wants values as wide as keys, which the model's are not: use sdpa, sdpa-efficient or "
             "sdpa-math");
  t.oldest_transformers = {5, 23, 0};
  t.ties_embeddings = c.tie_word_embeddings;
  t.hidden_size = c.hidden_size;
  t.language = "model";
  t.default_sequence_length = std::min<std::int64_t>(2048, c.max_position_embeddings);
  t.text.max_position_embeddings = c.max_position_embeddings;
  t.quantization_skips = {"lm_head"};
  t.no_split_modules = {c.names->decoder_layer};
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<DeepseekConfig>();
  const std::int64_t batch = data.micro_batch_size, length = data.sequence_length;
  const std::int64_t heads = c.num_attention_heads * (c.qk_head_dim() + c.v_head_dim);
  return std::max(
      {bytes_of_layer(batch, length, std::max({c.hidden_size, c.kv_lora_rank, c.q_lora_rank}),
                      std::max({c.intermediate_size, c.moe_intermediate_size * c.n_shared_experts, heads}),
                      c.num_attention_heads),
       bytes_of({batch, length, c.num_experts_per_tok, std::max(c.hidden_size, 2 * c.moe_intermediate_size)}),
       bytes_of({c.n_routed_experts, 2 * c.moe_intermediate_size, c.hidden_size}),
       bytes_of({batch, length, c.n_routed_experts}), bytes_of({batch, length, c.vocab_size}),
       bytes_of({c.vocab_size, c.hidden_size})});
}

/// Of the Linear layers, and those that the experts' had before transformers 5 made parameters of them.
std::vector<std::string> projection_paths(const DeepseekConfig& config) {
  std::vector<std::string> paths{"lm_head"};
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const auto add = [&](const char* module, std::initializer_list<const char*> names) {
      for (const char* name : names) paths.push_back(layer + module + name);
    };
    if (config.q_lora_rank == 0)
      add("self_attn.", {"q_proj"});
    else
      add("self_attn.", {"q_a_proj", "q_b_proj"});
    add("self_attn.", {"kv_a_proj_with_mqa", "kv_b_proj", "o_proj"});
    const bool has_experts = i >= config.first_k_dense_replace;
    if (has_experts) add("mlp.", {"gate"});
    for (const char* module : {"mlp.experts.", "mlp.shared_experts."})
      if (has_experts) add(module, {"gate_proj", "up_proj", "down_proj"});
    if (!has_experts) add("mlp.", {"gate_proj", "up_proj", "down_proj"});
  }
  return paths;
}

/// Where transformers 5 keeps experts as parameters of their own, peft takes a text for the names that it matches, in
/// whatever layer they are, and adapts parameters by the names that the experts' projections had (peft 0.21,
/// utils/transformers_weight_conversion.py, _convert_peft_config_moe).
void convert_targets(ConfigReader& lora, const FamilyConfig& config, TargetModules& targets) {
  const auto name_of = [](std::string_view path) { return path.substr(path.rfind('.') + 1); };
  if (!targets.pattern.empty()) {
    const Result<Pattern> pattern = Pattern::parse(targets.pattern);
    if (!pattern) return;
    std::set<std::string, std::less<>> names;
    for (const std::string& path : projection_paths(config.as<DeepseekConfig>()))
      if (!names.contains(name_of(path)) && pattern->matches(path)) names.emplace(name_of(path));
    if (names.empty()) return;
    targets = {};
    targets.names.assign(names.begin(), names.end());
  }
  const auto is_of_experts = [&](std::string_view path) {
    const std::string_view name = name_of(path);
    return name == "gate" || name == "gate_proj" || name == "up_proj" || name == "down_proj";
  };
  if (targets.all_linear || std::any_of(targets.names.begin(), targets.names.end(), is_of_experts))
    lora.fail_found(
        "target_modules", "not-modelled",
        "with these peft adapts the experts' own parameters, which is not supported yet; expected names of the "
        "attention's layers (q_proj, q_a_proj, q_b_proj, kv_a_proj_with_mqa, kv_b_proj, "
        "o_proj)");
}

}  // namespace

namespace family {
extern const Family deepseek{.classes = kClasses,
                             .blocks = kBlocks,
                             .read = read,
                             .build = build,
                             .traits = traits,
                             .largest_tensor = largest_tensor,
                             .convert_targets = convert_targets};
}  // namespace family

}  // namespace oometer
