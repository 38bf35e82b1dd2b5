#pragma once

#include <nlohmann/json_fwd.hpp>

#include "config/reader.h"
#include "job/settings/sections.h"

/// Reading and writing an object of the job by its table.
namespace oometer {

/// What a member holds, as a job says it.
nlohmann::json field_value(const Field& field, const void* object);

/// What differs from `defaults`, a struct of the same type.
nlohmann::json write_fields(const Section& section, const void* object, const void* defaults);

}  // namespace oometer
