// What JavaScript sees, in types that cross the boundary without handles: strings and copied arrays.
#include <emscripten/bind.h>
#include <emscripten/em_js.h>
#include <emscripten/heap.h>
#include <emscripten/val.h>

#include <string>

#include "advice/advice.h"
#include "advice/checkpoint_advice.h"
#include "advice/file_advice.h"
#include "advice/gpus.h"
#include "importers/import.h"
#include "job/catalogue.h"
#include "job/estimate.h"
#include "job/host.h"
#include "job/order_spread.h"
#include "job/resolve.h"
#include "job/timed.h"
#include "job/traits.h"
#include "report/json.h"
#include "report/json_writer.h"
#include "version.h"

// JavaScript's own arrays, filled from a piece of the heap: nothing points into it afterwards.
// clang-format off
EM_JS(emscripten::EM_VAL, oometer_bytes, (const char* bytes, std::size_t size), {
  return Emval.toHandle(HEAPU8.slice(bytes, bytes + size));
});
EM_JS(emscripten::EM_VAL, oometer_series, (const char* names, const double* values, std::size_t size), {
  const series = JSON.parse(UTF8ToString(names));
  series["rows"] = HEAPF64.slice(values >> 3, (values >> 3) + size);
  return Emval.toHandle(series);
});
// clang-format on

namespace oometer::wasm {

namespace {

constexpr std::size_t kSeriesPoints = 2000;

std::string estimate(const std::string& job) { return estimate_json(job); }

std::string summary(const std::string& job) { return summary_json(job); }

std::string tree(const std::string& job) {
  EstimateOptions options;
  options.full_tree = true;
  return estimate_json(job, options);
}

std::string tensors(const std::string& job, const std::string& module) { return tensors_json(job, module); }

emscripten::val series(const std::string& job) {
  ReportOptions options;
  options.timeline_points = kSeriesPoints;
  options.largest = 0;
  const Result<Estimate> result = oometer::estimate(job, options);
  if (!result) return emscripten::val(error_json(result.error()));
  const TimelinePlaces places = timeline_places(result->report, result->simulation.log);
  JsonWriter names;
  names.begin_object();
  names.member_array("columns", timeline_columns());
  names.member_array("ops", places.ops);
  names.member_array("modules", places.modules);
  names.end_object();
  std::vector<double> values;
  for (std::size_t i = 0; i < places.rows.size(); ++i) {
    const TimelineRow& row = result->report.timeline[i];
    values.push_back(static_cast<double>(row.event));
    values.push_back(static_cast<double>(row.allocated));
    values.push_back(static_cast<double>(row.reserved));
    for (const std::int64_t bytes : row.factors) values.push_back(static_cast<double>(bytes));
    values.push_back(static_cast<double>(places.rows[i].op));
    values.push_back(static_cast<double>(places.rows[i].module));
  }
  return emscripten::val::take_ownership(oometer_series(names.take().c_str(), values.data(), values.size()));
}

emscripten::val snapshot(const std::string& job) {
  const Result<std::string> pickle = estimate_snapshot(job);
  if (!pickle) return emscripten::val(error_json(pickle.error()));
  return emscripten::val::take_ownership(oometer_bytes(pickle->data(), pickle->size()));
}

std::string time(const std::string& job) { return time_json(job); }

std::string host(const std::string& job) { return host_json(job); }

std::string order_spread(const std::string& job) { return order_spread_json(job); }

std::string import_files(const std::string& question) { return importers::import_json(question); }

std::string advise_files(const std::string& question) { return advise_files_json(question); }

std::string compare_files(const std::string& question) { return compare_files_json(question); }

std::string traits(const std::string& job) { return traits_json(job); }

std::string advise(const std::string& job) { return advise_json(job); }

std::string on_gpu(const std::string& job) { return gpu_json(job); }

std::string resolve(const std::string& job) { return resolve_json(job); }

std::string checkpoints(const std::string& job) { return checkpoint_advice_json(job); }

std::string gpus() { return gpu_list_json(); }

std::string presets() { return presets_json(); }

std::string version_text() { return std::string(version()); }

double heap_bytes() { return static_cast<double>(emscripten_get_heap_size()); }

}  // namespace

EMSCRIPTEN_BINDINGS(oometer) {
  using emscripten::function;
  function("estimate", &estimate);
  function("summary", &summary);
  function("tree", &tree);
  function("tensors", &tensors);
  function("series", &series);
  function("snapshot", &snapshot);
  function("advise", &advise);
  function("onGpu", &on_gpu);
  function("checkpoints", &checkpoints);
  function("gpus", &gpus);
  function("importFiles", &import_files);
  function("adviseFiles", &advise_files);
  function("compareFiles", &compare_files);
  function("resolve", &resolve);
  function("presets", &presets);
  function("orderSpread", &order_spread);
  function("time", &time);
  function("host", &host);
  function("traits", &traits);
  function("version", &version_text);
  function("heapBytes", &heap_bytes);
}

}  // namespace oometer::wasm
