#include "job/traits.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "job/estimate.h"
#include "job/read.h"
#include "models/registry.h"
#include "report/json_writer.h"

namespace oometer {

namespace {

using Names = std::vector<const char*>;

bool records_gradients(const Graph& graph) {
  return std::any_of(graph.operators.begin(), graph.operators.end(),
                     [](const GraphOperator& op) { return op.grad_mode; });
}

class TraitsWriter {
 public:
  explicit TraitsWriter(const ModelConfig& model) : model_(model), traits_(model_traits(model)) {}

  std::string write(std::int64_t usual_length) {
    json_.begin_object();
    json_.member("class", class_name(model_));
    json_.member("text", traits_.takes_text);
    json_.member("images", traits_.takes_images);
    json_.key("sequence_length");
    usual_length == 0 ? json_.null() : json_.value(usual_length);
    json_.key("components");
    json_.begin_object();
    if (traits_.has_projector) component("transformers", traits_.projector);
    if (is_llava_1_5(model_)) component("llava", "mm_projector");
    json_.end_object();
    const bool skips = is_quantisable() && traits_.has_projector;
    json_.member_array("skip_modules", skips ? Names{"lm_head", "model.multi_modal_projector"} : Names{});
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
  template <typename Config>
  bool is() const {
    return std::holds_alternative<Config>(model_);
  }
  const Graph* graph() const {
    const auto* config = std::get_if<GraphConfig>(&model_);
    return config ? config->graph.get() : nullptr;
  }
  /// Code of its own, which what acts on transformers' classes does not reach.
  bool is_plain() const { return is<GraphConfig>() || is<NanoVlmConfig>(); }
  bool is_quantisable() const { return is<LlamaConfig>() || is_llava_1_5(model_); }

  void component(const char* framework, const char* projector) {
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
    leave_out(!traits_.takes_text, {"/data/sequence_length"});
    leave_out(!traits_.takes_images || is<ClipConfig>() || is<NanoVlmConfig>(), {"/data/images_per_sample"});
    leave_out(!is<Idefics3Config>(), {"/data/tiles"});
    leave_out(!traits_.cuts_images && !is<QwenVLConfig>(), {"/data/image_size"});
    leave_out(!is<QwenVLConfig>(), {"/data/frames", "/data/grid_thw", "/data/min_pixels", "/data/max_pixels"});
    leave_out(!traits_.generates, {"/inference/new_tokens"});
    const bool chooses = traits_.generates && !is<NanoVlmConfig>();
    leave_out(!chooses, {"/inference/turns", "/inference/turn_tokens", "/inference/prefill_chunk_size",
                         "/inference/logits", "/inference/cache"});
    leave_out(!chooses || !traits_.takes_images || is<QwenVLConfig>(), {"/inference/turn_images"});
    leave_out(is<GraphConfig>(), {"/training/no_grad"});
    leave_out(is_plain(),
              {"/training/activation_checkpointing", "/training/lora", "/training/ia3", "/parallel/ds_config",
               "/parallel/accelerate_config", "/runtime/transformers", "/runtime/deepspeed", "/runtime/peft"});
    leave_out(!is_quantisable(), {"/training/liger", "/training/quantization"});
    leave_out(!chooses, {"/training/chunked_cross_entropy"});
    leave_out(!is<ClipVisionConfig>() && !has_classes(), {"/training/loss"});
    leave_out(!is_llava_1_5(model_), {"/runtime/framework"});
  }

  bool has_classes() const {
    return graph() && graph()->outputs[0].sizes.size() == 2 && is_floating_point(graph()->outputs[0].dtype);
  }

  void choose(const char* pointer, const Names& names) { json_.member_array(pointer, names); }

  void choices() {
    if (graph()) choose("/task", {records_gradients(*graph()) ? "train" : "inference"});
    if (graph() && graph()->fixed_batch != 0) choose_of_graph();
    if (is_plain()) choose("/training/attention", {"sdpa", "sdpa-flash", "sdpa-efficient", "sdpa-math", "sdpa-cudnn"});
    if (const char* own = own_precision()) {
      Names precisions = {own};
      for (const char* other : is<NanoVlmConfig>() ? Names{"amp-fp16", "fp32"} : Names{"fp32", "bf16", "fp16"})
        if (std::string_view(own) != other) precisions.push_back(other);
      choose("/training/precision", precisions);
    }
    stages();
    if (is<ClipVisionConfig>()) choose("/training/loss", {"pooler_output", "last_hidden_state"});
    if (has_classes()) choose("/training/loss", {"cross_entropy", "mean"});
    if (traits_.generates && !is<NanoVlmConfig>()) caches();
    strategies();
  }

  void choose_of_graph() {
    json_.key("/data/micro_batch_size");
    json_.begin_array();
    json_.value(graph()->fixed_batch);
    json_.end_array();
  }

  /// The precision that the model has by itself; null where it runs in any.
  const char* own_precision() const {
    if (is<NanoVlmConfig>()) return "amp-bf16";
    if (!graph()) return nullptr;
    if (graph()->dtype == DType::bfloat16) return "bf16";
    return graph()->dtype == DType::float16 ? "fp16" : "fp32";
  }

  void stages() {
    if (traits_.has_projector) return;
    // Without images there is no tower to freeze: "finetune" is "full".
    choose("/training/stage", traits_.takes_images ? Names{"full", "custom"} : Names{"finetune", "full", "custom"});
  }

  void caches() {
    Names names = {"dynamic", "static", "offloaded", "paged"};
    const LlamaConfig* const language = language_of(model_);
    const bool is_full = language && language->sliding_window == 0;
    if (is_full) names.push_back("quantized");
    if (is_full && !language->names->norms_heads && !(language->qkv_bias && language->names == &kLlamaClassNames))
      names.push_back("headinfer");
    if (is<DeepseekConfig>()) names.push_back("mtla");
    choose("/inference/cache/implementation", names);
  }

  void strategies() {
    // A parameter without a dimension, CLIP's logit_scale, cannot be cut: FSDP and DeepSpeed's other stages stop at it.
    if (is_plain()) choose("/parallel/strategy", {"none", "ddp"});
    if (is<ClipConfig>()) choose("/parallel/strategy", {"none", "ddp", "deepspeed"});
    const auto* llava = std::get_if<LlavaConfig>(&model_);
    if (!is<ClipConfig>() && !is<DeepseekConfig>() && !(llava && llava->vision.has_head)) return;
    json_.key("/parallel/zero_stage");
    json_.begin_array();
    for (const std::int64_t stage : {0, 1, 2, 3})
      if ((stage == 3) == is<ClipConfig>()) json_.value(stage);
    json_.end_array();
  }

  const ModelConfig& model_;
  const ModelTraits traits_;
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
  return TraitsWriter(model.config).write(usual_length);
}

}  // namespace oometer
