#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace oometer::cli {

/// The verdict in one sentence.
std::string verdict_line(const nlohmann::ordered_json& report);

/// A report for people: the verdict, the peak, who holds it, the phases, what is assumed and what is left out.
std::string table(const nlohmann::ordered_json& report);

}  // namespace oometer::cli
