#include <algorithm>
#include <utility>
#include <vector>

#include "ops/ops.h"
#include "rounding.h"
#include "train/objectives/causal_lm.h"

namespace oometer {

Tensor chunked_causal_lm_loss(const Tensor& logits_in, const Tensor& labels_in, std::int64_t chunks) {
  const std::int64_t length = labels_in.size(-1);
  const Tensor labels = pad_last(labels_in);
  const Tensor shift_labels = contiguous(slice(labels, -1, 1, length));
  std::vector<std::int64_t> sizes;  // torch.chunk's
  const std::int64_t size = divide_up(length, chunks);
  for (std::int64_t left = length; left > 0; left -= size) sizes.push_back(std::min(size, left));
  const TensorList logit_chunks = split(logits_in, sizes, 1);
  const Tensor total_elements = sum_all(pointwise(Op::ne, {&shift_labels}, DType::boolean));
  const auto flat = [](const TensorList& pieces, int dims) {
    TensorList rows;
    for (const Tensor& piece : pieces)
      rows.push_back(
          reshape(piece, dims == 1 ? Shape{piece.numel()} : Shape{piece.size(0) * piece.size(1), piece.size(2)}));
    return rows;
  };
  const TensorList targets = flat(split(shift_labels, sizes, 1), 1);
  const TensorList logits = flat(logit_chunks, 2);
  Tensor total_loss;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Tensor loss = cross_entropy(to(logits[i], DType::float32), targets[i]);
    total_loss = total_loss ? add_bias_(std::move(total_loss), loss) : add_scalar(loss);
  }
  return div(total_loss, total_elements);
}

}  // namespace oometer
