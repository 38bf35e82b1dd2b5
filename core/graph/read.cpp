#include "graph/read.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/reader.h"
#include "graph/operators.h"
#include "tensor/shape.h"

namespace oometer {

using nlohmann::json;

namespace {

constexpr std::size_t kMostOperators = 100'000, kMostTensors = 400'000;
constexpr std::size_t kMostNamed = 20;  // operators that are not known: a file of others is another kind of file
constexpr std::int64_t kLargest = std::int64_t{1} << 40;  // of a size, and of what grows with a batch

using Kind = GraphArgument::Kind;

class GraphReader {
 public:
  explicit GraphReader(std::string pointer) : pointer_(std::move(pointer)) {}

  Result<Graph> read(const json& document) {
    read_head(document);
    if (const json* list = section(document, "modules")) {
      for (std::size_t i = 0; i < list->size() && ok(); ++i) read_module((*list)[i], at("/modules", i));
      if (graph_.modules.empty())
        fail("/modules", "missing", "found no module; the model itself, [\"\", CLASS], is the first");
    }
    for (const auto& [name, tensors, is_buffer] :
         {std::tuple{"parameters", &graph_.parameters, false}, std::tuple{"buffers", &graph_.buffers, true}})
      if (const json* list = section(document, name))
        for (std::size_t i = 0; i < list->size() && ok(); ++i)
          tensors->push_back(read_tensor((*list)[i], at(is_buffer ? "/buffers" : "/parameters", i), is_buffer));
    if (const json* list = section(document, "inputs"))
      for (std::size_t i = 0; i < list->size() && ok(); ++i) read_input((*list)[i], at("/inputs", i));
    for (const GraphTensor& parameter : graph_.parameters) {
      if (!is_floating_point(parameter.dtype)) continue;
      graph_.dtype = parameter.dtype;
      break;
    }
    if (const json* list = section(document, "operators")) {
      if (list->size() > kMostOperators)
        fail("/operators", "out-of-range",
             "found " + std::to_string(list->size()) + " operators; expected at most 100,000");
      for (std::size_t i = 0; i < list->size() && ok(); ++i) read_operator((*list)[i], at("/operators", i));
      refuse_unknown();
    }
    if (const json* list = section(document, "outputs")) {
      for (std::size_t i = 0; i < list->size() && ok(); ++i) read_output((*list)[i], at("/outputs", i));
      if (list->empty()) fail("/outputs", "missing", "found no output; the loss is made from the first one");
    }
    if (error_) return *error_;
    graph_.tensors = static_cast<std::uint32_t>(state_.size());
    return std::move(graph_);
  }

 private:
  enum class State : std::uint8_t { unknown, made, gone };

  struct Unknown {
    std::string name, where;  ///< where it is first
    std::uint32_t module = 0;
    int count = 0;
    std::int64_t bytes = 0;  ///< of the weights that it is given
  };

  bool ok() const { return !error_; }
  static std::string at(std::string where, std::size_t i) {
    where += '/';
    where += std::to_string(i);
    return where;
  }

  void fail(const std::string& where, const char* code, std::string message) {
    if (!error_) error_ = Error{code, pointer_ + where, std::move(message)};
  }
  void fail_found(const std::string& where, const json& value, const std::string& expected) {
    fail(where, "invalid", "found " + describe(value) + "; " + expected);
  }

  const json* section(const json& document, const char* key) {
    if (!ok()) return nullptr;
    const auto found = document.find(key);
    std::string where = "/";
    where += key;
    if (found == document.end())
      fail(where, "missing", "found nothing; expected a list, as tools/export_graph.py writes it");
    else if (!found->is_array())
      fail_found(where, *found, "expected a list");
    else
      return &*found;
    return nullptr;
  }

  void read_head(const json& document) {
    if (!document.is_object())
      return fail_found("", document, "expected a graph file's object, of tools/export_graph.py");
    const auto format = document.find("format"), version = document.find("version"), batch = document.find("batch");
    if (format == document.end() || *format != "oometer-graph")
      return fail("/format", "invalid", "found no \"oometer-graph\", which a file of tools/export_graph.py has here");
    if (version == document.end()) return fail("/version", "missing", "found nothing; expected 1");
    if (*version != 1) return fail_found("/version", *version, "this oometer reads version 1");
    for (const auto& [key, value] : document.items()) {
      constexpr std::string_view kKeys[] = {"format",     "version", "torch",  "batch",     "modules",
                                            "parameters", "buffers", "inputs", "operators", "outputs"};
      if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys))
        return fail("", "unknown-key", "found the key " + quote(key) + ", which a graph of version 1 does not have");
    }
    if (batch == document.end() || !batch->is_array() || batch->empty() || batch->size() > 2)
      return fail("/batch", "invalid", "found no list of one or two batch sizes, with which the model was recorded");
    const std::int64_t size = integer((*batch)[0], "/batch/0", 1, 1 << 20);
    if (batch->size() == 1) graph_.fixed_batch = size;
  }

  std::int64_t integer(const json& value, const std::string& where, std::int64_t min, std::int64_t max) {
    if (value.is_number_integer() &&
        !(value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{1} << 62)) {
      const std::int64_t number = value.get<std::int64_t>();
      if (number >= min && number <= max) return number;
    }
    fail_found(where, value, "expected an integer from " + std::to_string(min) + " to " + std::to_string(max));
    return min;
  }

  std::string text(const json& value, const std::string& where) {
    if (value.is_string() && value.get_ref<const std::string&>().size() <= 1000) return value.get<std::string>();
    fail_found(where, value, "expected a text");
    return {};
  }

  /// A list of `least` to `most` items.
  bool is_row(const json& value, const std::string& where, std::size_t least, std::size_t most) {
    if (value.is_array() && value.size() >= least && value.size() <= most) return true;
    fail_found(where, value, "expected a list of " + std::to_string(least) + " to " + std::to_string(most) + " items");
    return false;
  }

  void read_module(const json& row, const std::string& where) {
    if (!is_row(row, where, 2, 2)) return;
    const std::string path = text(row[0], at(where, 0));
    GraphModule module{path, text(row[1], at(where, 1)), 0};
    if (!ok()) return;
    if (graph_.modules.empty() != path.empty())
      return fail_found(at(where, 0), row[0], "\"\" belongs to the first module, the model itself, and to no other");
    // A module comes before what is below it: its parent is the nearest whose path begins its own.
    const auto is_below = [&](const std::string& parent) {
      return parent.empty() || (path.size() > parent.size() && path.starts_with(parent) && path[parent.size()] == '.');
    };
    while (!open_.empty() && !is_below(paths_[open_.back()])) open_.pop_back();
    if (!open_.empty()) {
      module.parent = open_.back();
      const std::size_t prefix = paths_[module.parent].size();
      module.name = path.substr(prefix == 0 ? 0 : prefix + 1);
    }
    open_.push_back(static_cast<std::uint32_t>(graph_.modules.size()));
    paths_.push_back(path);
    graph_.modules.push_back(std::move(module));
  }

  DType dtype(const json& value, const std::string& where) {
    if (value.is_string())
      if (const auto found = parse_dtype(value.get_ref<const std::string&>())) return *found;
    fail_found(where, value, "expected float64, float32, float16, bfloat16, int64, int32, uint8 or bool");
    return DType::float32;
  }

  GraphNumber number(const json& value, const std::string& where) {
    if (!value.is_object()) return {integer(value, where, 0, kLargest), 0};
    return growing(value, where);
  }

  /// {"batch": n, "plus": m}
  GraphNumber growing(const json& value, const std::string& where) {
    GraphNumber result;
    for (const auto& [key, item] : value.items()) {
      if (key == "batch")
        result.batch = integer(item, where + "/batch", -(1 << 20), kLargest);
      else if (key == "plus")
        result.value = integer(item, where + "/plus", -kLargest, kLargest);
      else
        fail(where, "unknown-key", "found the key " + quote(key) + "; expected {\"batch\": n, \"plus\": m}");
    }
    if (graph_.fixed_batch != 0)
      fail(where, "inconsistent",
           "found a number that grows with the batch in a file that was recorded with one batch size");
    return result;
  }

  std::vector<GraphNumber> sizes(const json& value, const std::string& where) {
    std::vector<GraphNumber> result;
    if (!is_row(value, where, 0, Shape::kMaxDims)) return result;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const GraphNumber size = number(value[i], at(where, i));
      // At every batch size from 1 on it must be a size.
      if (ok() && (size.batch < 0 || size.value + size.batch < 0))
        fail_found(at(where, i), value[i], "expected a size that is not negative");
      result.push_back(size);
    }
    return result;
  }

  std::uint32_t new_tensor(const std::string& where) {
    if (state_.size() >= kMostTensors) fail(where, "out-of-range", "found more than 400,000 tensors");
    state_.push_back(State::made);
    return static_cast<std::uint32_t>(state_.size() - 1);
  }

  /// "%12"
  std::optional<std::uint32_t> reference(const json& value) {
    if (!value.is_string()) return std::nullopt;
    const std::string& text = value.get_ref<const std::string&>();
    if (text.size() < 2 || text.size() > 10 || text[0] != '%') return std::nullopt;
    std::uint32_t number = 0;
    for (const char digit : std::string_view(text).substr(1)) {
      if (digit < '0' || digit > '9') return std::nullopt;
      number = number * 10 + static_cast<std::uint32_t>(digit - '0');
    }
    return number;
  }

  bool is_alive(std::uint32_t number, const std::string& where) {
    if (number < state_.size() && state_[number] == State::made) return true;
    const bool gone = number < state_.size() && state_[number] == State::gone;
    fail(where, "inconsistent",
         "found tensor " + std::to_string(number) +
             (gone ? ", which is gone by then" : ", which nothing has made by then"));
    return false;
  }

  GraphTensor read_tensor(const json& row, const std::string& where, bool is_buffer) {
    GraphTensor tensor;
    tensor.is_buffer = is_buffer;
    if (!is_row(row, where, 3, 5)) return tensor;
    tensor.module = static_cast<std::uint32_t>(
        integer(row[0], at(where, 0), 0, static_cast<std::int64_t>(graph_.modules.size()) - 1));
    tensor.name = text(row[1], at(where, 1));
    if (row.size() == 3) {
      const auto number = reference(row[2]);
      if (!number)
        fail_found(at(where, 2), row[2], "expected a tensor, \"%0\", or a type and sizes");
      else if (is_alive(*number, at(where, 2)))
        tensor.number = *number;
      tensor.tied = true;
      return tensor;
    }
    tensor.dtype = dtype(row[2], at(where, 2));
    tensor.sizes = sizes(row[3], at(where, 3));
    for (std::size_t i = 0; i < tensor.sizes.size(); ++i)
      if (tensor.sizes[i].batch != 0)
        fail_found(at(at(where, 3), i), row[3][i], "expected a weight's size, which no batch changes");
    if (row.size() == 5) {
      if (!row[4].is_boolean())
        fail_found(at(where, 4), row[4], "expected requires_grad, true or false");
      else
        tensor.requires_grad = row[4].get<bool>();
    }
    if (ok()) check_size(tensor.sizes, at(where, 3));
    tensor.requires_grad = tensor.requires_grad && is_floating_point(tensor.dtype);
    tensor.number = new_tensor(where);
    return tensor;
  }

  void check_size(const std::vector<GraphNumber>& sizes, const std::string& where) {
    std::int64_t elements = 1;
    for (const GraphNumber& size : sizes) elements = checked_product(elements, std::max<std::int64_t>(size.at(1), 1));
    if (elements > std::int64_t{1} << 41) fail(where, "out-of-range", "found a tensor of 2^41 elements or more");
  }

  void read_input(const json& row, const std::string& where) {
    GraphTensor input;
    if (!is_row(row, where, 2, 2)) return;
    input.dtype = dtype(row[0], at(where, 0));
    input.sizes = sizes(row[1], at(where, 1));
    if (ok()) check_size(input.sizes, at(where, 1));
    input.number = new_tensor(where);
    graph_.inputs.push_back(std::move(input));
  }

  // --- operators

  void read_operator(const json& row, const std::string& where) {
    if (!is_row(row, where, 4, 5)) return;
    GraphOperator op;
    op.module = static_cast<std::uint32_t>(
        integer(row[0], at(where, 0), 0, static_cast<std::int64_t>(graph_.modules.size()) - 1));
    const std::string given = text(row[1], at(where, 1));
    if (!ok()) return;
    constexpr std::string_view kNoGrad = "!no_grad";
    std::string_view name = given;
    op.grad_mode = !name.ends_with(kNoGrad);
    if (!op.grad_mode) name.remove_suffix(kNoGrad.size());
    op.aten = operators_.find(name);
    if (!row[2].is_array()) return fail_found(at(where, 2), row[2], "expected the list of arguments");
    if (op.aten) {
      graph_.convolutions += is_convolution(*op.aten);
      op.arguments = read_list(row[2], at(where, 2));
      if (ok()) check_kinds(op, name, at(where, 2));
    } else {
      note_unknown(name, row[2], op.module, at(where, 1));
    }
    read_results(op, row[3], at(where, 3));
    if (row.size() == 5) read_dead(op, row[4], at(where, 4));
    if (ok()) graph_.operators.push_back(op);
  }

  /// What is at stake: its inputs' weights, whose sizes are known here, and where it is first.
  void note_unknown(std::string_view name, const json& arguments, std::uint32_t module, const std::string& where) {
    auto found = std::find_if(unknown_.begin(), unknown_.end(), [&](const Unknown& u) { return u.name == name; });
    if (found == unknown_.end()) {
      if (unknown_.size() == kMostNamed) return;
      found = unknown_.insert(found, Unknown{std::string(name), where, module});
    }
    ++found->count;
    for (const json& argument : arguments)
      if (const auto number = reference(argument))
        for (const GraphTensor& parameter : graph_.parameters)
          if (parameter.number == *number && !parameter.tied) found->bytes += bytes_of(parameter);
  }

  /// All of them at once, so that a person knows how far the model is from being answered.
  void refuse_unknown() {
    if (!ok() || unknown_.empty()) return;
    std::string list;
    for (const Unknown& unknown : unknown_) {
      const std::string& path = paths_[unknown.module];
      if (!list.empty()) list += ", ";
      list += quote(unknown.name);
      if (unknown.count > 1) {
        list += ' ';
        list += std::to_string(unknown.count);
        list += " times, first";
      }
      list += " in ";
      list += path.empty() ? "the model itself" : path;
      list += " (weights of ";
      list += std::to_string(unknown.bytes);
      list += " bytes)";
    }
    fail(unknown_.front().where, "unsupported-operator",
         "found " + list + ", whose memory is not modelled; what it keeps for backward would be missing");
  }

  static std::int64_t bytes_of(const GraphTensor& tensor) {
    std::int64_t bytes = element_size(tensor.dtype);
    for (const GraphNumber& size : tensor.sizes) bytes = checked_product(bytes, size.value);
    return bytes;
  }

  GraphSpan read_list(const json& list, const std::string& where, int depth = 0) {
    const GraphSpan span{static_cast<std::uint32_t>(graph_.items.size()), static_cast<std::uint32_t>(list.size())};
    if (list.size() > 10'000) {
      fail(where, "out-of-range", "found a list of more than 10,000 items");
      return {};
    }
    graph_.items.resize(graph_.items.size() + list.size());
    for (std::size_t i = 0; i < list.size() && ok(); ++i) {
      const GraphArgument argument = read_argument(list[i], at(where, i), depth);
      graph_.items[span.first + i] = argument;
    }
    return span;
  }

  GraphArgument read_argument(const json& value, const std::string& where, int depth) {
    GraphArgument argument;
    if (value.is_boolean()) {
      argument.kind = Kind::boolean;
      argument.integer.value = value.get<bool>();
    } else if (value.is_number_integer()) {
      argument.kind = Kind::integer;
      const bool large = value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{1} << 62;
      argument.integer.value = large ? std::int64_t{1} << 62 : value.get<std::int64_t>();
    } else if (value.is_number()) {
      argument.kind = Kind::number;
      argument.number = value.get<double>();
    } else if (value.is_object()) {
      argument.kind = Kind::integer;
      argument.integer = growing(value, where);
    } else if (const auto number = reference(value)) {
      argument.kind = Kind::tensor;
      if (is_alive(*number, where)) argument.integer.value = *number;
    } else if (value.is_string()) {
      if (const auto type = parse_dtype(value.get_ref<const std::string&>())) {
        argument.kind = Kind::dtype;
        argument.integer.value = static_cast<std::int64_t>(*type);
      } else {
        argument.kind = Kind::text;
        argument.integer.value = static_cast<std::int64_t>(graph_.texts.size());
        graph_.texts.push_back(text(value, where));
      }
    } else if (value.is_array() && depth == 0) {
      argument.kind = Kind::list;
      const GraphSpan span = read_list(value, where, 1);
      argument.integer.value = span.first;
      argument.length = span.count;
    } else if (!value.is_null()) {
      fail_found(where, value, "expected a number, a text, a tensor or a list of them");
    }
    return argument;
  }

  bool all_items(const GraphArgument& list, Kind kind, bool or_none) const {
    for (std::uint32_t i = 0; i < list.length; ++i) {
      const Kind its = graph_.items[static_cast<std::size_t>(list.integer.value) + i].kind;
      if (its != kind && !(or_none && its == Kind::none)) return false;
    }
    return list.kind == Kind::list;
  }

  bool fits(char letter, const GraphArgument& argument) const {
    const Kind kind = argument.kind;
    const bool number = kind == Kind::integer || kind == Kind::number || kind == Kind::boolean;
    switch (letter) {
      case 't':
      case 'o':
        return kind == Kind::tensor;
      case 'L':
        return all_items(argument, Kind::tensor, false);
      case 'l':
        return all_items(argument, Kind::tensor, true);
      case 'a':
        return kind == Kind::tensor || number;
      case 'i':
        return kind == Kind::integer;
      case 'I':
        return kind == Kind::integer || all_items(argument, Kind::integer, false);
      case 'n':
        return number;
      case 'b':
        return kind == Kind::boolean;
      case 'd':
        return kind == Kind::dtype;
      case 's':
        return kind == Kind::text;
      default:
        return true;
    }
  }

  void check_kinds(const GraphOperator& op, std::string_view name, const std::string& where) {
    const std::string_view signature = op.aten->signature;
    const std::size_t needed = signature.find('!');
    const std::string letters = std::string(signature.substr(0, needed)) + std::string(signature.substr(needed + 1));
    if (op.arguments.count < needed || op.arguments.count > letters.size())
      return fail(where, "invalid",
                  "found " + std::to_string(op.arguments.count) + " arguments of " + std::string(name) +
                      ", which has " + std::to_string(needed) + " to " + std::to_string(letters.size()));
    for (std::uint32_t i = 0; i < op.arguments.count; ++i) {
      const GraphArgument& argument = graph_.items[op.arguments.first + i];
      const bool may_be_none = i >= needed || letters[i] == 'o';
      if (argument.kind == Kind::none ? may_be_none : fits(letters[i], argument)) continue;
      return fail(at(where, i), "wrong-type", "found another kind of argument than " + std::string(name) + " has here");
    }
  }

  /// A number or a list of numbers: those of new tensors, or of such as are there (in place, a view that is the same).
  void read_results(GraphOperator& op, const json& value, const std::string& where) {
    op.results.first = static_cast<std::uint32_t>(graph_.numbers.size());
    const auto add = [&](const json& item, const std::string& its) {
      const auto number = static_cast<std::size_t>(integer(item, its, 0, kMostTensors));
      if (!ok()) return;
      if (number == state_.size())
        new_tensor(its);
      else if (number > state_.size())
        return fail(
            its, "inconsistent",
            "found tensor " + std::to_string(number) + " where " + std::to_string(state_.size()) + " is the next");
      else if (state_[number] == State::gone)
        return fail(its, "inconsistent", "found tensor " + std::to_string(number) + ", which is gone by then");
      graph_.numbers.push_back(static_cast<std::uint32_t>(number));
      ++op.results.count;
    };
    if (!value.is_array()) return add(value, where);
    for (std::size_t i = 0; i < value.size() && ok(); ++i) add(value[i], at(where, i));
  }

  void read_dead(GraphOperator& op, const json& value, const std::string& where) {
    if (!value.is_array()) return fail_found(where, value, "expected the list of tensors that go after the operator");
    op.dead.first = static_cast<std::uint32_t>(graph_.numbers.size());
    for (std::size_t i = 0; i < value.size() && ok(); ++i) {
      const auto number = static_cast<std::uint32_t>(integer(value[i], at(where, i), 0, kMostTensors));
      if (!ok() || !is_alive(number, at(where, i))) return;
      state_[number] = State::gone;
      graph_.numbers.push_back(number);
      ++op.dead.count;
    }
  }

  void read_output(const json& row, const std::string& where) {
    if (!is_row(row, where, 3, 3)) return;
    GraphOutput output;
    output.number = static_cast<std::uint32_t>(integer(row[0], at(where, 0), 0, kMostTensors));
    if (ok()) is_alive(output.number, at(where, 0));
    output.dtype = dtype(row[1], at(where, 1));
    output.sizes = sizes(row[2], at(where, 2));
    graph_.outputs.push_back(std::move(output));
  }

  std::string pointer_;
  const AtenOperators operators_;
  Graph graph_;
  std::optional<Error> error_;
  std::vector<std::string> paths_;
  std::vector<std::uint32_t> open_;
  std::vector<State> state_;      ///< of each tensor's number
  std::vector<Unknown> unknown_;  ///< operators, each name once
};

}  // namespace

Result<Graph> read_graph(const json& document, const std::string& pointer) {
  return GraphReader(pointer).read(document);
}

}  // namespace oometer
