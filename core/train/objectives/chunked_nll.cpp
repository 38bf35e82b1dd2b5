#include "train/objectives/chunked_nll.h"

#include <algorithm>
#include <utility>

#include "autograd/checkpoint.h"
#include "ops/cub.h"
#include "ops/nll_loss.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "rounding.h"

namespace oometer {

namespace {

constexpr std::int64_t kChunkTokens = 256;  // _CHUNKED_LM_HEAD_CHUNK_SIZE

struct ChunkSums {
  Tensor correct, entropy;
};

/// h @ w.t() in float32, or in the hidden states' type.
Tensor chunk_logits(const Tensor& hidden, const Tensor& weight, ChunkedTokens tokens) {
  const bool in_float32 = tokens != ChunkedTokens::sorted_in_type;
  Tensor logits;
  {
    const DType type = in_float32 ? DType::float32 : hidden.dtype();
    const Tensor h = to(hidden, type), w = to(weight, type), w_t = transpose(w, 0, 1);
    const Tensor a = autocast_lower(h), b = autocast_lower(w_t);
    logits = mm(a, b);
  }
  return in_float32 ? logits : to(logits, DType::float32);
}

/// _chunk: its loss, and the sums that it returns beside.
Tensor score_chunk(const Tensor& hidden, const Tensor& weight, const Tensor& labels, ChunkedTokens tokens,
                   ChunkSums& sums) {
  const bool has_tail = tokens != ChunkedTokens::selected;
  const Tensor logits = chunk_logits(hidden, weight, tokens);
  Tensor log_p;
  {
    const Tensor as_float = autocast_float32(logits);
    log_p = log_softmax(as_float);
  }
  Tensor loss = nll_loss(log_p, labels);
  Tensor valid;
  if (has_tail) valid = pointwise(Op::ne, {&labels}, DType::boolean);
  {
    Tensor is_right;
    {
      const Tensor best = reduce(Op::argmax, logits, {-1}, false, DType::int64);
      is_right = pointwise(Op::eq, {&best, &labels}, DType::boolean);
    }
    if (has_tail) is_right = pointwise(Op::bitwise_and, {&is_right, &valid}, DType::boolean);
    Tensor count = sum_all(is_right);
    is_right.reset();
    sums.correct = to(count, DType::float32);
  }
  Tensor entropy = exp(log_p);
  entropy = mul(entropy, log_p);
  entropy = sum(entropy, {-1}, false);
  if (has_tail) {
    entropy = neg(entropy);
    entropy = mul(entropy, valid);
    entropy = sum_all(entropy);
  } else {
    entropy = sum_all(entropy);
    entropy = neg(entropy);
  }
  sums.entropy = std::move(entropy);
  return loss;
}

/// valid.to(torch.int8).argsort(descending=True, stable=True); sort_stable (ATen/native/cuda/Sort.cpp).
Tensor scored_first(const Tensor& valid) {
  constexpr std::int64_t kSmall = 4096;  // should_use_small_sort
  Context& context = valid.context();
  const Tensor keys = to(valid, DType::uint8);
  const Tensor values = empty(context, Op::sort, keys.sizes(), DType::uint8);
  Tensor indices = empty(context, Op::sort, keys.sizes(), DType::int64);
  const Tensor range = empty(context, Op::arange, keys.sizes(), DType::int64);
  if (keys.numel() > kSmall)
    const Workspace scratch(context, Op::sort, cub_radix_sort_bytes(keys.numel(), 8, context.device.major));
  return indices;
}

}  // namespace

Tensor ChunkedNll::of_hidden_states(const Tensor& hidden_states, const Linear& lm_head, const Tensor& labels_in) const {
  Context& context = hidden_states.context();
  if (context.modules) context.modules->read(lm_head.weight);  // lm_head itself is not called
  const std::int64_t length = labels_in.size(1) - 1, rows = checked_product(labels_in.size(0), length);
  const auto zero = [&] { return empty(context, Op::zeros, {}, DType::float32); };
  Tensor hidden = reshape(slice(hidden_states, 1, 0, length), {rows, hidden_states.size(-1)});
  Tensor labels = reshape(slice(labels_in, 1, 1, length), {rows});
  const Tensor valid = pointwise(Op::ne, {&labels}, DType::boolean);
  std::int64_t tokens = scored;
  Tensor order;
  if (tokens_ == ChunkedTokens::selected) {
    hidden = index_mask(hidden, valid, scored);
    labels = index_mask(labels, valid, scored);
    counts.num_correct_tokens = zero();
    counts.entropy_sum = zero();
    counts.num_valid_tokens = empty(context, Op::to_copy, {}, DType::int64);
  } else {
    counts.num_valid_tokens = sum_all(valid);
    counts.num_correct_tokens = zero();
    counts.entropy_sum = zero();
    order = scored_first(valid);
    hidden = index(hidden, order);
    labels = index(labels, order);
    tokens = std::min(rows, round_up(std::max<std::int64_t>(scored, 1), kChunkTokens));
  }
  Tensor loss = zero();
  ChunkSums sums;
  Tensor h_chunk, lbl_chunk, chunk_loss;  // a loop's names outlive each turn
  for (std::int64_t start = 0; start < tokens; start += kChunkTokens) {
    const std::int64_t size = std::min(kChunkTokens, tokens - start);
    h_chunk = slice(hidden, 0, start, size);
    lbl_chunk = slice(labels, 0, start, size);
    ChunkSums of_chunk;
    chunk_loss = checkpoint(
        CheckpointMode::non_reentrant, h_chunk,
        [weight = lm_head.weight, labels_of = lbl_chunk, how = tokens_, &of_chunk, &context](const Tensor& h) {
          ChunkSums again;
          Tensor its = score_chunk(h, weight, labels_of, how, again);
          if (!context.recomputing) of_chunk = std::move(again);
          return its;
        });
    sums = std::move(of_chunk);
    loss = add(loss, chunk_loss);
    counts.num_correct_tokens = add(counts.num_correct_tokens, sums.correct);
    counts.entropy_sum = add(counts.entropy_sum, sums.entropy);
  }
  return div(loss, num_items_in_batch ? num_items_in_batch : counts.num_valid_tokens);
}

}  // namespace oometer
