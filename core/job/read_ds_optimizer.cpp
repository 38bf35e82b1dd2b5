#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "job/names.h"
#include "job/optimizers.h"
#include "job/read.h"
#include "job/settings/fields.h"

namespace oometer {

using nlohmann::json;

namespace {

/// What stops, or is not modelled, by its lower-case name.
struct RefusedType {
  std::string_view type;
  const char *code, *why;
};
constexpr const char* kNoOneBit =
    "DeepSpeed refuses it with ZeRO, and since 0.19 has no such optimizer; expected \"AdamW\"";
constexpr const char* kNoMup =
    "it stops at models whose shapes mup has not set: \"Did you forget to call `mup.set_base_shapes` on the model?\"; "
    "expected \"AdamW\"";
constexpr RefusedType kRefusedTypes[] = {
    {"onebitadam", "inconsistent", kNoOneBit},
    {"zerooneadam", "inconsistent", kNoOneBit},
    {"onebitlamb", "inconsistent", kNoOneBit},
    {"muadam", "inconsistent", kNoMup},
    {"muadamw", "inconsistent", kNoMup},
    {"musgd", "inconsistent", kNoMup},
    {"muon", "not-modelled",
     "DeepSpeed compiles Muon's Newton-Schulz steps, which is not supported yet; expected \"AdamW\""},
};

/// Classes of torch.optim that were compared on ZeRO's flat parts.
constexpr std::string_view kOfTorch[] = {"Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"};

constexpr const char* kTypes =
    "expected \"Adam\", \"AdamW\", \"Lion\", \"Adagrad\", \"Lamb\" or \"SGD\", or no optimizer";

OptimizerConfig read_ds_adam(ConfigReader& params, bool is_adamw) {
  OptimizerConfig optimizer;
  if (params.boolean("amsgrad", false)) params.fail_found("amsgrad", "not-modelled", "expected false");
  optimizer.name = params.boolean("adam_w_mode", true) || is_adamw ? OptimizerName::adamw : OptimizerName::adam;
  const bool is_torch = params.boolean("torch_adam", false);
  optimizer.implementation = !is_torch                         ? OptimizerImplementation::deepspeed_fused
                             : params.boolean("foreach", true) ? OptimizerImplementation::foreach_
                                                               : OptimizerImplementation::for_loop;
  params.ignore({"lr", "betas", "eps", "weight_decay", "bias_correction", "foreach", "fp32_optimizer_states"});
  params.finish();
  return optimizer;
}

/// Another class, with its own arguments.
OptimizerConfig read_class(ConfigReader& ds, ConfigReader& reader, const char* path) {
  OptimizerConfig optimizer;
  json args = json::object();
  if (const json* params = reader.find("params"); params && params->is_object())
    for (const auto& [key, value] : params->items())
      if (value != "auto") args[key] = value;
  json job = {{"training", {{"optimizer", {{"name", path}, {"args", std::move(args)}}}}}};
  if (std::optional<Error> error = spell_out_optimizer(job)) {
    constexpr std::string_view kArgs = "/training/optimizer/args";
    error->pointer =
        reader.pointer_to("params") + (error->pointer.starts_with(kArgs) ? error->pointer.substr(kArgs.size()) : "");
    if (!ds.findings().error) ds.findings().error = std::move(error);
    return optimizer;
  }
  const json& spelled = job["training"]["optimizer"];
  ConfigReader own(&spelled, reader.pointer(), Mode::strict, ds.findings());
  read_fields(own, settings::optimizer_section, optimizer);
  ConfigReader own_args = own.object("args");
  read_fields(own_args, settings::optimizer_arguments_section, optimizer.args);
  return optimizer;
}

}  // namespace

/// DeepSpeedEngine._configure_basic_optimizer (0.19.8, runtime/engine.py); transformers gives it all parameters in one
/// group (deepspeed_optim_sched).
OptimizerConfig read_ds_optimizer(ConfigReader& ds, const Runtime& runtime) {
  ConfigReader reader = ds.object("optimizer");
  OptimizerConfig optimizer;
  const std::string given = reader.text("type", ""), type = lower_case(given);
  ConfigReader params = reader.object("params");
  params.refuse("max_grad_norm",
                "DeepSpeed refuses it here: gradient_clipping, outside of the optimizer, is its place");
  const auto refused = std::find_if(std::begin(kRefusedTypes), std::end(kRefusedTypes),
                                    [&](const RefusedType& row) { return row.type == type; });
  const auto of_torch = std::find(std::begin(kOfTorch), std::end(kOfTorch), given);
  const bool is_lamb = type == "lamb", is_of_torch = of_torch != std::end(kOfTorch),
             is_other = type == "lion" || type == "adagrad" || is_lamb || is_of_torch;
  if (refused != std::end(kRefusedTypes)) {
    reader.fail_found("type", refused->code, refused->why);
  } else if (type == "adam" || type == "adamw") {
    optimizer = read_ds_adam(params, type == "adamw");
  } else if (!is_other) {
    reader.fail_found("type", "not-modelled", kTypes);
  } else if (runtime.deepspeed < Version{0, 19, 0}) {
    reader.fail_found("type", "not-modelled",
                      "with DeepSpeed before 0.19 it is not supported yet; expected \"Adam\" or \"AdamW\"");
  } else if ((is_lamb || is_of_torch) && !ds.boolean("zero_allow_untested_optimizer", false)) {
    reader.fail_found(
        "type", "inconsistent",
        "\"You are using an untested ZeRO Optimizer. Please add <\"zero_allow_untested_optimizer\": true> "
        "in the configuration file to use it.\"");
  } else if (is_of_torch) {
    optimizer = read_class(ds, reader, ("torch.optim." + given).c_str());
  } else {
    optimizer = read_class(ds, reader,
                           type == "lion" ? "deepspeed.ops.lion.FusedLion"
                           : is_lamb      ? "deepspeed.ops.lamb.FusedLamb"
                                          : "torch.optim.Adagrad");
  }
  ConfigReader zero = ds.object("zero_optimization");
  if (zero.object("offload_optimizer").text("device", "none") != "none") {
    if (is_lamb)
      reader.fail_found("type", "inconsistent",
                        "its kernel takes weights on the GPU alone; expected \"AdamW\", or no offload");
    else if (is_of_torch && given != "SGD")
      reader.fail_found("type", "not-modelled", "with offload it is not supported yet; expected \"AdamW\" or \"SGD\"");
  }
  optimizer.param_groups = 1;
  reader.ignore({"legacy_fusion"});
  reader.finish();
  return optimizer;
}

}  // namespace oometer
