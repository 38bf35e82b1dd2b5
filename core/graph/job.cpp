#include "graph/job.h"

#include <algorithm>

namespace oometer {

void check_graph_task(ConfigReader& job_reader, const Graph& graph, bool infers) {
  const bool has_gradients =
      std::any_of(graph.operators.begin(), graph.operators.end(), [](const GraphOperator& op) { return op.grad_mode; });
  if (infers && has_gradients)
    job_reader.fail_found(
        "task", "inconsistent",
        "the graph is one of training; expected \"train\", or a graph of export_graph.py --inference");
  else if (!infers && !has_gradients)
    job_reader.fail("task", "inconsistent",
                    "found training, and a graph without gradients, as export_graph.py --inference writes it; expected "
                    "\"inference\"");
}

Precision precision_of_graph(ConfigReader& training, const Graph& graph) {
  if (graph.dtype == DType::float64 && !training.has("precision"))
    training.fail("precision", "missing", "found nothing, and a graph of float64; expected fp32, bf16 or fp16");
  if (graph.dtype == DType::bfloat16) return Precision::bf16;
  return graph.dtype == DType::float16 ? Precision::fp16 : Precision::fp32;
}

std::string loss_of_graph(ConfigReader& training, const Graph& graph, const std::string& loss) {
  const GraphOutput& output = graph.outputs[0];
  const bool has_classes = output.sizes.size() == 2 && is_floating_point(output.dtype);
  if (loss == "mean" || (loss.empty() && !has_classes && !output.sizes.empty())) return "mean";
  if (!loss.empty() && (loss != "cross_entropy" || !has_classes))
    training.fail_found("loss", "unknown-value",
                        has_classes
                            ? "expected mean or cross_entropy"
                            : "expected mean: the first output is no [batch, classes] to take a cross-entropy of");
  return "";
}

void check_graph_training(ConfigReader& reader, const TrainingConfig& training) {
  if (!training.components.no_grad.empty())
    reader.fail_found("no_grad", "not-modelled", "a graph has its operators as they were recorded: leave it out");
  if (training.precision == Precision::amp_bf16 || training.precision == Precision::amp_fp16)
    reader.fail_found("precision", "not-modelled",
                      "autocast of a graph is not supported yet; expected fp32, bf16 or fp16");
}

void read_graph_batch(ConfigReader& reader, const Graph& graph, DataConfig& data) {
  if (graph.fixed_batch == 0) return;
  if (!reader.has("micro_batch_size")) data.micro_batch_size = graph.fixed_batch;
  if (data.micro_batch_size != graph.fixed_batch)
    reader.fail_found(
        "micro_batch_size", "inconsistent",
        "expected " + std::to_string(graph.fixed_batch) + ", the batch size that the graph was recorded with");
}

}  // namespace oometer
