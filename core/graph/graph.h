#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trace/dtype.h"

/// Any model by its operator list, as tools/export_graph.py writes it (version 1). Numbers of it may grow with the
/// batch, so that one file answers for every micro-batch.
namespace oometer {

/// value + batch × the batch size.
struct GraphNumber {
  std::int64_t value = 0, batch = 0;

  std::int64_t at(std::int64_t batch_size) const { return value + batch * batch_size; }
};

struct GraphModule {
  std::string name, type;  ///< the last part of its path; its class
  std::uint32_t parent = 0;
};

/// A parameter, a buffer or an input.
struct GraphTensor {
  std::uint32_t module = 0;
  std::string name;
  std::uint32_t number = 0;  ///< among the graph's tensors; that of another module's where `tied`
  DType dtype = DType::float32;
  std::vector<GraphNumber> sizes;
  bool requires_grad = true;
  bool tied = false;
  bool is_buffer = false;
};

/// An argument of an operator.
struct GraphArgument {
  enum class Kind : std::uint8_t { none, boolean, integer, number, dtype, text, tensor, list };
  Kind kind = Kind::none;
  std::uint32_t length = 0;  ///< list: its items, from `integer.value` on in Graph::items
  GraphNumber integer;       ///< also: a boolean, a DType, a tensor's number, an index in Graph::texts
  double number = 0;
};

struct GraphSpan {
  std::uint32_t first = 0, count = 0;
};

struct AtenOperator;

struct GraphOperator {
  std::uint32_t module = 0;
  const AtenOperator* aten = nullptr;
  bool grad_mode = true;
  GraphSpan arguments;      ///< in Graph::items
  GraphSpan results, dead;  ///< in Graph::numbers: tensors that it gives, and those that Python frees after it
};

struct GraphOutput {
  std::uint32_t number = 0;
  DType dtype = DType::float32;
  std::vector<GraphNumber> sizes;
};

struct Graph {
  std::vector<GraphModule> modules;  ///< in the order of named_modules(), the model itself first
  std::vector<GraphTensor> parameters, buffers, inputs;
  std::vector<GraphOperator> operators;
  std::vector<GraphArgument> items;
  std::vector<std::uint32_t> numbers;
  std::vector<std::string> texts;
  std::vector<GraphOutput> outputs;
  std::uint32_t tensors = 0;      ///< how many numbers are in use
  std::int64_t fixed_batch = 0;   ///< the one batch size that the file is for; 0: any
  std::int64_t convolutions = 0;  ///< whose workspaces are cuDNN's own
  DType dtype = DType::float32;   ///< of the weights: the first floating-point parameter's
};

/// Its config, which is all of it.
struct GraphConfig {
  std::shared_ptr<const Graph> graph;

  bool operator==(const GraphConfig&) const = default;
};

}  // namespace oometer
