#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "result.h"

namespace oometer {

/// Says in the job's own keys what the arguments of its `training.loop` say of the batch, the precision, checkpointing,
/// clipping, the optimizer and Liger, with that trainer's defaults where neither says anything; those arguments are
/// taken out, and so are those that change no memory. An error where both say something and differ, and for an argument
/// that the trainer's class does not have. Jobs of the loop `step` stay as they are.
std::optional<Error> spell_out_loop(nlohmann::json& job);

/// Whether an argument of TrainingArguments (transformers 5.23) changes no memory of the device.
bool changes_no_memory(std::string_view argument);

}  // namespace oometer
