#include "models/bart/bart.h"

/// transformers 5.23, models/marian/modeling_marian.py.
namespace oometer {

namespace {

constexpr BartClassNames kMarian{
    "MarianMTModel",      "MarianModel",        "MarianEncoder",   "MarianDecoder",
    "MarianEncoderLayer", "MarianDecoderLayer", "MarianAttention", "MarianSinusoidalPositionalEmbedding",
    "Embedding",          BartVariant::marian};
constexpr ModelClass kClasses[] = {{"marian", kMarian.generation}};
constexpr const char* kBlocks[] = {kMarian.encoder_layer, kMarian.decoder_layer};

}  // namespace

namespace family {
extern const Family marian = bart_family<kMarian>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
