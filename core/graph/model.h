#pragma once

#include <memory>

#include "graph/graph.h"
#include "models/model.h"

namespace oometer {

/// The model that a job's `model.graph` is.
ModelConfig graph_model(Graph graph);

/// The module whose forward is a graph's operators; its loss is its scalar output, or the cross-entropy of its first
/// output and labels, or the output's mean (training.loss).
std::unique_ptr<Model> build_graph(Context& context, const GraphConfig& config, const DataConfig& data,
                                   const ModelOptions& options);

}  // namespace oometer
