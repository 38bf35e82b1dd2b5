#include "peft/method.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/pattern.h"
#include "peft/methods.h"

namespace oometer {

namespace {

struct MethodName {
  std::string_view peft_type;
  ReadPeftMethod* read;  ///< null: not supported yet
  const char* why = "this method is not supported yet";
};

constexpr const char* kFourier =
    "it computes a Fourier transform (cuFFT), whose workspace only that library knows, so that it is not supported";
constexpr const char* kAsksForTasks =
    "its layers ask for the task of each sample (task_ids), which is not supported yet";
constexpr const char* kTwoForwards =
    "it runs the model twice, the first time for its scalings, which is not supported yet";

// PeftType (utils/peft_types.py), in alphabetical order.
constexpr MethodName kMethods[] = {
    {"ADALORA", read_adalora},
    {"ADAMSS", nullptr,
     "a clustering of the weights' values decides the sizes of its parameters, so that it is not supported"},
    {"ADAPTION_PROMPT", nullptr, "its prompts inside of attention are not supported yet"},
    {"BEFT", read_beft},
    {"BOFT", read_boft},
    {"C3A", nullptr, kFourier},
    {"CARTRIDGE", nullptr},
    {"CPT", nullptr, "its own loss, and its projection of the prompt, are not supported yet"},
    {"DEFT", read_deft},
    {"DELORA", read_delora},
    {"FOURIERFT", nullptr, kFourier},
    {"FROD", nullptr, "its sparse matrices, which are sorted in every forward, are not supported yet"},
    {"GLORA", read_glora},
    {"GRALORA", read_gralora},
    {"HIRA", read_hira},
    {"HRA", read_hra},
    {"IA3", read_ia3_method},
    {"LILY", read_lily},
    {"LN_TUNING", read_ln_tuning},
    {"LOHA", read_loha},
    {"LOKR", read_lokr},
    {"LORA", read_lora_method},
    {"MISS", read_miss},
    {"MULTITASK_PROMPT_TUNING", nullptr, kAsksForTasks},
    {"OFT", read_oft},
    {"OSF", read_osf},
    {"PEANUT", read_peanut},
    {"POLY", nullptr, kAsksForTasks},
    {"PREFIX_TUNING", read_prefix_tuning},
    {"PROMPT_TUNING", read_prompt_tuning},
    {"PSOFT", read_psoft},
    {"PVERA", read_pvera},
    {"P_TUNING", read_p_tuning},
    {"RANDLORA", read_randlora},
    {"ROAD", read_road},
    {"SHADOW", nullptr, "a second, smaller model beside the layers is not supported yet"},
    {"SHIRA", read_shira},
    {"SUPERTUNING", read_supertuning},
    {"TINYLORA", read_tinylora},
    {"TRAINABLE_TOKENS", read_trainable_tokens},
    {"UNILORA", read_unilora},
    {"VBLORA", read_vblora},
    {"VERA", read_vera},
    {"WAVEFT", read_waveft},
    {"XLORA", nullptr, kTwoForwards},
};

bool is_name(const std::string& text) { return text.find_first_of("*+?[](){}|^$\\.") == std::string::npos; }

/// A list of names, or a regular expression, which goes into `pattern`.
void read_names(ConfigReader& reader, const char* key, std::vector<std::string>& names, std::string& pattern) {
  if (!reader.has(key)) return;
  if (reader.is_list(key)) {
    names = reader.texts(key);
    return;
  }
  pattern = reader.text(key, "");
  if (const Result<Pattern> parsed = Pattern::parse(pattern); !parsed)
    reader.fail_found(
        key, "invalid",
        "expected a list of names or a regular expression; this expression has " + parsed.error().message);
}

}  // namespace

TargetModules read_target_modules(ConfigReader& reader, std::vector<std::string> usual, const char* key) {
  TargetModules targets;
  if (!reader.has(key)) {
    targets.names = std::move(usual);
    if (targets.names.empty())
      reader.fail(key, "missing",
                  "found nothing, and peft has no default targets for this model; expected a list of names, a regular "
                  "expression or \"all-linear\"");
  } else if (reader.is_list(key)) {
    targets.names = reader.texts(key);
    if (targets.names.empty() && reader.ok())
      reader.fail_found(key, "inconsistent", "expected at least one name, or \"all-linear\"");
  } else {
    std::string text = reader.text(key, "");
    targets.all_linear = lower_case(text) == "all-linear";  // as _maybe_include_all_linear_layers compares
    if (targets.all_linear) return targets;
    const Result<Pattern> pattern = Pattern::parse(text);
    if (!pattern)
      reader.fail_found(key, "invalid",
                        "expected a list of names, a regular expression or \"all-linear\"; this "
                        "expression has " +
                            pattern.error().message);
    targets.pattern = std::move(text);
    if (targets.pattern.empty() && reader.ok())
      reader.fail_found(key, "inconsistent", "expected a list of names, a regular expression or \"all-linear\"");
  }
  return targets;
}

void read_targets(ConfigReader& reader, TargetModules& targets, std::vector<std::string>& modules_to_save,
                  std::vector<std::string> usual) {
  targets = read_target_modules(reader, std::move(usual));
  read_names(reader, "exclude_modules", targets.excluded_names, targets.excluded_pattern);
  if (reader.has("layers_to_transform")) {
    targets.layers_to_transform = reader.is_list("layers_to_transform")
                                      ? reader.integers("layers_to_transform", non_negative)
                                      : std::vector{reader.integer("layers_to_transform", 0, non_negative)};
    if (!targets.pattern.empty())
      reader.fail_found("layers_to_transform", "inconsistent",
                        "`layers_to_transform` cannot be used when `target_modules` is a str.");
  }
  if (reader.has("layers_pattern")) {
    targets.layers_pattern = reader.is_list("layers_pattern") ? reader.texts("layers_pattern")
                                                              : std::vector{reader.text("layers_pattern", "")};
    if (targets.layers_pattern == std::vector<std::string>{""}) targets.layers_pattern.clear();
    for (const std::string& name : targets.layers_pattern)
      if (!is_name(name))
        reader.fail_found("layers_pattern", "not-modelled",
                          "expressions are not supported yet; expected a list's name");
    if (targets.layers_to_transform.empty() && !targets.layers_pattern.empty())
      reader.fail_found("layers_pattern", "inconsistent",
                        "When `layers_pattern` is specified, `layers_to_transform` must also be specified.");
  }
  if (reader.has("modules_to_save")) modules_to_save = reader.texts("modules_to_save");
  for (const std::string& name : modules_to_save)
    if (name.empty()) reader.fail_found("modules_to_save", "invalid", "expected names of modules");
  reader.ignore({"modules_to_save"});
}

void check_feedforward(ConfigReader& reader, const Ia3Config& config) {
  if (config.feedforward_modules.all_linear)
    reader.fail_found("feedforward_modules", "inconsistent", "expected a list of names or a regular expression");
  const std::vector<std::string>& targets = config.target_modules.names;
  for (const std::string& name : config.feedforward_modules.names)
    if (!targets.empty() && std::find(targets.begin(), targets.end(), name) == targets.end())
      reader.fail("feedforward_modules", "inconsistent",
                  "found " + quote(name) + ", which is not among target_modules; peft wants a part of them");
}

void refuse_bias(ConfigReader& reader) {
  if (reader.text("bias", "none") != "none")
    reader.fail_found("bias", "not-modelled", "trained biases are supported with LORA only; expected \"none\"");
}

NumberByModule read_pattern(ConfigReader& reader, const char* key) {
  NumberByModule numbers;
  if (!reader.has(key)) return numbers;
  ConfigReader object = reader.object(key);
  const nlohmann::json* const given = reader.find(key);
  if (!given->is_object()) return numbers;
  for (const auto& [name, value] : given->items()) {
    if (const Result<Pattern> parsed = Pattern::parse(name); !parsed)
      object.fail(name.c_str(), "invalid", "this expression has " + parsed.error().message);
    numbers.emplace_back(name, object.integer(name.c_str(), 1));
  }
  return numbers;
}

NumberByModule read_lycoris_pattern(ConfigReader& reader) {
  NumberByModule ranks = read_pattern(reader, "rank_pattern");
  if (!ranks.empty() && !read_pattern(reader, "alpha_pattern").empty())
    reader.fail_found("alpha_pattern", "not-modelled", "beside rank_pattern it is not supported yet: leave it out");
  for (const char* key : {"rank_dropout", "module_dropout"})
    if (reader.number(key, 0, 0, 1) != 0)
      reader.fail_found(key, "not-modelled", "it is not supported yet: leave it out");
  reader.ignore({"alpha_pattern"});
  return ranks;
}

ModulePattern::ModulePattern(const NumberByModule& numbers) {
  for (const auto& [key, number] : numbers)
    if (Result<Pattern> pattern = Pattern::parse("(.*\\.)?(" + key + ")"))
      patterns_.emplace_back(*std::move(pattern), number);
}

std::int64_t ModulePattern::of(const std::string& path, std::int64_t otherwise) const {
  for (const auto& [pattern, number] : patterns_)
    if (pattern.matches(path)) return number;
  return otherwise;
}

std::vector<std::string_view> peft_types() {
  std::vector<std::string_view> types;
  for (const MethodName& method : kMethods)
    if (method.read) types.push_back(method.peft_type);
  return types;
}

std::shared_ptr<const PeftMethod> read_peft_method(ConfigReader& reader, const PeftDefaults& defaults) {
  const std::string peft_type = reader.text("peft_type", "");
  if (!reader.ok()) return nullptr;
  if (peft_type.empty()) {
    reader.fail("peft_type", "missing", "found nothing; expected the name of a method of peft, such as \"VERA\"");
    return nullptr;
  }
  reader.ignore({"task_type", "peft_version", "revision", "base_model_name_or_path", "auto_mapping", "fan_in_fan_out",
                 "ensure_weight_tying"});
  if (reader.boolean("inference_mode", false))
    reader.fail_found("inference_mode", "inconsistent", "an adapter that does not train: leave it out, or set active");
  for (const MethodName& method : kMethods) {
    if (method.peft_type != peft_type) continue;
    if (!method.read) break;
    std::shared_ptr<const PeftMethod> read = method.read(reader, defaults);
    reader.finish();
    return read;
  }
  std::string known;
  for (const std::string_view type : peft_types()) known += (known.empty() ? "" : ", ") + std::string(type);
  const auto has_name = [&](const MethodName& method) { return method.peft_type == peft_type; };
  const auto* const found = std::find_if(std::begin(kMethods), std::end(kMethods), has_name);
  const bool is_peft = found != std::end(kMethods);
  reader.fail_found("peft_type", is_peft ? "not-modelled" : "unknown-value",
                    (is_peft ? std::string(found->why) + "; expected one of " : "expected one of ") + known);
  return nullptr;
}

}  // namespace oometer
