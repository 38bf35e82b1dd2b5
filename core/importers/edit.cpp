#include "importers/edit.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

#include "importers/keys.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

std::string word_of(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

/// Where an option of a command line is; npos where it is not.
std::size_t find_option(const std::string& text, const std::string& option) {
  for (std::size_t at = text.find(option); at != std::string::npos; at = text.find(option, at + 1)) {
    const std::size_t end = at + option.size();
    const bool begins = at == 0 || is_blank(text[at - 1]);
    if (begins && (end == text.size() || is_blank(text[end]) || text[end] == '=')) return at;
  }
  return std::string::npos;
}

/// The end of the value that follows an option; its begin where there is none.
std::size_t end_of_value(const std::string& text, std::size_t begin) {
  if (begin >= text.size() || text.compare(begin, 2, "--") == 0 || text[begin] == '\\' || text[begin] == '\n')
    return begin;
  if (text[begin] == '"' || text[begin] == '\'') {
    const std::size_t close = text.find(text[begin], begin + 1);
    return close == std::string::npos ? text.size() : close + 1;
  }
  std::size_t end = begin;
  while (end < text.size() && !is_blank(text[end])) ++end;
  return end;
}

bool set_option(std::string& text, const std::string& key, const std::string& value) {
  std::string dashed = key;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  for (const std::string& option : {"--" + key, "--" + dashed}) {
    const std::size_t at = find_option(text, option);
    if (at == std::string::npos) continue;
    std::size_t begin = at + option.size();
    if (begin < text.size() && text[begin] == '=') {
      ++begin;
    } else {
      std::size_t next = begin;
      while (next < text.size() && (text[next] == ' ' || text[next] == '\t')) ++next;
      if (end_of_value(text, next) == next) {
        text.insert(begin, " " + value);
        return true;
      }
      begin = next;
    }
    text.replace(begin, end_of_value(text, begin) - begin, value);
    return true;
  }
  return false;
}

/// Before the first option of a script that is the trainer's: those of the launcher come earlier in the line.
bool insert_option(std::string& text, const std::string& known, const std::string& key, const std::string& value) {
  const std::size_t at = find_option(text, "--" + known);
  if (at == std::string::npos) return false;
  text.insert(at, "--" + key + " " + value + " ");
  return true;
}

/// Hydra's words are "key=value", without dashes.
bool is_hydra_script(const std::string& text) {
  return text.find("verl.trainer") != std::string::npos || text.find("verl/trainer") != std::string::npos;
}

bool set_word(std::string& text, const std::string& key, const std::string& value) {
  for (const std::string& word : {key, "+" + key, "++" + key}) {
    const std::size_t at = find_option(text, word);
    if (at == std::string::npos || at + word.size() >= text.size() || text[at + word.size()] != '=') continue;
    const std::size_t begin = at + word.size() + 1;
    text.replace(begin, end_of_value(text, begin) - begin, value);
    return true;
  }
  for (const char* known : {"model.path", "data.train_files", "engine", "optim.lr", "data.train_batch_size"})
    if (const std::size_t at = find_option(text, known); at != std::string::npos) {
      text.insert(at, key + "=" + value + " ");
      return true;
    }
  return false;
}

std::size_t indent_of(const std::string& line) { return std::min(line.find_first_not_of(' '), line.size()); }

bool says_nothing_of_keys(const std::string& line) {
  const std::size_t at = line.find_first_not_of(" \t");
  return at == std::string::npos || line[at] == '#';
}

/// The line with a key at an indentation, from `begin` to the end of the block; the block's end where there is none.
std::size_t find_line(const std::vector<std::string>& lines, std::size_t begin, std::size_t indent,
                      const std::string& key, bool& is_found) {
  std::size_t end = begin;
  for (std::size_t i = begin; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (says_nothing_of_keys(line)) continue;
    if (indent_of(line) < indent) break;
    end = i + 1;
    if (indent_of(line) != indent || line.compare(indent, key.size(), key) != 0) continue;
    const std::size_t after = line.find_first_not_of(" \t", indent + key.size());
    if (after == std::string::npos || line[after] != ':') continue;
    is_found = true;
    return i;
  }
  return end;
}

/// A key of YAML with a value in the same line, in the groups that it stands in; else one more line there.
void set_line(std::string& text, const std::vector<std::string>& path, const std::string& value) {
  std::vector<std::string> lines = lines_of(text);
  std::size_t begin = 0, indent = 0;
  for (std::size_t depth = 0; depth < path.size(); ++depth) {
    const std::string& key = path[depth];
    const bool is_last = depth + 1 == path.size();
    bool is_found = false;
    const std::size_t at = find_line(lines, begin, indent, key, is_found);
    if (!is_found) {
      std::vector<std::string> more;
      for (std::size_t i = depth; i < path.size(); ++i)
        more.push_back(std::string(indent + 2 * (i - depth), ' ') + path[i] +
                       (i + 1 == path.size() ? ": " + value : ":"));
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
      break;
    }
    std::string& line = lines[at];
    const std::size_t comment = line.find(" #");
    if (is_last) {
      line = std::string(indent, ' ') + key + ": " + value + (comment == std::string::npos ? "" : line.substr(comment));
      break;
    }
    const std::size_t said = line.find_first_not_of(" \t", line.find(':', indent + key.size()) + 1);
    if (said != std::string::npos && line[said] != '#') return;  // {a: 1}, or an anchor
    begin = at + 1;
    std::size_t inner = begin;
    while (inner < lines.size() && says_nothing_of_keys(lines[inner])) ++inner;
    indent = inner < lines.size() && indent_of(lines[inner]) > indent ? indent_of(lines[inner]) : indent + 2;
  }
  text.clear();
  for (const std::string& line : lines) text += line + "\n";
}

constexpr Word kWords[] = {
    {"llamafactory", "/training/lora", "", "finetuning_type", "\"lora\""},
    {"llamafactory", "/training/quantization", "", "quantization_bit", "4"},
    {"llamafactory", "/training/precision", "\"bf16\"", "pure_bf16", "true"},
    {"llamafactory", "/training/liger", "true", "enable_liger_kernel", "true"},
    {"axolotl", "/training/lora", "", "adapter", "\"lora\""},
    {"axolotl", "/training/quantization", "", "adapter", "\"qlora\""},
    {"axolotl", "/training/quantization", "", "load_in_4bit", "true"},
    {"axolotl", "/training/activation_checkpointing", "", "gradient_checkpointing", "true"},
    {"axolotl", "/training/optimizer/implementation", "\"bnb-8bit\"", "optimizer", "\"adamw_8bit\""},
    {"axolotl", "/training/optimizer/paged", "true", "optimizer", "\"paged_adamw_8bit\""},
    {"ms-swift", "/training/lora", "", "tuner_type", "\"lora\""},
    {"ms-swift", "/training/quantization", "", "quant_method", "\"bnb\""},
    {"ms-swift", "/training/quantization", "", "quant_bits", "4"},
    {"ms-swift", "/training/precision", "\"bf16\"", "torch_dtype", "\"bfloat16\""},
    {"trl", "/training/precision", "\"bf16\"", "dtype", "\"bfloat16\""},
    {"trl", "/training/lora", "", "use_peft", "true"},
    {"trl", "/training/quantization", "", "load_in_4bit", "true"},
    {"nemo-automodel", "/training/activation_checkpointing", "", "distributed.activation_checkpointing", "true"},
    {"nemo-automodel", "/training/precision", "\"bf16\"", "model.torch_dtype", "\"bfloat16\""},
    {"nemo-automodel", "/training/optimizer/name", "\"sgd\"", "optimizer._target_", "\"torch.optim.SGD\""},
    {"verl", "/training/optimizer/name", "\"sgd\"", "optim.optimizer", "\"SGD\""},
    {"verl", "/training/activation_checkpointing", "", "model.enable_gradient_checkpointing", "true"},
    {"verl", "/training/liger", "", "model.use_liger", "true"},
    {"verl", "/training/lora", "", "model.lora_rank", "8"},
    {"verl", "/training/precision", "\"bf16\"", "engine.model_dtype", "\"bf16\""},
    {"verl", "/parallel/strategy", "\"fsdp2\"", "engine.strategy", "\"fsdp2\""},
    {"", "/training/liger", "true", "use_liger_kernel", "true"},
    {"", "/training/activation_checkpointing", "", "gradient_checkpointing", "true"},
    {"", "/training/optimizer/implementation", "\"bnb-8bit\"", "optim", "\"adamw_8bit\""},
    {"", "/training/optimizer/paged", "true", "optim", "\"paged_adamw_8bit\""},
};

}  // namespace

std::string words_of(const SourceFile& file, const Edit& edit) {
  if (!file.content.is_string()) return edit.key + ": " + word_of(edit.value);
  return is_hydra_script(file.content.get<std::string>()) ? edit.key + "=" + word_of(edit.value)
                                                          : "--" + edit.key + " " + word_of(edit.value);
}

bool apply(SourceFile& file, const Edit& edit) {
  if (file.content.is_string()) {
    std::string text = file.content.get<std::string>();
    if (is_hydra_script(text)) {
      if (!set_word(text, edit.key, word_of(edit.value))) return false;
    } else if (!set_option(text, edit.key, word_of(edit.value))) {
      bool done = false;
      for (const char* known : {"model_name_or_path", "model", "output_dir", "dataset", "dataset_name", "config"})
        if (!done) done = insert_option(text, known, edit.key, word_of(edit.value));
      if (!done) return false;
    }
    file.text = text;
    file.content = std::move(text);
    return true;
  }
  if (!file.content.is_object()) return false;
  json* place = &file.content;
  const std::vector<std::string> path = split_words(edit.key, ".");
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    place = &(*place)[path[i]];
    if (place->is_null()) *place = json::object();
    if (!place->is_object()) return false;
  }
  if (path.empty()) return false;
  (*place)[path.back()] = edit.value;
  set_line(file.text, path, word_of(edit.value));
  return true;
}

std::string patch_of(const std::string& name, const std::string& before, const std::string& after) {
  constexpr std::size_t kContext = 3;
  constexpr std::size_t kMost = 2000;  // lines: the table below is their product
  const std::vector<std::string> a = lines_of(before), b = lines_of(after);
  if (a == b || a.size() > kMost || b.size() > kMost) return "";
  // The longest common subsequence from each place on.
  std::vector<std::vector<std::uint16_t>> common(a.size() + 1, std::vector<std::uint16_t>(b.size() + 1, 0));
  for (std::size_t i = a.size(); i-- > 0;)
    for (std::size_t j = b.size(); j-- > 0;)
      common[i][j] = a[i] == b[j] ? static_cast<std::uint16_t>(common[i + 1][j + 1] + 1)
                                  : std::max(common[i + 1][j], common[i][j + 1]);
  struct Line {
    char mark;
    const std::string* text;
    std::size_t i, j;  // before it
  };
  std::vector<Line> all;
  for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      all.push_back({' ', &a[i], i, j});
      ++i, ++j;
    } else if (i < a.size() && (j == b.size() || common[i + 1][j] >= common[i][j + 1])) {
      all.push_back({'-', &a[i], i, j});
      ++i;
    } else {
      all.push_back({'+', &b[j], i, j});
      ++j;
    }
  }
  std::string out = "--- " + name + "\n+++ " + name + "\n";
  const auto is_change = [](const Line& line) { return line.mark != ' '; };
  for (auto next = std::find_if(all.begin(), all.end(), is_change); next != all.end();) {
    const auto begin = next - std::min<std::ptrdiff_t>(kContext, next - all.begin());
    auto end = next + 1;  // as long as the next change is near
    for (auto more = next; more != all.end() && more - end <= static_cast<std::ptrdiff_t>(2 * kContext);
         more = std::find_if(end, all.end(), is_change))
      end = more + 1;
    const auto last = end + std::min<std::ptrdiff_t>(kContext, all.end() - end);
    const auto olds = std::count_if(begin, last, [](const Line& line) { return line.mark != '+'; });
    const auto news = std::count_if(begin, last, [](const Line& line) { return line.mark != '-'; });
    const auto place = [](std::size_t line, std::ptrdiff_t count) {
      return std::to_string(line + (count > 0 ? 1 : 0)) + "," + std::to_string(count);
    };
    out += "@@ -" + place(begin->i, olds) + " +" + place(begin->j, news) + " @@\n";
    for (auto line = begin; line != last; ++line) out += line->mark + *line->text + "\n";
    next = std::find_if(end, all.end(), is_change);
  }
  return out;
}

std::vector<Word> words_for(const std::string& trainer, const std::string& pointer, const json& value) {
  std::vector<Word> found;
  const std::string said = value.dump(-1, ' ', false, json::error_handler_t::replace);
  for (const Word& word : kWords) {
    const bool is_its = *word.trainer == '\0' || trainer.starts_with(std::string(word.trainer) + " ");
    const bool is_there = (pointer + "/").starts_with(std::string(word.pointer) + "/");
    if (is_its && is_there && (*word.value == '\0' || word.value == said)) found.push_back(word);
  }
  return found;
}

}  // namespace oometer::importers
