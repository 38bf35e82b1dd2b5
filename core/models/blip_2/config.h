#pragma once

#include <cstdint>
#include <variant>

#include "models/clip/config.h"
#include "models/kit/qformer.h"
#include "models/opt/opt.h"
#include "models/t5/t5.h"

/// transformers 5.23, models/blip_2/configuration_blip_2.py and its copy in models/instructblip: the fields that decide
/// memory.
namespace oometer {

class ConfigReader;

/// What the classes of BLIP-2 and of its copies are called, and what these do otherwise.
struct Blip2Family {
  const char *model_type, *conditional_generation;
  VisionFamily vision;
  const QFormerClassNames* qformer;
  bool slices_logits;  ///< forward takes as many of them as there are labels
};
inline constexpr Blip2Family kBlip2{"blip-2",
                                    "Blip2ForConditionalGeneration",
                                    {"Blip2VisionModel", "Blip2VisionEmbeddings", "Blip2Encoder", "Blip2EncoderLayer",
                                     "Blip2Attention", "Blip2MLP", true, true},
                                    &kBlip2QFormer,
                                    true};

struct Blip2Config {
  const Blip2Family* family = &kBlip2;
  ClipVisionConfig vision;
  bool qkv_bias = true;  ///< of the tower's attention
  QFormerConfig qformer;
  std::int64_t num_query_tokens = 32;
  std::variant<OptConfig, LlamaConfig, T5Config> text;

  const LlamaConfig* decoder() const {
    if (const auto* opt = std::get_if<OptConfig>(&text)) return opt;
    return std::get_if<LlamaConfig>(&text);
  }
  const T5Config* encoder_decoder() const { return std::get_if<T5Config>(&text); }
  std::int64_t text_hidden_size() const { return decoder() ? decoder()->hidden_size : encoder_decoder()->hidden_size; }
  bool reads_text() const { return family->qformer->reads_text; }  ///< the Q-Former does
  bool operator==(const Blip2Config&) const = default;
};

Blip2Config read_blip2_config(ConfigReader& reader, const Blip2Family& family);

}  // namespace oometer
