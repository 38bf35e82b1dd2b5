#include "models/bart/bart.h"

/// transformers 5.23, models/pegasus/modeling_pegasus.py.
namespace oometer {

namespace {

constexpr BartClassNames kPegasus{"PegasusForConditionalGeneration",
                                  "PegasusModel",
                                  "PegasusEncoder",
                                  "PegasusDecoder",
                                  "PegasusEncoderLayer",
                                  "PegasusDecoderLayer",
                                  "PegasusAttention",
                                  "PegasusSinusoidalPositionalEmbedding",
                                  "Embedding",
                                  BartVariant::pegasus};
constexpr ModelClass kClasses[] = {{"pegasus", kPegasus.generation}};
constexpr const char* kBlocks[] = {kPegasus.encoder_layer, kPegasus.decoder_layer};

}  // namespace

namespace family {
extern const Family pegasus = bart_family<kPegasus>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
