#pragma once

#include <string_view>

namespace oometer {

/// The project's version and the commit that was built: "0.1.0+abc1234". CMake writes its body.
std::string_view version();

}  // namespace oometer
