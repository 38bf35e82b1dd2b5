#include "models/kit/image_size.h"

#include <vector>

#include "config/reader.h"

namespace oometer {

std::optional<std::pair<std::int64_t, std::int64_t>> read_image_size(ConfigReader& reader, const DataConfig& data,
                                                                     std::pair<std::int64_t, std::int64_t> usual) {
  const std::vector<std::int64_t> size = reader.integers("image_size", {1, 65'536});
  if (data.images_per_sample == 0) return std::nullopt;
  if (size.empty()) return usual;
  if (size.size() != 2) {
    reader.fail_found("image_size", "wrong-type", "expected [height, width] in pixels");
    return std::nullopt;
  }
  return std::pair{size[0], size[1]};
}

}  // namespace oometer
