#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "graph/graph.h"
#include "result.h"

namespace oometer {

/// Reads a document of tools/export_graph.py (format "oometer-graph", version 1), which stands at `pointer`. Whatever
/// it holds, what is given is sound: every tensor is made before it is used, every number within its bounds. Which
/// sizes fit each other, the run will say.
Result<Graph> read_graph(const nlohmann::json& document, const std::string& pointer);

}  // namespace oometer
