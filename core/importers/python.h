#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "importers/ledger.h"

/// Python scripts and notebooks, read and never run: calls with literal arguments, and names that literals were given
/// to.
namespace oometer::importers {

/// A call in a script.
struct PythonCall {
  std::string name;                   ///< with its dots: "AutoModelForCausalLM.from_pretrained"
  std::vector<nlohmann::json> words;  ///< arguments without a name; null: not a literal
  nlohmann::json named = nlohmann::json::object();
  std::vector<std::string> unknown;  ///< named arguments that are no literals: what a variable holds is not known
  int line = 1;
};

/// Its calls, in the order of the text. torch.bfloat16 and its like are "bfloat16".
std::vector<PythonCall> read_python(std::string_view text);

/// The script of a file: its text, or the cells of code of a notebook; none where it is neither.
std::optional<std::string> python_of(const SourceFile& file);

/// What a script trains, as the keys of a trainer that is known by them.
struct PythonTraining {
  std::string trainer;  ///< "trl", "transformers", "unsloth"
  std::string program;  ///< "sft"
  nlohmann::json keys = nlohmann::json::object();
  std::string refused;  ///< why it cannot be read, else ""
  std::vector<Missing> missing;
  std::vector<LeftOut> unmodelled;
};

/// None where it starts no training that is known.
std::optional<PythonTraining> training_of(const std::string& script, const std::string& file);

}  // namespace oometer::importers
