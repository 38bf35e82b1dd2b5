#include "job/fixes.h"

#include <nlohmann/json.hpp>

#include "config/patch.h"
#include "config/reader.h"
#include "job/accelerate.h"
#include "job/parse.h"
#include "job/simulate.h"

namespace oometer {

using nlohmann::json;

namespace {

constexpr std::size_t kMostFixes = 3;

/// A way out of errors at a place, or below it.
struct Row {
  std::string_view at;
  const char* label;
  const char* change;
};

// Changes that help in several places.
constexpr const char* kZero2 =
    R"({"parallel": {"strategy": "deepspeed", "zero_stage": 2, "ds_config": null, "ddp": null, "fsdp": null}})";
constexpr const char* kBf16 = R"({"training": {"precision": "bf16"}})";
constexpr const char* kFp32 = R"({"training": {"precision": "fp32"}})";
constexpr const char* kCheckpoint = R"({"training": {"activation_checkpointing": "non-reentrant"}})";
constexpr const char* kFused = R"({"training": {"optimizer": {"implementation": "fused", "paged": null}}})";

constexpr const char* kSdpa = R"({"training": {"attention": "sdpa"}})";
constexpr const char* kPlainLoop = R"({"training": {"loop": null}})";
constexpr const char* kToday = R"({"runtime": null})";

constexpr Row kRows[] = {
    {"/training/lora", "Adapters in the weights' type", R"({"training": {"lora": {"autocast_adapter_dtype": false}}})"},
    {"/training/ia3", "Adapters in the weights' type", R"({"training": {"ia3": {"autocast_adapter_dtype": false}}})"},
    {"/training/lora/autocast_adapter_dtype", "Switch to ZeRO-2", kZero2},
    {"/training/quantization", "Add LoRA", R"({"training": {"lora": {}}})"},
    {"/training/precision", "Weights in bf16", kBf16},
    {"/training/precision", "Weights in fp32", kFp32},
    {"/training/attention", "Use SDPA", kSdpa},
    {"/training/attention", "Use eager attention", R"({"training": {"attention": "eager"}})"},
    {"/training/stage", "Fine-tune", R"({"training": {"stage": "finetune"}})"},
    {"/training/stage", "Train everything", R"({"training": {"stage": "full"}})"},
    {"/training/stage", "Leave out adapters", R"({"training": {"lora": null, "ia3": null}})"},
    {"/training/optimizer", "Use the fused optimizer", kFused},
    {"/training/activation_checkpointing", "Checkpoint every block", kCheckpoint},
    {"/training/chunked_cross_entropy", "Without Liger's loss", R"({"training": {"liger": null}})"},
    {"/parallel/strategy", "Use one GPU", R"({"parallel": {"data": 1}})"},
    {"/parallel/ds_config/zero_optimization", "Switch to ZeRO-3",
     R"({"parallel": {"ds_config": {"zero_optimization": {"stage": 3}}}})"},
    {"/parallel", "Switch to DDP",
     R"({"parallel": {"strategy": "ddp", "zero_stage": null, "ds_config": null, "fsdp": null}})"},
    {"/parallel", "Turn parallelism off",
     R"({"parallel": {"strategy": "none", "zero_stage": null, "ds_config": null, "fsdp": null, "ddp": null}})"},
    {"/parallel", "Weights in bf16", kBf16},
    {"/parallel", "Weights in fp32", kFp32},
    {"/parallel", "Use the fused optimizer", kFused},
    {"/parallel", "Checkpoint every block", kCheckpoint},
    {"/parallel", "Switch to ZeRO-2", kZero2},
    {"/parallel", "Switch to ZeRO-3",
     R"({"parallel": {"strategy": "deepspeed", "zero_stage": 3, "ds_config": null, "ddp": null, "fsdp": null}})"},
    {"/parallel", "Reset gradient accumulation", R"({"training": {"gradient_accumulation_steps": null}})"},
    {"/parallel", "Use one GPU",
     R"({"parallel": {"strategy": "none", "data": 1, "zero_stage": null, "ds_config": null, "fsdp": null, "ddp": null}})"},
    {"/parallel", "Run a plain loop", kPlainLoop},
    {"/training", "Run a plain loop", kPlainLoop},
    {"/training", "Use today's versions", kToday},
    {"/data", "Use SDPA", kSdpa},
    {"/data", "Use today's versions", kToday},
    {"/runtime", "Use today's versions", kToday},
};

bool is_below(std::string_view pointer, std::string_view place) {
  return pointer.starts_with(place) && (pointer.size() == place.size() || pointer[place.size()] == '/');
}

bool is_accepted(const json& document) {
  const Result<Job> job = parse_job(document.dump(-1, ' ', false, json::error_handler_t::replace));
  return job && !simulate(*job, resolve_behaviours(job->runtime)).refusal;
}

/// Takes away what stands at a pointer; false where nothing does.
bool take_away(json& document, const std::string& pointer) {
  const json::json_pointer place(pointer);
  if (place.empty() || !document.contains(place)) return false;
  json& parent = document[place.parent_pointer()];
  if (!parent.is_object()) return false;
  parent.erase(place.back());
  return true;
}

}  // namespace

std::vector<Fix> known_fixes(std::string_view text, const Error& error) {
  std::vector<Fix> fixes;
  const Result<json> document = parse_json(text);
  if (!document || !document->is_object() || is_below(error.pointer, "/model")) return fixes;
  const auto offer = [&](std::string label, const json& changed) {
    if (fixes.size() == kMostFixes || !is_accepted(changed)) return;
    const json patch = patch_between(*document, changed);
    fixes.push_back({std::move(label), patch.dump(-1, ' ', false, json::error_handler_t::replace)});
  };
  // What a file of accelerate says stands in its place where a way out changes that.
  json spelled_out = *document;
  const json::json_pointer accelerate("/parallel/accelerate_config");
  if (document->contains(accelerate) && (*document)[accelerate].is_object() && spell_out_accelerate(spelled_out))
    return fixes;
  const json::json_pointer gpus("/parallel/data");
  const bool one_gpu = !spelled_out.contains(gpus) || spelled_out[gpus] == 1;
  for (const Row& row : kRows) {
    if (!is_below(error.pointer, row.at) || (one_gpu && row.label == std::string_view("Switch to DDP"))) continue;
    const json patch = *parse_json(row.change);
    json changed = patch.contains("parallel") ? spelled_out : *document;
    changed.merge_patch(patch);
    offer(row.label, changed);
  }
  if (json changed = *document; take_away(changed, error.pointer))
    offer("Leave out " + error.pointer.substr(error.pointer.rfind('/') + 1), changed);
  return fixes;
}

}  // namespace oometer
