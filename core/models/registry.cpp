#include "models/registry.h"

#include <algorithm>
#include <string_view>

#include "config/reader.h"
#include "models/mistral/config.h"
#include "models/qwen2/config.h"
#include "models/qwen3/config.h"

namespace oometer {
namespace {

/// What can be built: a config's model_type and the class that `architectures` may name with it. The first line of a
/// model_type is the one taken where a config names no class.
struct Architecture {
  std::string_view model_type;
  std::string_view class_name;
  ModelConfig (*read)(ConfigReader& reader, Framework framework);
};

ModelConfig read_clip_vision_of_clip(ConfigReader& reader, Framework) {
  // from_pretrained takes the vision_config out of a CLIPConfig (base_config_key of CLIPVisionConfig).
  ConfigReader vision = reader.object("vision_config");
  const ClipVisionConfig c = read_clip_vision_config(vision);
  vision.finish();
  reader.ignore({"text_config", "text_config_dict", "vision_config_dict", "projection_dim", "logit_scale_init_value"});
  return c;
}

constexpr Architecture kRegistry[] = {
    {"llama", "LlamaForCausalLM", [](ConfigReader& r, Framework) -> ModelConfig { return read_llama_config(r); }},
    {"mistral", "MistralForCausalLM", [](ConfigReader& r, Framework) -> ModelConfig { return read_mistral_config(r); }},
    {"qwen2", "Qwen2ForCausalLM", [](ConfigReader& r, Framework) -> ModelConfig { return read_qwen2_config(r); }},
    {"qwen3", "Qwen3ForCausalLM", [](ConfigReader& r, Framework) -> ModelConfig { return read_qwen3_config(r); }},
    {"deepseek_v2", "DeepseekV2ForCausalLM",
     [](ConfigReader& r, Framework) -> ModelConfig { return read_deepseek_config(r, kDeepseekV2); }},
    {"deepseek_v3", "DeepseekV3ForCausalLM",
     [](ConfigReader& r, Framework) -> ModelConfig { return read_deepseek_config(r, kDeepseekV3); }},
    {"clip", "CLIPModel", [](ConfigReader& r, Framework) -> ModelConfig { return read_clip_config(r); }},
    {"clip", "CLIPVisionModel", read_clip_vision_of_clip},
    {"clip_vision_model", "CLIPVisionModel",
     [](ConfigReader& r, Framework) -> ModelConfig { return read_clip_vision_config(r); }},
    {"llava", "LlavaForConditionalGeneration",
     [](ConfigReader& r, Framework f) -> ModelConfig { return read_llava_config(r, f); }},
    {"idefics3", "Idefics3ForConditionalGeneration",
     [](ConfigReader& r, Framework) -> ModelConfig { return read_idefics3_config(r, kIdefics3); }},
    {"smolvlm", "SmolVLMForConditionalGeneration",
     [](ConfigReader& r, Framework) -> ModelConfig { return read_idefics3_config(r, kSmolVlm); }},
    {"nanovlm", "VisionLanguageModel",
     [](ConfigReader& r, Framework) -> ModelConfig { return read_nanovlm_config(r); }},
    {"llava_next", "LlavaNextForConditionalGeneration",
     [](ConfigReader& r, Framework) -> ModelConfig { return read_llava_next_config(r); }},
    // The original code's own class; its config.json says model_type llava or llava_llama.
    {"llava", "LlavaLlamaForCausalLM",
     [](ConfigReader& r, Framework f) -> ModelConfig { return read_llava_config(r, f); }},
    {"llava_llama", "LlavaLlamaForCausalLM",
     [](ConfigReader& r, Framework f) -> ModelConfig { return read_llava_config(r, f); }},
    {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration",
     [](ConfigReader& r, Framework) -> ModelConfig { return read_qwen_vl_config(r, kQwen25VLClassNames); }},
    {"qwen2_vl", "Qwen2VLForConditionalGeneration",
     [](ConfigReader& r, Framework) -> ModelConfig { return read_qwen_vl_config(r, kQwen2VLClassNames); }},
};

std::string supported() {
  std::string out;
  for (const Architecture& entry : kRegistry) {
    out += (out.empty() ? "" : ", ") + std::string(entry.model_type) + " (" + std::string(entry.class_name) + ")";
  }
  return out;
}

/// Other files that are taken for a config.json, by a key that it never has.
struct Mistaken {
  const char* key;
  const char* what;
};

constexpr const char* kDiffusers = "this is a config of diffusers, whose models are not modelled";
constexpr const char* kGguf = "this is the metadata of a GGUF file, whose quantised weights llama.cpp runs";

constexpr Mistaken kMistaken[] = {
    {"_diffusers_version", kDiffusers},
    {"_class_name", kDiffusers},
    {"general.architecture", kGguf},
    {"llama.block_count", kGguf},
    {"weight_map", "this is a list of safetensors files"},
    {"metadata", kGguf},  // of gguf-dump --json
    {"peft_type", "this is an adapter_config.json of peft"},
    {"tokenizer_class", "this is a tokenizer_config.json"},
    {"_from_model_config", "this is a generation_config.json"},
};

}  // namespace

ModelConfig read_model_config(ConfigReader& reader, Framework framework) {
  const std::string model_type = reader.has("model_type") ? reader.text("model_type", "") : "";
  const std::vector<std::string> architectures = reader.texts("architectures");
  const std::string name = architectures.empty() ? "" : architectures[0];
  const auto matches = [&](const Architecture& entry) {
    return (model_type.empty() || model_type == entry.model_type) && (name.empty() || name == entry.class_name);
  };
  const auto* entry = std::find_if(std::begin(kRegistry), std::end(kRegistry), matches);
  if (model_type.empty() && name.empty()) {
    for (const Mistaken& file : kMistaken) {
      if (reader.has(file.key)) {
        reader.fail_found(
            file.key, "unsupported-model",
            std::string(file.what) + "; the config.json of a transformers model belongs here: " + supported());
      }
    }
    reader.fail("model_type", "missing", "found nothing; the model_type of a config.json belongs here: " + supported());
  } else if (entry == std::end(kRegistry)) {
    const bool type_known = std::any_of(std::begin(kRegistry), std::end(kRegistry),
                                        [&](const Architecture& e) { return model_type == e.model_type; });
    const char* key = model_type.empty() || type_known ? "architectures" : "model_type";
    reader.fail_found(key, "unsupported-model", "what is modelled: " + supported());
  }
  if (!reader.ok()) return LlamaConfig{};
  ModelConfig config = entry->read(reader, framework);
  reader.finish();
  return config;
}

const char* class_name(const ModelConfig& config) {
  if (const auto* language = std::get_if<LlamaConfig>(&config)) return language->names->causal_lm;
  if (const auto* qwen = std::get_if<QwenVLConfig>(&config)) return qwen->names->text.causal_lm;
  if (const auto* idefics3 = std::get_if<Idefics3Config>(&config)) return idefics3->family->conditional_generation;
  if (const auto* llava = std::get_if<LlavaConfig>(&config); llava && llava->is_next())
    return "LlavaNextForConditionalGeneration";
  if (const auto* deepseek = std::get_if<DeepseekConfig>(&config)) return deepseek->names->causal_lm;
  if (std::holds_alternative<NanoVlmConfig>(config)) return "VisionLanguageModel";
  constexpr const char* kNames[] = {"", "CLIPModel", "CLIPVisionModel", "LlavaForConditionalGeneration"};
  if (const auto* graph = std::get_if<GraphConfig>(&config)) return graph->graph->modules[0].type.c_str();
  return kNames[config.index()];
}

namespace {

/// A usual length of fine-tuning data, and the original code's model_max_length (scripts/v1_5/finetune.sh).
constexpr std::int64_t kUsualLength = 2048;

struct TraitsOf {
  ModelTraits operator()(const LlamaConfig& c) const {
    ModelTraits t;
    t.takes_text = t.generates = true;
    t.default_sequence_length = std::min(kUsualLength, c.max_position_embeddings);
    t.hidden_size = c.hidden_size;
    if (c.names != &kLlamaClassNames) t.oldest_transformers = {5, 0, 0};
    t.ties_embeddings = c.tie_word_embeddings;
    t.has_pad_token = c.has_pad_token;
    // TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING and its like for IA3 (peft 0.21, utils/constants.py)
    t.lora_targets = {"q_proj", "v_proj"};
    const bool is_qwen = std::string_view(c.names->causal_lm).starts_with("Qwen");
    t.ia3_targets = {is_qwen ? "q_proj" : "k_proj", "v_proj", "down_proj"};
    t.ia3_feedforward = {"down_proj"};
    return t;
  }
  ModelTraits operator()(const ClipVisionConfig& c) const {
    ModelTraits t;
    t.takes_images = true;
    t.image_size = c.image_size;
    t.hidden_size = c.hidden_size;
    return t;
  }
  ModelTraits operator()(const ClipConfig& c) const {
    ModelTraits t = (*this)(c.vision);
    t.takes_text = true;
    t.max_sequence_length = t.default_sequence_length = c.text.max_position_embeddings;
    t.hidden_size = c.text.hidden_size;  // CLIPConfig has none of its own: text_config's counts
    return t;
  }
  ModelTraits operator()(const DeepseekConfig& c) const {
    ModelTraits t;
    t.takes_text = t.generates = true;
    t.default_sequence_length = std::min(kUsualLength, c.max_position_embeddings);
    t.hidden_size = c.hidden_size;
    t.oldest_transformers = {5, 23, 0};
    t.ties_embeddings = c.tie_word_embeddings;
    return t;
  }
  ModelTraits operator()(const GraphConfig&) const { return {}; }
  ModelTraits operator()(const LlavaConfig& c) const {
    ModelTraits t = vision_language(c.text, c.tie_word_embeddings);
    t.image_size = c.vision.image_size;
    t.cuts_images = c.is_next();
    if (c.is_next() || c.has_siglip()) t.oldest_transformers = {5, 0, 0};
    const std::int64_t tokens =
        c.is_next() ? c.anyres(c.vision.image_size, c.vision.image_size).tokens : c.tokens_per_image();
    t.default_sequence_length = std::max(t.default_sequence_length, tokens);
    return t;
  }
  ModelTraits operator()(const Idefics3Config& c) const {
    ModelTraits t = vision_language(c.text, c.tie_word_embeddings);
    t.cuts_images = true;
    t.oldest_transformers = {5, 0, 0};
    t.image_size = c.vision.image_size;
    t.tower = "vision_model";
    t.projector = "connector";
    const std::int64_t tokens = c.tiles(t.image_size, t.image_size) * c.tokens_per_tile();
    t.default_sequence_length = std::max(t.default_sequence_length, tokens);
    return t;
  }
  ModelTraits operator()(const NanoVlmConfig& c) const {
    ModelTraits t;
    t.takes_text = t.takes_images = t.has_projector = t.generates = true;
    t.ties_embeddings = c.tie_word_embeddings;
    t.image_size = c.vision.image_size;
    t.tower = "vision_encoder";
    t.projector = "MP";
    t.default_sequence_length = std::max(c.max_length, c.tokens_per_image());
    return t;
  }
  ModelTraits operator()(const QwenVLConfig& c) const {
    ModelTraits t = vision_language(c.text, c.tie_word_embeddings);
    t.oldest_transformers = {5, 23, 0};
    t.tower = "visual";
    t.projector = "visual.merger";
    return t;
  }

 private:
  ModelTraits vision_language(const LlamaConfig& text, bool ties_embeddings) const {
    ModelTraits t = (*this)(text);
    t.takes_images = t.has_projector = true;
    t.ties_embeddings = ties_embeddings;
    t.lora_targets = t.ia3_targets = t.ia3_feedforward = {};  // peft's map has language models only
    return t;
  }
};

}  // namespace

ImageCount count_image(const ModelConfig& config, std::int64_t height, std::int64_t width, std::int64_t tiles) {
  if (const auto* llava = std::get_if<LlavaConfig>(&config)) {
    if (!llava->is_next()) return {1, llava->tokens_per_image()};
    const LlavaConfig::Anyres anyres = llava->anyres(height, width);
    return {anyres.tiles(), anyres.tokens};
  }
  if (const auto* nanovlm = std::get_if<NanoVlmConfig>(&config)) return {1, nanovlm->tokens_per_image()};
  if (const auto* idefics3 = std::get_if<Idefics3Config>(&config)) {
    if (tiles == 0) tiles = idefics3->tiles(height, width);
    return {tiles, tiles * idefics3->tokens_per_tile()};
  }
  return {};
}

ModelTraits model_traits(const ModelConfig& config) { return std::visit(TraitsOf{}, config); }

const LlamaConfig* language_of(const ModelConfig& model) {
  if (const auto* language = std::get_if<LlamaConfig>(&model)) return language;
  if (const auto* llava = std::get_if<LlavaConfig>(&model)) return &llava->text;
  if (const auto* idefics3 = std::get_if<Idefics3Config>(&model)) return &idefics3->text;
  return nullptr;
}

bool is_llava_1_5(const ModelConfig& model) {
  const auto* llava = std::get_if<LlavaConfig>(&model);
  return llava && !llava->is_next() && !llava->has_siglip();
}

}  // namespace oometer
