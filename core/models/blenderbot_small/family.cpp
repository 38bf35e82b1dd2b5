#include "models/bart/bart.h"

/// transformers 5.23, models/blenderbot_small/modeling_blenderbot_small.py.
namespace oometer {

namespace {

constexpr BartClassNames kBlenderbotSmall{"BlenderbotSmallForConditionalGeneration",
                                          "BlenderbotSmallModel",
                                          "BlenderbotSmallEncoder",
                                          "BlenderbotSmallDecoder",
                                          "BlenderbotSmallEncoderLayer",
                                          "BlenderbotSmallDecoderLayer",
                                          "BlenderbotSmallAttention",
                                          "BlenderbotSmallLearnedPositionalEmbedding",
                                          "Embedding",
                                          BartVariant::blenderbot_small,
                                          50'265,
                                          512,
                                          512,
                                          8,
                                          8,
                                          16,
                                          2048};
constexpr ModelClass kClasses[] = {{"blenderbot-small", kBlenderbotSmall.generation}};
constexpr const char* kBlocks[] = {kBlenderbotSmall.encoder_layer, kBlenderbotSmall.decoder_layer};

}  // namespace

namespace family {
extern const Family blenderbot_small = bart_family<kBlenderbotSmall>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
