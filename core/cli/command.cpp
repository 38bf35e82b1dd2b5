#include "cli/command.h"

#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "advice/advice.h"
#include "advice/checkpoint_advice.h"
#include "advice/gpus.h"
#include "advice/plan.h"
#include "advice/sharing.h"
#include "cli/advice_table.h"
#include "cli/check_formats.h"
#include "cli/checkpoint_table.h"
#include "cli/event_log.h"
#include "cli/format.h"
#include "cli/gpu_table.h"
#include "cli/import_command.h"
#include "cli/options.h"
#include "cli/plan_table.h"
#include "cli/resolved_table.h"
#include "cli/share_table.h"
#include "cli/table.h"
#include "cli/telemetry.h"
#include "job/catalogue.h"
#include "job/parse.h"
#include "job/resolve.h"
#include "job/settings/describe.h"
#include "job/simulate.h"
#include "job/timed.h"
#include "job/traits.h"
#include "version.h"

namespace oometer::cli {
namespace {

constexpr int kFits = 0;
constexpr int kDoesNotFit = 1;
constexpr int kBadInput = 2;

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
}

int bad_input(const std::string& pointer, const std::string& message) {
  std::fprintf(stderr, "oometer: %s%s%s\n", pointer.c_str(), pointer.empty() ? "" : ": ", message.c_str());
  return kBadInput;
}

/// An answer of the core, handed to `use` unless it is an error.
template <typename Use>
int with_answer(const std::string& text, const Use& use) {
  const nlohmann::ordered_json report = nlohmann::ordered_json::parse(text);
  if (const auto error = report.find("error"); error != report.end()) {
    return bad_input(error->at("pointer").get<std::string>(), error->at("message").get<std::string>());
  }
  return use(text, report);
}

int run_estimate(const JobOptions& options, bool json, const std::string& telemetry) {
  const std::string text = options.job(), answer = timed_estimate_json(text, report_options());
  return with_answer(answer, [&](const std::string& as_is, const nlohmann::ordered_json& report) {
    if (telemetry.empty()) {
      print(json ? as_is : table(report));
      return kFits;
    }
    std::ifstream lines(telemetry, std::ios::binary);
    if (!lines) return bad_input("", telemetry + ": cannot be read");
    const Result<Job> job = parse_job(text);
    const Result<Telemetry> runs = job ? read_telemetry(lines, telemetry, *job) : Result<Telemetry>(job.error());
    if (!runs) return bad_input(runs.error().pointer, runs.error().message);
    nlohmann::ordered_json refined = report;
    refine(refined, *job, *runs);
    print(json ? refined.dump() : table(refined));
    return kFits;
  });
}

/// A job a line in, its report a line out, in the same order; memory does not grow with their number.
int run_lines(const JobOptions& options) {
  const EstimateOptions whole = report_options();
  std::ifstream file;
  const bool is_standard = options.file().empty() || options.file() == "-";
  if (!is_standard) file.open(options.file(), std::ios::binary);
  if (!is_standard && !file) return bad_input("", options.file() + ": cannot be read");
  std::istream& lines = is_standard ? std::cin : file;
  bool all = true;
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string answer = timed_estimate_json(options.with_options(std::move(line)), whole);
    all &= !answer.starts_with("{\"error\":");
    print(answer);
    std::fflush(stdout);  // whoever asks line by line has this answer before the next question
  }
  return all ? kFits : kBadInput;
}

int run_check(const JobOptions& options, bool strict, const std::string& format) {
  const std::string text = summary_json(options.job());
  const nlohmann::ordered_json answer = nlohmann::ordered_json::parse(text);
  const bool is_error = answer.contains("error");
  if (is_error && format == "text") return with_answer(text, [](const auto&, const auto&) { return kBadInput; });
  const std::string verdict = answer.value("verdict", "");
  const bool passes = verdict == "fits" || (verdict == "tight" && !strict);
  print(check_result(format, options.file(), answer, passes));
  return is_error ? kBadInput : passes ? kFits : kDoesNotFit;
}

int run_advise(const JobOptions& options, bool json) {
  const std::string job = options.job();
  const Result<Advice> known = advise(job);
  const std::string answer = known ? to_json(*known) : error_json(known.error(), job);
  return with_answer(answer, [&](const std::string& text, const nlohmann::ordered_json& advice) {
    if (!is_trainers_file(options.file())) {
      print(json ? text : advice_table(advice));
      return kFits;
    }
    const importers::Question question = read_paths({options.file()}, "", 0);
    const std::vector<FileChange> changes = advise_files(question, nlohmann::json::parse(job), &*known);
    nlohmann::ordered_json with_words = advice;
    with_words["in_file"] = to_json(changes);
    print(json ? with_words.dump() : advice_table(advice) + file_advice_table(changes));
    return kFits;
  });
}

int run_gpus(const JobOptions& options, bool json) {
  return with_answer(gpus_json(options.job()), [&](const std::string& text, const nlohmann::ordered_json& answer) {
    print(json ? text : gpu_table(answer));
    return kFits;
  });
}

int run_plan(const JobOptions& options, bool json) {
  return with_answer(plans_json(options.job()), [&](const std::string& text, const nlohmann::ordered_json& answer) {
    print(json ? text : plan_table(answer));
    return kFits;
  });
}

int run_share(const std::vector<std::string>& files, const std::string& gpu, bool json) {
  std::vector<std::string> jobs;
  for (const std::string& file : files) jobs.push_back(job_of_file(file));
  return with_answer(share_json(jobs, gpu), [&](const std::string& text, const nlohmann::ordered_json& answer) {
    print(json ? text : share_table(files, answer));
    return answer.at("verdict") == "does-not-fit" ? kDoesNotFit : kFits;
  });
}

int run_presets() {
  std::printf("Models (--preset)\n");
  for (const ModelPreset& model : model_presets()) std::printf("  %-26s %s\n", model.id.c_str(), model.title.c_str());
  std::printf("\n%-72s %13s\n", "GPUs (--gpu)", "usable memory");
  for (const Gpu& gpu : gpu_catalogue()) {
    std::printf("  %-26s %-43s %13s%s\n", gpu.id.c_str(), gpu.name.c_str(), bytes_text(gpu.usable_bytes).c_str(),
                gpu.calibrated ? "" : "  (not calibrated)");
  }
  return kFits;
}

int run_checkpoints(const JobOptions& options, const std::string& format) {
  const std::string advice = checkpoint_advice_json(options.job());
  const auto answer = nlohmann::ordered_json::parse(advice);
  if (answer.is_object())
    return bad_input(answer["error"]["pointer"].get<std::string>(), answer["error"]["message"].get<std::string>());
  print(format == "text" ? checkpoint_table(answer) : advice + "\n");
  return kFits;
}

int run_resolve(const JobOptions& options, bool json) {
  return with_answer(resolve_json(options.job()), [&](const std::string& text, const nlohmann::ordered_json& answer) {
    print(json ? text : resolved_table(answer));
    return kFits;
  });
}

int run_import(const std::vector<std::string>& files, const std::string& gpu, std::int64_t gpus, bool json) {
  const importers::Question question = read_paths(files, gpu, gpus);
  if (const auto trainings = importers::trainings_of(question); trainings.size() == 2) {
    const importers::Ledger first = import_files(trainings[0]), second = import_files(trainings[1]);
    const std::optional<FileComparison> comparison = compare_files(first, second);
    print(json         ? compared_json(first, second, comparison)
          : comparison ? comparison_table(*comparison)
                       : import_table(first) + "\n" + import_table(second));
    return comparison ? kFits : kBadInput;
  }
  const importers::Ledger ledger = import_files(question);
  print(json ? importers::to_json(ledger) : import_table(ledger));
  return ledger.refused || !ledger.job.contains("model") ? kBadInput : kFits;
}

int run_traits(const JobOptions& options) {
  return with_answer(traits_json(options.job()), [](const std::string& text, const nlohmann::ordered_json&) {
    print(text);
    return kFits;
  });
}

int run_log(const JobOptions& options, bool work) {
  const Result<Job> job = parse_job(options.job());
  if (!job) return bad_input(job.error().pointer, job.error().message);
  const Simulation simulation = simulate(*job, resolve_behaviours(job->runtime), false);
  if (simulation.refusal) return bad_input(simulation.refusal->pointer, simulation.refusal->message);
  print(work ? work_log(simulation.log, find_speed(job->gpu.id)) : event_log(simulation.log));
  return kFits;
}

/// presets/settings.json, presets/job.schema.json and docs/settings.md.
int run_settings(const std::string& form) {
  print(form == "schema" ? job_schema() : form == "markdown" ? settings_markdown() : settings_json());
  return kFits;
}

int run_trace(const JobOptions& options, const std::string& file) {
  const Result<std::string> snapshot = estimate_snapshot(options.job());
  if (!snapshot) return bad_input(snapshot.error().pointer, snapshot.error().message);
  std::ofstream out(file, std::ios::binary);
  out << *snapshot;
  out.close();
  if (!out) return bad_input("", "cannot write " + file);
  std::printf("%s: open it at https://pytorch.org/memory_viz or with python -m torch.cuda._memory_viz\n", file.c_str());
  return kFits;
}

int run(int argc, char** argv) {
  CLI::App app{"Computes the peak GPU memory of a training or inference job, and what uses it.", "oometer"};
  app.set_version_flag("--version", std::string(version()));
  app.require_subcommand(1);

  CLI::App* estimate = app.add_subcommand("estimate", "print a job's report");
  const JobOptions estimate_options(*estimate);
  bool json = false;
  const auto add_json = [&json](CLI::App* command, const std::string& what) {
    command->add_flag("--json", json, what + ", as JSON");
  };
  add_json(estimate, "the whole report");
  std::string telemetry;
  bool lines = false;
  CLI::Option* jsonl = estimate->add_flag(
      "--jsonl", lines,
      "a job a line in (the file, or standard input), its whole report or error a line out; exit code 2 "
      "if any is an error");
  estimate
      ->add_option("--telemetry", telemetry,
                   "your own runs, as oometer.FitsCallback writes them (a line a training): those like the job refine "
                   "its intervals")
      ->excludes(jsonl);

  CLI::App* check = app.add_subcommand("check", "exit with 0 if the job fits, 1 if not, 2 on bad input");
  const JobOptions check_options(*check);
  bool strict = false;
  check->add_flag("--strict", strict, "treat a tight fit as a failure");
  std::string check_format = "text";
  check
      ->add_option("--format", check_format, "text, github (a workflow command of GitHub Actions), junit (XML) or json")
      ->check(CLI::IsMember({"text", "github", "junit", "json"}))
      ->capture_default_str();

  CLI::App* advise = app.add_subcommand("advise", "print the limits of a job, and what would make it fit");
  const JobOptions advise_options(*advise);
  add_json(advise, "the whole answer");

  CLI::App* gpus = app.add_subcommand(
      "gpus",
      "print, for every GPU: whether the job fits, what is left, the largest micro-batch and how many are needed");
  const JobOptions gpus_options(*gpus);
  add_json(gpus, "the whole answer");

  CLI::App* plan = app.add_subcommand(
      "plan",
      "print ways to spread a training over its GPUs, to checkpoint it and to cut its step into micro-batches: the "
      "fastest that fits first");
  const JobOptions plan_options(*plan);
  add_json(plan, "the whole answer");

  CLI::App* share = app.add_subcommand(
      "share",
      "say whether jobs of several processes fit on one GPU together, and how much slower each becomes; exit with 0 if "
      "they do, 1 if not");
  std::vector<std::string> share_files;
  std::string share_gpu;
  share->add_option("jobs", share_files, "the jobs' files, two or more, as `estimate` reads them")
      ->required()
      ->expected(2, -1);
  share->add_option("--gpu", share_gpu, "a GPU of `oometer presets`, in place of the first job's");
  add_json(share, "the whole answer");

  CLI::App* resolve = app.add_subcommand(
      "resolve",
      "print each key of a job's DeepSpeed or accelerate configuration: its value, where it comes from, and "
      "whether memory depends on it");
  const JobOptions resolve_options(*resolve);
  add_json(resolve, "the same");

  CLI::App* import = app.add_subcommand(
      "import",
      "make a job of a trainer's own files (YAML, JSON, shell script), with what was taken, what changes no memory and "
      "what is not modelled");
  std::vector<std::string> import_paths;
  std::string import_gpu;
  std::int64_t import_gpus = 0;
  import->add_option("files", import_paths, "the trainer's file and those that it names; - is standard input")
      ->required();
  add_json(import, "job and lists");
  import->add_option("--gpu", import_gpu, "a GPU of `oometer presets`");
  import->add_option("--gpus", import_gpus, "how many GPUs it runs on")->check(CLI::Range(1, 65536));

  CLI::App* presets = app.add_subcommand("presets", "list the models and GPUs that have a name");

  CLI::App* trace = app.add_subcommand("trace", "write a memory snapshot for PyTorch's memory viewer");
  const JobOptions trace_options(*trace);
  std::string snapshot_file = "snapshot.pickle";
  trace->add_option("-o,--output", snapshot_file, "the file to write")->capture_default_str();

  CLI::App* checkpoints = app.add_subcommand(
      "checkpoints",
      "print which blocks to checkpoint: the least memory, and the trade-off between memory and the step's time");
  const JobOptions checkpoints_options(*checkpoints);
  std::string checkpoints_format = "json";
  checkpoints->add_option("--format", checkpoints_format, "json, or text (a table)")
      ->check(CLI::IsMember({"json", "text"}))
      ->capture_default_str();
  CLI::App* log = app.add_subcommand("log", "print the log of allocations and frees, for tools/trace_diff.py");
  const JobOptions log_options(*log);
  bool work = false;
  log->add_flag("--work", work, "what the operators compute and move, instead");
  log->group("");  // not in the help: a tool's interface
  CLI::App* traits = app.add_subcommand("traits", "print what a job's model is and can, as JSON");
  const JobOptions traits_options(*traits);
  traits->group("");  // not in the help: a tool's interface

  // Those of the Python package, whose entry point answers them before it comes here.
  for (const auto& [name, words] : {std::pair("run", "run a script on a stand-in GPU and print its peak"),
                                    std::pair("mcp", "answer a coding agent's questions")}) {
    app.add_subcommand(name, std::string(words) + " (in the Python package)")
        ->prefix_command()
        ->callback([name = name] {
          throw std::runtime_error(std::string("`oometer ") + name + "` is in the Python package: pip install oometer");
        });
  }

  CLI::App* settings = app.add_subcommand("settings", "print the table of settings");
  settings->group("");
  std::string form = "json";
  settings->add_option("--as", form)->check(CLI::IsMember({"json", "schema", "markdown"}));

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kFits : kBadInput;
  }
  if (gpus->parsed()) return run_gpus(gpus_options, json);
  if (plan->parsed()) return run_plan(plan_options, json);
  if (share->parsed()) return run_share(share_files, share_gpu, json);
  if (resolve->parsed()) return run_resolve(resolve_options, json);
  if (import->parsed()) return run_import(import_paths, import_gpu, import_gpus, json);
  if (presets->parsed()) return run_presets();
  if (trace->parsed()) return run_trace(trace_options, snapshot_file);
  if (checkpoints->parsed()) return run_checkpoints(checkpoints_options, checkpoints_format);
  if (log->parsed()) return run_log(log_options, work);
  if (traits->parsed()) return run_traits(traits_options);
  if (settings->parsed()) return run_settings(form);
  if (advise->parsed()) return run_advise(advise_options, json);
  if (check->parsed()) return run_check(check_options, strict, check_format);
  if (lines) return run_lines(estimate_options);
  return run_estimate(estimate_options, json, telemetry);
}

}  // namespace

EstimateOptions report_options() {
  EstimateOptions options;
  options.orders = true;
  options.report.host = true;
  return options;
}

int command(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {  // a file that cannot be read
    return bad_input("", error.what());
  }
}

}  // namespace oometer::cli
