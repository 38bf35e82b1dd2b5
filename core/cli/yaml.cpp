#include "cli/yaml.h"

#include <yaml-cpp/yaml.h>

#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "config/reader.h"
#include "importers/keys.h"

namespace oometer::cli {

using Json = nlohmann::json;

namespace {

constexpr std::size_t kMostBytes = std::size_t{4} << 20;
/// Values, aliases counted each time: a trainer's file has hundreds.
constexpr std::size_t kMostNodes = 100'000;
constexpr std::size_t kMostLevels = 64;

Error at(const YAML::Mark& mark, const std::string& message) {
  if (mark.is_null()) return {"not-yaml", "", message};
  return {"not-yaml", "",
          "line " + std::to_string(mark.line + 1) + ", column " + std::to_string(mark.column + 1) + ": " + message};
}

class Converter {
 public:
  Json convert(const YAML::Node& node, std::size_t level) {
    if (error || ++nodes_ > kMostNodes || level > kMostLevels) {
      if (!error)
        error = at(node.Mark(),
                   nodes_ > kMostNodes ? "more than 100,000 values, aliases counted each time" : "more than 64 levels");
      return {};
    }
    switch (node.Type()) {
      case YAML::NodeType::Scalar:
        return node.Tag() == "!" ? Json(node.Scalar()) : importers::scalar_of(node.Scalar());
      case YAML::NodeType::Sequence: {
        Json list = Json::array();
        for (const YAML::Node& one : node) list.push_back(convert(one, level + 1));
        return list;
      }
      case YAML::NodeType::Map:
        return convert_map(node, level);
      case YAML::NodeType::Null:
      case YAML::NodeType::Undefined:
        break;
    }
    return {};
  }

  std::optional<Error> error;

 private:
  Json convert_map(const YAML::Node& node, std::size_t level) {
    Json map = Json::object(), merged = Json::object();
    for (const auto& pair : node) {
      if (!pair.first.IsScalar()) {
        if (!error)
          error = at(pair.first.Mark(), "expected a name as key; a template ({{ ... }}) has to be filled in first");
        return {};
      }
      const std::string& key = pair.first.Scalar();
      Json value = convert(pair.second, level + 1);
      if (key == "<<" && (value.is_object() || value.is_array())) {
        for (const Json& one : value.is_object() ? Json::array({value}) : value)
          if (one.is_object())
            for (const auto& [name, inherited] : one.items())
              if (!merged.contains(name)) merged[name] = inherited;
        continue;
      }
      if (map.contains(key) && !error) error = at(pair.first.Mark(), "the key " + quote(key) + " stands here twice");
      map[key] = std::move(value);
    }
    for (const auto& [name, inherited] : merged.items())
      if (!map.contains(name)) map[name] = inherited;
    return map;
  }

  std::size_t nodes_ = 0;
};

}  // namespace

Result<Json> parse_yaml(const std::string& text) {
  if (text.size() > kMostBytes) return Error{"not-yaml", "", "more than 4 MiB, which no trainer's file has"};
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.empty()) return Json();
    if (documents.size() > 1) return at(documents[1].Mark(), "a second document begins; expected one in a file");
    Converter converter;
    Json tree = converter.convert(documents[0], 0);
    if (converter.error) return *converter.error;
    return tree;
  } catch (const YAML::Exception& error) {
    const bool is_template = text.find("{%") != std::string::npos || text.find("{{") != std::string::npos;
    return at(error.mark, error.msg + (is_template ? "; a template has to be filled in first" : ""));
  } catch (const std::exception& error) {
    return Error{"not-yaml", "", error.what()};
  }
}

}  // namespace oometer::cli
