#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "graph/graph.h"
#include "models/clip/config.h"
#include "models/deepseek/config.h"
#include "models/idefics3/config.h"
#include "models/llama/config.h"
#include "models/llava/config.h"
#include "models/nanovlm/config.h"
#include "models/qwen2_vl/config.h"
#include "runtime/behaviours.h"

namespace oometer {

/// One alternative for each class that can be built; `architectures[0]` decides where a model_type has several.
/// Or no class at all: a graph of operators.
using ModelConfig = std::variant<LlamaConfig, ClipConfig, ClipVisionConfig, LlavaConfig, QwenVLConfig, Idefics3Config,
                                 NanoVlmConfig, DeepseekConfig, GraphConfig>;

/// Reads a whole config.json. An unknown model_type or class is an error that lists those supported.
ModelConfig read_model_config(ConfigReader& reader, Framework framework);

/// The Hugging Face class that a config stands for, "LlamaForCausalLM".
const char* class_name(const ModelConfig& config);

/// Tiles and tokens of the language model that one image takes.
struct ImageCount {
  std::int64_t tiles = 1, tokens = 0;
};
/// Of an image of so many pixels, before any processing. `tiles`: as many as these instead; 0: as the processor cuts.
ImageCount count_image(const ModelConfig& config, std::int64_t height, std::int64_t width, std::int64_t tiles);

/// What the job needs to know of a family without building a model.
struct ModelTraits {
  bool takes_text = false;
  bool takes_images = false;
  bool has_projector = false;
  bool generates = false;                    ///< it has generate(), a cache and logits
  Version oldest_transformers{};             ///< what `Behaviours` says of earlier ones was not found in its code
  bool has_pad_token = false;                ///< pad_token_id
  bool cuts_images = false;                  ///< images of any size, which the processor cuts into tiles
  std::int64_t max_sequence_length = 0;      ///< 0: no limit, else longer sequences are refused (CLIP's text model)
  std::int64_t default_sequence_length = 0;  ///< where the job gives none
  std::int64_t image_size = 0;               ///< the config's own, pixels; 0: no images
  const char* tower = "vision_tower";        ///< the dotted names of the tower and the projector
  const char* projector = "multi_modal_projector";
  bool ties_embeddings = false;  ///< the output embeddings are the input's (tie_word_embeddings)
  /// peft's own target_modules, and (IA)^3's feedforward_modules, for the model_type; none: it has no opinion
  std::vector<std::string> lora_targets, ia3_targets, ia3_feedforward;
  std::int64_t hidden_size = 0;  ///< what transformers resolves DeepSpeed's "auto" with; 0: it cannot
};
ModelTraits model_traits(const ModelConfig& config);

/// The language model of a config, if it has one of Llama's kind.
const LlamaConfig* language_of(const ModelConfig& model);
/// The classes whose Liger kernels and quantised weights were compared with the libraries' own.
bool is_llava_1_5(const ModelConfig& model);

}  // namespace oometer
