#pragma once

#include "models/videomae/videomae.h"

/// EVEREST (arXiv 2211.10636): tokens that hardly differ from the same patch one tubelet before are not encoded. Made
/// from our own PyTorch model of the paper, tools/everest.py, which follows the authors' choice of tokens.
namespace oometer {

inline constexpr const char* kEverestAssumption =
    "EVEREST is as in a PyTorch model of our own of the paper (tools/everest.py), with which it was compared, not with "
    "the authors' code; tokens are chosen as that code does, all else is transformers' VideoMAE. The authors' training "
    "loop needs more: it holds every patch's labels in float32 from before the forward pass on";

/// Of each token of a batch: True where it is not encoded, and where the decoder does not make it.
struct TokenMasks {
  Tensor input, target;
};

/// EVEREST's, of a batch's embedded patches; `target` in pre-training only.
TokenMasks choose_tokens(const Tensor& patch_embeddings, const VideoMaeConfig& config);

}  // namespace oometer
