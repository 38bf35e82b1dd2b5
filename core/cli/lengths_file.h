#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace oometer::cli {

/// Lengths of samples as people have them, as data.lengths: an object with one of its keys stays as it is; of a list of
/// lengths, [[length, count], ...], {"512": 300}, numbers in a text, "512x300", or a table of lengths and counts below
/// a heading a histogram is made. Throws std::runtime_error with a sentence that begins with `path`.
nlohmann::json lengths_of_text(const std::string& text, const std::string& path);

}  // namespace oometer::cli
