#include "models/bart/bart.h"

/// transformers 5.23, models/blenderbot/modeling_blenderbot.py.
namespace oometer {

namespace {

constexpr BartClassNames kBlenderbot{"BlenderbotForConditionalGeneration",
                                     "BlenderbotModel",
                                     "BlenderbotEncoder",
                                     "BlenderbotDecoder",
                                     "BlenderbotEncoderLayer",
                                     "BlenderbotDecoderLayer",
                                     "BlenderbotAttention",
                                     "BlenderbotLearnedPositionalEmbedding",
                                     "BlenderbotScaledWordEmbedding",
                                     BartVariant::blenderbot,
                                     8008,
                                     2560,
                                     128,
                                     2,
                                     24,
                                     32,
                                     10'240};
constexpr ModelClass kClasses[] = {{"blenderbot", kBlenderbot.generation}};
constexpr const char* kBlocks[] = {kBlenderbot.encoder_layer, kBlenderbot.decoder_layer};

}  // namespace

namespace family {
extern const Family blenderbot = bart_family<kBlenderbot>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
