#include "models/videomae/everest.h"

#include "ops/argsort.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "tensor/kernel.h"

namespace oometer {

TokenMasks choose_tokens(const Tensor& patch_embeddings, const VideoMaeConfig& config) {
  Context& context = patch_embeddings.context();
  const NoGrad no_grad(context);  // of x.detach()
  const std::int64_t batch = patch_embeddings.size(0), tokens = config.num_patches(),
                     tubelets = config.num_frames / config.tubelet_size;
  Tensor patch_embed_vectors = clone(patch_embeddings);
  patch_embed_vectors = reshape(patch_embed_vectors, {batch, tubelets, tokens / tubelets, config.hidden_size});
  const Tensor distance = [&] {
    const Tensor difference =
        sub(slice(patch_embed_vectors, 1, 0, tubelets - 1), slice(patch_embed_vectors, 1, 1, tubelets - 1));
    return linalg_vector_norm(difference, {3}, false);
  }();
  const Tensor importance =
      cat({select(distance, 1, 0), reshape(distance, {batch, (tubelets - 1) * (tokens / tubelets)})}, 1);
  const Tensor ids_sorted = argsort(importance);
  Tensor noise_id_shuffled, noise;
  if (config.pretrains) {
    const std::int64_t num_compressed_tokens = config.num_visible + config.num_masked;
    noise = empty(context, Op::empty, {batch, num_compressed_tokens}, DType::float32);
    noise_id_shuffled = argsort(noise);
    const Tensor informative = slice(ids_sorted, 1, 0, num_compressed_tokens);
    const Tensor shuffled = gather(informative, noise_id_shuffled);
    kernel(Op::copy, {&shuffled}, informative);
  }
  const Tensor ids_restore = argsort(ids_sorted);
  const auto ones = [&] { return empty(context, Op::fill, {batch, tokens}, DType::float32); };
  Tensor input_mask = ones(), target_mask;
  if (config.pretrains) target_mask = ones();
  input_mask = gather(input_mask, ids_restore);
  if (target_mask) target_mask = gather(target_mask, ids_restore);
  TokenMasks masks;
  masks.input = to(input_mask, DType::boolean);
  if (target_mask) masks.target = to(target_mask, DType::boolean);
  return masks;
}

}  // namespace oometer
