#include <memory>
#include <variant>

#include "config/reader.h"
#include "distributed/trainer.h"
#include "distributed/zero_init.h"
#include "generation/generate.h"
#include "job/accelerate.h"
#include "job/carried.h"
#include "job/notes.h"
#include "job/read.h"
#include "models/deepseek/mtla.h"
#include "models/idefics3/idefics3.h"
#include "models/llama/headinfer.h"
#include "models/llama/llama.h"
#include "models/llava/llava.h"
#include "models/llava/next.h"
#include "models/nanovlm/nanovlm.h"
#include "models/qwen2/config.h"
#include "models/qwen2_vl/qwen2_vl.h"
#include "models/qwen3/config.h"
#include "models/qwen3/qwen3.h"
#include "models/siglip/config.h"
#include "models/siglip/siglip.h"
#include "peft/dora.h"
#include "peft/ia3.h"

/// In place of core/job/carried.cpp, and of models, strategies and generation: what a page's first answer does not
/// need.
namespace oometer {

namespace {

Error elsewhere() { return {"elsewhere", "", "the whole module, oometer.wasm, answers this job"}; }

}  // namespace

std::optional<Error> not_carried(const Job& job) {
  const bool is_carried = job.task == Task::train && !job.parallel.shards_parameters() && !job.training.ia3 &&
                          !(job.training.lora && job.training.lora->use_dora) &&
                          job.training.cross_entropy_chunks == 0 && job.runtime.framework == Framework::transformers &&
                          !std::holds_alternative<QwenVLConfig>(job.model.config) &&
                          !std::holds_alternative<Idefics3Config>(job.model.config);
  if (is_carried) return {};
  return elsewhere();
}

template <class Config>
Config read_elsewhere(ConfigReader& reader) {
  reader.fail("", "elsewhere", elsewhere().message);
  return {};
}
LlavaConfig read_llava_next_config(ConfigReader& reader) { return read_elsewhere<LlavaConfig>(reader); }
DeepseekConfig read_deepseek_config(ConfigReader& reader, const DeepseekClassNames&) {
  return read_elsewhere<DeepseekConfig>(reader);
}
InferenceConfig read_inference(ConfigReader reader, const Job&) { return read_elsewhere<InferenceConfig>(reader); }
TrainingConfig read_training_of_inference(ConfigReader reader, const Job&) {
  return read_elsewhere<TrainingConfig>(reader);
}
FsdpConfig read_fsdp(ConfigReader reader, const Job&, const ParallelConfig&) {
  return read_elsewhere<FsdpConfig>(reader);
}
void convert_targets(ConfigReader&, TargetModules&, const DeepseekConfig&) {}
void read_layer_types(ConfigReader& reader, LlamaConfig&, std::int64_t max_window_layers) {
  // Most configs name a window that no layer has.
  if (reader.boolean("use_sliding_window", false) || reader.has("layer_types")) read_elsewhere<LlamaConfig>(reader);
  reader.optional_integer("sliding_window", non_negative);
  reader.integer("max_window_layers", max_window_layers, non_negative);
}
LlamaConfig read_qwen3_config(ConfigReader& reader) { return read_elsewhere<LlamaConfig>(reader); }
NanoVlmConfig read_nanovlm_config(ConfigReader& reader) { return read_elsewhere<NanoVlmConfig>(reader); }
ClipVisionConfig read_siglip_vision_config(ConfigReader& reader) { return read_elsewhere<ClipVisionConfig>(reader); }

std::optional<Error> spell_out_accelerate(nlohmann::json&) { return elsewhere(); }
std::string accelerate_pointer(const std::string& pointer) { return pointer; }

// What follows is reached with such jobs only.
std::unique_ptr<Model> build_qwen_vl(Context&, const QwenVLConfig&, const DataConfig&, const ModelOptions&) {
  return {};
}
std::unique_ptr<Model> build_idefics3(Context&, const Idefics3Config&, const DataConfig&, const ModelOptions&) {
  return {};
}
std::unique_ptr<Model> build_deepseek(Context&, const DeepseekConfig&, const DataConfig&, const ModelOptions&) {
  return {};
}
std::unique_ptr<Model> build_original_llava(Context&, const LlavaConfig&, const DataConfig&, const ModelOptions&) {
  return {};
}
std::unique_ptr<Model> build_nanovlm(Context&, const NanoVlmConfig&, const DataConfig&, const ModelOptions&) {
  return {};
}
LlavaConfig::Anyres LlavaConfig::anyres(std::int64_t, std::int64_t) const { return {}; }
SiglipVisionModel::SiglipVisionModel(const Builder&, const ClipVisionConfig&, const ModelOptions&) {}
ClipVisionOutput SiglipVisionModel::operator()(const Tensor&, const std::vector<std::int64_t>&) const { return {}; }
TensorList pack_image_features(const LlavaConfig&, const DataConfig&, const TensorList&, const Tensor&) { return {}; }
DoraLinear::DoraLinear(const LoraConfig& config, Builder& builder, std::int64_t in_features, std::int64_t out_features)
    : LoraLinear(config, builder, in_features, out_features) {}
void DoraLinear::make_parameters(std::vector<Parameter>&, std::span<const Parameter>, const GatherParameters&) {}
void DoraLinear::cast_parameters() const {}
Tensor DoraLinear::update(const Linear&, const Tensor&, const Tensor&) const { return {}; }
Ia3Model::Ia3Model(Context& context, const Ia3Config& config)
    : Tuner(context, "ia3", config.target_modules, config.modules_to_save), config_(config) {}
std::shared_ptr<const LinearWrapper> Ia3Model::create(Builder&, std::int64_t, std::int64_t) {
  static_cast<void>(config_);
  return {};
}
void Ia3Model::make_parameters(std::vector<Parameter>&, std::span<const Parameter>) {}
void Ia3Model::cast_parameters() {}
Tensor chunked_causal_lm_loss(const Tensor&, const Tensor&, std::int64_t) { return {}; }
Generated run_generation(Context&, Model&, const ModelOptions&, const DataConfig&, const InferenceConfig&,
                         const LlamaConfig*, bool) {
  return {};
}
Generated run_paged(Context&, Model&, const DataConfig&, const InferenceConfig&, std::int64_t) { return {}; }
void run_forward(Context&, Model&) {}
void note_inference(const Job&, const Simulation&, ReportInput&) {}
AttentionOutputs attend_temporally(const DeepseekAttention&, const Tensor&, const PositionEmbeddings&, KvCache&) {
  return {};
}
void make_head_norms(LlamaAttention&, const Builder&, const LlamaConfig&, const ModelOptions&) {}
AttentionInputs project_and_norm(const LlamaAttention&, const Tensor&) { return {}; }
Tensor attend_by_head(const LlamaAttention&, const Tensor&, const PositionEmbeddings&, KvCache&) { return {}; }
ZeroInit::ZeroInit(Context& context, const DeepSpeedConfig& config, std::int64_t world)
    : context_(context), config_(config), world_(world) {
  static_cast<void>(world_);
}
ZeroInit::~ZeroInit() = default;
void ZeroInit::parameter_made(const Tensor&, ModuleId) {}
void ZeroInit::complete(ModuleId) {}
std::vector<ZeroParameter> ZeroInit::finish() { return {}; }
void gather_parameters(Context&, const std::vector<ZeroParameter*>&, std::int64_t) {}
void release_parameter(Context&, ZeroParameter&) {}
std::unique_ptr<Trainer> make_sharding_trainer(Context&, Model&, const TrainingConfig&, const ParallelConfig&,
                                               std::vector<ZeroParameter>) {
  return {};
}

}  // namespace oometer
