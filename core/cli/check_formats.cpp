#include "cli/check_formats.h"

#include "cli/table.h"

namespace oometer::cli {

using OrderedJson = nlohmann::ordered_json;

namespace {

std::string sentence(const OrderedJson& answer) {
  const auto error = answer.find("error");
  if (error == answer.end()) return verdict_line(answer);
  const auto pointer = error->at("pointer").get<std::string>();
  return pointer + (pointer.empty() ? "" : ": ") + error->at("message").get<std::string>();
}

/// Each character of `text` that `code` knows is written as it says.
template <typename Code>
std::string escaped(const std::string& text, const Code& code) {
  std::string out;
  for (const char c : text) {
    const std::string_view its = code(c);
    if (its.empty()) {
      out += c;
    } else {
      out += its;
    }
  }
  return out;
}

/// actions/toolkit, packages/core/src/command.ts: escapeData and escapeProperty.
std::string workflow_text(const std::string& text, bool is_property) {
  return escaped(text, [&](char c) -> std::string_view {
    if (c == '%') return "%25";
    if (c == '\r') return "%0D";
    if (c == '\n') return "%0A";
    if (is_property && c == ':') return "%3A";
    if (is_property && c == ',') return "%2C";
    return {};
  });
}

std::string xml_text(const std::string& text) {
  return escaped(text, [](char c) -> std::string_view {
    if (c == '&') return "&amp;";
    if (c == '<') return "&lt;";
    if (c == '>') return "&gt;";
    if (c == '"') return "&quot;";
    if (c == '\n') return "&#10;";
    if (static_cast<unsigned char>(c) < ' ') return "?";  // no character of XML 1.0
    return {};
  });
}

std::string workflow_command(const std::string& file, const OrderedJson& answer, bool passes) {
  const bool is_tight = answer.value("verdict", "") == "tight";
  std::string out = !passes ? "::error " : is_tight ? "::warning " : "::notice ";
  if (!file.empty() && file != "-") out += "file=" + workflow_text(file, true) + ",";
  return out + "title=oometer::" + workflow_text(sentence(answer), false);
}

std::string junit(const std::string& file, const OrderedJson& answer, bool passes) {
  const bool is_error = answer.contains("error");
  const std::string counts = std::string("tests=\"1\" failures=\"") + (passes || is_error ? "0" : "1") +
                             "\" errors=\"" + (is_error ? "1" : "0") + "\"";
  const std::string text = xml_text(sentence(answer));
  const std::string name = xml_text(file.empty() ? "job" : file);
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites><testsuite name=\"oometer\" " + counts +
                    ">\n  <testcase classname=\"oometer\" name=\"" + name + "\">";
  if (is_error) {
    out += "<error message=\"" + text + "\"/>";
  } else if (!passes) {
    out += "<failure message=\"" + text + "\"/>";
  } else {
    out += "<system-out>" + text + "</system-out>";
  }
  return out + "</testcase>\n</testsuite></testsuites>";
}

}  // namespace

std::string check_result(const std::string& format, const std::string& file, const OrderedJson& answer, bool passes) {
  if (format == "github") return workflow_command(file, answer, passes);
  if (format == "junit") return junit(file, answer, passes);
  if (format == "json") return answer.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return sentence(answer);
}

}  // namespace oometer::cli
