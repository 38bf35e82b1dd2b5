#include "models/bart/bart.h"

/// transformers 5.23, models/mbart/modeling_mbart.py.
namespace oometer {

namespace {

constexpr BartClassNames kMBart{"MBartForConditionalGeneration",
                                "MBartModel",
                                "MBartEncoder",
                                "MBartDecoder",
                                "MBartEncoderLayer",
                                "MBartDecoderLayer",
                                "MBartAttention",
                                "MBartLearnedPositionalEmbedding",
                                "MBartScaledWordEmbedding",
                                BartVariant::mbart};
constexpr ModelClass kClasses[] = {{"mbart", kMBart.generation}};
constexpr const char* kBlocks[] = {kMBart.encoder_layer, kMBart.decoder_layer};

}  // namespace

namespace family {
extern const Family mbart = bart_family<kMBart>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
