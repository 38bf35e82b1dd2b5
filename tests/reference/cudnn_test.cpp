#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "graph/call.h"
#include "ops/vision.h"

/// What cuDNN 9.26's heuristics answered for the convolutions of six models, 32 images (tools/cudnn_workspaces.py).
namespace oometer {
namespace {

Shape shape_of(const nlohmann::json& sizes) {
  Shape shape;
  for (const nlohmann::json& size : sizes) shape.push_back(size);
  return shape;
}

struct Group {
  double ours = 0, theirs = 0;
  int count = 0, near = 0;  ///< near: within a twentieth of the tensors' bytes
};

TEST_CASE("cuDNN's workspaces are copies of the tensors, as its heuristics choose", "[reference][graph]") {
  std::ifstream input(std::string(OOMETER_SOURCE_DIR) + "/tests/reference/cudnn.jsonl");
  std::map<std::string, Group> groups;
  for (std::string line; std::getline(input, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    if (row["bytes"].is_null()) continue;  // no plan for it
    const Shape x = shape_of(row["x"]), weight = shape_of(row["weight"]), y = shape_of(row["y"]);
    const DType dtype = parse_dtype(row["dtype"].get<std::string>()).value();
    const Device device{row["device"][0], row["device"][1], 108};
    const std::string pass = row["pass"];
    double all = 0;
    for (const Shape* sizes : {&x, &weight, &y}) {
      double elements = static_cast<double>(element_size(dtype));
      for (const std::int64_t size : *sizes) elements *= static_cast<double>(size);
      all += elements;
    }
    const auto ours = static_cast<double>(cudnn_workspace(device, dtype, x, weight, y, pass != "forward"));
    const double theirs = row["bytes"];
    Group& group = groups[std::to_string(device.major) + " " + row["dtype"].get<std::string>() + " " + pass];
    group.ours += ours;
    group.theirs += theirs;
    ++group.count;
    group.near += std::abs(ours - theirs) <= all / 20;
  }
  CHECK(groups.size() == 15);
  for (const auto& [name, group] : groups) {
    INFO(name << ": " << group.ours << " of " << group.theirs << ", " << group.near << " of " << group.count);
    CHECK(group.count > 80);
    if (name.starts_with("8 ") || name.starts_with("9 ")) {
      CHECK(std::abs(group.ours / group.theirs - 1) < 0.12);
    } else if (name.starts_with("7 float32")) {  // no tensor cores for it: next to nothing is copied
      CHECK(group.ours == 0);
      CHECK(group.near >= group.count * 9 / 10);
    }
  }
  CHECK(groups["8 float32 input"].near >= 69);
  CHECK(groups["8 float32 forward"].near >= 44);
}

}  // namespace
}  // namespace oometer
