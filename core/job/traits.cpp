#include "job/traits.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "job/estimate.h"
#include "job/names.h"
#include "job/read.h"
#include "report/json_writer.h"
#include "train/objectives/causal_lm.h"

namespace oometer {

namespace {

using Names = std::vector<const char*>;

class TraitsWriter {
 public:
  explicit TraitsWriter(const ModelTraits& traits) : traits_(traits) {}

  std::string write(std::int64_t usual_length) {
    json_.begin_object();
    json_.member("class", traits_.class_name);
    json_.member("text", traits_.takes_text);
    json_.member("images", traits_.takes_images);
    json_.member("prompts_take_images", traits_.usual_images(true) != 0);
    json_.member("idle_parts", traits_.has_idle_parts);
    json_.key("sequence_length");
    usual_length == 0 ? json_.null() : json_.value(usual_length);
    json_.key("max_position_embeddings");
    const std::int64_t positions = traits_.text.max_position_embeddings;
    positions == 0 ? json_.null() : json_.value(positions);
    json_.key("components");
    json_.begin_object();
    if (!traits_.projector.empty()) component("transformers", traits_.projector);
    if (*traits_.original_projector != '\0') component("llava", traits_.original_projector);
    json_.end_object();
    const bool skips = can(Feature::quantization) && !traits_.projector.empty();
    json_.member_array("skip_modules", skips ? traits_.quantization_skips : std::vector<std::string>{});
    json_.member_array("lora_targets", traits_.lora_targets);
    json_.member_array("ia3_targets", traits_.ia3_targets);
    json_.member_array("ia3_feedforward", traits_.ia3_feedforward);
    json_.key("without");
    json_.begin_array();
    without();
    json_.end_array();
    json_.key("choices");
    json_.begin_object();
    choices();
    json_.end_object();
    json_.end_object();
    return json_.take();
  }

 private:
  bool can(Feature feature) const { return traits_.can(feature); }
  /// Code of its own, which what acts on transformers' classes does not reach.
  bool is_plain() const { return !can(Feature::adapters); }
  /// Its own loss first, if that has a name.
  Names losses() const {
    Names names = traits_.losses;
    if (*traits_.loss_name != '\0') names.insert(names.begin(), traits_.loss_name);
    return names;
  }

  void component(const char* framework, const std::string& projector) {
    json_.key(framework);
    json_.begin_object();
    json_.member("tower", traits_.tower);
    json_.member("projector", projector);
    json_.end_object();
  }

  void leave_out(bool refused, std::initializer_list<const char*> pointers) {
    if (!refused) return;
    for (const char* pointer : pointers) json_.value(pointer);
  }

  void without() {
    const bool any_size = traits_.takes_images && (traits_.cuts_images || traits_.image_size == 0);
    leave_out(!traits_.takes_text, {"/data/sequence_length"});
    leave_out(!traits_.takes_targets, {"/data/target_length"});
    leave_out(!traits_.takes_images || traits_.max_images == 1, {"/data/images_per_sample"});
    leave_out(!traits_.chooses_tiles, {"/data/tiles"});
    leave_out(!any_size, {"/data/image_size"});
    leave_out(!any_size || traits_.max_images == 1 || !traits_.reads_images_by("image_sizes"), {"/data/image_sizes"});
    leave_out(!traits_.reads_images_by("objects_per_image"), {"/data/objects_per_image"});
    leave_out(!traits_.reads_images_by("video"), {"/data/video"});
    leave_out(!traits_.has_experts, {"/data/routing"});
    leave_out(traits_.max_audios == 0, {"/data/audio_seconds"});
    leave_out(traits_.max_audios == traits_.min_audios, {"/data/audios_per_sample"});
    leave_out(!traits_.reads_images_by("frames"), {"/data/frames"});
    leave_out(!traits_.reads_images_by("grid_thw"), {"/data/grid_thw", "/data/min_pixels", "/data/max_pixels"});
    leave_out(!traits_.generates, {"/inference/new_tokens"});
    const bool chooses = can(Feature::generate_options);
    leave_out(!chooses, {"/inference/turns", "/inference/turn_tokens", "/inference/prefill_chunk_size",
                         "/inference/logits", "/inference/cache"});
    leave_out(!chooses || !traits_.takes_images || !can(Feature::turn_images), {"/inference/turn_images"});
    // As training.loop asks for.
    leave_out(!can(Feature::lengths), {"/data/lengths", "/data/packed", "/data/evaluation", "/training/loop"});
    leave_out(!can(Feature::packing) && can(Feature::lengths), {"/data/packed"});
    leave_out(!can(Feature::no_grad), {"/training/no_grad"});
    leave_out(is_plain(), {"/training/lora", "/training/ia3", "/parallel/ds_config", "/parallel/accelerate_config",
                           "/runtime/transformers", "/runtime/deepspeed", "/runtime/peft"});
    leave_out(!can(Feature::checkpointing), {"/training/activation_checkpointing"});
    leave_out(!can(Feature::liger), {"/training/liger"});
    leave_out(!can(Feature::quantization), {"/training/quantization"});
    leave_out(!can(Feature::chunked_cross_entropy), {"/training/chunked_cross_entropy"});
    leave_out(!has_cut_cross_entropy(traits_.class_name), {"/training/cut_cross_entropy"});
    leave_out(losses().size() < 2, {"/training/loss"});
    leave_out(!can(Feature::original_llava), {"/runtime/framework"});
    leave_out(traits_.kernels == Kernels::torch, {"/runtime/kernels"});
  }

  void choose(const char* pointer, const Names& names) { json_.member_array(pointer, names); }

  void choices() {
    if (!can(Feature::inference)) choose("/task", {"train"});
    if (!can(Feature::training)) choose("/task", {"inference"});
    if (traits_.fixed_batch != 0) choose_batch();
    if (!can(Feature::eager_attention))
      choose("/training/attention", {"sdpa", "sdpa-flash", "sdpa-efficient", "sdpa-math", "sdpa-cudnn"});
    if (!can(Feature::sdpa)) choose("/training/attention", {"eager", "flash_attention_2", "flash_attention_3"});
    if (!traits_.precisions.empty()) {
      std::vector<std::string> names;
      for (const Precision precision : traits_.precisions) names.push_back(name_of(precision, kPrecisions));
      json_.member_array("/training/precision", names);
    }
    if (!can(Feature::pretrain))
      choose("/training/stage", can(Feature::finetune) ? Names{"finetune", "full", "custom"} : Names{"full", "custom"});
    if (const Names names = losses(); names.size() > 1) choose("/training/loss", names);
    if (can(Feature::generate_options)) caches();
    strategies();
  }

  void choose_batch() {
    json_.key("/data/micro_batch_size");
    json_.begin_array();
    json_.value(traits_.fixed_batch);
    json_.end_array();
  }

  void caches() {
    Names names = {"dynamic", "static", "offloaded", "paged"};
    for (const Feature cache : {Feature::quantized_cache, Feature::headinfer, Feature::mtla})
      if (can(cache)) names.push_back(cache == Feature::quantized_cache ? "quantized" : name_of(cache));
    choose("/inference/cache/implementation", names);
  }

  void strategies() {
    // A stage without a ds_config has "auto", which is made of the hidden size.
    const bool takes_stages = can(Feature::deepspeed) && traits_.hidden_size != 0;
    Names names = {"none", "ddp"};
    if (takes_stages) names.push_back("deepspeed");
    if (can(Feature::fsdp)) names.insert(names.end(), {"fsdp1", "fsdp2"});
    if (names.size() < 5) choose("/parallel/strategy", names);
    const bool has_scalar = *traits_.scalar_parameter != '\0';  // at which all stages but the third stop
    if (!can(Feature::deepspeed) || (can(Feature::zero3) && !has_scalar)) return;
    json_.key("/parallel/zero_stage");
    json_.begin_array();
    for (const std::int64_t stage : {0, 1, 2, 3})
      if ((stage == 3) == has_scalar) json_.value(stage);
    json_.end_array();
  }

  const ModelTraits& traits_;
  JsonWriter json_;
};

}  // namespace

std::string traits_json(std::string_view job) {
  const Result<nlohmann::json> document = parse_json(job);
  if (!document) return error_json(document.error());
  Findings findings;
  ConfigReader reader(&*document, "", Mode::strict, findings);
  const auto [model, usual_length] = read_model(reader.object("model"), Framework::transformers);
  if (findings.error) return error_json(*findings.error);
  return TraitsWriter(model.config.traits()).write(usual_length);
}

}  // namespace oometer
