#pragma once

#include <string>

#include "config/reader.h"
#include "graph/graph.h"
#include "models/data.h"
#include "train/config.h"

/// What a job may say of a graph.
namespace oometer {

/// Refuses a task that the file was not written for: training needs gradients, inference the operators of eval mode.
void check_graph_task(ConfigReader& job_reader, const Graph& graph, bool infers);
/// The precision that the file's weights have.
Precision precision_of_graph(ConfigReader& training, const Graph& graph);
/// `training.loss`, read, as TrainingConfig has it: "" for its scalar output or the cross-entropy of its first one.
std::string loss_of_graph(ConfigReader& training, const Graph& graph, const std::string& loss);
/// Refuses what a graph of operators cannot do.
void check_graph_training(ConfigReader& reader, const TrainingConfig& training);
/// A file for one batch size: its own is the default, and no other fits.
void read_graph_batch(ConfigReader& data_reader, const Graph& graph, DataConfig& data);

}  // namespace oometer
