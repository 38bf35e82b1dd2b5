#include "importers/python.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <utility>

#include "importers/keys.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

constexpr std::size_t kDeepest = 32;  ///< brackets of a literal
constexpr std::size_t kMostCalls = 10'000;

/// Between words of an expression; a backslash joins lines.
bool is_python_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\\'; }

/// A position in a script, with its line.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::vector<PythonCall> calls;

  void run() {
    while (at_ < text_.size() && calls.size() < kMostCalls) step();
  }

 private:
  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  int line() const {
    return 1 + static_cast<int>(std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n'));
  }

  void skip_blanks() {
    while (at_ < text_.size()) {
      if (now() == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (is_python_blank(now())) {
        ++at_;
      } else {
        return;
      }
    }
  }

  /// A string of any quotes, without its escapes. Its prefix was read.
  std::string read_string() {
    const char quote = now();
    const bool is_long = text_.compare(at_, 3, std::string(3, quote)) == 0;
    const std::string end(is_long ? 3 : 1, quote);
    at_ += end.size();
    std::string value;
    while (at_ < text_.size() && text_.compare(at_, end.size(), end) != 0) {
      if (now() == '\\' && at_ + 1 < text_.size()) ++at_;
      value += text_[at_++];
    }
    at_ = std::min(at_ + end.size(), text_.size());
    return value;
  }

  std::string read_name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_name_letter(now()) || now() == '.')) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  /// One statement's part: a call, an assignment of a literal, or something to pass over.
  void step() {
    skip_blanks();
    if (now() == '"' || now() == '\'') {
      read_string();
    } else if (std::isalpha(static_cast<unsigned char>(now())) != 0 || now() == '_') {
      const std::string name = read_name();
      if (name == "def" || name == "class") {  // what it declares is no call
        skip_blanks();
        read_name();
      } else if (now() == '(') {
        read_call(name);
      } else {
        assign(name);
      }
    } else {
      ++at_;
    }
  }

  void assign(const std::string& name) {
    std::size_t next = at_;
    while (next < text_.size() && (text_[next] == ' ' || text_[next] == '\t')) ++next;
    if (next + 1 >= text_.size() || text_[next] != '=' || text_[next + 1] == '=') return;
    at_ = next + 1;
    std::optional<json> value = read_value(0);
    if (value)
      variables_[name] = *value;
    else
      variables_.erase(name);
  }

  void read_call(const std::string& name) {
    PythonCall call;
    call.name = name;
    call.line = line();
    ++at_;
    for (;;) {
      skip_blanks();
      if (now() == ')' || now() == '\0') break;
      const std::size_t begin = at_;
      const std::string key = read_name();
      skip_blanks();
      const bool is_named = !key.empty() && now() == '=' && text_.compare(at_, 2, "==") != 0;
      if (is_named)
        ++at_;
      else
        at_ = begin;
      std::optional<json> value = read_value(0);
      if (is_named && value)
        call.named[key] = *value;
      else if (is_named)
        call.unknown.push_back(key);
      else
        call.words.push_back(value.value_or(json()));
      pass_to_comma();
      if (now() == ',' || now() == ']' || now() == '}') ++at_;  // the latter two: a broken script
    }
    ++at_;
    calls.push_back(std::move(call));
  }

  /// To the comma or bracket that ends an argument: what is between is no literal. Calls in it are read.
  void pass_to_comma() {
    std::size_t depth = 0;
    while (at_ < text_.size()) {
      skip_blanks();
      const char c = now();
      if (depth == 0 && (c == ',' || c == ')' || c == ']' || c == '}')) return;
      if (c == '(' || c == '[' || c == '{') ++depth;
      if (c == ')' || c == ']' || c == '}') --depth;
      if (c == '"' || c == '\'' || is_name_letter(c))
        step_within();
      else
        ++at_;
    }
  }

  void step_within() {
    if (now() == '"' || now() == '\'') {
      read_string();
      return;
    }
    const std::string name = read_name();
    if (now() == '(' && calls.size() < kMostCalls && depth_ < kDeepest) {
      ++depth_;
      read_call(name);
      --depth_;
    }
  }

  /// A literal, a name of torch's types or a variable with a literal; none for anything else, which is passed over.
  std::optional<json> read_value(std::size_t level) {
    if (level > kDeepest) return std::nullopt;
    skip_blanks();
    std::optional<json> value = read_atom(level);
    std::size_t next = at_;
    while (next < text_.size() && (text_[next] == ' ' || text_[next] == '\t')) ++next;
    const char after = next < text_.size() ? text_[next] : '\n';
    const bool ends = after == ',' || after == ')' || after == ']' || after == '}' || after == '\n' || after == '\r' ||
                      after == '#' || after == ';' || after == ':';
    return ends ? value : std::nullopt;  // "8 * n" is no literal
  }

  std::optional<json> read_atom(std::size_t level) {
    const char c = now();
    if (c == '"' || c == '\'') return json(read_string());
    if (c == '[' || c == '(') return read_list(level, c == '[' ? ']' : ')');
    if (c == '{') return read_map(level);
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.') {
      const std::size_t begin = at_++;
      while (is_name_letter(now()) || now() == '.' || ((now() == '-' || now() == '+') && text_[at_ - 1] == 'e')) ++at_;
      std::string digits;
      for (const char digit : text_.substr(begin, at_ - begin))
        if (digit != '_') digits += digit;
      json number = scalar_of(digits);
      return number.is_number() ? std::optional<json>(number) : std::nullopt;
    }
    const std::string name = read_name();
    if (name.empty()) return std::nullopt;
    if (now() == '(') {
      if (depth_ >= kDeepest) return std::nullopt;
      ++depth_;
      read_call(name);
      --depth_;
      return std::nullopt;
    }
    if (now() == '"' || now() == '\'') {  // f"", r""
      const std::string text = read_string();
      return name == "r" ? std::optional<json>(text) : std::nullopt;
    }
    if (name == "True") return json(true);
    if (name == "False") return json(false);
    if (name == "None") return json();
    if (name.starts_with("torch.")) return json(name.substr(6));
    const auto known = variables_.find(name);
    return known == variables_.end() ? std::nullopt : std::optional<json>(known->second);
  }

  std::optional<json> read_list(std::size_t level, char close) {
    ++at_;
    json list = json::array();
    bool all = true, is_tuple = close == ']';
    for (;;) {
      skip_blanks();
      if (now() == close || now() == '\0') break;
      const std::optional<json> one = read_value(level + 1);
      all &= one.has_value();
      list.push_back(one.value_or(json()));
      pass_to_comma();
      if (now() == ',')
        ++at_, is_tuple = true;
      else if (now() != close)
        break;
    }
    if (now() == close) ++at_;
    if (!all) return std::nullopt;
    return !is_tuple && list.size() == 1 ? list[0] : list;
  }

  std::optional<json> read_map(std::size_t level) {
    ++at_;
    json map = json::object();
    bool all = true;
    for (;;) {
      skip_blanks();
      if (now() == '}' || now() == '\0') break;
      const std::optional<json> key = read_value(level + 1);
      skip_blanks();
      std::optional<json> value;
      if (now() == ':') {
        ++at_;
        value = read_value(level + 1);
      }
      if (key && key->is_string() && value)
        map[key->get<std::string>()] = *value;
      else
        all = false;
      pass_to_comma();
      if (now() == ',')
        ++at_;
      else if (now() != '}')
        break;
    }
    if (now() == '}') ++at_;
    return all ? std::optional<json>(map) : std::nullopt;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;  ///< of calls in calls
  std::map<std::string, json> variables_;
};

std::string last_name(const std::string& name) { return name.substr(name.find_last_of('.') + 1); }

/// The trainer whose arguments a class has.
const char* program_of(const std::string& config) {
  if (config == "SFTConfig") return "sft";
  if (config == "DPOConfig") return "dpo";
  if (config == "KTOConfig") return "kto";
  if (config == "RewardConfig") return "reward";
  return nullptr;
}

bool is_unsloth_call(const PythonCall& call) {
  return call.name.starts_with("FastLanguageModel.") || call.name.starts_with("FastModel.") ||
         call.name.starts_with("FastVisionModel.");
}

/// The first model that is loaded and its adapters (later cells load what was trained), and what SFTTrainer itself is
/// given.
void read_unsloth_calls(PythonTraining& training, const std::vector<PythonCall>& calls, const std::string& file) {
  std::string seen;
  for (const PythonCall& call : calls) {
    const std::string name = last_name(call.name);
    if (call.name.starts_with("FastVisionModel."))
      training.refused = "line " + std::to_string(call.line) + ": FastVisionModel is not supported yet";
    if (is_unsloth_call(call) && (name == "from_pretrained" || name == "get_peft_model") &&
        seen.find(name) == std::string::npos) {
      seen += name + " ";
      if (name == "from_pretrained" && !call.words.empty() && call.words[0].is_string())
        training.keys["from_pretrained.model_name"] = call.words[0];
      for (const auto& [key, value] : call.named.items()) training.keys[name + "." + key] = value;
      for (const std::string& key : call.unknown)
        if (key != "model" && key != "token" && key != "dtype")
          training.missing.push_back(
              {"value", key, file, name + "." + key,
               "line " + std::to_string(call.line) + " gives " + name +
                   " what only the running script knows: write a number or a word in its place"});
    } else if (name.ends_with("Trainer")) {
      for (const char* key : {"max_seq_length", "packing"})
        if (call.named.contains(key)) training.keys[key] = call.named[key];
    }
  }
  if (seen.find("get_peft_model") == std::string::npos && training.refused.empty())
    training.refused = "training of whole models by Unsloth is not supported yet; expected get_peft_model";
}

}  // namespace

std::vector<PythonCall> read_python(std::string_view text) {
  Reader reader(text);
  reader.run();
  return std::move(reader.calls);
}

std::optional<std::string> python_of(const SourceFile& file) {
  if (file.content.is_object() && file.content.contains("nbformat")) {
    std::string script;
    const json cells = member(file.content, "cells");
    if (!cells.is_array()) return std::nullopt;
    for (const json& cell : cells) {
      if (member_text(cell, "cell_type") != "code") continue;
      const json source = member(cell, "source");
      for (const json& line : source.is_array() ? source : json::array({source})) {
        if (!line.is_string()) continue;
        const std::string words = line.get<std::string>();
        if (!words.starts_with("%") && !words.starts_with("!")) script += words;  // the notebook's own commands
      }
      script += "\n";
    }
    return script;
  }
  if (!file.content.is_string()) return std::nullopt;
  std::string script = file.content.get<std::string>();
  if (file.name.ends_with(".sh") || file.name.ends_with(".bash") || script.starts_with("#!/bin/")) return std::nullopt;
  const bool is_python = script.starts_with("import ") || script.starts_with("from ") ||
                         script.find("\nimport ") != std::string::npos || script.find("\nfrom ") != std::string::npos;
  return is_python ? std::optional<std::string>(std::move(script)) : std::nullopt;
}

std::optional<PythonTraining> training_of(const std::string& script, const std::string& file) {
  PythonTraining training;
  json& keys = training.keys;
  const std::vector<PythonCall> calls = read_python(script);
  const auto ask = [&](const PythonCall& call, const std::vector<std::string>& names) {
    for (const std::string& name : names)
      training.missing.push_back({"value", name, file, name,
                                  "line " + std::to_string(call.line) + " gives " + last_name(call.name) +
                                      " what only the running script knows: write a number or a word in its place"});
  };
  const bool is_unsloth = std::any_of(calls.begin(), calls.end(), is_unsloth_call);
  for (const PythonCall& call : calls) {
    const std::string name = last_name(call.name);
    const char* const program = program_of(name);
    if (program == nullptr && name != "TrainingArguments" && name != "Seq2SeqTrainingArguments") continue;
    if (!training.trainer.empty()) {
      training.unmodelled.push_back(
          {file,
           name,
           json(),
           "line " + std::to_string(call.line) + " starts another training, which is a job of its own",
           Effect::unknown,
           {}});
      continue;
    }
    training.trainer = program != nullptr ? "trl" : "transformers";
    training.program = program != nullptr ? program : "";
    keys.update(call.named);
    std::vector<std::string> unknown = call.unknown;
    // `bf16 = is_bfloat16_supported()`: Unsloth's trainer follows the model's type.
    const auto follows = [&](const std::string& key) { return is_unsloth && (key == "bf16" || key == "fp16"); };
    unknown.erase(std::remove_if(unknown.begin(), unknown.end(), follows), unknown.end());
    ask(call, unknown);
  }
  if (training.trainer.empty()) return std::nullopt;
  if (is_unsloth) {
    training.trainer = "unsloth";
    read_unsloth_calls(training, calls, file);
    return training;
  }
  for (const PythonCall& call : calls) {
    const std::string name = last_name(call.name);
    const std::string line = "line " + std::to_string(call.line) + ": ";
    const bool is_model = call.name.find("Model") != std::string::npos || call.name.ends_with("LM.from_pretrained") ||
                          call.name.ends_with("Generation.from_pretrained");
    if (name == "prepare_model_for_kbit_training") {
      keys["prepare_model_for_kbit_training"] = true;
    } else if (name == "from_pretrained" && is_model) {
      if (keys.contains("model_name_or_path")) {
        if (training.program != "dpo" && training.program != "kto")
          training.refused = line + "a second model is loaded; expected one";
        continue;
      }
      const json id = !call.words.empty() ? call.words[0] : member(call.named, "pretrained_model_name_or_path");
      if (id.is_string()) keys["model_name_or_path"] = id;
      // transformers 5: the type of the published weights, where the call says none (modeling_utils.py:
      // from_pretrained)
      keys["dtype"] = "auto";
      for (const char* key : {"torch_dtype", "dtype"})
        if (call.named.contains(key)) keys["dtype"] = call.named[key];
      if (call.named.contains("attn_implementation")) keys["attn_implementation"] = call.named["attn_implementation"];
    } else if (name.ends_with("Trainer") && call.named.contains("model") && call.named["model"].is_string()) {
      if (!keys.contains("model_name_or_path")) keys["model_name_or_path"] = call.named["model"];
    } else if (name == "LoraConfig") {
      ask(call, call.unknown);
      const json given = call.named;
      keys["use_peft"] = true;  // with peft's defaults (tuners/lora/config.py), which are not TRL's
      keys["lora_r"] = given.value("r", json(8));
      keys["lora_alpha"] = given.value("lora_alpha", json(8));
      keys["lora_dropout"] = given.value("lora_dropout", json(0.0));
      for (const auto& [theirs, ours] :
           {std::pair{"target_modules", "lora_target_modules"}, std::pair{"modules_to_save", "lora_modules_to_save"},
            std::pair{"use_rslora", "use_rslora"}, std::pair{"use_dora", "use_dora"},
            std::pair{"task_type", "lora_task_type"}})
        if (given.contains(theirs)) keys[ours] = given[theirs];
    } else if (name == "BitsAndBytesConfig") {
      ask(call, call.unknown);
      for (const auto& [theirs, ours] :
           {std::pair{"load_in_4bit", "load_in_4bit"}, std::pair{"load_in_8bit", "load_in_8bit"},
            std::pair{"bnb_4bit_quant_storage", "bnb_4bit_quant_storage"}})
        if (call.named.contains(theirs)) keys[ours] = call.named[theirs];
      // Its own defaults (utils/quantization_config.py: BitsAndBytesConfig), which are not TRL's.
      keys["bnb_4bit_quant_type"] = call.named.value("bnb_4bit_quant_type", json("fp4"));
      keys["use_bnb_nested_quant"] = call.named.value("bnb_4bit_use_double_quant", json(false));
      keys["bnb_4bit_compute_dtype"] = call.named.value("bnb_4bit_compute_dtype", json("float32"));
    }
  }
  return training;
}

}  // namespace oometer::importers
