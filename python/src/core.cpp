// What Python sees of the core: text in, text out. oometer/_answers.py makes objects of it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdio>
#include <string>
#include <vector>

#include "advice/advice.h"
#include "advice/checkpoint_advice.h"
#include "advice/gpus.h"
#include "advice/plan.h"
#include "cli/advice_table.h"
#include "cli/command.h"
#include "cli/gpu_table.h"
#include "cli/hub.h"
#include "cli/import_command.h"
#include "cli/plan_table.h"
#include "cli/table.h"
#include "importers/import.h"
#include "job/catalogue.h"
#include "job/estimate.h"
#include "job/resolve.h"
#include "job/settings/describe.h"
#include "job/timed.h"
#include "job/traits.h"
#include "version.h"

namespace nb = nanobind;

namespace {

using Answer = std::string (*)(std::string_view);

/// A question of the core as a function of Python. Other threads run meanwhile.
template <Answer answer>
std::string ask(const std::string& job) {
  const nb::gil_scoped_release released;
  return answer(job);
}

std::string timed(std::string_view job) { return oometer::timed_estimate_json(job, oometer::cli::report_options()); }

nb::bytes snapshot(const std::string& job) {
  oometer::Result<std::string> pickle = oometer::estimate_snapshot(job);
  const std::string text = pickle ? *std::move(pickle) : oometer::error_json(pickle.error());
  return nb::bytes(text.data(), text.size());
}

/// An answer of the core as the command's table.
template <std::string (*table)(const nlohmann::ordered_json&)>
std::string as_table(const std::string& answer) {
  return table(nlohmann::ordered_json::parse(answer));
}

std::string import_paths(const std::vector<std::string>& paths, const std::string& gpu, std::int64_t gpus) {
  return oometer::importers::to_json(import_files(oometer::cli::read_paths(paths, gpu, gpus)));
}

int command(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const nb::gil_scoped_release released;
  const int code = oometer::cli::command(static_cast<int>(arguments.size()), argv.data());
  std::fflush(stdout);
  return code;
}

}  // namespace

NB_MODULE(_core, module) {
  module.def("estimate", &ask<timed>);
  module.def("summary", &ask<oometer::summary_json>);
  module.def("advise", &ask<oometer::advise_json>);
  module.def("gpus", &ask<oometer::gpus_json>);
  module.def("plan", &ask<oometer::plans_json>);
  module.def("resolve", &ask<oometer::resolve_json>);
  module.def("traits", &ask<oometer::traits_json>);
  module.def("checkpoints", &ask<oometer::checkpoint_advice_json>);
  module.def("import_json", &ask<oometer::importers::import_json>);
  module.def("import_paths", &import_paths);
  module.def("imported_job", &oometer::cli::imported_job);
  module.def("snapshot", &snapshot);
  module.def("hub", &oometer::cli::hub_text);
  module.def("presets", &oometer::presets_json);
  module.def("job_schema", &oometer::job_schema);
  module.def("version", [] { return std::string(oometer::version()); });
  module.def("command", &command);
  module.def("report_table", &as_table<oometer::cli::table>);
  module.def("verdict_line", &as_table<oometer::cli::verdict_line>);
  module.def("advice_table", &as_table<oometer::cli::advice_table>);
  module.def("gpu_table", &as_table<oometer::cli::gpu_table>);
  module.def("plan_table", &as_table<oometer::cli::plan_table>);
}
