#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "job/parse.h"
#include "job/settings/describe.h"

namespace oometer {
namespace {

using nlohmann::json;

json schema() { return json::parse(job_schema()); }

std::set<std::string> keys_of(const json& object) {
  std::set<std::string> keys;
  for (const auto& item : object.items()) keys.insert(item.key());
  return keys;
}

/// The keys that the parser knows at a pointer: it lists them where it meets one that is near none.
std::set<std::string> parser_keys(const std::string& pointer, const json& parallel = json::object()) {
  json job = {{"model", {{"preset", "llama-2-7b"}}}, {"parallel", parallel}};
  if (pointer.starts_with("/inference")) job["task"] = "inference";
  job[json::json_pointer(pointer + "/zzzzzzzzzzzzzzzzzzzz")] = 1;
  const Result<Job> result = parse_job(job.dump());
  REQUIRE_FALSE(result.has_value());
  INFO(result.error().message);
  REQUIRE(result.error().pointer == pointer + "/zzzzzzzzzzzzzzzzzzzz");
  const std::string marker = "the keys here are: ";
  const std::size_t at = result.error().message.find(marker);
  REQUIRE(at != std::string::npos);
  std::istringstream list(result.error().message.substr(at + marker.size()));
  std::set<std::string> keys;
  for (std::string key; std::getline(list, key, ',');) keys.insert(key.substr(key.find_first_not_of(' ')));
  return keys;
}

TEST_CASE("The schema and the parser know the same keys", "[schema]") {
  const json root = schema()["properties"];
  CHECK(parser_keys("") == keys_of(root));
  for (const char* part :
       {"model", "data", "training", "inference", "parallel", "gpu", "host", "runtime", "calibration", "cost"}) {
    INFO(part);
    CHECK(parser_keys(std::string("/") + part) == keys_of(root[part]["properties"]));
  }
  CHECK(parser_keys("/inference/cache") == keys_of(root["inference"]["properties"]["cache"]["properties"]));
  const json training = root["training"]["properties"];
  CHECK(parser_keys("/training/optimizer") == keys_of(training["optimizer"]["anyOf"][1]["properties"]));
  CHECK(parser_keys("/training/activation_checkpointing") ==
        keys_of(training["activation_checkpointing"]["anyOf"][1]["properties"]));
  CHECK(parser_keys("/training/quantization") == keys_of(training["quantization"]["properties"]));
  CHECK(parser_keys("/training/liger") == keys_of(training["liger"]["anyOf"][1]["properties"]));
  CHECK(parser_keys("/training/lora") == keys_of(training["lora"]["properties"]));
  CHECK(parser_keys("/training/ia3") == keys_of(training["ia3"]["properties"]));
  const json parallel = root["parallel"]["properties"];
  CHECK(parser_keys("/parallel/ddp", {{"strategy", "ddp"}}) == keys_of(parallel["ddp"]["properties"]));
  CHECK(parser_keys("/parallel/fsdp", {{"strategy", "fsdp2"}}) == keys_of(parallel["fsdp"]["properties"]));
}

TEST_CASE("What is generated of the table of settings is up to date", "[schema]") {
  const auto is_up_to_date = [](const char* path, const char* form, const std::string& text) {
    std::ifstream file(std::string(OOMETER_SOURCE_DIR "/") + path);
    const std::string found((std::istreambuf_iterator<char>(file)), {});
    INFO("oometer settings --as " << form << " >" << path);
    CHECK(found == text);
  };
  is_up_to_date("presets/job.schema.json", "schema", job_schema());
  is_up_to_date("presets/settings.json", "json", settings_json());
  is_up_to_date("docs/settings.md", "markdown", settings_markdown());
}

TEST_CASE("The conditions, defaults and links of the table are sound", "[schema]") {
  const json table = json::parse(settings_json());
  std::set<std::string> pointers, options;
  for (const json& row : table["settings"]) {
    CHECK(pointers.insert(row["pointer"]).second);
    if (row.contains("option")) CHECK(options.insert(row["option"]).second);
  }
  for (const json& row : table["settings"]) {
    INFO(row.dump());
    for (const json& condition : row.value("applies", json::array())) {
      CHECK(pointers.contains(condition["setting"]));
      CHECK(condition.contains("is") != condition.contains("not"));
      for (const json& value : condition.contains("is") ? condition["is"] : condition["not"])
        CHECK(!value.is_discarded());
    }
    CHECK(row["words"].get<std::string>().back() != '.');
    CHECK(row.value("link_values", json::array({1, 2})).size() == 2);
  }
}

/// A job for a value at `pointer`. LoRA has no usual targets in LLaVA: there they have to be said; only
/// beside it weights are quantised.
json job_around(const std::string& pointer, const std::string& key) {
  json job = {{"model", {{"preset", "llava-1.5-7b"}}}};
  if (pointer.starts_with("/inference")) job["task"] = "inference";
  if (pointer == "/inference/cache") job["inference"]["cache"]["implementation"] = "dynamic";
  if (pointer == "/training/lora") job["training"]["lora"]["target_modules"] = "all-linear";
  if (pointer == "/training/ia3")
    job["training"]["ia3"] = {{"target_modules", "all-linear"}, {"feedforward_modules", {"down_proj"}}};
  if (pointer == "/parallel/ddp") job["parallel"] = {{"strategy", "ddp"}};
  if (pointer == "/parallel/fsdp")
    job["parallel"] = {{"strategy", key == "reshard_after_forward" || key == "preparer" ? "fsdp2" : "fsdp1"}};
  if (pointer == "/training/quantization")
    job["training"] = {{"lora", {{"target_modules", "all-linear"}}}, {"quantization", {{"load_in_4bit", true}}}};
  return job;
}

/// Walks a schema of an object and tries each of its values in a job, leaving out what is known and not modelled.
void try_values(const json& properties, const std::string& pointer) {
  for (const auto& [key, rule] : properties.items()) {
    std::string at = pointer;
    at.append("/").append(key);
    if (rule.contains("properties") && key != "model") try_values(rule["properties"], at);
    for (const json& value : rule.value("enum", json::array())) {
      json job = job_around(pointer, key);
      job[json::json_pointer(at)] = value;
      const Result<Job> result = parse_job(job.dump());
      INFO(job.dump());
      // A spelling that the schema has is never unknown to the parser.
      CHECK((result.has_value() || result.error().code == "not-modelled" || result.error().code == "inconsistent" ||
             result.error().code == "missing"));
    }
    if (rule.contains("default") && key != "model" && pointer != "/gpu") {
      json job = job_around(pointer, key);
      const Result<Job> without = parse_job(job.dump());
      job[json::json_pointer(at)] = rule["default"];
      const Result<Job> result = parse_job(job.dump());
      INFO(job.dump());
      REQUIRE(result.has_value());
      CHECK(*result == *without);
    }
  }
}

TEST_CASE("The schema's values are accepted and its defaults are the parser's", "[schema]") {
  try_values(schema()["properties"], "");
}

}  // namespace
}  // namespace oometer
