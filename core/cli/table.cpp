#include "cli/table.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <vector>

#include "cli/format.h"

namespace oometer::cli {

using OrderedJson = nlohmann::ordered_json;

namespace {

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void line(std::string& out, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  out += text;
  out += '\n';
}

std::int64_t bytes_of(const OrderedJson& object, const char* key) { return object.value(key, std::int64_t{0}); }

std::string text_of(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}

std::string words(std::string key) {
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

std::string bar(double share) {
  std::string blocks;
  for (long filled = std::lround(share * 30); filled > 0; --filled) blocks += "█";
  return blocks;
}

void heading(std::string& out, const std::string& text) { out += "\n" + text + "\n"; }

std::string peak_place(const OrderedJson& at) {
  std::string place = "iteration " + std::to_string(at.value("iteration", 0)) + ", " + text_of(at, "phase");
  for (const char* key : {"module", "op"}) {
    if (const std::string text = text_of(at, key); !text.empty()) place += ", " + text;
  }
  return place;
}

void peak(std::string& out, const OrderedJson& report) {
  const OrderedJson& peak = report.at("peak");
  heading(out, "Peak (" + peak_place(report.at("peak_at")) + ")");
  for (const char* key : {"allocated", "reserved", "outside_allocator", "total"}) {
    line(out, "  %-20s %12s", words(key).c_str(), bytes_text(bytes_of(peak, key)).c_str());
  }
}

void breakdown(std::string& out, const OrderedJson& report) {
  const double allocated = std::max(1.0, static_cast<double>(bytes_of(report.at("peak"), "allocated")));
  heading(out, "Allocated memory at the peak, by purpose");
  for (const auto& [key, value] : report.at("breakdown").items()) {
    const double share = value.get<double>() / allocated;
    line(out, "  %-20s %12s %5.1f %%  %s", words(key).c_str(), bytes_text(value.get<std::int64_t>()).c_str(),
         100 * share, bar(share).c_str());
  }
}

using Columns = std::vector<const char*>;
constexpr int kTreeDepth = 2;  // model, its parts, their parts: layers one by one are for --json and the page

/// The bytes of a module and all below it: a node's own keys hold them already.
void module_rows(std::string& out, const OrderedJson& module, int depth, const Columns& columns) {
  std::string path = text_of(module, "path");
  path = path.empty() ? text_of(module, "type") : path.substr(path.rfind('.') + 1);
  std::string row = padded("", 2 + 2 * static_cast<std::size_t>(depth)) + path;
  if (row.size() < 30) row.resize(30, ' ');
  for (const char* factor : columns) row += padded(bytes_text(bytes_of(module, factor)), 13);
  out += row + "\n";
  if (depth == kTreeDepth) return;
  for (const OrderedJson& child : module.value("children", OrderedJson::array()))
    module_rows(out, child, depth + 1, columns);
}

void modules(std::string& out, const OrderedJson& report) {
  heading(out, "Modules");
  std::string row(30, ' ');
  const Columns columns = bytes_of(report.at("breakdown"), "kv_cache") > 0
                              ? Columns{"parameters", "kv_cache", "activations", "temporaries"}
                              : Columns{"parameters", "gradients", "optimizer_states", "activations", "temporaries"};
  for (const char* factor : columns)
    row += padded(words(factor), factor == std::string_view("optimizer_states") ? 18 : 13);
  out += row + "\n";
  for (const OrderedJson& module : report.at("modules")) module_rows(out, module, 0, columns);
}

void phases(std::string& out, const OrderedJson& report) {
  heading(out, "Phases (peaks)");
  for (const OrderedJson& phase : report.at("phases")) {
    const int iteration = phase.value("iteration", 0);
    const std::string name = (iteration > 0 ? std::to_string(iteration) + " " : "") + text_of(phase, "name");
    line(out, "  %-20s %12s allocated %12s reserved", name.c_str(), bytes_text(bytes_of(phase, "allocated")).c_str(),
         bytes_text(bytes_of(phase, "reserved")).c_str());
  }
}

/// In the place of phases, where there may be many.
void steps(std::string& out, const OrderedJson& report) {
  heading(out, "Optimizer steps (peaks)");
  int step = 0;
  for (const OrderedJson& row : report.at("steps"))
    line(out, "  %-20d %12s allocated %12s reserved", ++step, bytes_text(bytes_of(row, "allocated")).c_str(),
         bytes_text(bytes_of(row, "reserved")).c_str());
  if (!report.contains("spread")) return;
  const OrderedJson& spread = report.at("spread");
  line(out, "  In %lld other orders of the samples, between %s and %s are reserved.",
       static_cast<long long>(bytes_of(spread, "orders")), bytes_text(bytes_of(spread, "low")).c_str(),
       bytes_text(bytes_of(spread, "high")).c_str());
  line(out, "  A batch of the longest samples alone takes %s.",
       bytes_text(bytes_of(spread, "worst_batch_allocated")).c_str());
}

void ranks(std::string& out, const OrderedJson& report) {
  const OrderedJson& rows = report.at("ranks");
  if (rows.empty()) return;
  heading(out, "Ranks (peaks)");
  for (const OrderedJson& row : rows) {
    const bool reported = row.value("reported", false);
    const std::string name = "rank " + std::to_string(bytes_of(row, "rank")) + (reported ? " (above)" : "");
    line(out, "  %-20s %12s allocated %12s reserved%s", name.c_str(), bytes_text(bytes_of(row, "allocated")).c_str(),
         bytes_text(bytes_of(row, "reserved")).c_str(), row.value("fits", true) ? "" : ", does not fit");
  }
}

void list(std::string& out, const OrderedJson& report, const char* key, const char* title) {
  const OrderedJson items = report.value(key, OrderedJson::array());
  if (items.empty()) return;
  heading(out, title);
  for (const OrderedJson& item : items)
    out += "  - " + (item.is_string() ? item.get<std::string>() : item.dump()) + "\n";
}

/// Three digits, or a whole number: "0.0312", "17285".
std::string plain(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 100 ? "%.3g" : "%.0f", value);
  return text;
}

/// "0.0312 kWh, price 0.0892": of what a job's `cost` says.
std::string cost_words(const OrderedJson& cost) {
  std::string text;
  if (cost.contains("energy_kwh")) text = plain(cost.at("energy_kwh").get<double>()) + " kWh";
  if (cost.contains("price")) text += (text.empty() ? "price " : ", price ") + plain(cost.at("price").get<double>());
  return text;
}

void cost_lines(std::string& out, const OrderedJson& time) {
  if (const auto found = time.find("per_million_tokens"); found != time.end())
    line(out, "Cost: %s a step; %s a million tokens.", cost_words(time).c_str(), cost_words(*found).c_str());
  if (const auto found = time.find("training"); found != time.end()) {
    const double days = found->value("days", 0.0), step = time.value("step", 0.0);
    const auto with = [&](const char* key) { return plain(days * time.value(key, 0.0) / step); };
    const std::string cost = cost_words(*found);
    line(out, "Training on %lld tokens: %s days (%s to %s)%s%s.", static_cast<long long>(bytes_of(*found, "tokens")),
         plain(days).c_str(), with("low").c_str(), with("high").c_str(), cost.empty() ? "" : ", ", cost.c_str());
  }
}

/// How long a step, or a generation, takes; where that is not known, a note says why.
void time_line(std::string& out, const OrderedJson& report) {
  const auto found = report.find("time");
  if (found == report.end() || found->is_null()) return;
  const auto seconds = [&](const char* key) { return seconds_text(found->value(key, 0.0)); };
  const bool generates = found->contains("per_token"), infers = found->contains("prefill");
  std::string text = (generates ? "Generation: "
                      : infers  ? "Forward: "
                                : "Step: ") +
                     seconds("step") + " (" + seconds("low") + " to " + seconds("high") + ")";
  if (generates) text += ", prefill " + seconds("prefill") + ", " + seconds("per_token") + " a token";
  line(out, "%s, %.0f tokens/s, MFU %.0f %%.", text.c_str(), found->value("tokens_per_second", 0.0),
       100 * found->value("mfu", 0.0));
  const OrderedJson& used = found->at("utilization");
  const auto percent = [&](const char* key) { return 100 * used.at(key).get<double>(); };
  line(out,
       "Busy: the GPU %.0f %% of the time, its multiprocessors %.0f %% (with %.0f %% of their warps), its tensor cores "
       "%.0f %%, its memory %.0f %%.",
       percent("gract"), percent("smact"), percent("smocc"), percent("tenso"), percent("drama"));
  cost_lines(out, *found);
}

/// "8 processes need 312.40 GiB of 256.00 GiB while training".
std::string host_words(const OrderedJson& host) {
  const std::int64_t processes = bytes_of(host, "processes");
  std::string text = processes == 1 ? "its process needs " : "its " + std::to_string(processes) + " processes need ";
  const std::int64_t memory = host.at("memory").is_null() ? 0 : bytes_of(host, "memory");
  std::int64_t needs = bytes_of(host, "needs");
  std::string while_what = text_of(host, "phase");
  for (const OrderedJson& phase : host.at("phases"))  // of all that the memory is too small for, the worst
    if (memory > 0 && bytes_of(phase, "needs") > std::max(memory, needs)) {
      needs = bytes_of(phase, "needs");
      while_what = text_of(phase, "name");
    }
  text += bytes_text(needs);
  if (memory > 0) text += " of " + bytes_text(memory);
  return text + " while " + while_what;
}

/// Where somebody asks for it, or something is offloaded.
void host_phases(std::string& out, const OrderedJson& report) {
  const auto host = report.find("host");
  if (host == report.end() || (host->at("memory").is_null() && bytes_of(report, "host_bytes") == 0)) return;
  const std::int64_t processes = bytes_of(*host, "processes");
  heading(out, "Host memory (" + std::to_string(processes) + (processes == 1 ? " process" : " processes") +
                   " on a machine)");
  for (const OrderedJson& phase : host->at("phases")) {
    line(out, "  %-20s %12s needed", text_of(phase, "name").c_str(), bytes_text(bytes_of(phase, "needs")).c_str());
    for (const OrderedJson& holding : phase.at("holdings")) {
      std::string row = padded(bytes_text(bytes_of(holding, "bytes")), 16) + "  " + text_of(holding, "name");
      if (text_of(holding, "of") == "process" && processes > 1) row += ", each process";
      if (holding.value("mapped", false)) row += " (mapped: not needed)";
      out += "  " + row + "\n";
    }
  }
}

}  // namespace

std::string verdict_line(const OrderedJson& report) {
  const OrderedJson& gpu = report.at("gpu");
  const std::string verdict = text_of(report, "verdict");
  const std::int64_t headroom = bytes_of(report, "headroom");
  const std::string name = text_of(gpu, "name").empty() ? "this GPU" : text_of(gpu, "name");
  const OrderedJson host = report.value("host", OrderedJson::object());
  const std::string of_host = text_of(host, "verdict");
  std::string sentence = verdict == "fits" ? "Fits" : verdict == "tight" ? "Tight" : "Does not fit";
  if (of_host == "does-not-fit") {
    sentence = "Does not fit in the host's memory, " + host_words(host) + ". ";
    sentence += headroom >= 0 ? "The GPU's is enough" : "Nor does it fit";
  }
  sentence += " on " + name + ": needs " + bytes_text(bytes_of(report.at("peak"), "total")) + " of " +
              bytes_text(bytes_of(gpu, "usable_bytes"));
  sentence += headroom >= 0 ? ", " + bytes_text(headroom) + " to spare" : ", " + bytes_text(-headroom) + " too much";
  const OrderedJson& interval = report.at("interval");
  sentence +=
      " (between " + bytes_text(bytes_of(interval, "low")) + " and " + bytes_text(bytes_of(interval, "high")) + ")";
  sentence += ".";
  if (verdict == "tight" && bytes_of(interval, "high") <= bytes_of(gpu, "usable_bytes"))
    sentence += of_host == "tight" ? " The host's memory is tight: " + host_words(host) + "."
                                   : " What is not modelled may need more.";
  return sentence;
}

std::string table(const OrderedJson& report) {
  std::string out = verdict_line(report) + "\n";
  const OrderedJson& model = report.at("model");
  line(out, "%.2f billion parameters, %.2f billion trained.", static_cast<double>(bytes_of(model, "parameters")) / 1e9,
       static_cast<double>(bytes_of(model, "trainable")) / 1e9);
  time_line(out, report);
  if (const std::int64_t host = bytes_of(report, "host_bytes"))
    line(out, "%s of host memory per GPU, for what is offloaded.", bytes_text(host).c_str());
  if (report.contains("host") && text_of(report.at("host"), "verdict") != "does-not-fit")
    line(out, "On the host %s (at most %s).", host_words(report.at("host")).c_str(),
         bytes_text(bytes_of(report.at("host"), "high")).c_str());
  peak(out, report);
  breakdown(out, report);
  modules(out, report);
  if (report.contains("steps"))
    steps(out, report);
  else
    phases(out, report);
  ranks(out, report);
  host_phases(out, report);
  list(out, report, "assumptions", "Assumptions");
  list(out, report, "unmodelled", "Not modelled");
  list(out, report, "notes", "Notes");
  return out;
}

}  // namespace oometer::cli
