#include <algorithm>
#include <nlohmann/json.hpp>

#include "config/pattern.h"
#include "job/names.h"
#include "job/read.h"
#include "job/settings/fields.h"
#include "models/kit/classifier_head.h"
#include "peft/lora_kernels.h"
#include "peft/method.h"
#include "sort_by.h"
#include "train/objectives/causal_lm.h"
#include "train/step.h"

namespace oometer {

using nlohmann::json;

namespace {

OptimizerConfig read_optimizer(ConfigReader reader) {
  OptimizerConfig optimizer;
  read_fields(reader, settings::optimizer_section, optimizer);
  ConfigReader args = reader.object("args");
  read_fields(args, settings::optimizer_arguments_section, optimizer.args);
  args.finish();
  if (reader.has("rest")) optimizer.rest.push_back(read_optimizer(reader.object("rest")));
  for (const OptimizerConfig& rest : optimizer.rest)
    if (!rest.rest.empty() || rest.is_bitsandbytes())
      reader.fail("rest", "not-modelled",
                  "found a third optimizer, or one of bitsandbytes; expected one of torch.optim");
  if (optimizer.is_bitsandbytes() && optimizer.name == OptimizerName::sgd)
    reader.fail_found("implementation", "inconsistent",
                      "HF Trainer has no SGD of bitsandbytes; expected foreach, fused or for-loop");
  if (optimizer.paged && !optimizer.is_bitsandbytes())
    reader.fail_found(
        "paged", "inconsistent",
        "only bitsandbytes pages its states: set implementation to bnb-8bit or bnb-32bit, or leave it out");
  if (optimizer.momentum > 0.0 && optimizer.name != OptimizerName::sgd && optimizer.name != OptimizerName::rmsprop)
    reader.fail_found("momentum", "inconsistent", "only sgd and torch.optim.RMSprop keep one: leave it out");
  reader.finish();
  return optimizer;
}

/// {"language_model.layers": [[0, 4], 8]}: ranges of blocks, and single blocks.
std::vector<StackSegments> read_segments(ConfigReader& checkpointing) {
  std::vector<StackSegments> stacks;
  const json* given = checkpointing.find("segments");
  if (!given) return stacks;
  ConfigReader reader = checkpointing.object("segments");
  if (given->is_object() && given->empty()) {
    checkpointing.fail_found("segments", "invalid",
                             "expected stacks of blocks with their regions: {\"language_model.layers\": [[0, 4], 8]}");
    return stacks;
  }
  const auto is_index = [](const json& value) {
    return value.is_number_integer() && value >= 0 && value <= layer_count.max;
  };
  if (!reader.ok()) return stacks;
  for (const auto& [stack, list] : given->items()) {
    StackSegments& segments = stacks.emplace_back(StackSegments{stack, {}});
    if (stack.empty() || !list.is_array()) {
      reader.fail(stack.c_str(), "wrong-type", "found " + describe(list) + "; expected a list such as [[0, 4], 8]");
      return stacks;
    }
    for (const json& item : list) {
      CheckpointSegment segment;
      if (is_index(item)) {
        segment.begin = item.get<std::size_t>();
        segment.end = segment.begin + 1;
      } else if (item.is_array() && item.size() == 2 && is_index(item[0]) && is_index(item[1]) && item[0] < item[1]) {
        segment = {item[0].get<std::size_t>(), item[1].get<std::size_t>()};
      } else {
        reader.fail(
            stack.c_str(), "invalid",
            "found " + describe(item) + " in the list; expected a block's index, or [first, one past the last]");
        return stacks;
      }
      segments.segments.push_back(segment);
    }
    sort_by(segments.segments, [](const CheckpointSegment& segment) { return segment.begin; });
    for (std::size_t i = 1; i < segments.segments.size(); ++i)
      if (segments.segments[i].begin < segments.segments[i - 1].end)
        reader.fail(stack.c_str(), "inconsistent",
                    "found block " + std::to_string(segments.segments[i].begin) +
                        " in two regions; expected each block in one at most");
  }
  return stacks;
}

CheckpointingConfig read_checkpointing(ConfigReader& training, const CheckpointingConfig& so_far,
                                       const Runtime& runtime) {
  constexpr const char* kKey = "activation_checkpointing";
  if (!training.is_object(kKey)) return so_far;
  CheckpointingConfig checkpointing;
  ConfigReader reader = training.object(kKey);
  checkpointing.mode = CheckpointMode::non_reentrant;
  read_fields(reader, settings::checkpointing_section, checkpointing);
  checkpointing.segments = read_segments(reader);
  if (checkpointing.offload && checkpointing.mode == CheckpointMode::none)
    reader.fail_found("offload", "inconsistent", "nothing is checkpointed: leave it out, or set the mode");
  if (checkpointing.offload && runtime.transformers < Version{5, 23, 0})
    reader.fail_found("offload", "not-modelled", "expected runtime.transformers 5.23 or later with it");
  if (!checkpointing.segments.empty() && checkpointing.every != 1)
    reader.fail_found("every", "inconsistent", "the segments say which blocks: leave one of them out");
  if (!checkpointing.segments.empty() && checkpointing.mode == CheckpointMode::none)
    reader.fail_found("mode", "inconsistent", "expected non-reentrant or reentrant with segments");
  reader.finish();
  return checkpointing;
}

/// What a stage means for a model. An error where it means nothing.
Components resolve_stage(ConfigReader& reader, Stage stage, const ModelTraits& traits) {
  if (stage != Stage::pretrain && stage != Stage::finetune) return {};
  const bool pretrain = stage == Stage::pretrain;
  if (const auto refusal = traits.refusal(pretrain ? Feature::pretrain : Feature::finetune))
    reader.fail_found("stage", refusal->code, refusal->why);
  return pretrain ? traits.pretrain : traits.finetune;
}

/// The output that is the loss. Only a class without a loss of its own needs one named.
std::string read_loss(ConfigReader& reader, const ModelTraits& traits) {
  std::string loss = reader.has("loss") ? reader.text("loss", "") : "";
  reader.ignore({"loss"});
  if (traits.has_loss && (loss.empty() || loss == traits.loss_name)) return "";
  if (loss.empty() && traits.losses.size() == 1) return traits.losses[0];
  std::string known;
  for (const char* name : traits.losses) {
    if (loss == name) return loss;
    known += (known.empty() ? "" : " or ") + std::string(name);
  }
  if (*traits.loss_name != '\0') known += (known.empty() ? "" : " or ") + std::string(traits.loss_name);
  if (traits.losses.empty())
    reader.fail_found("loss", "not-modelled", "only null, " + traits.class_name + "'s own loss, is modelled");
  else
    reader.fail_found("loss", loss.empty() ? "missing" : "unknown-value",
                      "expected a loss of " + traits.class_name + ": " + known);
  return loss;
}

/// "fp32, bf16"
std::string list_of(const std::vector<Precision>& precisions) {
  std::string list;
  for (const Precision precision : precisions) list += (list.empty() ? "" : ", ") + name_of(precision, kPrecisions);
  return list;
}

/// {"weights": "bf16", "autocast": "bf16"}: the weights' own type, and autocast's.
Precision read_two_precisions(ConfigReader reader, Precision usual) {
  const DType weights = reader.choice("weights", weight_dtype(usual), kFloats);
  std::optional<DType> autocast;
  if (reader.has("autocast")) autocast = reader.choice("autocast", DType::bfloat16, kFloats);
  reader.ignore({"autocast"});
  if (autocast == DType::float32)
    reader.fail_found("autocast", "inconsistent",
                      "CUDA's autocast computes in bf16 or fp16; expected one of them, or null");
  reader.finish();
  for (const Precision precision : kAllPrecisions)
    if (weight_dtype(precision) == weights && autocast_dtype(precision) == autocast) return precision;
  if (autocast && *autocast != DType::float32)
    reader.fail_found("autocast", "not-modelled",
                      "autocast to " + name_of(*autocast, kFloats) + " over weights in " + name_of(weights, kFloats) +
                          " is not supported yet; expected fp32 weights, or the same type for both");
  return usual;
}

}  // namespace

Precision read_precision(ConfigReader& training, const ModelTraits& traits, bool infers) {
  constexpr const char* kKey = "precision";
  const std::vector<Precision>& own = infers ? traits.inference_precisions : traits.precisions;
  const Precision usual = own.empty() ? Precision::bf16 : own[0];
  const Precision precision = training.is_object(kKey) ? read_two_precisions(training.object(kKey), usual)
                                                       : training.choice(kKey, usual, kPrecisions);
  if (traits.needs_precision && !training.has(kKey))
    training.fail(kKey, "missing", "found nothing, and the model has another; expected " + list_of(own));
  if (!own.empty() && std::find(own.begin(), own.end(), precision) == own.end())
    training.fail_found(kKey, "inconsistent", "expected " + list_of(own) + ": " + traits.precisions_why);
  return precision;
}

void check_attention(ConfigReader& reader, AttentionKind attention, Precision precision, const Gpu& gpu,
                     const Runtime& runtime) {
  const bool is_old = gpu.vendor == Vendor::nvidia && gpu.major < 8;
  if (attention == AttentionKind::sdpa_efficient && is_old &&
      (precision == Precision::bf16 || precision == Precision::amp_bf16))
    reader.fail_found("attention", "inconsistent",
                      "this kernel takes bfloat16 from compute capability 8.0 on, the GPU has " +
                          std::to_string(gpu.major) + "." + std::to_string(gpu.minor) + ": use sdpa-math");
  const bool is_package = is_flash_attention(attention);
  if (is_package && (runtime.transformers < Version{5, 0, 0} || runtime.framework != Framework::transformers))
    reader.fail_found("attention", "not-modelled",
                      "it is supported with transformers 5 and later: expected sdpa-flash");
  if (attention != AttentionKind::sdpa_flash && attention != AttentionKind::sdpa_cudnn && !is_package) return;
  if (precision == Precision::fp32) {
    reader.fail_found("attention", "inconsistent",
                      "this kernel takes half precision only: use sdpa-efficient or sdpa-math");
  } else if (is_old) {
    reader.fail_found("attention", "inconsistent",
                      "this kernel needs compute capability 8.0 or more, the GPU has " + std::to_string(gpu.major) +
                          "." + std::to_string(gpu.minor) + ": use sdpa-efficient");
  } else if (attention == AttentionKind::sdpa_cudnn && (!runtime.cudnn || runtime.torch < Version{2, 4, 0})) {
    reader.fail_found("attention", "inconsistent", "it needs runtime.cudnn and torch 2.4 or later");
  }
}

namespace {

/// What check_flash_attention (sdp_utils.cpp) refuses of a model: values of another width, and masks, which windows
/// that are shorter than the sequence need (_ignore_causal_mask_sdpa).
void check_flash_of(ConfigReader& reader, const ModelTraits& traits, const DataConfig& data) {
  if (const auto refusal = traits.refusal(Feature::flash_attention))
    reader.fail_found("attention", refusal->code, refusal->why);
  for (const std::int64_t window : traits.text.windows)
    if (window > 0 && data.sequence_length >= window)
      return reader.fail_found("attention", "inconsistent",
                               "this kernel takes no mask, which the model's window needs: use sdpa, sdpa-efficient or "
                               "sdpa-math");
}

/// What both kinds of adapters have to keep to.
void check_adapters(ConfigReader& training, ConfigReader& reader, Stage stage,
                    const std::vector<std::string>& modules_to_save) {
  for (const std::string& name : modules_to_save)
    if (name.empty()) reader.fail_found("modules_to_save", "invalid", "expected names of modules");
  if (stage == Stage::pretrain)
    training.fail_found("stage", "inconsistent", "it trains only the projector; expected finetune, or no adapters");
}

/// task_type SEQ_CLS, TOKEN_CLS or QUESTION_ANS: PeftModelForSequenceClassification.__init__ and its like (peft 0.21,
/// peft_model.py) train the head, too.
void save_head(ConfigReader& reader, const ModelConfig& model, bool targets_all,
               std::vector<std::string>& modules_to_save) {
  if (!model.traits().classifies) return;
  const std::string head = head_that_peft_saves(model.traits().class_name);
  const bool is_of_tokens = model.traits().labels == 0;
  if (is_of_tokens && targets_all)  // _maybe_include_all_linear_layers leaves out the head of sequences alone
    reader.fail_found(
        "target_modules", "inconsistent",
        "it reaches " + head + ", which peft saves whole and then cannot wrap: expected names of modules");
  if (std::find(modules_to_save.begin(), modules_to_save.end(), head) == modules_to_save.end())
    modules_to_save.push_back(head);
}

/// target_modules, beside target_parameters: an empty list names none.
bool names_modules(ConfigReader& reader) {
  return reader.has("target_modules") && !(reader.is_list("target_modules") && reader.find("target_modules")->empty());
}

/// What ParamWrapper.__init__ refuses (peft 0.21, tuners/lora/layer.py), of parameters that the job names, or that peft
/// takes in the place of experts' projections.
void check_target_parameters(ConfigReader& reader, const LoraConfig& lora, const Runtime& runtime) {
  if (lora.target_parameters.empty()) return;
  const char* const key = reader.has("target_parameters") ? "target_parameters" : "target_modules";
  const std::string why =
      std::string("does not work with adapters of parameters, which ") + key + " asks for here (lora.ParamWrapper): ";
  if (lora.dropout > 0) reader.fail_found("dropout", "inconsistent", why + "expected 0, or other " + key);
  if (lora.use_dora) reader.fail_found("use_dora", "inconsistent", why + "expected false, or other " + key);
  if (lora.lora_bias) reader.fail_found("lora_bias", "inconsistent", why + "expected false, or other " + key);
  if (runtime.peft < Version{0, 21, 0})
    reader.fail_found(key, "not-modelled",
                      "adapters of parameters are modelled as peft 0.21 has them; expected runtime.peft 0.21");
}

std::optional<LoraConfig> read_lora(ConfigReader& training, Stage stage, const ModelConfig& model,
                                    const Runtime& runtime) {
  if (!training.has("lora")) return std::nullopt;
  ConfigReader reader = training.object("lora");
  LoraConfig lora;
  read_fields(reader, settings::lora_section, lora);
  if (lora.dropout == 1.0) reader.fail_found("dropout", "out-of-range", "expected less than 1: 1 drops everything");
  if (lora.target_parameters.empty() || names_modules(reader))
    lora.target_modules = read_target_modules(reader, model.traits().lora_targets);
  if (const auto convert = model.family().convert_targets) convert(reader, model.config(), lora);
  check_target_parameters(reader, lora, runtime);
  if (lora.use_dora && lora.lora_bias)
    reader.fail_found("lora_bias", "inconsistent", "peft has no DoRA with it: leave one of them out");
  if (lora.use_dora && runtime.peft < Version{0, 19, 0})
    reader.fail_found("use_dora", "not-modelled", "DoRA is modelled as peft 0.19 and later have it");
  if (lora.lora_bias && runtime.peft < Version{0, 14, 0})
    reader.fail_found("lora_bias", "inconsistent", "peft 0.14 or later has it");
  save_head(reader, model, lora.target_modules.all_linear, lora.modules_to_save);
  check_adapters(training, reader, stage, lora.modules_to_save);
  reader.finish();
  return lora;
}

std::optional<Ia3Config> read_ia3(ConfigReader& training, Stage stage, const ModelConfig& model) {
  if (!training.has("ia3")) return std::nullopt;
  if (training.has("lora")) training.fail_found("ia3", "inconsistent", "there is lora too: leave one of them out");
  ConfigReader reader = training.object("ia3");
  Ia3Config ia3;
  read_fields(reader, settings::ia3_section, ia3);
  ia3.target_modules = read_target_modules(reader, model.traits().ia3_targets);
  ia3.feedforward_modules = read_target_modules(reader, model.traits().ia3_feedforward, "feedforward_modules");
  check_feedforward(reader, ia3);
  save_head(reader, model, ia3.target_modules.all_linear, ia3.modules_to_save);
  check_adapters(training, reader, stage, ia3.modules_to_save);
  reader.finish();
  return ia3;
}

/// adapter_config.json of peft, or a list of them, each with a name.
std::vector<PeftAdapter> read_peft(ConfigReader& training, const TrainingConfig& so_far, const ModelConfig& model,
                                   const Runtime& runtime) {
  constexpr const char* kKey = "peft";
  std::vector<PeftAdapter> adapters;
  const json* const given = training.find(kKey);
  for (const char* other : {"lora", "ia3"})
    if (training.has(other)) training.fail_found(other, "inconsistent", "there is peft too: leave one of them out");
  if (so_far.stage == Stage::pretrain)
    training.fail_found("stage", "inconsistent", "it trains only the projector; expected finetune, or no adapters");
  if (runtime.peft < Version{0, 21, 0})
    training.fail_found(kKey, "not-modelled", "it is modelled as peft 0.21 has it; expected runtime.peft 0.21");
  if (model.family().convert_targets)
    training.fail_found(kKey, "not-modelled", "adapters of this model are supported as training.lora only");
  const ModelTraits& traits = model.traits();
  const PeftDefaults defaults{traits.lora_targets,      traits.ia3_targets,
                              traits.ia3_feedforward,   traits.ln_tuning_targets,
                              traits.ties_embeddings,   so_far.checkpointing.mode != CheckpointMode::none,
                              so_far.loop.loads_on_host};
  const bool is_list = given->is_array();
  if (is_list && given->empty()) training.fail_found(kKey, "inconsistent", "expected at least one adapter");
  for (std::size_t i = 0; i < (is_list ? given->size() : 1) && training.ok(); ++i) {
    ConfigReader reader = is_list ? ConfigReader(&(*given)[i], training.pointer_to(kKey) + "/" + std::to_string(i),
                                                 training.mode(), training.findings())
                                  : training.object(kKey);
    PeftAdapter adapter;
    adapter.name = reader.text("name", is_list && i > 0 ? "" : adapter.name);
    adapter.active = reader.boolean("active", i == 0);
    adapter.autocast_adapter_dtype = reader.boolean("autocast_adapter_dtype", true);
    if (adapter.name.empty() || adapter.name.find('.') != std::string::npos)
      reader.fail("name", "missing", "expected a name of its own for each adapter, without dots");
    for (const PeftAdapter& other : adapters)
      if (other.name == adapter.name)
        reader.fail_found("name", "inconsistent", "there is another adapter of that name");
    if (reader.ok()) adapter.method = read_peft_method(reader, defaults);
    if (!training.ok()) return adapters;
    json config = is_list ? (*given)[i] : *given;
    for (const char* key : {"name", "active", "autocast_adapter_dtype"}) config.erase(key);
    if (config["peft_type"] == "BOFT" && !so_far.loop.is_trainer())
      reader.fail_found("peft_type", "not-modelled",
                        "its permutations stay in the host's memory in a plain loop, which is not supported yet; "
                        "expected a trainer in training.loop");
    if (i > 0 && config["peft_type"] != parse_json(adapters[0].config)->at("peft_type"))
      reader.fail_found("peft_type", "inconsistent", "peft wants all adapters of a model to be of one method");
    else if (i > 0 && config["peft_type"] != "LORA")
      reader.fail_found("peft_type", "not-modelled", "several adapters are supported with LORA only");
    else if (i > 0 && !(*adapter.method->target_modules() == *adapters[0].method->target_modules()))
      reader.fail_found("target_modules", "not-modelled",
                        "adapters of other layers than the first one's are not supported yet");
    else if (i > 0 && reader.has("modules_to_save"))
      reader.fail_found("modules_to_save", "not-modelled", "of the second adapter it is not supported yet");
    adapter.config = config.dump(-1, ' ', false, json::error_handler_t::replace);
    adapters.push_back(std::move(adapter));
  }
  const auto is_active = [](const PeftAdapter& adapter) { return adapter.active; };
  if (training.ok() && std::none_of(adapters.begin(), adapters.end(), is_active))
    training.fail_found(kKey, "inconsistent", "none is active, so that nothing trains; expected one that is");
  return adapters;
}

constexpr std::pair<const char*, bool LigerConfig::*> kLigerSwitches[] = {
    {"rope", &LigerConfig::rope},
    {"rms_norm", &LigerConfig::rms_norm},
    {"swiglu", &LigerConfig::swiglu},
    {"layer_norm", &LigerConfig::layer_norm},
    {"cross_entropy", &LigerConfig::cross_entropy},
    {"fused_linear_cross_entropy", &LigerConfig::fused_linear_cross_entropy}};

/// Those that are on and change nothing go off.
void turn_off_ignored(LigerConfig& liger, const ModelTraits& traits, std::vector<std::string>& assumptions) {
  for (const auto& [key, is_on] : kLigerSwitches)
    if (traits.liger.ignores.*is_on && std::exchange(liger.*is_on, false))
      assumptions.push_back(std::string("Liger's ") + key + " does nothing for " + traits.class_name +
                            " of transformers 5");
}

/// The first switch that is on and which the model's function has not; null: there is none.
const char* lacking(const LigerConfig& liger, const LigerConfig& lacks) {
  for (const auto& [key, is_on] : kLigerSwitches)
    if (liger.*is_on && lacks.*is_on) return key;
  return nullptr;
}

/// `true`, or which kernels: the arguments of apply_liger_kernel_to_llama or its kin, with its defaults. No first
/// answer has any.
[[gnu::noinline]] LigerConfig read_liger(ConfigReader& training, const LoopConfig& loop, const ModelConfig& model,
                                         const Runtime& runtime) {
  constexpr const char* kKey = "liger";
  LigerConfig liger;
  const bool is_object = training.is_object(kKey);
  if (!is_object && !training.boolean(kKey, false)) return liger;
  ConfigReader reader =
      is_object ? training.object(kKey) : ConfigReader(nullptr, "", Mode::strict, training.findings());
  const ModelTraits& traits = model.traits();
  liger = traits.liger.usual;
  read_fields(reader, settings::liger_section, liger);
  if (liger.cross_entropy && liger.fused_linear_cross_entropy)
    reader.fail_found("cross_entropy", "inconsistent",
                      "Liger has one loss at a time: leave it out, or set fused_linear_cross_entropy to false");
  if (liger.accumulates_in_fp32 && !liger.fused_linear_cross_entropy)
    reader.fail_found("accum_dtype", "inconsistent", "only fused_linear_cross_entropy reads it: leave it out");
  reader.finish();
  if (loop.is_trainer() && !traits.can(Feature::liger) &&
      !traits.liger.is_known) {  // _apply_liger_kernel_to_instance logs it
    training.findings().assumptions.push_back("use_liger_kernel changes nothing: Liger has no kernels for " +
                                              traits.class_name);
    return {};
  }
  turn_off_ignored(liger, traits, training.findings().assumptions);
  if (const auto refusal = traits.refusal(Feature::liger)) {
    training.fail_found(kKey, refusal->code, refusal->why);
  } else if (liger.swiglu && !traits.liger.swiglu) {
    training.fail_found(
        kKey, "inconsistent",
        "Liger's MLP computes another activation than the model's hidden_act; expected {\"swiglu\": false}");
  } else if (const char* const key = lacking(liger, traits.liger.lacks)) {
    training.fail_found(kKey, "inconsistent",
                        "Liger has no such kernel for " + traits.class_name + "; expected {\"" + key + "\": false}");
  } else if (traits.liger.widest_row > 65536) {
    training.fail_found(kKey, "inconsistent", "Liger's kernels take rows of at most 65,536 elements: leave it out");
  }
  if (runtime.framework == Framework::llava || runtime.transformers < Version{5, 0, 0})
    training.fail_found(kKey, "not-modelled",
                        "Liger's kernels are modelled with transformers 5: leave it out, or set runtime.transformers");
  return liger;
}

/// Into how many chunks of the sequence the loss is cut: Axolotl's chunked_cross_entropy_num_chunks, torchtune's
/// num_output_chunks.
[[gnu::noinline]] void check_cross_entropy_chunks(ConfigReader& training, const TrainingConfig& so_far,
                                                  const ModelConfig& model, const Runtime& runtime) {
  constexpr const char* kKey = "chunked_cross_entropy";
  if (const auto refusal = model.traits().refusal(Feature::chunked_cross_entropy))
    training.fail_found(kKey, refusal->code, refusal->why);
  else if (so_far.liger.cross_entropy || so_far.liger.fused_linear_cross_entropy)
    training.fail_found(kKey, "inconsistent",
                        "Liger's loss takes its place: leave it out, or set Liger's two cross entropies to false");
  if (runtime.framework == Framework::llava || runtime.transformers < Version{5, 0, 0})
    training.fail_found(kKey, "not-modelled",
                        "it is modelled with transformers 5: leave it out, or set runtime.transformers");
}

/// Apple's cut_cross_entropy in Axolotl's fork.
[[gnu::noinline]] void check_cut_cross_entropy(ConfigReader& training, const TrainingConfig& so_far,
                                               const ModelConfig& model, const Runtime& runtime) {
  constexpr const char* kKey = "cut_cross_entropy";
  if (!has_cut_cross_entropy(model.traits().class_name))
    training.fail_found(kKey, "not-modelled", "it is not supported yet with this model: leave it out");
  else if (so_far.liger.cross_entropy || so_far.liger.fused_linear_cross_entropy || so_far.cross_entropy_chunks > 0)
    training.fail_found(kKey, "inconsistent",
                        "Liger's loss, or one in chunks, is asked for too: leave one of them out");
  else if (!is_half(weight_dtype(so_far.precision)))
    training.fail_found(kKey, "inconsistent",
                        "its backward wants weights in 16 bits (\"Backwards requires embeddings to be bf16 or fp16\"): "
                        "set training.precision to bf16 or fp16");
  else if (so_far.loop.gives_masks() || so_far.loop.label_smoothing_factor != 0)
    training.fail_found(kKey, "not-modelled", "a trainer that wants the logits is not supported with it: leave it out");
  else if (runtime.framework == Framework::llava || runtime.transformers < Version{5, 0, 0})
    training.fail_found(kKey, "not-modelled",
                        "it is modelled with transformers 5: leave it out, or set runtime.transformers");
}

[[gnu::noinline]] void leave_out_compilation(ConfigReader& training) {
  training.findings().unmodelled.push_back(
      {training.pointer_to("torch_compile") +
           ": answered as the eager run. A compiled one mostly keeps less for backward; its CUDA graphs keep a pool of "
           "their own",
       Effect::either});
}

[[gnu::noinline]] void leave_out_fp8(ConfigReader& training) {
  training.findings().unmodelled.push_back({training.pointer_to("fp8") +
                                                ": answered as products in 16 bits. What backward keeps of their "
                                                "inputs takes half of that in fp8; copies of "
                                                "the weights in fp8 take half of theirs besides",
                                            Effect::either});
}

/// What a job asks for and is answered without.
void check_left_out(ConfigReader& training) {
  if (training.boolean("torch_compile", false)) leave_out_compilation(training);
  if (training.boolean("fp8", false)) leave_out_fp8(training);
}

/// Only adapters of some kinds are trained beside quantized weights.
void check_quantized(ConfigReader& training, const TrainingConfig& so_far) {
  constexpr const char* kKey = "quantization";
  // Which methods were compared around quantized layers.
  const bool has_quantized_layers =
      so_far.peft.size() == 1 && json::parse(so_far.peft.front().config).value("peft_type", "") == "OFT";
  if (!so_far.lora && !has_quantized_layers)
    training.fail_found(kKey, "inconsistent",
                        !so_far.peft.empty()
                            ? "this method on quantized weights is not supported yet; expected training.lora, or OFT"
                        : so_far.ia3 ? "(IA)^3 on quantized weights is not supported yet; expected training.lora"
                                     : "quantized weights cannot be trained; expected training.lora");
  else if (so_far.lora && (so_far.lora->use_dora || so_far.lora->bias != LoraBias::none))
    training.fail_found(kKey, "not-modelled",
                        "DoRA and trained biases on quantized weights are not supported yet: leave them out");
  if (!so_far.quantization->moe_experts) return;
  ConfigReader reader = training.object(kKey);
  const auto refuse = [&](const char* what) {
    reader.fail_found("quantize_moe_experts", "not-modelled",
                      std::string(what) + " beside it is not supported yet: leave one of them out");
  };
  if (so_far.lora && !so_far.lora->target_parameters.empty()) refuse("an adapter of experts");
  if (so_far.liger.swiglu) refuse("Liger's swiglu");
}

/// What is known of older TRL.
void check_trl(ConfigReader& training, const LoopConfig& loop) {
  const TrlBehaviours& trl = loop.trl;
  if (loop.name != LoopName::sft && !trl.knows_preferences)
    training.fail_found("loop", "not-modelled",
                        "trainers of preferences are known as TRL 1.16 has them; expected runtime.trl 1.16");
  if (loop.name != LoopName::sft || trl.fused_head) return;
  const auto refuse = [&](const std::string& loss) {
    training.fail_found("loop", "not-modelled",
                        "this TRL's loss_type \"" + loss +
                            "\" is not supported yet; expected another among the arguments, or runtime.trl 1.16");
  };
  if (loop.loss_type == "dft") refuse("dft");
  if (!loop.chunks_loss() && trl.fuses_entropy) refuse("nll");
}

/// A trainer's arguments, and what of it is not modelled. No first answer wants this.
[[gnu::noinline]] void read_trainer(ConfigReader& training, ConfigReader& args, const Runtime& runtime,
                                    const ModelTraits& traits, LoopConfig& loop) {
  constexpr const char* kKey = "loop";
  read_fields(args, settings::trainer_arguments_section, loop);
  args.finish();
  if (loop.is_trl()) {
    loop.trl = resolve_trl_behaviours(runtime.trl);
    check_trl(training, loop);
  }
  if (loop.max_steps == 0) args.fail_found("max_steps", "out-of-range", "expected at least 1, or -1 for whole epochs");
  if (loop.name == LoopName::llava) return check_llava_trainer(training, args, runtime, loop);
  if (runtime.framework != Framework::transformers || runtime.transformers < Version{5, 23, 0})
    training.fail_found(kKey, "not-modelled",
                        "Trainer is modelled as transformers 5.23 has it; expected \"step\", or runtime.transformers");
  if (loop.is_trl() && (traits.classifies != (loop.name == LoopName::reward)))
    training.fail_found(kKey, "inconsistent",
                        loop.name == LoopName::reward ? traits.class_name + " has no head that scores a sequence"
                                                      : traits.class_name + " has no head that predicts tokens");
  else if (const auto refusal = traits.refusal(Feature::chunked_cross_entropy); loop.has_fused_head() && refusal)
    training.fail_found(kKey, refusal->code, "TRL puts a head of its own on the model; " + refusal->why);
  const bool takes_prompts_images = loop.name != LoopName::orpo;
  if (loop.is_trl() &&
      ((traits.takes_images && !takes_prompts_images) || (traits.max_audios > 0 && loop.name != LoopName::sft)))
    training.fail_found(kKey, "not-modelled", "preferences of a model with images or audio are not supported yet");
  if (loop.name == LoopName::reward && traits.labels != 1)
    training.fail_found(
        kKey, "inconsistent",
        "it wants a model with one label (\"num_labels\": 1), and the config says " + std::to_string(traits.labels));
  // What a trainer makes of a batch was compared with the real one where lengths were, and for classes whose samples
  // have but one: classifiers of images, pairs of text and image, recognisers of speech.
  const bool has_one_length = !traits.takes_text || traits.contrastive || traits.min_audios > 0;
  if (traits.is_recorded || !traits.has_loss || (!has_one_length && traits.refusal(Feature::lengths)))
    training.fail_found(kKey, "not-modelled", "a trainer of this model is not supported yet; expected \"step\"");
}

/// A loop and what it is given; what its arguments say in the job's own words was taken out before (job/loop.h).
LoopConfig read_loop(ConfigReader& training, const Runtime& runtime, const ModelTraits& traits) {
  constexpr const char* kKey = "loop";
  LoopConfig loop;
  if (!training.is_object(kKey)) {
    loop.name = training.choice(kKey, loop.name, kLoops);
    return loop;
  }
  ConfigReader reader = training.object(kKey);
  read_fields(reader, settings::loop_section, loop);
  const bool is_step = !loop.is_trainer();
  loop.loads_on_host = reader.choice("load", !is_step, {{"device", false}, {"host", true}});
  ConfigReader args = reader.object("args");
  if (is_step) {
    if (reader.has("args")) reader.fail_found("args", "inconsistent", "the loop step takes none: leave it out");
    if (loop.compute_metrics)
      reader.fail_found("compute_metrics", "inconsistent", "the loop step evaluates nothing: leave it out");
  } else {
    read_trainer(training, args, runtime, traits, loop);
  }
  reader.finish();
  return loop;
}

bool has_projection(OptimizerName name) {
  return name == OptimizerName::apollo_adamw || name == OptimizerName::galore_adamw ||
         name == OptimizerName::galore_adafactor || name == OptimizerName::galore_adamw_8bit;
}
bool is_lomo(OptimizerName name) { return name == OptimizerName::lomo || name == OptimizerName::adalomo; }

/// What _setup_low_rank_optimizer (transformers 5.23) and the two libraries' projections refuse.
void check_projection(ConfigReader& reader, const TrainingConfig& training) {
  ConfigReader optimizer = reader.object("optimizer");
  const OptimizerArgs& its = training.optimizer.args;
  if (its.target_modules.empty())
    optimizer.fail_found("name", "inconsistent",
                         "\"You need to define `optim_target_modules` to use\" such optimizers; expected the names of "
                         "layers, such as \"self_attn\" and \"mlp\", in args.target_modules");
  if (training.has_adapters())
    optimizer.fail_found("name", "not-modelled", "with adapters it is not supported yet; expected no adapters");
  ConfigReader args = optimizer.object("args");
  if (its.proj != "random" && its.proj != "svd")
    args.fail_found("proj", "unknown-value", "\"Invalid projector type specified in group\"; expected random or svd");
  if (its.scale_type != "channel" && its.scale_type != "tensor")
    args.fail_found("scale_type", "unknown-value", "expected channel or tensor");
  if (training.optimizer.name == OptimizerName::apollo_adamw && its.scale_type == "channel" && its.proj_type != "std")
    args.fail_found("proj_type", "inconsistent",
                    "APOLLO's factors for each channel do not fit such projections (\"The size of tensor a must match "
                    "the size of tensor b\"); expected std, or scale_type tensor");
  for (const char* known : {"std", "reverse_std", "left", "right"})
    if (its.proj_type == known) return;
  args.fail_found("proj_type", its.proj_type == "full" ? "not-modelled" : "unknown-value",
                  its.proj_type == "full" ? "projections on both sides are not supported yet; expected std"
                                          : "expected std, reverse_std, left or right");
}

/// Where weights change during backward.
void check_in_backward(ConfigReader& reader, const TrainingConfig& training) {
  ConfigReader optimizer = reader.object("optimizer");
  const char* const key = training.optimizer.in_backward ? "in_backward" : "name";
  if (is_lomo(training.optimizer.name) && !training.loop.is_trainer())
    optimizer.fail_found(
        key, "not-modelled",
        "its fused_backward in a plain loop is not supported yet; expected a trainer in training.loop");
  if (is_lomo(training.optimizer.name) && (training.has_adapters() || training.stage != Stage::full))
    optimizer.fail_found(key, "not-modelled",
                         "beside frozen weights it is not supported yet; expected stage \"full\" without adapters");
  if (training.optimizer.is_bitsandbytes() || !training.optimizer.rest.empty())
    optimizer.fail_found(key, "not-modelled",
                         "with bitsandbytes' optimizers, or two of them, it is not supported yet: leave it out");
  if (autocast_dtype(training.precision) == DType::float16)
    optimizer.fail_found(key, "inconsistent",
                         "GradScaler finds no gradients when backward is over: \"No inf checks were recorded for this "
                         "optimizer.\"; expected bf16");
  if (training.optimizer.in_backward && training.gradient_accumulation_steps > 1)
    reader.fail("gradient_accumulation_steps", "inconsistent",
                "found more than one micro-step, and the optimizer steps in each backward: \"Layerwise optimizers do "
                "not support gradient accumulation!\"; expected 1");
}

[[gnu::noinline]] void refuse_a_plain_loop(ConfigReader& reader) {
  reader.object("optimizer")
      .fail_found(
          "name", "not-modelled",
          "its fifth step is the first that needs all it ever needs, and a plain loop here runs fewer; expected "
          "a trainer in training.loop");
}

[[gnu::noinline]] void check_two_optimizers(ConfigReader& reader, const TrainingConfig& training) {
  if (training.loop.is_trainer())
    reader.object("optimizer").fail("rest", "inconsistent", "found two optimizers, and a trainer takes one");
  else if (scales_gradients(training.precision))
    reader.object("optimizer")
        .fail("rest", "not-modelled",
              "found two optimizers with fp16's GradScaler, which is not supported yet; expected another precision");
}

/// Two optimizers are a loop's own affair; of some only a trainer is known.
void check_optimizer(ConfigReader& reader, const TrainingConfig& training) {
  const OptimizerName name = training.optimizer.name;
  if (name == OptimizerName::schedule_free_radam && !training.loop.is_trainer()) refuse_a_plain_loop(reader);
  if (has_projection(name)) check_projection(reader, training);
  if (training.optimizer.in_backward || is_lomo(name)) check_in_backward(reader, training);
  if (!training.optimizer.rest.empty()) check_two_optimizers(reader, training);
}

[[gnu::noinline]] void refuse_adapted_experts(ConfigReader& training) {
  training.fail_found("liger", "inconsistent",
                      "Liger's experts fail at peft's ParamWrapper (\"object has no attribute 'hidden_dim'\"), which "
                      "the targets of lora "
                      "put around them; expected {\"swiglu\": false}, or names of attention's layers");
}

[[gnu::noinline]] void check_lora_kernels(ConfigReader& training, const TrainingConfig& so_far,
                                          const ModelConfig& model) {
  const LoraConfig& lora = *so_far.lora;
  ConfigReader reader = training.object("lora");
  const char* const key = lora.lora_mlp_kernel   ? "lora_mlp_kernel"
                          : lora.lora_qkv_kernel ? "lora_qkv_kernel"
                                                 : "lora_o_kernel";
  if (!has_lora_kernels(model.traits().class_name))
    reader.fail_found(key, "not-modelled", "Axolotl's kernels of adapters are not supported yet with this model");
  else if (lora.use_dora || lora.lora_bias)
    reader.fail_found(key, "not-modelled",
                      "Axolotl's kernels of adapters are not supported yet with DoRA or lora_bias: leave it out");
  else if (!is_half(weight_dtype(so_far.precision)))
    reader.fail_found(key, "not-modelled",
                      "Axolotl's kernels of adapters are supported with weights in 16 bits: set training.precision to "
                      "bf16 or fp16");
  else if (so_far.quantization && (!so_far.quantization->double_quant || so_far.quantization->prepares))
    reader.fail_found(key, "not-modelled",
                      "Axolotl's kernels of adapters are supported with bnb_4bit_use_double_quant, without "
                      "prepare_model_for_kbit_training, as Axolotl sets them");
  else if (so_far.save_on_cpu != SavesOn::device)
    reader.fail_found(key, "not-modelled",
                      "Axolotl's kernels of adapters are not supported yet with save_on_cpu: leave one of them out");
}

/// What a trainer is not modelled with yet.
[[gnu::noinline]] void check_loop(ConfigReader& reader, const TrainingConfig& training) {
  for (const char* key : {"keep_outputs", "ema", "use_cache", "save_on_cpu", "chunked_cross_entropy", "loss"})
    if (reader.has(key) && reader.find(key) && *reader.find(key) != false && *reader.find(key) != "none")
      reader.fail_found(key, "not-modelled", "a trainer with it is not supported yet: leave it out");
  if (training.loop.is_trl() && !training.peft.empty() && training.peft.front().method->is_prompt_learning())
    reader.fail("peft", "not-modelled",
                "found virtual tokens, which are not supported yet under a trainer of TRL; expected "
                "transformers.Trainer, or another method");
  if (training.loop.is_trl() && training.loop.name != LoopName::sft && !training.peft.empty())
    reader.fail("peft", "not-modelled",
                "found it under a preference trainer, which is supported with lora and ia3 only yet");
  if (training.loop.has_fused_head() && training.lora) {
    const std::vector<std::string>& names = training.lora->target_modules.names;
    if (std::find(names.begin(), names.end(), "lm_head") != names.end())
      reader.object("lora").fail_found("target_modules", "inconsistent",
                                       "the trainer computes log-probabilities from lm_head.weight directly, so that "
                                       "it refuses an adapter there: leave lm_head out");
  }
  if (training.loop.activation_offloading &&
      (training.loop.label_smoothing_factor != 0 ||
       (!training.loop.has_fused_head() && training.loop.name != LoopName::reward &&
        (training.loop.name != LoopName::trainer || training.loop.project != LoopProject::axolotl))))
    reader.object("loop").object("args").fail_found(
        "activation_offloading", "not-modelled",
        "it is supported where the trainer's own head makes the loss (trl 1.16), without label_smoothing_factor");
  // Of all weights Axolotl wraps blocks in torch's CheckpointWrapper, too (loaders/model.py).
  if (training.loop.activation_offloading && training.loop.name == LoopName::trainer && !training.has_adapters())
    reader.object("loop").object("args").fail_found("activation_offloading", "not-modelled",
                                                    "Axolotl's is not supported yet without adapters; expected lora");
  // Autocast's copies of weights that do not train are not cached: a tensor that is made where one has just gone is
  // taken for the same (_get_unique_tensor_key is an address).
  if (training.loop.activation_offloading && autocast_dtype(training.precision) &&
      weight_dtype(training.precision) == DType::float32 && (training.has_adapters() || training.stage != Stage::full))
    reader.object("loop").object("args").fail_found(
        "activation_offloading", "not-modelled",
        "it is not supported yet with frozen weights in float32 under autocast; expected weights in bf16");
  if (training.loop.label_smoothing_factor != 0 && training.liger.fused_linear_cross_entropy)
    reader.fail_found("liger", "inconsistent",
                      "label smoothing needs the logits, which Liger's loss does not make in training: leave one out");
}

/// Refuses what acts on transformers' classes, of a model that has none.
void check_features(ConfigReader& reader, const TrainingConfig& training, const ModelTraits& traits) {
  const auto check = [&](bool asked, const char* key, Feature feature) {
    if (const auto refusal = traits.refusal(feature); asked && refusal)
      reader.fail_found(key, refusal->code, refusal->why);
  };
  check(training.checkpointing != CheckpointingConfig(), "activation_checkpointing", Feature::checkpointing);
  check(!training.components.no_grad.empty(), "no_grad", Feature::no_grad);
  check(training.lora.has_value(), "lora", Feature::adapters);
  check(training.ia3.has_value(), "ia3", Feature::adapters);
  check(!training.peft.empty(), "peft", Feature::adapters);
  if (traits.classifies && !training.peft.empty())
    reader.fail("peft", "not-modelled",
                "found it with " + traits.class_name + ", which is supported with lora and ia3 only yet");
  check(training.attention == AttentionKind::eager, "attention", Feature::eager_attention);
  check(training.attention != AttentionKind::eager && !is_flash_attention(training.attention), "attention",
        Feature::sdpa);
}

}  // namespace

namespace {

/// Names that transformers takes for attention, and that are not modelled.
void refuse_kernels(ConfigReader& reader) {
  const json* given = reader.find("attention");
  if (given == nullptr || !given->is_string()) return;
  const std::string name = given->get<std::string>();
  const auto is_known = [&](const auto& known) { return known.text == name; };
  if (std::any_of(kAttentions.begin(), kAttentions.end(), is_known)) return;
  if (name.starts_with("flash_attention_") || name == "flex_attention" || name.find('/') != std::string::npos)
    reader.fail_found("attention", "not-modelled", "it is not supported yet; expected flash_attention_2, or sdpa");
}

}  // namespace

TrainingConfig read_training(ConfigReader reader, const ModelConfig& model, const DataConfig& data, const Gpu& gpu,
                             const Runtime& runtime) {
  const ModelTraits& traits = model.traits();
  TrainingConfig training;
  refuse_kernels(reader);
  read_fields(reader, settings::training_section, training);
  // What from_pretrained takes where nobody says (modeling_utils.py, get_correct_attn_implementation).
  if (!reader.has("attention") && !traits.can(Feature::sdpa)) training.attention = AttentionKind::eager;
  if (training.stage != Stage::custom) {
    training.components = resolve_stage(reader, training.stage, traits);
    for (const char* key : {"freeze", "train_only", "no_grad"}) {
      if (!reader.texts(key).empty()) {
        reader.fail_found(key, "inconsistent", "only stage \"custom\" reads it: leave it out or set the stage");
      }
    }
  }
  if (training.stage == Stage::pretrain && data.images_per_sample == 0) {
    reader.fail_found("stage", "inconsistent", "without images nothing reaches the projector: give images_per_sample");
  }
  training.precision = read_precision(reader, traits, false);
  training.loop = read_loop(reader, runtime, traits);
  training.optimizer = read_optimizer(reader.object("optimizer"));
  check_attention(reader, training.attention, training.precision, gpu, runtime);
  if (training.attention == AttentionKind::sdpa_flash) check_flash_of(reader, traits, data);
  if (is_flash_attention(training.attention))
    if (const auto refusal = traits.refusal(Feature::flash_attention_2))
      reader.fail_found("attention", refusal->code, refusal->why);
  training.checkpointing = read_checkpointing(reader, training.checkpointing, runtime);
  if (training.loop.is_trainer())
    training.max_grad_norm = training.max_grad_norm.value_or(0);  // Trainer finds the norm even if it does not clip
  else if (training.max_grad_norm == 0.0)
    training.max_grad_norm.reset();
  training.loss = read_loss(reader, traits);
  training.lora = read_lora(reader, training.stage, model, runtime);
  training.ia3 = read_ia3(reader, training.stage, model);
  if (reader.has("peft")) training.peft = read_peft(reader, training, model, runtime);
  if (reader.has("liger")) training.liger = read_liger(reader, training.loop, model, runtime);
  if (training.liger.swiglu && model.traits().liger.experts && training.lora &&
      !training.lora->target_parameters.empty())
    refuse_adapted_experts(reader);
  if (training.cross_entropy_chunks > 0) check_cross_entropy_chunks(reader, training, model, runtime);
  if (training.cut_cross_entropy) check_cut_cross_entropy(reader, training, model, runtime);
  check_left_out(reader);
  if (reader.has("quantization")) {
    training.quantization = read_quantization(reader, Task::train, model, runtime);
    if (training.quantization) check_quantized(reader, training);
  }
  if (training.lora && training.lora->has_kernels()) check_lora_kernels(reader, training, model);
  training.checkpointing.input_require_grads =
      training.has_adapters() &&
      (training.checkpointing.mode != CheckpointMode::none || training.loop.project == LoopProject::axolotl);
  training.checkpointing.hooks_adapters = training.checkpointing.input_require_grads && training.loop.hooks_adapters();
  check_features(reader, training, traits);
  if (training.loop.is_trainer()) check_loop(reader, training);
  check_optimizer(reader, training);
  reader.finish();
  return training;
}

}  // namespace oometer
