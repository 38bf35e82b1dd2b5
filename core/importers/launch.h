#pragma once

#include <string>

#include "importers/context.h"
#include "importers/shell.h"

namespace oometer::importers {

/// A trainer that a command starts: by its own command, or through accelerate launch, torchrun, deepspeed or python.
struct Started {
  std::string
      trainer;  ///< "trl", "llamafactory", "axolotl", "swift", "automodel", "transformers"; "": none that is known
  std::string program;  ///< "sft"; or the script's path
  std::string config;   ///< the file of keys that it is given
  nlohmann::json arguments = nlohmann::json::object();
};

/// What a command starts; `trainer` is "" where it is no training. The context takes how many processes there are,
/// and accelerate's options.
Started read_launch(Context& context, const ShellCommand& command, const std::string& file);

/// What the environment tells the caching allocator, and what the trainers' own commands do where it says nothing.
void take_allocator(Context& context, const std::string& trainer);

}  // namespace oometer::importers
