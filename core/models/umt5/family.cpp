#include "models/t5/t5.h"

/// transformers 5.23, models/umt5/modeling_umt5.py.
namespace oometer {

namespace {

constexpr T5ClassNames kUMT5{"UMT5ForConditionalGeneration", "UMT5Stack",     "UMT5Block",    "UMT5LayerSelfAttention",
                             "UMT5LayerCrossAttention",      "UMT5Attention", "UMT5LayerFF",  "UMT5DenseActDense",
                             "UMT5DenseGatedActDense",       "UMT5LayerNorm", T5Variant::umt5};
constexpr ModelClass kClasses[] = {{"umt5", kUMT5.generation}};
constexpr const char* kBlocks[] = {kUMT5.block};

}  // namespace

namespace family {
extern const Family umt5 = t5_family<kUMT5>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
