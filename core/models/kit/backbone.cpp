#include "models/kit/backbone.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "config/reader.h"

namespace oometer {

std::vector<std::size_t> read_out_features(ConfigReader& backbone, std::size_t stages) {
  const std::vector<std::string> names = backbone.texts("out_features");
  std::vector<std::size_t> features;
  if (names.empty()) {
    for (const std::int64_t index : backbone.integers("out_indices", {0, static_cast<std::int64_t>(stages)}))
      features.push_back(static_cast<std::size_t>(index));
  } else {
    backbone.ignore({"out_indices"});  // the same ones, or the class refuses them
    for (const std::string& name : names) {
      std::size_t stage = 0;
      while (stage <= stages && name != kStageNames[stage]) ++stage;
      if (stage > stages) {
        backbone.fail_found("out_features", "inconsistent",
                            "expected stem or stages, \"stage1\" to \"stage" + std::to_string(stages) + "\"");
        return features;
      }
      features.push_back(stage);
    }
  }
  if (features.empty()) features.push_back(stages);
  if (!std::is_sorted(features.begin(), features.end()) ||
      std::adjacent_find(features.begin(), features.end()) != features.end())
    backbone.fail_found(names.empty() ? "out_indices" : "out_features", "inconsistent",
                        "expected each stage once, in their order");
  return features;
}

}  // namespace oometer
