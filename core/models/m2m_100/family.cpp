#include "models/bart/bart.h"

/// transformers 5.23, models/m2m_100/modeling_m2m_100.py: M2M-100, NLLB.
namespace oometer {

namespace {

constexpr BartClassNames kM2M100{"M2M100ForConditionalGeneration",
                                 "M2M100Model",
                                 "M2M100Encoder",
                                 "M2M100Decoder",
                                 "M2M100EncoderLayer",
                                 "M2M100DecoderLayer",
                                 "M2M100Attention",
                                 "M2M100SinusoidalPositionalEmbedding",
                                 "M2M100ScaledWordEmbedding",
                                 BartVariant::m2m_100};
constexpr ModelClass kClasses[] = {{"m2m_100", kM2M100.generation}};
constexpr const char* kBlocks[] = {kM2M100.encoder_layer, kM2M100.decoder_layer};

}  // namespace

namespace family {
extern const Family m2m_100 = bart_family<kM2M100>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
