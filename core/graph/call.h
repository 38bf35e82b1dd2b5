#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "nn/attention.h"
#include "tensor/context.h"
#include "tensor/tensor.h"

namespace oometer {

/// One call of an operator: its arguments, checked for their kinds before, and its results. After `fail` nothing that
/// it gives counts.
class GraphCall {
 public:
  GraphCall(Context& context_, const Graph& graph, const GraphOperator& op, const std::vector<Tensor>& values,
            std::int64_t batch_size, AttentionKind attention_)
      : context(context_), attention(attention_), graph_(graph), op_(op), values_(values), batch_size_(batch_size) {}

  Context& context;
  const AttentionKind attention;
  std::vector<Tensor> results;

  bool has(unsigned i) const;
  bool is_tensor(unsigned i) const;
  bool is_fractional(unsigned i) const;  ///< a Python float
  /// Null where it is absent or None.
  Tensor tensor(unsigned i) const;
  std::vector<Tensor> tensors(unsigned i) const;
  std::int64_t integer(unsigned i, std::int64_t fallback);
  double number(unsigned i, double fallback) const;
  bool boolean(unsigned i, bool fallback) const;
  std::optional<DType> dtype(unsigned i) const;
  std::string_view text(unsigned i) const;
  /// A list of integers as long as six, or one integer; absent: none.
  Shape integers(unsigned i);
  std::size_t length(unsigned i) const;
  double number_in(unsigned i, unsigned k) const;  ///< item k of a list of numbers
  /// Python's index of a dimension among `count`; 0 after an error.
  int dim(unsigned i, std::int64_t fallback, int count);
  int checked_dim(std::int64_t dim, int count);
  std::size_t argument_count() const { return op_.arguments.count; }

  void give(Tensor tensor) { results.push_back(std::move(tensor)); }
  /// Notes why it cannot run: what it was given, as "a tensor of sizes [2, 3]". The first time counts.
  void fail(std::string why) {
    if (error.empty()) error = std::move(why);
  }
  bool ok() const { return error.empty(); }
  std::string error;

 private:
  const GraphArgument* argument(unsigned i) const;
  std::int64_t at(const GraphArgument& argument) const { return argument.integer.at(batch_size_); }

  const Graph& graph_;
  const GraphOperator& op_;
  const std::vector<Tensor>& values_;
  std::int64_t batch_size_;
};

/// The dtype of torch's name ("float32", "int64"), or none.
std::optional<DType> parse_dtype(std::string_view name);

// --- checks: each says in `c` what is wrong ---

/// "[2, 3]"
std::string text_of(const Shape& sizes);
/// Sizes that a tensor can have.
bool are_sizes(GraphCall& c, const Shape& sizes);
bool has_dims(GraphCall& c, const Tensor& x, int least, int most = Shape::kMaxDims);
bool can_broadcast(GraphCall& c, const Tensor& a, const Tensor& b);
/// In place: the result has x's sizes. A leaf that asks for a gradient cannot change.
bool can_change(GraphCall& c, const Tensor& x, const Tensor& other = {});

constexpr unsigned kAbsent = 1000;  ///< an argument that no call has
/// One integer a spatial dimension: a list of that length, one for all, or `fallback`.
Shape spatial(GraphCall& c, unsigned i, int dims, std::int64_t fallback, std::int64_t least);

}  // namespace oometer
