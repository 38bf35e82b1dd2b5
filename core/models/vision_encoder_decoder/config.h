#pragma once

#include <variant>

#include "models/bart/bart.h"
#include "models/swin/swin.h"
#include "models/vit/vit.h"

/// transformers 5.23, models/vision_encoder_decoder, models/donut and models/trocr: the fields that decide memory.
namespace oometer {

inline constexpr VitClassNames kDeit{
    "DeiTModel", "DeiTEmbeddings", "DeiTPatchEmbeddings", "DeiTLayer", "DeiTAttention", "DeiTMLP", "deit", true};
inline constexpr VitClassNames kDonutSwin{"DonutSwinModel",
                                          "DonutSwinEmbeddings",
                                          "DonutSwinPatchEmbeddings",
                                          "DonutSwinLayer",
                                          "DonutSwinAttention",
                                          "DonutSwinIntermediate",
                                          "donut",
                                          true};
inline constexpr const char* kDonutSwinStage = "DonutSwinStage";
inline constexpr BartClassNames kMBartDecoder{"VisionEncoderDecoderModel",
                                              "MBartDecoderWrapper",
                                              "",
                                              "MBartDecoder",
                                              "",
                                              "MBartDecoderLayer",
                                              "MBartAttention",
                                              "MBartLearnedPositionalEmbedding",
                                              "MBartScaledWordEmbedding",
                                              BartVariant::mbart};
inline constexpr const char* kTrocrLayer = "TrOCRDecoderLayer";

/// class DonutSwinConfig. Images need not be squares: `image_size` is the larger side.
struct DonutSwinConfig : SwinConfig {
  std::int64_t image_height = 224, image_width = 224;
  bool operator==(const DonutSwinConfig&) const = default;
};

/// class TrOCRConfig, in BartConfig's fields.
struct TrocrConfig : BartConfig {
  std::int64_t cross_attention_hidden_size = 0;  ///< 0: as the decoder's own
  bool layernorm_embedding = true;

  bool operator==(const TrocrConfig&) const = default;
};

/// class VisionEncoderDecoderConfig.
struct VisionEncoderDecoderConfig {
  std::variant<VitConfig, DonutSwinConfig> encoder;
  bool is_trocr = true;
  TrocrConfig decoder;    ///< MBartConfig's fields, where it is no TrOCR
  bool use_cache = true;  ///< the decoder's own, which no argument of a trainer reaches

  const DonutSwinConfig* donut() const { return std::get_if<DonutSwinConfig>(&encoder); }
  const VitConfig& vision() const { return donut() ? *donut() : std::get<VitConfig>(encoder); }
  /// VisionEncoderDecoderModel.__init__
  bool projects() const {
    return vision().hidden_size != decoder.hidden_size && decoder.cross_attention_hidden_size == 0;
  }
  bool operator==(const VisionEncoderDecoderConfig&) const = default;
};

}  // namespace oometer
