#include "importers/import.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "config/reader.h"
#include "importers/automodel/automodel.h"
#include "importers/axolotl/axolotl.h"
#include "importers/context.h"
#include "importers/launch.h"
#include "importers/llamafactory/llamafactory.h"
#include "importers/llava/llava.h"
#include "importers/parallel.h"
#include "importers/preprocessor.h"
#include "importers/python.h"
#include "importers/shell.h"
#include "importers/swift/swift.h"
#include "importers/torchtitan/torchtitan.h"
#include "importers/transformers/training_arguments.h"
#include "importers/trl/trl.h"
#include "importers/unsloth/unsloth.h"
#include "importers/verl/verl.h"
#include "job/estimate.h"
#include "job/loop.h"
#include "job/parse.h"
#include "job/simulate.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

/// What a file is, by its keys.
enum class FileKind : std::uint8_t { unknown, shell, python, model, deepspeed, accelerate, helper, trainer };

bool has_any(const json& tree, std::initializer_list<const char*> keys) {
  return std::any_of(keys.begin(), keys.end(), [&](const char* key) { return tree.contains(key); });
}

/// Whose keys a tree has; "" for none that is known.
std::string trainer_of_keys(const json& tree) {
  if (is_automodel(tree)) return "automodel";
  if (is_verl(tree)) return "verl";
  if (is_axolotl(tree)) return "axolotl";
  if (is_llamafactory(tree)) return "llamafactory";
  if (is_swift(tree)) return "swift";
  if (is_trl(tree)) return "trl";
  if (has_any(tree, {"per_device_train_batch_size", "per_gpu_train_batch_size", "num_train_epochs",
                     "gradient_checkpointing"}))
    return "transformers";
  return "";
}

/// Trainers whose files are known by their keys, and nothing more.
const char* other_trainer(const json& tree) {
  if (!tree.is_object()) return "";
  if (has_any(tree, {"dist_config", "train_dataset", "sample_backend"}) && tree.contains("model"))
    return "LLaMA-Factory's v1";
  if (has_any(tree, {"actor_rollout_ref", "algorithm"}) && tree.contains("data"))
    return "verl's reinforcement learning";
  if (tree.contains("tokenizer") && tree["tokenizer"].is_object() && tree["tokenizer"].contains("_component_"))
    return "torchtune";
  return "";
}

FileKind kind_of(const SourceFile& file) {
  const json& tree = file.content;
  if (python_of(file)) return FileKind::python;
  if (tree.is_string()) return FileKind::shell;
  if (!tree.is_object()) return FileKind::unknown;
  if (tree.contains("model_type") && has_any(tree, {"architectures", "hidden_size", "text_config", "n_embd"}))
    return FileKind::model;
  if (has_any(tree, {"zero_optimization", "train_micro_batch_size_per_gpu"})) return FileKind::deepspeed;
  if (has_any(tree, {"distributed_type", "compute_environment"})) return FileKind::accelerate;
  if (!trainer_of_keys(tree).empty()) return FileKind::trainer;
  if (is_preprocessor(tree)) return FileKind::helper;
  if (has_any(tree, {"peft_type", "processor_class", "transformer_layer_cls_to_wrap",
                     "fsdp_transformer_layer_cls_to_wrap", "reshard_after_forward", "train_batch_size"}))
    return FileKind::helper;
  return FileKind::unknown;
}

/// What starts, and the file of its keys.
struct Run {
  Started started;
  std::string file;  ///< the script, or the file of keys where there is no script
};

std::optional<Run> find_script(Context& context, const std::vector<SourceFile>& files) {
  std::optional<Run> run;
  for (const SourceFile& file : files) {
    if (kind_of(file) != FileKind::shell) continue;
    for (const ShellCommand& command : read_shell(file.content.get<std::string>())) {
      Context trial = context;
      Started started = read_launch(trial, command, file.name);
      // A script of any name that is given a file: the file says whose it is.
      if (const SourceFile* given = started.config.empty() ? nullptr : trial.find_file(started.config);
          started.trainer.empty() && given != nullptr && given->content.is_object()) {
        started.trainer = trainer_of_keys(given->content);
        started.program = started.trainer == "trl" ? trl_program(given->content) : "";
      }
      if (started.trainer.empty()) continue;
      if (run) {
        context.ledger.unmodelled.push_back(
            {file.name,
             started.program,
             json(),
             "line " + std::to_string(command.line) + " starts another training, which is a job of its own",
             Effect::unknown,
             {}});
        continue;
      }
      context = trial;
      for (const std::string& name : command.unset) {
        if (is_word_of(name, "HOME PWD USER")) continue;  // of the machine: where files lie
        context.ledger.missing.push_back(
            {"variable", name, file.name, name,
             "line " + std::to_string(command.line) + " uses it and the script does not say what it is: " +
                 (name.starts_with('$') ? "write its value in its place" : "set it, as " + name + "=...")});
      }
      run = Run{std::move(started), file.name};
    }
  }
  return run;
}

/// The tree of a file that a command names, or that was given alone.
const SourceFile* keys_file(Context& context, const std::vector<SourceFile>& files, const Run* run) {
  if (run != nullptr && !run->started.config.empty()) {
    const SourceFile* found = context.find_file(run->started.config);
    if (found != nullptr && found->content.is_object()) return found;
    context.ledger.missing.push_back({"file", run->started.config, run->file, "",
                                      "the file that the command names says what is trained: give it too"});
    return nullptr;
  }
  if (run != nullptr) return nullptr;
  const SourceFile* found = nullptr;
  for (const SourceFile& file : files) {
    if (kind_of(file) != FileKind::trainer) continue;
    if (found != nullptr)
      context.ledger.refuse(
          file.name, "",
          "both " + found->name + " and " + file.name + " say what is trained: give one of them at a time");
    else
      found = &file;
  }
  return found;
}

void read_trainer(Context& context, Keys& keys, const std::string& trainer, const std::string& program) {
  if (trainer == "llamafactory") return read_llamafactory(context, keys);
  if (trainer == "axolotl") return read_axolotl(context, keys);
  if (trainer == "automodel") return read_automodel(context, keys);
  if (trainer == "swift") return read_swift(context, keys, program);
  if (trainer == "llava") return read_llava(context, keys, program);
  if (trainer == "torchtitan") return read_torchtitan(context, keys);
  if (trainer == "trl") return read_trl(context, keys, program);
  if (trainer == "verl") return read_verl(context, keys, program);
  if (trainer == "unsloth") return read_unsloth(context, keys, program);
  if (trainer == "transformers") return read_training_arguments(context, keys);
  keys.refuse("", "the trainer " + trainer + " is not supported yet");
}

/// The key that led to a place of the job.
const Taken* key_of(const Ledger& ledger, const std::string& pointer) {
  const Taken* best = nullptr;
  for (const Taken& taken : ledger.taken)  // the nearest one at or above the place
    if ((pointer + "/").starts_with(taken.pointer + "/") &&
        (best == nullptr || taken.pointer.size() > best->pointer.size()))
      best = &taken;
  if (best != nullptr || pointer == "/training/loop") return best;
  for (const Taken& taken : ledger.taken)  // else the first one below it
    if (taken.pointer.starts_with(pointer + "/")) return &taken;
  return nullptr;
}

std::optional<Error> refusal_of(const json& job) {
  const std::string text = job.dump(-1, ' ', false, json::error_handler_t::replace);
  const Result<Job> parsed = parse_job(text);
  if (!parsed) return parsed.error();
  return simulate(*parsed, resolve_behaviours(parsed->runtime)).refusal;
}

json loop_of(const json& job) { return member(member(member(job, "training"), "loop"), "name"); }

/// What transformers' Trainer and LLaVA's are not supported with yet (quantized weights, models with images; offload) a
/// plain step with the same arguments is.
std::optional<json> as_plain_step(const json& job) {
  json plain = job;
  const json loop = loop_of(job);
  if ((loop != "transformers.Trainer" && loop != "llava.LLaVATrainer") || spell_out_loop(plain)) return std::nullopt;
  plain["training"].erase("loop");
  if (json& training = plain["training"]; member(member(training, "optimizer"), "param_groups") == 4)
    training["optimizer"].erase("param_groups");  // of LLaVATrainer alone
  if (plain.contains("/parallel/accelerate_config"_json_pointer)) {
    // Its own word for precision stands in the file too (job/accelerate.h).
    json& config = plain["parallel"]["accelerate_config"];
    if (config.contains("mixed_precision")) plain["training"].erase("precision");
  }
  return plain;
}

void run_plain_step(Ledger& ledger, json plain, const std::string& why) {
  ledger.job = std::move(plain);
  const std::string args = "/training/loop/args/";
  std::vector<Taken> kept;
  for (Taken& taken : ledger.taken) {
    if (!taken.pointer.starts_with(args)) {
      kept.push_back(std::move(taken));
    } else if (taken.key.starts_with("optim") || taken.key == "weight_decay") {
      taken.pointer = "/training/optimizer";
      if (const json::json_pointer at(taken.pointer); ledger.job.contains(at)) taken.value = ledger.job[at];
      kept.push_back(std::move(taken));
    } else if (taken.key == "mm_projector_lr") {
      ledger.unmodelled.push_back(
          {taken.file, taken.key, taken.value, "two more parameter groups, of the projector", Effect::either, {}});
    } else if (!taken.is_default) {
      ledger.ignored.emplace_back(taken.file, taken.key);
    }
  }
  ledger.taken = std::move(kept);
  ledger.unmodelled.push_back({"",
                               "",
                               json(),
                               "answered as a plain step of the same arguments, without the trainer's evaluation and "
                               "checkpoints (" +
                                   why + ")",
                               Effect::either,
                               {}});
}

constexpr const char* kOffloads = "/training/loop/args/activation_offloading";

/// Liger's kernels of a model for which the core has them not: they are left out, which is too much.
void leave_liger_out(Ledger& ledger) {
  const std::string names[] = {"/training/liger", "/training/loop/args/use_liger_kernel",
                               "/training/loop/args/liger_kernel_config"};
  const auto is_of_liger = [&](const Taken& taken) {
    return std::any_of(std::begin(names), std::end(names),
                       [&](const std::string& name) { return (taken.pointer + "/").starts_with(name + "/"); });
  };
  for (const std::string& name : names) {
    const json::json_pointer at(name);
    if (ledger.job.contains(at)) ledger.job[at.parent_pointer()].erase(at.back());
  }
  bool is_said = false;
  for (const Taken& taken : ledger.taken) {
    if (!is_of_liger(taken) || taken.is_default) continue;
    if (is_said)
      ledger.ignored.emplace_back(taken.file, taken.key);
    else
      ledger.unmodelled.push_back({taken.file,
                                   taken.key,
                                   taken.value,
                                   "Liger's kernels of this model: they keep fewer activations, and a fused loss no "
                                   "logits",
                                   Effect::less,
                                   {}});
    is_said = true;
  }
  std::erase_if(ledger.taken, is_of_liger);
}

/// What is saved for backward stays on the device, of a model with which the core does not offload it.
void leave_offloading_out(Ledger& ledger) {
  const json::json_pointer at(kOffloads);
  ledger.job[at.parent_pointer()].erase(at.back());
  for (const Taken& taken : ledger.taken)
    if (taken.pointer == kOffloads)
      ledger.unmodelled.push_back(
          {taken.file, taken.key, taken.value, "what is saved for backward lies in host memory", Effect::either, {}});
  std::erase_if(ledger.taken, [](const Taken& taken) { return taken.pointer == kOffloads; });
}

/// LLaVATrainer under ZeRO whose checkpoints the core does not make.
void leave_checkpoints_out(Ledger& ledger) {
  constexpr const char* kSaves = "/training/loop/args/save_strategy";
  LeftOut what{"", "", json(), "checkpoints, for which tensors are copied on the device", Effect::either, {}};
  for (const Taken& taken : ledger.taken)
    if (taken.pointer == kSaves) what.file = taken.file, what.key = taken.key, what.value = taken.value;
  ledger.unmodelled.push_back(std::move(what));
  std::erase_if(ledger.taken, [](const Taken& taken) { return taken.pointer == kSaves; });
  ledger.job[json::json_pointer(kSaves)] = "no";
}

/// Whether the core takes the job, and if not, by which of their keys.
void settle(Ledger& ledger) {
  if (ledger.refused || !ledger.job.contains("model")) return;
  std::optional<Error> error = refusal_of(ledger.job);
  if (error && error->code == "not-modelled" && error->pointer == "/training/liger") {
    leave_liger_out(ledger);
    error = refusal_of(ledger.job);
  }
  if (error && error->pointer == kOffloads && ledger.job.contains("/training/loop/project"_json_pointer)) {
    leave_offloading_out(ledger);
    error = refusal_of(ledger.job);
  }
  if (error && error->pointer == "/training/loop" && loop_of(ledger.job) == "llava.LLaVATrainer") {
    Ledger without = ledger;
    leave_checkpoints_out(without);
    if (!refusal_of(without.job)) {
      ledger = std::move(without);
      return;
    }
  }
  if (error) {
    if (std::optional<json> plain = as_plain_step(ledger.job)) {
      if (!refusal_of(*plain)) {
        run_plain_step(ledger, std::move(*plain), error->message);
        return;
      }
    }
  }
  if (!error) return;
  const Taken* taken = key_of(ledger, error->pointer);
  ledger.refused = Refusal{taken ? taken->file : "", taken ? taken->key : "", error->pointer, error->message};
}

const char* effect_name(Effect effect) {
  switch (effect) {
    case Effect::less:
      return "less";
    case Effect::more:
      return "more";
    case Effect::either:
      return "either";
    case Effect::unknown:
      break;
  }
  return "unknown";
}

}  // namespace

Ledger import_files(const Question& question) {
  Context context(question.files, question.hub);
  for (const SourceFile& file : question.files)
    if (kind_of(file) == FileKind::accelerate) {
      context.launch.accelerate = file.content;
      context.launch.accelerate_file = file.name;
    }
  const std::optional<Run> run = find_script(context, question.files);
  const SourceFile* file = keys_file(context, question.files, run ? &*run : nullptr);
  Ledger& ledger = context.ledger;
  std::optional<PythonTraining> script;
  std::string script_file;
  for (const SourceFile& given : question.files) {
    if (run || file != nullptr || script || kind_of(given) != FileKind::python) continue;
    script = training_of(*python_of(given), given.name);
    script_file = given.name;
  }
  if (!run && file == nullptr && !script) {
    for (const SourceFile& given : question.files)
      if (const FileKind kind = kind_of(given);
          kind != FileKind::unknown && kind != FileKind::shell && kind != FileKind::python)
        ledger.missing.push_back({"file", "", given.name, "",
                                  "it says how or what to train, but not everything: give the trainer's own file or "
                                  "command line too"});
    for (const SourceFile& given : question.files)
      if (const char* const name = other_trainer(given.content); *name != '\0')
        ledger.refuse(given.name, "", std::string("it is a file of ") + name + ", which is not supported yet");
    if (ledger.missing.empty())
      ledger.refuse(
          question.files.empty() ? "" : question.files[0].name, "",
          "no trainer that is known has these keys; expected a file or command line of LLaMA-Factory, Axolotl, "
          "TRL, NeMo Automodel, verl, torchtitan or transformers' TrainingArguments, or a Python script that makes "
          "such arguments");
    return std::move(ledger);
  }
  if (run && !run->started.config.empty() && file == nullptr) return std::move(ledger);
  if (question.gpus > 0)
    context.launch.gpus = question.gpus, context.launch.file.clear(), context.launch.key = "--gpus";
  const std::string trainer = run ? run->started.trainer : script ? script->trainer : trainer_of_keys(file->content);
  json content = file ? file->content : script ? script->keys : json::object();
  if (trainer == "automodel") content = dotted_automodel(content);
  if (trainer == "verl") content = dotted_verl(content);
  Keys keys(ledger, file ? file->name : script ? script_file : run->file, std::move(content));
  if (run) keys.over(run->file, trainer == "verl" ? dotted_verl(run->started.arguments) : run->started.arguments);
  read_trainer(context, keys, trainer,
               run                ? run->started.program
               : script           ? script->program
               : trainer == "trl" ? trl_program(file->content)
                                  : "");
  if (script) {
    for (Missing& missing : script->missing) {
      if (keys.is_harmless(missing.key))
        ledger.ignored.emplace_back(script_file, missing.key);
      else
        ledger.missing.push_back(std::move(missing));
    }
    ledger.unmodelled.insert(ledger.unmodelled.end(), script->unmodelled.begin(), script->unmodelled.end());
  }
  if (script && !script->refused.empty()) ledger.refuse(script_file, "", script->refused);
  if (trainer == "axolotl" && keys.has("model_name_or_path"))
    keys.leave_out("model_name_or_path", Effect::unknown, "a second model: Axolotl trains the one of base_model");
  if (!is_word_of(trainer, "automodel verl torchtitan"))
    take_parallel(context, keys);  // its sections say it in words of its own
  take_allocator(context, trainer);
  keys.finish();
  for (const SourceFile& given : question.files)
    if (is_preprocessor(given.content)) take_preprocessor(context, given);
  if (!question.gpu.empty()) ledger.put("/gpu/name", question.gpu);
  settle(ledger);
  return std::move(ledger);
}

std::vector<Question> trainings_of(const Question& question) {
  std::vector<std::vector<SourceFile>> starts;
  std::vector<SourceFile> shared;
  std::vector<std::string> named;  // by the last part of their paths
  for (const SourceFile& file : question.files) {
    if (kind_of(file) != FileKind::shell) continue;
    Context context(question.files, question.hub);
    const std::optional<Run> run = find_script(context, {file});
    if (!run) continue;
    starts.push_back({file});
    if (const SourceFile* config = run->started.config.empty() ? nullptr : context.find_file(run->started.config)) {
      starts.back().push_back(*config);
      named.push_back(config->name);
    }
  }
  for (const SourceFile& file : question.files) {
    if (std::find(named.begin(), named.end(), file.name) != named.end()) continue;
    const bool is_script = kind_of(file) == FileKind::python && training_of(*python_of(file), file.name);
    if (kind_of(file) == FileKind::trainer || is_script)
      starts.push_back({file});
    else if (kind_of(file) != FileKind::shell)
      shared.push_back(file);
  }
  if (starts.size() < 2) return {question};
  std::vector<Question> trainings;
  for (std::vector<SourceFile>& files : starts) {
    files.insert(files.end(), shared.begin(), shared.end());
    trainings.push_back({std::move(files), question.hub, question.gpu, question.gpus});
  }
  return trainings;
}

std::string to_json(const Ledger& ledger) {
  json out = {{"trainer", ledger.trainer}, {"job", ledger.job},           {"taken", json::array()},
              {"ignored", json::array()},  {"unmodelled", json::array()}, {"missing", json::array()},
              {"refused", json()}};
  for (const Taken& taken : ledger.taken)
    out["taken"].push_back({{"file", taken.file},
                            {"key", taken.key},
                            {"pointer", taken.pointer},
                            {"value", taken.value},
                            {"from", taken.is_default ? "default" : "file"},
                            {"source", taken.source}});
  for (const auto& [file, key] : ledger.ignored) out["ignored"].push_back({{"file", file}, {"key", key}});
  for (const LeftOut& left : ledger.unmodelled)
    out["unmodelled"].push_back({{"file", left.file},
                                 {"key", left.key},
                                 {"value", left.value},
                                 {"text", left.text},
                                 {"effect", effect_name(left.effect)},
                                 {"bytes", left.bytes ? json(*left.bytes) : json()}});
  for (const Missing& missing : ledger.missing)
    out["missing"].push_back({{"kind", missing.kind},
                              {"name", missing.name},
                              {"file", missing.file},
                              {"key", missing.key},
                              {"text", missing.text}});
  if (ledger.refused)
    out["refused"] = {{"file", ledger.refused->file},
                      {"key", ledger.refused->key},
                      {"pointer", ledger.refused->pointer},
                      {"message", ledger.refused->message}};
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Question> read_question(std::string_view text) {
  const Result<json> given = parse_json(text);
  if (!given) return given.error();
  if (!given->is_object() || !given->contains("files") || !(*given)["files"].is_array())
    return Error{"missing", "/files", "expected a list of files, [{\"name\", \"content\"}]"};
  Question question;
  for (const json& file : (*given)["files"]) {
    if (!file.is_object() || !file.contains("content"))
      return Error{"missing", "/files", "expected {\"name\", \"content\"} of each file"};
    question.files.push_back({member_text(file, "name"), file["content"], member_text(file, "text")});
  }
  question.hub = member(*given, "hub");
  if (const json gpu = member(*given, "gpu"); gpu.is_string()) question.gpu = gpu.get<std::string>();
  if (const json gpus = member(*given, "gpus"); gpus.is_number_integer() && gpus > 0 && gpus <= 65536)
    question.gpus = gpus.get<std::int64_t>();
  return question;
}

std::string import_json(std::string_view text) {
  const Result<Question> question = read_question(text);
  return question ? to_json(import_files(*question)) : error_json(question.error());
}

}  // namespace oometer::importers
