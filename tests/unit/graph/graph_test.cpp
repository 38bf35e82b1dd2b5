#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "../jobs.h"

/// Any model by its operators: what is refused, and why; whatever is not, runs.
namespace oometer {
namespace {

using nlohmann::json;

/// A convolution, batch norm, ReLU in place, a pooled linear layer; as tools/export_graph.py writes it.
json small_graph() {
  return json::parse(R"({"format": "oometer-graph", "version": 1, "torch": "2.15.0", "batch": [2, 3],
    "modules": [["", "Net"], ["conv", "Conv2d"], ["bn", "BatchNorm2d"], ["head", "Linear"]],
    "parameters": [[1, "weight", "float32", [8, 3, 3, 3]], [2, "weight", "float32", [8]], [2, "bias", "float32", [8]],
                   [3, "weight", "float32", [10, 8]], [3, "bias", "float32", [10]]],
    "buffers": [[2, "running_mean", "float32", [8]], [2, "running_var", "float32", [8]]],
    "inputs": [["float32", [{"batch": 1}, 3, 16, 16]]],
    "operators": [[1, "conv2d", ["%7", "%0", null, [1, 1], [1, 1]], 8],
                  [2, "batch_norm", ["%8", "%1", "%2", "%5", "%6", true, 0.1, 1e-05, true], 9, [8]],
                  [0, "relu_", ["%9"], 9], [0, "adaptive_avg_pool2d", ["%9", [1, 1]], 10, [9]],
                  [0, "view", ["%10", [{"batch": 1}, -1]], 11, [10]], [3, "linear", ["%11", "%3", "%4"], 12, [11]]],
    "outputs": [[12, "float32", [{"batch": 1}, 10]]]})");
}

std::string job_of_graph(const json& graph, std::int64_t batch = 4) {
  return json{{"model", {{"graph", graph}}}, {"data", {{"micro_batch_size", batch}}}}.dump();
}

/// Where the job is refused, or "" where it is not.
std::string refused_at(const json& graph, const std::string& code) {
  const Result<Estimate> result = estimate(job_of_graph(graph), ReportOptions{});
  if (result) return "";
  INFO(result.error().message);
  CHECK(result.error().code == code);
  return result.error().pointer;
}

TEST_CASE("A graph is a model: its batch is the job's, its modules are named, its type is the file's", "[graph]") {
  const Result<Estimate> small = estimate(job_of_graph(small_graph(), 4), ReportOptions{});
  REQUIRE(small);
  CHECK(small->simulation.parameters == 8 * 27 + 16 + 90);
  CHECK(module_path(small->simulation.log, 2) == "bn");
  const Job job = ::oometer::job_of(job_of_graph(small_graph(), 4));
  CHECK(job.model.name == "Net");
  CHECK(job.training.precision == Precision::fp32);
  CHECK(::oometer::job_of(to_json(job)).training == job.training);
  const Result<Estimate> large = estimate(job_of_graph(small_graph(), 400), ReportOptions{});
  REQUIRE(large);
  // The images, the results of the convolution and of its normalisation, of 396 samples more.
  CHECK(large->report.peak.allocated - small->report.peak.allocated >= 396 * 4 * (3 + 8 + 8) * 16 * 16);
}

TEST_CASE("A graph without gradients is one of inference: a forward, and no other task", "[graph]") {
  json graph = small_graph();
  for (json& op : graph["operators"]) op[1] = op[1].get<std::string>() + "!no_grad";
  graph["operators"][1][2][5] = false;  // batch norm in eval mode
  json job = json::parse(job_of_graph(graph));
  CHECK(refused_at(graph, "inconsistent") == "/task");
  job["task"] = "inference";
  const Result<Estimate> answer = estimate(job.dump(), ReportOptions{});
  REQUIRE(answer);
  CHECK(answer->simulation.trainable == 0);
  CHECK(::oometer::job_of(to_json(::oometer::job_of(job.dump()))).training.precision == Precision::fp32);
  // Beside the images the convolution's result and its normalisation's are there at once, and nothing is kept.
  job["data"]["micro_batch_size"] = 4000;
  const Result<Estimate> large = estimate(job.dump(), ReportOptions{});
  REQUIRE(large);
  const std::int64_t more = large->report.peak.allocated - answer->report.peak.allocated;
  CHECK(std::abs(more - 3996 * 4 * (3 + 8 + 8) * 16 * 16) < more / 50);
  for (const char* option : {R"({"inference": {"new_tokens": 4}})", R"({"training": {"attention": "eager"}})",
                             R"({"training": {"precision": "amp-bf16"}})"}) {
    json other = job;
    other.merge_patch(json::parse(option));
    CHECK_FALSE(estimate(other.dump(), ReportOptions{}));
  }
  json trained = json::parse(job_of_graph(small_graph()));
  trained["task"] = "inference";
  const Result<Estimate> refused = estimate(trained.dump(), ReportOptions{});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().pointer == "/task");
}

TEST_CASE("What a graph file may not be is said, with where it stands", "[graph]") {
  const auto changed = [](const char* pointer, const json& value) {
    json graph = small_graph();
    graph[json::json_pointer(pointer)] = value;
    return graph;
  };
  CHECK(refused_at(json::object(), "invalid") == "/model/graph/format");
  CHECK(refused_at(changed("/version", 2), "invalid") == "/model/graph/version");
  CHECK(refused_at(changed("/parameters/0/3/0", -8), "invalid") == "/model/graph/parameters/0/3/0");
  CHECK(refused_at(changed("/parameters/0/2", "float8"), "invalid") == "/model/graph/parameters/0/2");
  CHECK(refused_at(changed("/inputs/0/1/0", json{{"batch", -1}}), "invalid") == "/model/graph/inputs/0/1/0");
  CHECK(refused_at(changed("/operators/1/2/0", "%12"), "inconsistent") == "/model/graph/operators/1/2/0");  // cyclic
  CHECK(refused_at(changed("/operators/1/2/0", "%99"), "inconsistent") == "/model/graph/operators/1/2/0");
  CHECK(refused_at(changed("/operators/2/2/0", "%8"), "inconsistent") == "/model/graph/operators/2/2/0");  // gone
  CHECK(refused_at(changed("/operators/0/3", 20), "inconsistent") == "/model/graph/operators/0/3");
  CHECK(refused_at(changed("/operators/0/1", "conv9d"), "unsupported-operator") == "/model/graph/operators/0/1");
  CHECK(refused_at(changed("/operators/0/2/1", json::array({3})), "wrong-type") == "/model/graph/operators/0/2/1");
  CHECK(refused_at(changed("/operators/0/0", 9), "invalid") == "/model/graph/operators/0/0");
  CHECK(refused_at(changed("/operators/4/2/1/1", 7), "not-modelled") == "/model/graph/operators/4");
  CHECK(refused_at(changed("/outputs/0/2/1", 11), "inconsistent") == "/model/graph/outputs");
  CHECK(refused_at(changed("/operators", json(100'001, 0)), "out-of-range") == "/model/graph/operators");
  json without = small_graph();
  without.erase("outputs");
  CHECK(refused_at(without, "missing") == "/model/graph/outputs");
  const Result<Estimate> unknown = estimate(job_of_graph(changed("/operators/0/1", "conv9d")), ReportOptions{});
  CHECK(unknown.error().message.find("in conv") != std::string::npos);
  CHECK(unknown.error().message.find("864 bytes") != std::string::npos);
}

TEST_CASE("Every operator that is not known is named, with its weights' bytes", "[graph]") {
  json graph = small_graph();
  for (json& op : graph["operators"]) op[1] = op[1] == "conv2d" ? "mine::conv" : "mine::rest";
  const Result<Estimate> unknown = estimate(job_of_graph(graph), ReportOptions{});
  REQUIRE(!unknown);
  CHECK(unknown.error().pointer == "/model/graph/operators/0/1");
  CHECK(unknown.error().message.find("\"mine::conv\" in conv (weights of 864 bytes)") != std::string::npos);
  CHECK(unknown.error().message.find("\"mine::rest\" " + std::to_string(graph["operators"].size() - 1) +
                                     " times, first in ") != std::string::npos);
}

TEST_CASE("What acts on classes that a graph does not have is refused", "[graph]") {
  json job = json::parse(job_of_graph(small_graph()));
  const auto pointer_with = [&](const char* key, const json& value) {
    json with = job;
    with[json::json_pointer(key)] = value;
    const Result<Job> parsed = parse_job(with.dump());
    return parsed ? "" : parsed.error().pointer;
  };
  CHECK(pointer_with("/training/precision", "amp-bf16") == "/training/precision");
  CHECK(pointer_with("/training/activation_checkpointing", "non-reentrant") == "/training/activation_checkpointing");
  CHECK(pointer_with("/parallel", {{"strategy", "fsdp2"}, {"data", 2}}) == "/parallel/strategy");
  CHECK(pointer_with("/model/preset", "llava-1.5-7b") == "/model/preset");
  CHECK(pointer_with("/training/loss", "pooler_output") == "/training/loss");
  CHECK(pointer_with("/training/loss", "mean").empty());
  CHECK(pointer_with("/training/precision", "bf16").empty());
}

TEST_CASE("A graph that converts between types has weights of its own type alone", "[graph]") {
  json graph = small_graph();
  graph["operators"].insert(graph["operators"].begin() + 5, json::parse(R"([0, "to", ["%11", "float32"], 11])"));
  json job = json::parse(job_of_graph(graph));
  job["training"]["precision"] = "fp32";
  CHECK(parse_job(job.dump()));
  job["training"]["precision"] = "bf16";
  const Result<Job> refused = parse_job(job.dump());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().pointer == "/training/precision");
  CHECK(refused.error().message.find("--dtype") != std::string::npos);
}

/// Every value of the document replaced by others, one at a time: an answer or an error, and nothing else.
TEST_CASE("A graph with anything in any place is answered or refused", "[graph]") {
  const json graph = small_graph();
  const json others =
      json::array({nullptr, -1, 0, 7, 1'000'000'007, std::int64_t{1} << 62, 2.5, true, "%0", "%11", "x", json::array(),
                   json::array({-1, 0}), json::object(), json{{"batch", 1}, {"plus", -3}}});
  const json flat = graph.flatten();
  std::size_t refused = 0, answered = 0;
  for (const auto& [pointer, value] : flat.items()) {
    for (const json& other : others) {
      json changed = graph;
      changed[json::json_pointer(pointer)] = other;
      const Result<Estimate> result = estimate(job_of_graph(changed), ReportOptions{});
      if (!result) CHECK_FALSE(result.error().message.empty());
      ++(result ? answered : refused);
    }
  }
  CHECK(refused > 500);
  CHECK(answered > 50);
}

/// As above, of the operators that classes of transformers have, the first of each name; each argument meets a third of
/// the others, in turn.
TEST_CASE("An operator with any argument is answered or refused", "[graph]") {
  const json others = json::array({nullptr, -1, 0, 2, 1'000'000'007, std::int64_t{1} << 62, 2.5, true, "%0", "%40",
                                   "float32", "bool", json::array(), json::array({-1, 0}), json::array({"%0", "%1"})});
  std::ifstream file(std::string(OOMETER_SOURCE_DIR) + "/tests/reference/graphs_transformers.jsonl");
  std::set<std::string> seen;
  std::size_t refused = 0, answered = 0, turn = 0;
  for (std::string text; std::getline(file, text);) {
    json graph = json::parse(text)["graph"];
    for (std::size_t i = 0; i < graph["operators"].size(); ++i) {
      const json op = graph["operators"][i];
      if (!seen.insert(op[1].get<std::string>()).second) continue;
      CAPTURE(op);
      for (std::size_t k = 0; k <= op[2].size(); ++k)
        for (std::size_t other = turn++ % 3; other < others.size(); other += 3) {
          graph["operators"][i][2][k] = others[other];
          const Result<Estimate> result = estimate(job_of_graph(graph, 3), ReportOptions{});
          ++(result ? answered : refused);
          graph["operators"][i] = op;
        }
    }
  }
  CHECK(seen.size() > 80);
  CHECK(refused > 300);
  CHECK(answered > 30);
}

}  // namespace
}  // namespace oometer
