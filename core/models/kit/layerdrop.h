#pragma once

#include "config/reader.h"

namespace oometer {

/// LayerDrop: the share of layers that each forward of training leaves out, each by chance (in transformers'
/// encoders `torch.rand([]) < layerdrop`). The answer is of a forward that leaves out none, the most that one takes,
/// and says so. `usual`: the class's own share.
void read_layerdrop(ConfigReader& reader, const char* key = "layerdrop", double usual = 0);

}  // namespace oometer
