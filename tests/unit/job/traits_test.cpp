#include "job/traits.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "../jobs.h"
#include "job/catalogue.h"

namespace oometer {
namespace {

using nlohmann::json;

/// The presets, and models that none is of.
std::vector<json> models() {
  std::vector<json> models;
  for (const ModelPreset& preset : model_presets()) models.push_back({{"preset", preset.id}});
  for (const char* config :
       {R"({"model_type": "clip_vision_model"})", R"({"model_type": "nanovlm"})",
        R"({"model_type": "mistral", "sliding_window": 8192})", R"({"model_type": "llama", "attention_bias": true})"})
    models.push_back({{"config", json::parse(config)}});
  std::ifstream cases(OOMETER_SOURCE_DIR "/tests/reference/graphs.jsonl");
  std::string line;
  std::getline(cases, line);
  models.push_back({{"graph", json::parse(line)["graph"]}});
  return models;
}

/// The values of a setting, or one that only a model which has the setting takes.
struct Probe {
  const char* pointer;
  std::vector<json> values;
  bool infers = false;
};

const std::vector<Probe>& probes() {
  const json file = {{"distributed_type", "MULTI_GPU"}, {"num_processes", 1}};
  static const std::vector<Probe> kProbes = {
      {"/data/images_per_sample", {2}},
      {"/data/tiles", {5}},
      {"/data/image_size", {{252, 280}}},
      {"/data/frames", {2}},
      {"/data/grid_thw", {{1, 4, 4}}},
      {"/data/min_pixels", {3136}},
      {"/data/max_pixels", {50176}},
      {"/training/stage", {"pretrain", "finetune", "full", "custom"}},
      {"/training/precision", {"bf16", "fp16", "fp32", "amp-bf16", "amp-fp16"}},
      {"/training/attention", {"sdpa", "eager"}},
      {"/training/activation_checkpointing", {"non-reentrant"}},
      {"/training/lora", {{{"target_modules", {"o_proj"}}}}},
      {"/training/ia3", {{{"target_modules", {"k_proj"}}, {"feedforward_modules", {"k_proj"}}}}},
      {"/training/liger", {{{"swiglu", false}}}},
      {"/training/chunked_cross_entropy", {4}},
      {"/training/loss", {"pooler_output", "last_hidden_state", "cross_entropy", "mean"}},
      {"/runtime/framework", {"llava"}},
      {"/parallel/strategy", {"none", "ddp"}},
      {"/inference/new_tokens", {16}, true},
      {"/inference/turns", {2}, true},
      {"/inference/turn_tokens", {2048}, true},
      {"/inference/logits", {"all"}, true},
      {"/inference/cache/implementation",
       {"dynamic", "static", "offloaded", "quantized", "paged", "headinfer", "mtla"},
       true},
  };
  return kProbes;
}

bool stands(const json& pointers, const std::string& pointer) {
  return std::any_of(pointers.begin(), pointers.end(), [&](const json& p) {
    const std::string& own = p.get_ref<const std::string&>();
    return pointer == own || pointer.rfind(own + "/", 0) == 0;
  });
}

TEST_CASE("A model's traits say which settings the core takes with it", "[job]") {
  for (const json& model : models()) {
    const json traits = json::parse(traits_json(json{{"model", model}}.dump()));
    REQUIRE(traits.contains("class"));
    const json& choices = traits["choices"];
    for (const Probe& probe : probes()) {
      const std::string pointer = probe.pointer;
      for (const json& value : probe.values) {
        json job = {{"model", model}, {"parallel", json::object()}, {"data", json::object()}};
        bool taken = !stands(traits["without"], pointer);
        if (taken && choices.contains(pointer))
          taken = std::find(choices[pointer].begin(), choices[pointer].end(), value) != choices[pointer].end();
        // Images and audio need many tokens; of a window a paged cache takes no more. Pairs have a limit of their own.
        if (traits["text"] == true && traits["class"] != "CLIPModel" && traits["class"] != "SiglipModel" &&
            traits["class"] != "Siglip2Model") {
          const bool hears = !stands(traits["without"], "/data/audios_per_sample");
          const bool reads_little = traits["class"] == "Blip2ForConditionalGeneration" ||
                                    traits["class"] == "InstructBlipForConditionalGeneration" ||
                                    traits["class"] == "VisionEncoderDecoderModel";
          const int most = traits["class"] == "PerceptionLMForConditionalGeneration" ? 10'000  // 37 tiles
                           : reads_little                                            ? 128
                           : traits["class"] == "Florence2ForConditionalGeneration"  ? 1000  // positions
                                                                                     : 4000;
          const int many = taken && value == "paged" ? 900 : most;
          job["data"]["sequence_length"] = traits["images"] == true || hears ? many : 64;
          if (probe.infers && !stands(traits["without"], "/inference/new_tokens")) job["inference"]["new_tokens"] = 16;
        }
        if (probe.infers) job["task"] = "inference";
        if (!probe.infers && choices.contains("/training/loss")) job["training"]["loss"] = choices["/training/loss"][0];
        job[json::json_pointer(pointer)] = value;
        if (choices.contains("/task") && (choices["/task"][0] == "inference") != probe.infers) continue;
        const Result<Job> result = parse_job(job.dump());
        INFO(traits["class"] << " " << pointer << " " << value << " " << (result ? "" : result.error().message));
        const bool refused = !result && (result.error().pointer.rfind(pointer, 0) == 0 ||
                                         pointer.rfind(result.error().pointer + "/", 0) == 0);
        if (pointer == "/training/loss" && result && !taken) continue;  // the only one, which a job may name
        // Nothing of so small an image is left for the windows of Donut's last stage.
        if (pointer == "/data/image_size" && traits["class"] == "VisionEncoderDecoderModel") continue;
        // A bare name is in Gemma 4's towers, too, where peft cannot adapt it: names of its text model are taken.
        if (pointer == "/training/lora" && traits["class"] == "Gemma4ForConditionalGeneration") continue;
        CHECK(refused != taken);
      }
    }
  }
}

TEST_CASE("Traits name a model's tower and projector", "[job]") {
  const json smolvlm = json::parse(traits_json(R"({"model": {"preset": "smolvlm-2.2b"}})"));
  CHECK(smolvlm["class"] == "Idefics3ForConditionalGeneration");
  CHECK(smolvlm["components"]["transformers"] == json{{"tower", "vision_model"}, {"projector", "connector"}});
  CHECK(smolvlm["sequence_length"] == 2048);
  CHECK(smolvlm["max_position_embeddings"] == 16384);
  const json llava = json::parse(traits_json(R"({"model": {"preset": "llava-1.5-7b"}})"));
  CHECK(llava["components"]["transformers"]["projector"] == "multi_modal_projector");
  CHECK(llava["components"]["llava"]["projector"] == "mm_projector");
  const json llama = json::parse(traits_json(R"({"model": {"config": {"model_type": "llama"}}})"));
  CHECK(llama["components"].empty());
  CHECK(llama["sequence_length"].is_null());
  CHECK(json::parse(traits_json(R"({"model": {"config": {"model_type": "gpt9"}}})"))["error"]["pointer"] ==
        "/model/config/model_type");
  CHECK(json::parse(traits_json("{}")).contains("error"));
  CHECK(json::parse(traits_json("[")).contains("error"));
}

}  // namespace
}  // namespace oometer
