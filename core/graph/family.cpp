#include "models/family.h"

#include <algorithm>

#include "graph/model.h"

namespace oometer {

namespace {

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_graph(context, config.as<GraphConfig>(), data, options);
}

/// A task that the file was not written for: training needs gradients, inference the operators of eval mode.
void check_task(const Graph& graph, ModelTraits& t) {
  const bool has_gradients =
      std::any_of(graph.operators.begin(), graph.operators.end(), [](const GraphOperator& op) { return op.grad_mode; });
  if (has_gradients)
    t.refuse(Feature::inference, "inconsistent",
             "the graph is one of training; expected \"train\", or a graph of export_graph.py --inference");
  else
    t.refuse(Feature::training, "inconsistent",
             "a graph without gradients, as export_graph.py --inference writes it; expected \"inference\"");
}

/// Its scalar output, or the cross-entropy of its first one, or that one's mean.
void add_losses(const GraphOutput& output, ModelTraits& t) {
  const bool has_classes = output.sizes.size() == 2 && is_floating_point(output.dtype);
  t.losses = {"mean"};
  t.has_loss = has_classes || output.sizes.empty();
  if (has_classes) t.loss_name = "cross_entropy";
}

/// Conversions to the weights' type or another are part of what was recorded: with other weights they would be others.
bool converts(const Graph& graph) {
  return std::any_of(graph.items.begin(), graph.items.end(), [](const GraphArgument& argument) {
    return argument.kind == GraphArgument::Kind::dtype && is_floating_point(static_cast<DType>(argument.integer.value));
  });
}

/// The weights' own first; autocast is not supported yet.
std::vector<Precision> precisions_of(const Graph& graph) {
  if (converts(graph)) {
    if (graph.dtype == DType::bfloat16) return {Precision::bf16};
    return {graph.dtype == DType::float16 ? Precision::fp16 : Precision::fp32};
  }
  if (graph.dtype == DType::bfloat16) return {Precision::bf16, Precision::fp32, Precision::fp16};
  if (graph.dtype == DType::float16) return {Precision::fp16, Precision::fp32, Precision::bf16};
  return {Precision::fp32, Precision::bf16, Precision::fp16};
}

ModelTraits traits(const FamilyConfig& config) {
  const Graph& graph = *config.as<GraphConfig>().graph;
  ModelTraits t;
  t.class_name = graph.modules[0].type;
  t.why_not = "a graph has its operators as they were recorded: leave it out";
  t.is_recorded = true;
  t.allow({Feature::transformers, Feature::training, Feature::inference, Feature::finetune, Feature::sdpa,
           Feature::flash_attention});
  for (const Feature sharding : {Feature::deepspeed, Feature::fsdp})
    t.refuse(sharding, "not-modelled", t.class_name + " is not supported under it yet; expected none or ddp");
  check_task(graph, t);
  add_losses(graph.outputs[0], t);
  t.precisions = t.inference_precisions = precisions_of(graph);
  t.precisions_why = converts(graph) ? "the graph converts between types: export it with --dtype for another"
                                     : "autocast of a graph is not supported yet";
  t.needs_precision = graph.dtype == DType::float64;
  t.fixed_batch = graph.fixed_batch;
  t.convolutions = graph.convolutions;
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  double largest = 0;
  for (const GraphTensor& input : config.as<GraphConfig>().graph->inputs) {
    double bytes = 8;
    for (const GraphNumber& size : input.sizes) bytes *= static_cast<double>(size.at(data.micro_batch_size));
    largest = std::max(largest, bytes);
  }
  return largest;  // of the others, the run says
}

/// No config.json names it: it stands in no list.
constexpr Family kGraph{.build = build, .traits = traits, .largest_tensor = largest_tensor};

}  // namespace

ModelConfig graph_model(Graph graph) { return {kGraph, GraphConfig{std::make_shared<const Graph>(std::move(graph))}}; }

}  // namespace oometer
