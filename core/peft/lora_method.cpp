#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "peft/ia3.h"
#include "peft/lora.h"
#include "peft/methods.h"

/// LoraConfig and IA3Config by peft's own keys.
namespace oometer {

namespace {

struct LoraMethod final : PeftMethod {
  LoraConfig config;

  const TargetModules* target_modules() const override { return &config.target_modules; }

  std::unique_ptr<Tuner> tuner(Context& context, const std::string& kind,
                               std::span<const PeftAdapter> adapters) const override {
    std::vector<LoraModel::Adapter> all;
    for (const PeftAdapter& adapter : adapters)
      all.push_back({adapter.name, &static_cast<const LoraMethod&>(*adapter.method).config, adapter.active});
    return std::make_unique<LoraModel>(context, kind, std::move(all));
  }
};

struct Ia3Method final : PeftMethod {
  Ia3Config config;

  std::unique_ptr<Tuner> tuner(Context& context, const std::string& kind, std::span<const PeftAdapter>) const override {
    return std::make_unique<Ia3Model>(context, config, kind);
  }
};

/// How A and B begin: some of it needs the base layer's weight, and computes with it where that lies.
void read_init(ConfigReader& reader, const PeftDefaults& defaults) {
  constexpr const char* kKey = "init_lora_weights";
  const nlohmann::json* const given = reader.find(kKey);
  if (!given || given->is_null() || given->is_boolean()) return;
  const std::string init = reader.text(kKey, "");
  if (init == "gaussian") return;
  const bool decomposes = init == "pissa" || init == "olora" || init.starts_with("pissa_niter_");
  if (!decomposes)
    return reader.fail_found(kKey, "not-modelled",
                             "it is not supported yet; expected true, false, \"gaussian\", \"olora\", \"pissa\" or "
                             "\"pissa_niter_16\"");
  if (!defaults.loads_on_host)
    reader.fail_found(kKey, "not-modelled",
                      "it decomposes the weights; supported where the model is loaded on the host: expected "
                      "training.loop with \"load\": \"host\"");
}

}  // namespace

std::shared_ptr<const PeftMethod> read_lora_method(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto method = std::make_shared<LoraMethod>();
  LoraConfig& config = method->config;
  read_targets(reader, config.target_modules, config.modules_to_save, defaults.lora);
  config.autocast_adapter_dtype = reader.boolean("autocast_adapter_dtype", true);
  config.rank = reader.integer("r", config.rank, {1, 1 << 16});
  config.alpha = reader.number("lora_alpha", config.alpha, 0, 1e9);
  config.dropout = reader.number("lora_dropout", 0, 0, kDropout);
  config.bias = reader.choice("bias", config.bias,
                              {{"none", LoraBias::none}, {"all", LoraBias::all}, {"lora_only", LoraBias::lora_only}});
  config.use_rslora = reader.boolean("use_rslora", false);
  config.use_dora = reader.boolean("use_dora", false);
  config.lora_bias = reader.boolean("lora_bias", false);
  if (config.use_dora && config.lora_bias)
    reader.fail_found("lora_bias", "inconsistent", "peft has no DoRA with it: leave one of them out");
  config.rank_pattern = read_pattern(reader, "rank_pattern");
  read_init(reader, defaults);
  if (reader.has("trainable_token_indices")) {
    constexpr const char* kKey = "trainable_token_indices";
    if (reader.is_list(kKey)) {
      config.trainable_token_indices.emplace_back("embed_tokens", std::ssize(reader.integers(kKey, non_negative)));
    } else {
      ConfigReader object = reader.object(kKey);
      const nlohmann::json* const given = reader.find(kKey);
      if (given->is_object())
        for (const auto& [name, value] : given->items())
          config.trainable_token_indices.emplace_back(name, std::ssize(object.integers(name.c_str(), non_negative)));
    }
    if (config.trainable_token_indices.size() > 1)
      reader.fail_found(kKey, "not-modelled", "tokens of one layer are supported; expected the embeddings alone");
    for (const auto& [name, rows] : config.trainable_token_indices) {
      if (rows == 0) reader.fail_found(kKey, "missing", "expected the numbers of the tokens that train");
      for (const std::string& saved : config.modules_to_save)
        if (saved == name)
          reader.fail_found(kKey, "inconsistent",
                            "The embedding layer is already marked to be trained fully, either specify it in "
                            "modules_to_save or in trainable_token_indices but not both.");
    }
  }
  for (const char* key :
       {"megatron_config", "eva_config", "corda_config", "lora_ga_config", "velora_config", "alora_invocation_tokens",
        "monteclora_config", "layer_replication", "target_parameters", "use_bdlora", "arrow_config", "kasa_config"})
    reader.refuse(key, "it is not supported yet: leave it out");
  reader.refuse("use_qalora", "it is not supported yet: leave it out");
  reader.ignore({"alpha_pattern", "megatron_core", "loftq_config", "qalora_group_size", "runtime_config"});
  return method;
}

std::shared_ptr<const PeftMethod> read_ia3_method(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto method = std::make_shared<Ia3Method>();
  Ia3Config& config = method->config;
  config.target_modules = read_target_modules(reader, defaults.ia3);
  config.feedforward_modules = read_target_modules(reader, defaults.ia3_feedforward, "feedforward_modules");
  check_feedforward(reader, config);
  reader.refuse("exclude_modules", "it is not supported yet: leave it out");
  if (reader.has("modules_to_save")) config.modules_to_save = reader.texts("modules_to_save");
  config.autocast_adapter_dtype = reader.boolean("autocast_adapter_dtype", true);
  reader.ignore({"init_ia3_weights", "modules_to_save"});
  return method;
}

}  // namespace oometer
