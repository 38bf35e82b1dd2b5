#pragma once

#include <CLI/CLI.hpp>
#include <deque>
#include <nlohmann/json.hpp>
#include <string>

#include "job/settings/setting.h"

namespace oometer::cli {

/// The job of a file, as text: JSON as it stands, a trainer's YAML or script as `oometer import` reads it, - for
/// standard input. Throws std::runtime_error where it cannot be read.
std::string job_of_file(const std::string& path);

/// Adds an option for each setting that has one (`--micro-batch-size` is /data/micro_batch_size), the job's file as an
/// optional argument, and puts the two together: what an option says goes over what the file says.
class JobOptions {
 public:
  explicit JobOptions(CLI::App& command);

  /// The job as text, for the core to judge. Throws std::runtime_error where a file cannot be read.
  std::string job() const;

  /// The same of a job that stands elsewhere than in the file, as text.
  std::string with_options(std::string text) const;

  /// The path of the job's file; "" where none is given.
  const std::string& file() const { return file_; }

 private:
  bool has_any() const;

  struct Given {
    std::string pointer;
    std::string name;
    const Field* field;
    std::string text;
    CLI::Option* option;
  };

  std::string file_;
  std::string config_file_, graph_file_;
  std::string ds_config_file_;
  std::string accelerate_config_file_, lengths_file_;
  std::deque<Given> given_;  // a deque: CLI11 keeps the addresses of the texts
};

}  // namespace oometer::cli
