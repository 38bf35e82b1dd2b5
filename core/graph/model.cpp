#include "graph/model.h"

#include <algorithm>

#include "graph/operators.h"
#include "ops/ops.h"

namespace oometer {

namespace {

class GraphModel : public Model {
 public:
  GraphModel(Context& context, const Graph& graph, const DataConfig& data, const ModelOptions& options)
      : context_(context), graph_(graph), batch_(data.micro_batch_size), options_(options), values_(graph.tensors) {
    loss_type = LossType::cross_entropy;
    std::vector<ModuleId> ids;
    for (const GraphModule& module : graph.modules)
      ids.push_back(ids.empty() ? context.add_root(module.type.c_str(), Modality::none)
                                : context.add_module(ids[module.parent], module.name.c_str(), -1, module.type.c_str(),
                                                     Modality::none));
    modules_ = std::move(ids);
    make_tensors();
    for (const GraphTensor& parameter : graph.parameters)
      if (parameter.tied)
        tied.push_back({values_[parameter.number], modules_[parameter.module], parameter.name.c_str()});
  }

  ModelInputs make_inputs(bool with_labels) override {
    for (const GraphTensor& input : graph_.inputs)
      values_[input.number] = empty(context_, Op::input, sizes_of(input.sizes), cast(input.dtype), Role::input);
    const Shape logits = sizes_of(graph_.outputs[0].sizes);
    ModelInputs batch;  // but for its own inputs, which stay where its operators look for them
    if (with_labels && logits.ndim() == 2) {
      const ModuleScope scope(context_, modules_[0]);
      batch.labels = empty(context_, Op::input, {logits[0]}, DType::int64, Role::input);
    }
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    std::vector<Tensor> values = values_;
    for (std::size_t i = 0; i < graph_.operators.size() && !refusal; ++i) run(i, values);
    ModelOutputs outputs;
    if (refusal) return outputs;
    for (const GraphOutput& output : graph_.outputs) {
      const Tensor& given = values[output.number];
      if (!given || !(given.sizes() == sizes_of(output.sizes))) {
        refusal = Error{"inconsistent", "/model/graph/outputs",
                        "found sizes of tensor " + std::to_string(output.number) +
                            " that its operators do not give: the file is not what tools/export_graph.py wrote"};
        return {};
      }
      outputs.others.push_back(given);
    }
    values = {};
    outputs.pooler_output = outputs.others.front();
    if (!loss_function) return outputs;
    const ModuleScope scope(context_, modules_[0]);
    outputs.loss = inputs.labels ? (*loss_function)(outputs.pooler_output, inputs.labels) : outputs.pooler_output;
    return outputs;
  }

 private:
  Shape sizes_of(const std::vector<GraphNumber>& numbers) const {
    Shape sizes;
    for (const GraphNumber& number : numbers) sizes.push_back(number.at(batch_));
    return sizes;
  }

  /// The weights' type in place of the file's.
  DType cast(DType dtype) const { return dtype == graph_.dtype ? options_.dtype : dtype; }

  /// model.to(device): a module's children, its parameters, its buffers (nn.Module._apply).
  void make_tensors() {
    const std::vector<GraphModule>& modules = graph_.modules;
    std::vector<std::vector<const GraphTensor*>> own(modules.size());
    for (const GraphTensor& parameter : graph_.parameters) own[parameter.module].push_back(&parameter);
    for (const GraphTensor& buffer : graph_.buffers) own[buffer.module].push_back(&buffer);
    const auto finish = [&](std::uint32_t module) {
      Builder builder{&context_, &parameters, &buffers, modules_[module]};
      builder.in_norm = modules[module].type.find("Norm") != std::string::npos;
      for (const GraphTensor* tensor : own[module]) {
        if (tensor->tied) continue;
        builder.dtype = cast(tensor->dtype);
        Tensor& made = values_[tensor->number];
        if (tensor->is_buffer) {
          made = builder.buffer(sizes_of(tensor->sizes), builder.dtype);
          continue;
        }
        made = builder.parameter(tensor->name.c_str(), sizes_of(tensor->sizes));
        made->leaf_requires_grad = tensor->requires_grad;
      }
    };
    std::vector<std::uint32_t> open;  // a module comes before what is below it
    for (std::uint32_t module = 0; module < modules.size(); ++module) {
      while (!open.empty() && module != 0 && open.back() != modules[module].parent) {
        finish(open.back());
        open.pop_back();
      }
      open.push_back(module);
    }
    for (; !open.empty(); open.pop_back()) finish(open.back());
  }

  /// An operator knows its own module alone, not those around it.
  bool is_without_grad(ModuleId module) const {
    if (context_.modules_without_grad.empty()) return false;
    while (!context_.is_without_grad(module)) {
      const ModuleId parent = context_.log.modules[module].parent;
      if (parent == module) return false;  // a root
      module = parent;
    }
    return true;
  }

  void run(std::size_t index, std::vector<Tensor>& values) {
    const GraphOperator& op = graph_.operators[index];
    const ModuleScope scope(context_, modules_[op.module]);
    const Scoped<bool> grad_mode(context_.grad_mode,
                                 context_.grad_mode && op.grad_mode && !is_without_grad(modules_[op.module]));
    GraphCall call(context_, graph_, op, values, batch_, options_.attention);
    run_operator(*op.aten, call);
    if (call.ok() && call.results.size() != op.results.count)
      call.fail("what gives " + std::to_string(call.results.size()) + " tensors");
    for (const Tensor& result : call.results)
      if (call.ok()) check(call, result);
    if (!call.ok()) return refuse(index, call.error, values);
    for (std::uint32_t i = 0; i < op.results.count; ++i)
      values[graph_.numbers[op.results.first + i]] = std::move(call.results[i]);
    for (std::uint32_t i = 0; i < op.dead.count; ++i) values[graph_.numbers[op.dead.first + i]].reset();
  }

  static void check(GraphCall& call, const Tensor& result) {
    std::int64_t elements = 1;
    for (const std::int64_t size : result.sizes())
      elements = checked_product(elements, std::max<std::int64_t>(size, 1));
    if (elements > std::int64_t{1} << 41) call.fail("what would make a tensor of 2^41 elements or more");
  }

  void refuse(std::size_t index, const std::string& why, const std::vector<Tensor>& values) {
    const GraphOperator& op = graph_.operators[index];
    std::int64_t bytes = 0;
    for (std::uint32_t i = 0; i < op.arguments.count; ++i) {
      const GraphArgument& argument = graph_.items[op.arguments.first + i];
      if (argument.kind == GraphArgument::Kind::tensor)
        bytes += values[static_cast<std::size_t>(argument.integer.value)].nbytes();
    }
    const std::string path = module_path(context_.log, modules_[op.module]);
    refusal = Error{"not-modelled", "/model/graph/operators/" + std::to_string(index),
                    "found " + std::string(op.aten->name) + " in " + (path.empty() ? "the model" : path) + " with " +
                        why + ", which is not modelled; its inputs hold " + std::to_string(bytes) + " bytes"};
  }

  Context& context_;
  const Graph& graph_;
  std::int64_t batch_;
  ModelOptions options_;
  std::vector<ModuleId> modules_;
  std::vector<Tensor> values_;  ///< parameters, buffers and inputs by number
};

}  // namespace

std::unique_ptr<Model> build_graph(Context& context, const GraphConfig& config, const DataConfig& data,
                                   const ModelOptions& options) {
  context.log.names = config.graph;
  return std::make_unique<GraphModel>(context, *config.graph, data, options);
}

}  // namespace oometer
