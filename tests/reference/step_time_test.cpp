#include <algorithm>
#include <cmath>
#include <map>

#include "cases.h"
#include "job/timed.h"

/// Times of whole steps that others published, and of ours (tests/measured/time/steps.jsonl, docs/time.md). Some
/// constants were fitted to half of them; the others are kept back.
namespace oometer {
namespace {

TEST_CASE("Step times that nothing was fitted to: half within a tenth, nine of ten in the interval",
          "[reference][measured][time]") {
  std::ifstream input(std::string(OOMETER_SOURCE_DIR) + "/tests/measured/time/steps.jsonl");
  std::map<bool, std::vector<double>> errors;  // by whether they were fitted
  int inside = 0;
  for (std::string line; std::getline(input, line);) {
    const nlohmann::json run = nlohmann::json::parse(line);
    const nlohmann::json report = nlohmann::json::parse(timed_estimate_json(run["job"].dump()));
    INFO(run["name"]);
    REQUIRE(report.contains("time"));
    REQUIRE(report["time"].is_object());
    const double measured = run["step"], computed = report["time"]["step"];
    errors[run["fitted"]].push_back(std::abs(computed / measured - 1));
    if (!run["fitted"]) inside += report["time"]["low"] <= measured && measured <= report["time"]["high"] ? 1 : 0;
    CHECK(errors[run["fitted"]].back() < 0.34);
  }
  std::vector<double>& kept_back = errors[false];
  REQUIRE(kept_back.size() == 52);
  std::sort(kept_back.begin(), kept_back.end());
  CHECK(kept_back[kept_back.size() / 2] < 0.08);
  CHECK(10 * inside >= 9 * static_cast<int>(kept_back.size()));
}

}  // namespace
}  // namespace oometer
