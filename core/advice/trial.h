#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "advice/advice.h"

namespace oometer {

/// What a trial keeps of a report.
Trial trial_of(const Report& report);

/// Executes a job; none where parse_job or the run refuses it.
std::optional<Trial> try_job(const nlohmann::json& job);

/// A job with a merge patch (RFC 7386) laid over it.
nlohmann::json patched(const nlohmann::json& job, const nlohmann::json& patch);

/// A patch as text.
std::string text_of(const nlohmann::json& patch);

/// JobTime's tokens a second of a job; none where it has no time, or is refused.
std::optional<double> speed_of(const nlohmann::json& job);

}  // namespace oometer
