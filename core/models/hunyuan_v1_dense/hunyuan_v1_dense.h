#pragma once

#include "models/kit/text_family.h"

namespace oometer {

/// What HunYuan's models with experts have as the dense ones do.
TextConfig read_hunyuan_text(ConfigReader& reader, const LlamaClassNames& names);
/// Norms of queries and keys behind their rotation.
AttentionParts hunyuan_attention(const LlamaClassNames& names);

}  // namespace oometer
