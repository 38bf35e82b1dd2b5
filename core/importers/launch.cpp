#include "importers/launch.h"

#include <algorithm>
#include <utility>

#include "config/reader.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

using Words = std::vector<std::string>;

/// Switches without a value (accelerate 1.15, commands/launch.py; torch 2.15, distributed/run.py; deepspeed 0.19,
/// launcher/runner.py).
constexpr std::string_view kSwitches =
    "quiet cpu multi_gpu tpu ipex use_mps_device use_deepspeed use_fsdp use_parallelism_config use_megatron_lm "
    "use_xpu same_network module no_python debug enable_cpu_affinity dynamo_use_fullgraph dynamo_use_dynamic "
    "dynamo_use_regional_compilation downcast_bf16 standalone run_path no_ssh force_multi no_local_rank";
/// Short ones, by their long names.
constexpr std::pair<std::string_view, std::string_view> kShort[] = {
    {"m", "module"},  {"q", "quiet"},   {"r", "redirects"}, {"t", "tee"},
    {"i", "include"}, {"e", "exclude"}, {"H", "hostfile"}};

std::string name_of_option(const std::string& word) {
  std::string name = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  name = name.substr(0, name.find('='));
  std::replace(name.begin(), name.end(), '-', '_');
  for (const auto& [shorter, longer] : kShort)
    if (name == shorter) return std::string(longer);
  return name;
}

bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && std::string_view("0123456789.").find(word[1]) == std::string_view::npos;
}

/// The options of a launcher up to the program, which `at` then is at.
json options_of(const Words& words, std::size_t& at) {
  json options = json::object();
  while (at < words.size() && is_option(words[at])) {
    const std::string word = words[at++];
    const std::string name = name_of_option(word);
    if (const std::size_t equals = word.find('='); equals != std::string::npos)
      options[name] = word.substr(equals + 1);
    else if (is_word_of(name, kSwitches) || at == words.size())
      options[name] = true;
    else
      options[name] = words[at++];
  }
  return options;
}

/// What a program is given: --key value, --key=value, --key a b c, key=value (OmegaConf), --flag, --no_flag; the
/// first word that is none of these is its file.
/// What a variable that nobody sets decides is as if it were not said. `has_single_values`: an option has one at most.
void read_arguments(const Words& words, std::size_t at, Started& started, bool has_single_values = false) {
  const auto say = [&](const std::string& name, const std::string& value) {
    if (value.find(kUnset) == std::string::npos) started.arguments[name] = scalar_of(value);
  };
  while (at < words.size()) {
    const std::string& word = words[at++];
    const std::size_t equals = word.find('=');
    if (!is_option(word)) {
      if (equals != std::string::npos && equals > 0)
        say(word.substr(0, equals), word.substr(equals + 1));
      else if (started.config.empty() && word.find(kUnset) == std::string::npos)
        started.config = word;
      continue;
    }
    const std::string name = name_of_option(word);
    if (equals != std::string::npos) {
      say(name, word.substr(equals + 1));
      continue;
    }
    json values = json::array();
    bool is_known = true;
    while (at < words.size() && !is_option(words[at]) && !(has_single_values && !values.empty())) {
      is_known &= words[at].find(kUnset) == std::string::npos;
      values.push_back(scalar_of(words[at++]));
    }
    if (!is_known) continue;
    if (values.empty())
      started.arguments[name] = true;
    else
      started.arguments[name] = values.size() == 1 ? values[0] : values;
  }
}

/// tyro's words for one of several classes, activation_checkpoint:full, which stand behind a switch or alone.
void take_classes(Started& started) {
  json classes = json::object();
  const auto take = [&](const json& word) {
    if (!word.is_string()) return false;
    const std::string text = word;
    const std::size_t colon = text.find(':');
    if (!text.starts_with("activation_checkpoint:")) return false;
    classes[text.substr(0, colon)] = text.substr(colon + 1);
    return true;
  };
  take(started.config);
  started.config.clear();
  for (json& value : started.arguments)
    if (take(value)) value = true;
  started.arguments.update(classes);
}

std::int64_t number_of(const json& options, const char* name, std::int64_t fallback) {
  const auto at = options.find(name);
  if (at == options.end() || !at->is_string()) return fallback;
  const json value = scalar_of(at->get<std::string>());
  return value.is_number_integer() && value > 0 && value <= 65536 ? value.get<std::int64_t>() : fallback;
}

std::int64_t visible_gpus(const ShellCommand& command) {
  const auto at = command.environment.find("CUDA_VISIBLE_DEVICES");
  return at == command.environment.end() ? 0 : static_cast<std::int64_t>(split_words(at->second, ", ").size());
}

void set_gpus(Context& context, const std::string& file, const char* key, std::int64_t gpus) {
  if (gpus <= 0) return;
  context.launch.gpus = std::min<std::int64_t>(gpus, 65537);  // more than a job may have
  context.launch.file = file;
  context.launch.key = key;
}

/// `accelerate launch`: its file, and options that go over it.
void read_accelerate(Context& context, const ShellCommand& command, const json& options, const std::string& file) {
  Launch& launch = context.launch;
  if (options.contains("config_file") && options["config_file"].is_string()) {
    const std::string path = options["config_file"];
    if (const SourceFile* found = context.find_file(path); found && found->content.is_object()) {
      launch.accelerate = found->content;
      launch.accelerate_file = found->name;
    } else {
      context.ledger.missing.push_back(
          {"file", path, file, "config_file", "the file that it names decides memory: give it too"});
    }
  }
  json said = json::object();
  const auto move = [&](const char* theirs, json& to, const char* name) {
    if (options.contains(theirs)) to[name] = options[theirs].is_string() ? scalar_of(options[theirs]) : options[theirs];
  };
  move("mixed_precision", said, "mixed_precision");
  if (options.contains("use_deepspeed") || options.contains("deepspeed_config_file") ||
      options.contains("zero_stage")) {
    said["distributed_type"] = "DEEPSPEED";
    json& deepspeed = said["deepspeed_config"] = json::object();
    for (const char* name : {"zero_stage", "deepspeed_config_file", "offload_optimizer_device", "offload_param_device",
                             "gradient_clipping", "gradient_accumulation_steps", "zero3_init_flag"})
      move(name, deepspeed, name);
  } else if (options.contains("use_fsdp")) {
    said["distributed_type"] = "FSDP";
    json& fsdp = said["fsdp_config"] = json::object();
    for (const auto& [name, value] : options.items())
      if (name.starts_with("fsdp_")) fsdp[name] = value.is_string() ? scalar_of(value) : value;
  }
  if (!said.empty()) {
    if (!launch.accelerate.is_object()) launch.accelerate = json::object(), launch.accelerate_file = file;
    launch.accelerate.merge_patch(said);
  }
  std::int64_t gpus = number_of(options, "num_processes", 0);
  if (gpus == 0 && !launch.accelerate.is_object()) gpus = visible_gpus(command);  // all that there are
  set_gpus(context, file, gpus > 0 && options.contains("num_processes") ? "num_processes" : "CUDA_VISIBLE_DEVICES",
           gpus);
}

void read_torchrun(Context& context, const ShellCommand& command, const json& options, const std::string& file) {
  std::int64_t per_node = number_of(options, "nproc_per_node", options.contains("nproc_per_node") ? 0 : 1);
  if (per_node == 0) per_node = visible_gpus(command);  // "gpu", "auto"
  set_gpus(context, file, "nproc_per_node", per_node * number_of(options, "nnodes", 1));
}

void read_deepspeed(Context& context, const ShellCommand& command, const json& options, const std::string& file) {
  std::int64_t gpus = number_of(options, "num_gpus", 0);
  if (options.contains("include") && options["include"].is_string()) {  // "localhost:0,1,2@other:0"
    gpus = 0;
    for (const std::string& host : split_words(options["include"].get<std::string>(), "@"))
      if (const std::size_t colon = host.find(':'); colon != std::string::npos)
        gpus += static_cast<std::int64_t>(split_words(std::string_view(host).substr(colon + 1), ",").size());
    return set_gpus(context, file, "include", gpus);
  }
  if (gpus == 0) gpus = visible_gpus(command);
  set_gpus(context, file, "num_gpus", gpus * number_of(options, "num_nodes", 1));
}

/// Whose program a script or module is.
std::string trainer_of(const std::string& program, const json& arguments) {
  const auto has = [&](const char* part) { return program.find(part) != std::string::npos; };
  if (has("automodel") || has("Automodel")) return "automodel";
  if (has("torchtitan") && has("train")) return "torchtitan";
  if (has("verl.trainer") || has("verl/trainer")) return "verl";
  if (has("swift")) return "swift";
  if (has("axolotl")) return "axolotl";
  if (has("llava") && !has("llava_next")) return "llava";
  if (has("llamafactory") || has("LLaMA-Factory")) return "llamafactory";
  const std::size_t slash =
      program.find_last_of("/.", program.ends_with(".py") ? program.size() - 4 : std::string::npos);
  std::string name = slash == std::string::npos ? program : program.substr(slash + 1);
  if (name.ends_with(".py")) name.resize(name.size() - 3);
  if (is_word_of(name, "sft dpo kto grpo reward reward_modeling rloo orpo gkd online_dpo ppo") && !has("verl") &&
      !has("llava"))
    return "trl";
  if (name == "train" && (arguments.contains("finetuning_type") || arguments.contains("stage"))) return "llamafactory";
  for (const char* key : {"per_device_train_batch_size", "num_train_epochs", "gradient_accumulation_steps"})
    if (arguments.contains(key)) return "transformers";
  return "";
}

/// "path/to/sft.py" and "trl.scripts.sft" -> "sft"
std::string command_of(std::string program) {
  if (program.ends_with(".py")) program.resize(program.size() - 3);
  const std::size_t at = program.find_last_of("/.");
  return at == std::string::npos ? program : program.substr(at + 1);
}

}  // namespace

void take_allocator(Context& context, const std::string& trainer) {
  constexpr const char* kAt = "/runtime/expandable_segments";
  const Launch& launch = context.launch;
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    const auto said = launch.environment.find(name);
    if (said == launch.environment.end()) continue;
    for (const std::string& option : split_words(said->second, ", ")) {
      const bool expands = lower_case(option) == "expandable_segments:true";
      if (expands) {
        context.ledger.put(kAt, true);
        context.ledger.taken.push_back({launch.file, name, kAt, true, false, ""});
      } else if (lower_case(option) != "expandable_segments:false") {
        context.ledger.unmodelled.push_back(
            {launch.file, name, option, "how the allocator rounds and gives back", Effect::either, {}});
      }
    }
    return;
  }
  // Where nobody says it: Unsloth's import, and these two's own commands.
  const char* source = "";
  if (trainer == "unsloth")
    source = "unsloth_zoo 2026.10, __init__.py";
  else if (trainer == "axolotl" && context.is_own_command)
    source = "axolotl 0.19.0, utils/__init__.py: set_pytorch_cuda_alloc_conf";
  else if (trainer == "llamafactory" && context.is_own_command && launch.is_of_several())
    source = "llamafactory 0.9.5, launcher.py: launch";
  if (*source == '\0') return;
  context.ledger.put(kAt, true);
  context.ledger.taken.push_back({"", "PYTORCH_CUDA_ALLOC_CONF", kAt, true, true, source});
}

Started read_launch(Context& context, const ShellCommand& command, const std::string& file) {
  const Words& words = command.words;
  Started started;
  std::size_t at = 0;
  while (at < words.size() && is_word_of(words[at], "nohup exec sudo env time uv run poetry stdbuf -oL -u")) ++at;
  context.launch.environment = command.environment;
  bool is_module = false;
  // Launchers may stand in each other: accelerate launch -m trl.scripts.sft.
  for (int depth = 0; depth < 4 && at < words.size(); ++depth) {
    const std::string name =
        command_of(words[at]) == "cli" ? words[at] : words[at].substr(words[at].find_last_of('/') + 1);
    if (name.starts_with("python")) {
      ++at;
      while (at < words.size() && is_option(words[at]) && words[at] != "-m") ++at;
      is_module = at < words.size() && words[at] == "-m";
      if (is_module) ++at;
    } else if (name == "accelerate" && at + 1 < words.size() && words[at + 1] == "launch") {
      at += 2;
      const json options = options_of(words, at);
      is_module = options.contains("module");
      read_accelerate(context, command, options, file);
    } else if (name == "accelerate.commands.launch") {
      const json options = options_of(words, ++at);
      is_module = options.contains("module");
      read_accelerate(context, command, options, file);
    } else if (name == "torchrun" || name == "torch.distributed.run" || name == "torch.distributed.launch") {
      const json options = options_of(words, ++at);
      is_module = options.contains("module");
      read_torchrun(context, command, options, file);
    } else if (name == "deepspeed" || name == "deepspeed.launcher.runner") {
      const json options = options_of(words, ++at);
      is_module = options.contains("module");
      read_deepspeed(context, command, options, file);
    } else {
      break;
    }
  }
  if (at >= words.size()) return started;
  const std::string program = words[at].substr(words[at].find_last_of('/') + 1);
  const bool has_verb = at + 1 < words.size();
  const char* own = program == "trl"                                    ? "trl"
                    : program == "llamafactory-cli" || program == "lmf" ? "llamafactory"
                    : program == "axolotl"                              ? "axolotl"
                    : program == "swift"                                ? "swift"
                    : program == "automodel" || program == "am"         ? "automodel"
                                                                        : "";
  if (own == std::string_view("automodel") && has_verb) {
    // automodel FILE --nproc-per-node 8 --step_scheduler.local_batch_size 4 (cli/app.py)
    started.trainer = started.program = own;
    read_arguments(words, at + 1, started);
  } else if (*own != '\0' && has_verb) {
    started.trainer = own;
    started.program = words[at + 1];
    read_arguments(words, at + 2, started);
    // Exporting, preprocessing, chatting: no training.
    if (started.program != "train" && (started.trainer == "llamafactory" || started.trainer == "axolotl")) return {};
    // They start torchrun by themselves, on all GPUs or as the environment says (llamafactory/launcher.py,
    // swift/cli/main.py); axolotl calls accelerate, which is given what it does not know.
    const auto per_node = command.environment.find("NPROC_PER_NODE");
    if (per_node != command.environment.end()) {
      const json count = scalar_of(per_node->second);
      if (count.is_number_integer()) set_gpus(context, file, "NPROC_PER_NODE", count.get<std::int64_t>());
    } else if (program == "llamafactory-cli" || program == "lmf" || program == "axolotl") {
      set_gpus(context, file, "CUDA_VISIBLE_DEVICES", visible_gpus(command));
    }
  } else if (program.ends_with(".py") || is_module) {
    const std::string path = words[at];
    context.is_own_command = false;
    const bool is_single = is_word_of(trainer_of(path, json::object()), "verl torchtitan");
    read_arguments(words, at + 1, started, is_single);
    started.trainer = trainer_of(path, started.arguments);
    started.program = started.trainer == "transformers" ? path : command_of(path);
  }
  // Its own script starts torchrun (torchtitan 0.3.0, run_train.sh).
  if (program == "run_train.sh" && command.environment.contains("CONFIG")) {
    started.trainer = started.program = "torchtitan";
    read_arguments(words, at + 1, started, true);
    for (const auto& [name, key] : {std::pair{"MODULE", "module"}, {"CONFIG", "config"}})
      if (const auto said = command.environment.find(name); said != command.environment.end())
        started.arguments[key] = said->second;
    const auto gpus = command.environment.find("NGPU");
    const json count = gpus == command.environment.end() ? json(8) : scalar_of(gpus->second);
    if (count.is_number_integer()) set_gpus(context, file, "NGPU", count.get<std::int64_t>());
  }
  if (started.trainer == "torchtitan") take_classes(started);
  if (started.trainer == "automodel") {
    json& arguments = started.arguments;
    for (const char* name : {"c", "config"})
      if (const auto given = arguments.find(name); given != arguments.end() && given->is_string()) {
        started.config = given->get<std::string>();
        arguments.erase(name);
      }
    if (const auto count = arguments.find("nproc_per_node"); count != arguments.end()) {
      if (count->is_number_integer()) set_gpus(context, file, "nproc_per_node", count->get<std::int64_t>());
      arguments.erase(count);
    }
  }
  if (started.trainer == "trl") {  // TrlParser.parse_args_and_config; trl/cli.py: --accelerate_config
    if (started.arguments.contains("config") && started.arguments["config"].is_string()) {
      started.config = started.arguments["config"];
      started.arguments.erase("config");
    }
    json options = json::object();
    for (const char* name : {"accelerate_config", "num_processes"})
      if (started.arguments.contains(name)) {
        const json value = started.arguments[name];
        options[name == std::string_view("accelerate_config") ? "config_file" : name] =
            value.is_string() ? value : json(value.dump());
        started.arguments.erase(name);
      }
    if (!options.empty()) read_accelerate(context, command, options, file);
  }
  if (!started.trainer.empty()) context.launch.program = started.program;
  return started;
}

}  // namespace oometer::importers
