#include "cli/share_table.h"

#include <cstdint>
#include <cstdio>

#include "cli/format.h"

namespace oometer::cli {

using OrderedJson = nlohmann::ordered_json;

namespace {

std::string headline(const OrderedJson& answer) {
  const auto verdict = answer.at("verdict").get<std::string>();
  const auto& gpu = answer.at("gpu");
  const std::string name = gpu.at("id").get<std::string>();
  const std::string all = bytes_text(answer.at("total").get<std::int64_t>());
  const std::string of = bytes_text(gpu.at("usable_bytes").get<std::int64_t>());
  if (verdict == "fits") return "Fit together on " + name + ": they need " + all + " of " + of + ".\n";
  if (verdict == "tight")
    return "Tight together on " + name + ": they take up to " + all + " of " + of +
           "; each still runs when the others hold all they ever do.\n";
  return "Do not fit together on " + name + ": they take up to " + all + " of " + of + ".\n";
}

std::string slowdown_text(const OrderedJson& slowdown) {
  if (slowdown.is_null()) return "not known";
  char text[64];
  std::snprintf(text, sizeof text, "%.2f x (%.2f to %.2f)", slowdown.at("factor").get<double>(),
                slowdown.at("low").get<double>(), slowdown.at("high").get<double>());
  return text;
}

}  // namespace

std::string share_table(const std::vector<std::string>& files, const OrderedJson& answer) {
  std::string out = headline(answer);
  char line[512];
  std::snprintf(line, sizeof line, "\n%-28s %-13s %12s %12s %12s  %s\n", "job", "alone", "takes", "at least", "step",
                "slower together");
  out += line;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const OrderedJson& job = answer.at("jobs").at(i);
    const OrderedJson& step = job.at("step");
    std::snprintf(line, sizeof line, "%-28s %-13s %12s %12s %12s  %s\n", files[i].c_str(),
                  job.at("alone").get<std::string>().c_str(), bytes_text(job.at("total").get<std::int64_t>()).c_str(),
                  bytes_text(job.at("least").get<std::int64_t>()).c_str(),
                  step.is_null() ? "not known" : seconds_text(step.get<double>()).c_str(),
                  slowdown_text(job.at("slowdown")).c_str());
    out += line;
  }
  if (const OrderedJson& fractions = answer.at("memory_fractions"); fractions.is_array()) {
    out += answer.at("verdict") == "does-not-fit" ? "\nThey fit when each is kept to what it needs. In each script:\n"
                                                  : "\nTo be sure, keep each to what it needs. In each script:\n";
    for (std::size_t i = 0; i < files.size(); ++i) {
      std::snprintf(line, sizeof line, "  %-28s torch.cuda.set_per_process_memory_fraction(%.3f)\n", files[i].c_str(),
                    fractions.at(i).get<double>());
      out += line;
    }
  }
  for (const OrderedJson& note : answer.at("notes")) out += "\nNote: " + note.get<std::string>() + "\n";
  return out;
}

}  // namespace oometer::cli
