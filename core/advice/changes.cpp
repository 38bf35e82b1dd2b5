#include "advice/changes.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "advice/parallel_changes.h"
#include "advice/remedies.h"
#include "advice/trial.h"
#include "job/catalogue.h"
#include "job/notes.h"
#include "job/parse.h"
#include "sort_by.h"
#include "train/step.h"

namespace oometer {

using nlohmann::json;

namespace {

void lay_over(json& job, const json& patch) { job.merge_patch(patch); }

/// "auto" in place of a number that a change contradicts.
void make_auto(json& job, const char* key) {
  const json::json_pointer pointer = json::json_pointer("/parallel/ds_config") / key;
  if (job.contains(pointer)) job[pointer] = "auto";
}

/// Micro-batches of a half, a quarter ... as far as the product can be kept by accumulation.
Alternatives accumulation(const Job& job) {
  Alternatives choice{{}, Tell::enough};
  if (job.task != Task::train) return choice;
  const bool contrastive = job.model.config.traits().contrastive;
  const std::string costs = contrastive
                                ? "different training: the contrastive loss compares fewer samples with each other"
                                : "slower: more, smaller forward and backward passes per optimizer step";
  std::int64_t batch = job.data.micro_batch_size;
  std::int64_t steps = job.training.gradient_accumulation_steps;
  for (int weight = 1; batch % 2 == 0; ++weight) {
    batch /= 2;
    steps *= 2;
    choice.changes.push_back(
        {"Micro-batch " + std::to_string(batch) + ", accumulated over " + std::to_string(steps) + " steps", costs,
         contrastive ? Price::training : Price::time, weight, [batch, steps](json& document) {
           spell_out_parallel(document);
           lay_over(document,
                    {{"data", {{"micro_batch_size", batch}}}, {"training", {{"gradient_accumulation_steps", steps}}}});
           make_auto(document, "train_micro_batch_size_per_gpu");
           make_auto(document, "gradient_accumulation_steps");
         }});
  }
  return choice;
}

/// BitsAndBytesConfig as QLoRA has it.
json nf4(const Job& job) {
  const bool in_fp16 = weight_dtype(job.training.precision) == DType::float16;
  return {{"load_in_4bit", true},
          {"bnb_4bit_quant_type", "nf4"},
          {"bnb_4bit_use_double_quant", true},
          {"bnb_4bit_compute_dtype", in_fp16 ? "float16" : "bfloat16"}};
}

/// Whether a projector trains in full beside adapters, as in LLaVA's recipe.
bool trains_projector(const Job& job) {
  return job.model.config.traits().takes_images && job.training.stage != Stage::full;
}

/// What trains in full is left as it is; else what transformers leaves by itself.
json qlora(const Job& job) {
  json config = nf4(job);
  if (trains_projector(job)) config["llm_int8_skip_modules"] = job.model.config.traits().quantization_skips;
  return config;
}

constexpr const char* kQuantizes =
    "precision and time: frozen weights are quantized to 4 bits and dequantized for each product; needs bitsandbytes";

constexpr const char* kQuantizesAll =
    "precision and time: weights are quantized to 4 bits and dequantized for each product; needs bitsandbytes";

constexpr const char* kTrainsAdapters = "different training: trains adapters only; quality may differ";

/// LoRA on the language model, as the page's own settings write it: for a model with a projector LLaVA's recipe
/// (scripts/v1_5/finetune_lora.sh), which trains that in full.
Alternatives lora(const Job& job) {
  Alternatives choice;
  const ModelTraits& traits = job.model.config.traits();
  const bool whole = job.training.stage == Stage::full;
  const bool has_adapters = job.training.has_adapters();
  if (job.task != Task::train || !traits.takes_text) return choice;
  if (has_adapters || (!whole && job.training.stage != Stage::finetune)) return choice;
  const bool recipe = trains_projector(job);
  const auto lora_on = [&](const char* names) {
    json config = {
        {"rank", 16},
        {"alpha", 32},
        {"dropout", 0},
        {"target_modules", (recipe ? std::string("(?!.*") + traits.tower + ").*\\.(" : ".*\\.(") + names + ")"}};
    if (recipe) config["also_train"] = {traits.projector};
    return [config](json& document) {
      document["training"]["lora"] = config;
      fit_adapters_to_sharding(document);
    };
  };
  choice.changes.push_back({"LoRA on every linear layer, rank 16", kTrainsAdapters, Price::training, 2,
                            lora_on("q_proj|k_proj|v_proj|o_proj|out_proj|gate_proj|up_proj|down_proj|fc1|fc2")});
  choice.changes.push_back(
      {"LoRA on query and value projections, rank 16", kTrainsAdapters, Price::training, 3, lora_on("q_proj|v_proj")});
  return choice;
}

/// Quantized weights of a model that infers, or below adapters: those of the job or LoRA's.
Alternatives weights_in_4bit(const Job& job) {
  Alternatives choice{{}, Tell::each, false};
  if (job.training.quantization || job.training.ia3 || !job.training.peft.empty()) return choice;
  if (job.task == Task::inference) {
    choice.changes.push_back({"Weights in 4 bits (NF4)", kQuantizesAll, Price::numerics, 2,
                              [config = nf4(job)](json& document) { document["training"]["quantization"] = config; }});
    return choice;
  }
  const auto quantize = [quantization = qlora(job)](json& document) {
    document["training"]["quantization"] = quantization;
    stop_sharding(document);
  };
  if (job.training.lora) {
    choice.changes.push_back({"QLoRA", kQuantizes, Price::numerics, 2, quantize});
    return choice;
  }
  for (const Change& adapters : lora(job).changes)
    choice.changes.push_back({"Q" + adapters.label, std::string(kTrainsAdapters) + "; " + kQuantizes, Price::training,
                              adapters.weight + 2, [make = adapters.make, quantize](json& document) {
                                make(document);
                                quantize(document);
                              }});
  return choice;
}

/// Packages that transformers calls where they are installed.
Alternatives installed_kernels(const Job& job) {
  Alternatives choice{{}, Tell::each, false};
  if (const Kernels missing = missing_kernels(job); missing != Kernels::torch)
    choice.changes.push_back({"Kernels of " + packages_of(missing), "no cost: install them beside transformers",
                              Price::nothing, 2, [](json& document) { document["runtime"]["kernels"] = "packages"; }});
  return choice;
}

Alternatives larger_gpu(const Job& job) {
  std::vector<Gpu> gpus = gpu_catalogue();
  sort_by(gpus, [](const Gpu& gpu) { return gpu.usable_bytes; });
  Alternatives choice{{}, Tell::fitting};
  int weight = 1;
  std::int64_t last = 0;
  for (const Gpu& gpu : gpus) {
    if (gpu.usable_bytes <= job.gpu.usable_bytes || gpu.vendor != job.gpu.vendor) continue;
    if (gpu.usable_bytes == std::exchange(last, gpu.usable_bytes)) continue;
    ++weight;
    choice.changes.push_back({"Larger GPU: " + gpu.name, "different hardware", Price::hardware, weight,
                              [id = gpu.id](json& document) { set_gpu(document, id); }});
  }
  return choice;
}

constexpr Alternatives (*kOfSeveralSettings[])(const Job& job) = {
    sharding, more_gpus, larger_gpu, offload, lora, weights_in_4bit, accumulation, installed_kernels};

}  // namespace

std::vector<Alternatives> possible_changes(const Job& job, const json& document) {
  std::vector<Alternatives> choices;
  for (const auto choice_of : kOfSeveralSettings) {
    Alternatives choice = choice_of(job);
    const auto refused = std::remove_if(choice.changes.begin(), choice.changes.end(), [&](const Change& change) {
      json changed = document;
      change.make(changed);
      return !parse_job(text_of(changed)).has_value();
    });
    choice.changes.erase(refused, choice.changes.end());
    if (!choice.changes.empty()) choices.push_back(std::move(choice));
  }
  std::vector<Alternatives> remedies = remedies_of_settings(job, document);
  std::move(remedies.begin(), remedies.end(), std::back_inserter(choices));
  return choices;
}

void set_gpu(json& job, const std::string& id) {
  lay_over(job, {{"gpu", {{"name", id}, {"usable_bytes", nullptr}, {"compute_capability", nullptr}}}});
}

}  // namespace oometer
