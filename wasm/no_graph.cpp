#include "graph/job.h"
#include "graph/model.h"
#include "graph/read.h"

/// In place of core/graph and its operators, which graph.wasm alone carries: few jobs have a graph.
namespace oometer {

Result<Graph> read_graph(const nlohmann::json&, const std::string& pointer) {
  return Error{"elsewhere", pointer,
               "found a graph of operators; oometer's page answers it, and the command `oometer estimate --graph`"};
}

// What follows is reached with a graph only, and there is none.
std::unique_ptr<Model> build_graph(Context&, const GraphConfig&, const DataConfig&, const ModelOptions&) { return {}; }
void check_graph_task(ConfigReader&, const Graph&, bool) {}
Precision precision_of_graph(ConfigReader&, const Graph&) { return Precision::fp32; }
std::string loss_of_graph(ConfigReader&, const Graph&, const std::string&) { return {}; }
void check_graph_training(ConfigReader&, const TrainingConfig&) {}
void read_graph_batch(ConfigReader&, const Graph&, DataConfig&) {}

}  // namespace oometer
