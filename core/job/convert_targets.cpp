#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/pattern.h"
#include "config/reader.h"
#include "job/read.h"
#include "models/deepseek/config.h"

namespace oometer {

namespace {

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

}  // namespace

void convert_targets(ConfigReader& lora, TargetModules& targets, const DeepseekConfig& model) {
  const auto name_of = [](std::string_view path) { return path.substr(path.rfind('.') + 1); };
  if (!targets.pattern.empty()) {
    const Result<Pattern> pattern = Pattern::parse(targets.pattern);
    if (!pattern) return;
    std::set<std::string, std::less<>> names;
    for (const std::string& path : projection_paths(model))
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
    lora.fail_found("target_modules", "not-modelled",
                    "with these peft adapts the experts' own parameters, which is not modelled: names of the "
                    "attention's layers belong here (q_proj, q_a_proj, q_b_proj, kv_a_proj_with_mqa, kv_b_proj, "
                    "o_proj)");
}

}  // namespace oometer
