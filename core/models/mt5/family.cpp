#include "models/t5/t5.h"

/// transformers 5.23, models/mt5/modeling_mt5.py.
namespace oometer {

namespace {

constexpr T5ClassNames kMT5{"MT5ForConditionalGeneration", "MT5Stack",     "MT5Block",    "MT5LayerSelfAttention",
                            "MT5LayerCrossAttention",      "MT5Attention", "MT5LayerFF",  "MT5DenseActDense",
                            "MT5DenseGatedActDense",       "MT5LayerNorm", T5Variant::mt5};
constexpr ModelClass kClasses[] = {{"mt5", kMT5.generation}};
constexpr const char* kBlocks[] = {kMT5.block};

}  // namespace

namespace family {
extern const Family mt5 = t5_family<kMT5>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
