#include <optional>
#include <string>
#include <vector>

#include "job/read.h"
#include "job/settings/fields.h"

namespace oometer {

namespace {

/// LLM.int8 is answered as if the weights were not quantized.
bool reads_int8(ConfigReader& training) {
  ConfigReader reader = training.object("quantization");
  if (!reader.boolean("load_in_8bit", false)) return false;
  reader.ignore({"load_in_4bit", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "bnb_4bit_compute_dtype",
                 "bnb_4bit_quant_storage", "llm_int8_threshold", "llm_int8_has_fp16_weight", "llm_int8_skip_modules",
                 "llm_int8_enable_fp32_cpu_offload", "prepare_model_for_kbit_training"});
  if (reader.boolean("load_in_4bit", false))
    reader.fail_found("load_in_4bit", "inconsistent",
                      "load_in_4bit and load_in_8bit are both True, but only one can be used at the same time");
  reader.finish();
  training.findings().unmodelled.push_back(
      {reader.pointer_to("load_in_8bit") +
           ": answered without quantization. In LLM.int8 a linear layer's weight takes one byte an element, and its "
           "products make 8-bit copies of their inputs",
       Effect::either});
  return true;
}

}  // namespace

std::optional<QuantizationConfig> read_quantization(ConfigReader& training, Task task, const ModelConfig& model,
                                                    const Runtime& runtime) {
  if (reads_int8(training)) return std::nullopt;
  constexpr const char* kKey = "quantization";
  const bool infers = task == Task::inference;
  ConfigReader reader = training.object(kKey);
  QuantizationConfig config;
  if (infers) config.prepares = false;
  const bool is_4bit = reader.boolean("load_in_4bit", false);
  reader.ignore({"load_in_8bit"});  // false: reads_int8 looked
  read_fields(reader, settings::quantization_section, config);
  if (infers && config.prepares)
    reader.fail_found("prepare_model_for_kbit_training", "inconsistent", "found it in a job that infers: leave it out");
  if (reader.has("llm_int8_skip_modules")) config.skip_modules = reader.texts("llm_int8_skip_modules");
  for (const std::string& name : config.skip_modules.value_or(std::vector<std::string>{}))
    if (name.find_first_of("*+?[](){}|^$\\") != std::string::npos)
      reader.fail("llm_int8_skip_modules", "not-modelled",
                  "found " + quote(name) + "; names are modelled, expressions are not: name the modules");
  reader.finish();
  if (!is_4bit) reader.fail_found("load_in_4bit", "missing", "expected true, or no quantization");
  if (const auto refusal = model.traits().refusal(Feature::quantization))
    training.fail_found(kKey, refusal->code, refusal->why);
  if (runtime.framework == Framework::llava || runtime.transformers < Version{5, 0, 0})
    training.fail_found(
        kKey, "not-modelled",
        "quantization is supported with transformers 5 only: leave it out, or set runtime.transformers");
  return config;
}

}  // namespace oometer
