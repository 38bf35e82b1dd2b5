#include "models/masking.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

#include "models/blockwise_mask.h"
#include "models/cross_mask.h"
#include "nn/kv_cache.h"
#include "ops/cub.h"
#include "ops/masks.h"
#include "ops/ops.h"

namespace oometer {

namespace {

// find_packed_sequence_indices; 5.x looks whether there is more than one (`detects`), 4.57 never does.
Tensor find_packed_sequences(Context& context, std::int64_t batch, std::int64_t length, bool detects,
                             bool are_packed = false) {
  Tensor first_dummy = empty(context, Op::sub, {batch, 1}, DType::int64);
  Tensor differences;
  {
    const Tensor joined = empty(context, Op::cat, {batch, length + 1}, DType::int64);  // torch.diff(prepend=...)
    differences = empty(context, Op::sub, {batch, length}, DType::int64);
  }
  Tensor sequence_mask;
  {
    const Tensor breaks = empty(context, Op::ne, {batch, length}, DType::boolean);
    sequence_mask = empty(context, Op::cumsum, {batch, length}, DType::int64);
    const Tensor as_integers = empty(context, Op::cumsum, {batch, length}, DType::int64);
    if (batch == 1)
      const Workspace scan(context, Op::cumsum, cub_scan_bytes(length));  // one row: CUB's device-wide scan
  }
  if (!detects) return sequence_mask;
  {
    Tensor zero = empty(context, Op::eq, {batch}, DType::boolean);
    const Tensor all = empty(context, Op::all, {}, DType::boolean);
    zero.reset();
  }
  first_dummy.reset();
  differences.reset();
  return are_packed ? sequence_mask : Tensor();
}

Tensor arange_with_offset(Context& context, std::int64_t length) {
  const Tensor range = empty(context, Op::arange, {length}, DType::int64);
  return add_scalar(range);
}

// AttentionMaskConverter.to_causal_4d, to_4d (modeling_attn_mask_utils.py, 4.37.2): made in torch's default type.
Tensor converter_mask(const Tensor& like, bool with_padding_mask) {
  Context& context = like.context();
  const std::int64_t batch = like.size(0), length = like.size(1);
  const Shape sizes{batch, 1, length, length};
  Tensor mask = empty(context, Op::fill, {length, length}, DType::float32);
  {  // _make_causal_mask
    const Tensor condition = empty(context, Op::arange, {length}, DType::int64);
    {
      const Tensor next = add_scalar(condition);
      const Tensor below = empty(context, Op::lt, {length, length}, DType::boolean);
    }
    mask = to(mask, like.dtype());
    mask = expand(unsqueeze(unsqueeze(mask, 0), 0), sizes);
  }
  if (!with_padding_mask) return mask;
  const auto masked_fill = [&] {
    const Tensor where = empty(context, Op::to_copy, sizes, DType::boolean);
    return empty(context, Op::masked_fill, sizes, like.dtype());
  };
  Tensor expanded_attn_mask;
  {  // _expand_mask
    const Tensor expanded_mask = empty(context, Op::to_copy, sizes, like.dtype());
    const Tensor inverted_mask = empty(context, Op::sub, sizes, like.dtype());
    expanded_attn_mask = masked_fill();
  }
  expanded_attn_mask = masked_fill();
  return expanded_attn_mask;
}

// LlamaModel._prepare_4d_causal_attention_mask_with_cache_position (4.44.2 to 4.51.3): one column too many, cut off by
// each layer. A 2-D attention mask makes it a copy a sample, filled in place. MistralModel's (4.48.3, 4.51.3),
// Qwen2Model's and Qwen3Model's (4.51.3) makes no triangle, and holds what it multiplies by until it returns.
Tensor cache_position_mask(const Tensor& like, bool with_padding_mask, bool is_triangular) {
  Context& context = like.context();
  const std::int64_t batch = like.size(0), length = like.size(1), columns = length + (with_padding_mask ? 0 : 1);
  Tensor mask = empty(context, Op::fill, {length, columns}, like.dtype());
  if (is_triangular) mask = empty(context, Op::triu, {length, columns}, like.dtype());
  Tensor diagonal_attend_mask;
  {
    const Tensor range = empty(context, Op::arange, {columns}, DType::int64);
    diagonal_attend_mask = empty(context, Op::gt, {length, columns}, DType::boolean);
  }
  if (is_triangular) diagonal_attend_mask.reset();
  mask = expand(unsqueeze(unsqueeze(mask, 0), 0), {batch, 1, length, columns});
  if (!with_padding_mask) return slice(mask, -1, 0, length);
  mask = empty(context, Op::clone, {batch, 1, length, length}, like.dtype());
  Tensor padding = empty(context, Op::add, mask.sizes(), like.dtype());
  padding = empty(context, Op::eq, mask.sizes(), DType::boolean);
  const Tensor filled = empty(context, Op::masked_fill, mask.sizes(), like.dtype());
  return mask;
}

// masking_utils.py, sdpa_mask_recent_torch with packed_sequence_mask_function (4.57.1), through vmap.
Tensor packed_mask(const Tensor& like, const Tensor& sequences) {
  Context& context = like.context();
  const std::int64_t batch = like.size(0), length = like.size(1);
  const Tensor keys = empty(context, Op::arange, {length}, DType::int64);
  const Tensor batch_index = empty(context, Op::arange, {batch}, DType::int64);
  const Tensor head_index = empty(context, Op::arange, {1}, DType::int64);
  const Tensor ones = empty(context, Op::ones_like, {length}, DType::boolean);
  const Tensor causal = empty(context, Op::le, {length, length}, DType::boolean);
  const Tensor both = empty(context, Op::bitwise_and, {length, length}, DType::boolean);
  const auto gather = [&] {
    const Tensor rows = empty(context, Op::clone, sequences.sizes(), DType::int64);
    const Tensor columns = empty(context, Op::clone, sequences.sizes(), DType::int64);
    return empty(context, Op::index, sequences.sizes(), DType::int64);
  };
  const Tensor of_query = gather(), of_key = gather();
  const Tensor same = empty(context, Op::eq, {batch, 1, length, length}, DType::boolean);
  return empty(context, Op::bitwise_and, {batch, 1, length, length}, DType::boolean);
}

/// Indices of a mask's dimensions, each along its own (_non_vmap_expansion_sdpa).
struct MaskIndices {
  Tensor batch;  ///< [b, 1, 1, 1]
  Tensor head;   ///< [1, 1, 1, 1]
  Tensor query;  ///< [1, 1, queries, 1]
  Tensor key;    ///< [1, 1, 1, keys]
};

/// Which key a query sees: booleans that broadcast to [b, 1, queries, keys].
using MaskFunction = std::function<Tensor(const MaskIndices&)>;

Tensor booleans(Op op, std::initializer_list<const Tensor*> operands) {
  return pointwise(op, operands, DType::boolean);
}

MaskFunction and_masks(std::vector<MaskFunction> mask_functions) {
  return [mask_functions = std::move(mask_functions)](const MaskIndices& at) {
    Tensor result = empty(at.query.context(), Op::ones_like, {}, DType::boolean);
    for (const MaskFunction& function : mask_functions) {
      Tensor mask = function(at);
      Tensor both = booleans(Op::bitwise_and, {&result, &mask});
      mask.reset();
      result = std::move(both);
    }
    return result;
  };
}

MaskFunction or_masks(std::vector<MaskFunction> mask_functions) {
  return [mask_functions = std::move(mask_functions)](const MaskIndices& at) {
    Tensor result = empty(at.query.context(), Op::zeros, {}, DType::boolean);
    for (const MaskFunction& function : mask_functions) {
      Tensor mask = function(at);
      Tensor either = booleans(Op::bitwise_or, {&result, &mask});
      mask.reset();
      result = std::move(either);
    }
    return result;
  };
}

Tensor causal_mask_function(const MaskIndices& at) { return booleans(Op::le, {&at.key, &at.query}); }

Tensor sliding_window_overlay(const MaskIndices& at) {
  const Tensor start = pointwise(Op::sub, {&at.query}, DType::int64);
  return booleans(Op::gt, {&at.key, &start});
}

/// abs(q_idx - kv_idx) <= sliding_window
Tensor sliding_window_bidirectional_overlay(const MaskIndices& at) {
  Tensor distance = pointwise(Op::sub, {&at.query, &at.key}, DType::int64);
  distance = pointwise(Op::abs, {&distance}, DType::int64);
  return booleans(Op::le, {&distance});
}

/// tensor[batch_idx, index]. Indices that lie differently in memory are copied first (AdvancedIndex,
/// ATen/native/TensorAdvancedIndexing.cpp).
Tensor index_rows(const Tensor& tensor, const Tensor& batch, const Tensor& index) {
  const Shape sizes = broadcast(batch.sizes(), index.sizes());
  Tensor rows = expand(batch, sizes), columns = expand(index, sizes);
  if (rows.strides() != columns.strides()) {
    rows = contiguous(rows);
    columns = contiguous(columns);
  }
  return empty(tensor.context(), Op::index, sizes, tensor.dtype());
}

MaskFunction padding_mask_function(const Tensor& padding_mask) {
  return [padding_mask](const MaskIndices& at) { return index_rows(padding_mask, at.batch, at.key); };
}

MaskFunction packed_sequence_mask_function(const Tensor& packed_sequence_mask) {
  return [packed_sequence_mask](const MaskIndices& at) {
    const Tensor of_query = index_rows(packed_sequence_mask, at.batch, at.query);
    const Tensor of_key = index_rows(packed_sequence_mask, at.batch, at.key);
    return booleans(Op::eq, {&of_query, &of_key});
  };
}

MaskFunction blockwise_overlay(const Tensor& block_sequence_ids) {
  return [block_sequence_ids](const MaskIndices& at) {
    const Tensor q_group = index_rows(block_sequence_ids, at.batch, at.query);
    const Tensor kv_group = index_rows(block_sequence_ids, at.batch, at.key);
    const Tensor same = booleans(Op::eq, {&q_group, &kv_group});
    const Tensor is_block = booleans(Op::ge, {&q_group});
    return booleans(Op::bitwise_and, {&same, &is_block});
  };
}

/// Positions take the places of the tokens' indices.
MaskFunction remap_positions_for_packed_sequence(MaskFunction mask_function, const Tensor& position_ids) {
  return [mask_function = std::move(mask_function), position_ids](const MaskIndices& at) {
    const Tensor query = index_rows(position_ids, at.batch, at.query);
    const Tensor key = index_rows(position_ids, at.batch, at.key);
    return mask_function({at.batch, at.head, query, key});
  };
}

/// sdpa_mask, past what may spare one, and, of a floating-point type, eager_mask: [b, 1, queries, keys] of `sizes`.
Tensor make_mask(Context& context, const Shape& sizes, DType dtype, const MaskFunction& mask_function) {
  Tensor allowed;
  {
    Tensor batch = empty(context, Op::arange, {sizes[0]}, DType::int64);
    Tensor head = empty(context, Op::arange, {1}, DType::int64);
    Tensor queries = arange_with_offset(context, sizes[2]);
    const Tensor keys = arange_with_offset(context, sizes[3]);
    const auto along = [](const Tensor& range, int dim) {
      Tensor x = range;
      for (int i = 0; i < dim; ++i) x = unsqueeze(x, 0);
      for (int i = dim + 1; i < 4; ++i) x = unsqueeze(x, -1);
      return x;
    };
    allowed = mask_function({along(batch, 0), along(head, 1), along(queries, 2), along(keys, 3)});
    for (Tensor* name : {&batch, &head, &queries}) name->reset();
  }
  if (dtype == DType::boolean) return expand(allowed, sizes);
  const Tensor zero = empty(context, Op::empty, {}, dtype);
  const Tensor minimum = empty(context, Op::empty, {}, dtype);
  return empty(context, Op::where, sizes, dtype);
}

/// (idx - left_padding[batch_idx]) // chunk_size, the same of a query and a key.
MaskFunction chunked_overlay(const Tensor& left_padding) {
  return [left_padding](const MaskIndices& at) {
    const auto chunk_of = [&](const Tensor& index) {
      Tensor chunk;
      {
        const Tensor padding = empty(at.batch.context(), Op::index, at.batch.sizes(), DType::int64);
        chunk = pointwise(Op::sub, {&index, &padding}, DType::int64);
      }
      return pointwise(Op::div, {&chunk}, DType::int64);
    };
    const Tensor of_key = chunk_of(at.key), of_query = chunk_of(at.query);
    return booleans(Op::eq, {&of_key, &of_query});
  };
}

MaskFunction causal_mask_factory(bool slides) {
  return slides ? and_masks({sliding_window_overlay, causal_mask_function}) : MaskFunction(causal_mask_function);
}

/// `tensor.sum() == tensor.numel()`
void fast_all(const Tensor& mask) {
  Tensor sum = sum_all(mask);
  const Tensor all = booleans(Op::eq, {&sum});
  sum.reset();
}

/// _ignore_causal_mask_sdpa, of as many keys as queries.
bool ignores_causal_mask(const Tensor& padding_mask, bool is_padded, bool slides) {
  if (slides) return false;
  if (!padding_mask) return true;
  fast_all(padding_mask);
  if (!is_padded) return true;
  fast_all(padding_mask);  // the case of a static cache, of which it can be the prefill
  return false;
}

/// flash_attention_mask: that of padding, where there is some.
Tensor flash_attention_mask(const Tensor& attention_mask, bool is_padded) {
  if (!attention_mask) return {};
  { const Tensor all = reduce(Op::all, attention_mask, {0, 1}, false, DType::boolean); }
  return is_padded ? attention_mask : Tensor();
}

/// Of a batch in training, transformers 5.23.
Tensor causal_mask_of_batch(const Tensor& inputs_embeds, const MaskArguments& given, MaskedBy masked,
                            std::int64_t sliding_window) {
  Context& context = inputs_embeds.context();
  const std::int64_t batch = inputs_embeds.size(0), length = inputs_embeds.size(1);
  const bool slides = sliding_window != 0;
  Tensor attention_mask, packed_sequence_mask;
  if (given.attention_mask)
    attention_mask = to(given.attention_mask, DType::boolean);
  else if (given.position_ids)
    packed_sequence_mask =
        find_packed_sequences(context, batch, length, true, given.rows != nullptr && given.rows->are_packed());
  const bool is_padded = given.rows != nullptr && given.rows->are_padded(length);
  if (masked == MaskedBy::flash_attention) return flash_attention_mask(attention_mask, is_padded);
  const bool eager = masked == MaskedBy::eager;
  Tensor left_padding_tokens;
  if (given.is_chunked && slides) left_padding_tokens = empty(context, Op::zeros, {batch}, DType::int64);
  if (!eager && !packed_sequence_mask && !given.is_always_made &&
      ignores_causal_mask(attention_mask, is_padded, slides && length >= sliding_window))
    return {};
  MaskFunction mask_function = left_padding_tokens
                                   ? and_masks({chunked_overlay(left_padding_tokens), causal_mask_function})
                                   : causal_mask_factory(slides);
  if (packed_sequence_mask)
    mask_function =
        and_masks({packed_sequence_mask_function(packed_sequence_mask),
                   remap_positions_for_packed_sequence(
                       std::move(mask_function), expand(given.position_ids, {batch, given.position_ids.size(1)}))});
  if (attention_mask) mask_function = and_masks({std::move(mask_function), padding_mask_function(attention_mask)});
  return make_mask(context, {batch, 1, length, length}, eager ? inputs_embeds.dtype() : DType::boolean, mask_function);
}

/// What _preprocess_mask_arguments gives of a batch.
struct MaskOfSamples {
  Tensor attention_mask, packed_sequence_mask;
};
MaskOfSamples preprocess_mask_arguments(const Tensor& inputs_embeds, const MaskArguments& given) {
  if (given.attention_mask) return {to(given.attention_mask, DType::boolean), {}};
  if (!given.position_ids || inputs_embeds.context().past_key_values) return {};
  return {{},
          find_packed_sequences(inputs_embeds.context(), inputs_embeds.size(0), inputs_embeds.size(1), true,
                                given.rows != nullptr && given.rows->are_packed())};
}

/// packed_sequence_compatibility_function
MaskFunction of_packed_sequences(MaskFunction mask_function, const Tensor& packed_sequence_mask,
                                 const MaskArguments& given) {
  const Tensor position_ids = expand(given.position_ids, packed_sequence_mask.sizes());
  return and_masks({packed_sequence_mask_function(packed_sequence_mask),
                    remap_positions_for_packed_sequence(std::move(mask_function), position_ids)});
}

/// How many keys the tokens meet in layers with that window.
std::int64_t keys_of(const Tensor& inputs_embeds, std::int64_t sliding_window) {
  const KvCache* const cache = inputs_embeds.context().past_key_values;
  return cache ? cache->mask_length(inputs_embeds.size(1), sliding_window) : inputs_embeds.size(1);
}

/// maybe_pad_block_sequence_ids: as long as the keys, those too that a window left behind.
Tensor padded_to_keys(const Tensor& block_sequence_ids, const Tensor& inputs_embeds, std::int64_t keys) {
  const KvCache* const cache = inputs_embeds.context().past_key_values;
  const std::int64_t seen = cache ? cache->length() + inputs_embeds.size(1) : 0, length = std::max(keys, seen);
  if (length <= block_sequence_ids.size(1)) return block_sequence_ids;
  return empty(inputs_embeds.context(), Op::constant_pad_nd, {block_sequence_ids.size(0), length}, DType::int64);
}

Tensor make_mask_of_samples(const Tensor& inputs_embeds, const MaskArguments& given, MaskedBy masked,
                            MaskFunction mask_function, const Tensor& attention_mask, std::int64_t keys) {
  if (masked == MaskedBy::flash_attention)
    return flash_attention_mask(attention_mask, given.rows && given.rows->are_padded(inputs_embeds.size(1)));
  if (attention_mask) mask_function = and_masks({std::move(mask_function), padding_mask_function(attention_mask)});
  return make_mask(inputs_embeds.context(), {inputs_embeds.size(0), 1, inputs_embeds.size(1), keys},
                   masked == MaskedBy::eager ? inputs_embeds.dtype() : DType::boolean, mask_function);
}

}  // namespace

Tensor create_blockwise_mask(const Tensor& inputs_embeds, const MaskArguments& given, MaskedBy masked,
                             const Tensor& block_sequence_ids, std::int64_t sliding_window) {
  const NoGrad no_grad(inputs_embeds.context());
  const MaskOfSamples of = preprocess_mask_arguments(inputs_embeds, given);
  MaskFunction mask_function = causal_mask_factory(sliding_window != 0);
  if (of.packed_sequence_mask)
    mask_function = of_packed_sequences(std::move(mask_function), of.packed_sequence_mask, given);
  const std::int64_t keys = keys_of(inputs_embeds, sliding_window);
  const Tensor padded = padded_to_keys(block_sequence_ids, inputs_embeds, keys);
  mask_function = or_masks({std::move(mask_function), blockwise_overlay(padded)});
  return make_mask_of_samples(inputs_embeds, given, masked, std::move(mask_function), of.attention_mask, keys);
}

Tensor create_sliding_blockwise_mask(const Tensor& inputs_embeds, const MaskArguments& given, MaskedBy masked,
                                     const Tensor& block_sequence_ids, std::int64_t sliding_window) {
  const NoGrad no_grad(inputs_embeds.context());
  preprocess_mask_arguments(inputs_embeds, given);  // to pad block_sequence_ids to as many keys
  const std::int64_t keys = keys_of(inputs_embeds, sliding_window);
  const Tensor padded = padded_to_keys(block_sequence_ids, inputs_embeds, keys);
  const MaskOfSamples of = preprocess_mask_arguments(inputs_embeds, given);
  MaskFunction mask_function =
      and_masks({or_masks({causal_mask_function, blockwise_overlay(padded)}), sliding_window_overlay});
  if (of.packed_sequence_mask)
    mask_function = of_packed_sequences(std::move(mask_function), of.packed_sequence_mask, given);
  return make_mask_of_samples(inputs_embeds, given, masked, std::move(mask_function), of.attention_mask, keys);
}

namespace {

/// `given`: what it says beside the samples.
Tensor mask_with_cache(Context& context, const KvCache& cache, std::int64_t batch, std::int64_t queries, DType dtype,
                       std::int64_t sliding_window, const Tensor& attention_mask, const MaskArguments& given) {
  const std::int64_t keys = cache.mask_length(queries, std::max<std::int64_t>(sliding_window, 0));
  const Tensor padding = attention_mask ? to(attention_mask, DType::boolean) : Tensor();
  Tensor left_padding_tokens;
  if (given.is_chunked && sliding_window != 0) left_padding_tokens = empty(context, Op::zeros, {batch}, DType::int64);
  // _ignore_causal_mask_sdpa, which a cache of one size is not asked when it decodes
  if (dtype == DType::boolean && !given.is_always_made && !(cache.is_compileable() && queries == 1) &&
      !(sliding_window != 0 && keys >= sliding_window)) {
    if (queries == 1 || keys == queries) return {};
    if (cache.length() == 0) return {};
    // Such a cache's length is a tensor.
    if (cache.is_compileable()) const Tensor is_empty = empty(context, Op::eq, {}, DType::boolean);
  }
  MaskFunction mask_function = left_padding_tokens
                                   ? and_masks({chunked_overlay(left_padding_tokens), causal_mask_function})
                                   : causal_mask_factory(sliding_window != 0);
  if (padding) mask_function = and_masks({std::move(mask_function), padding_mask_function(padding)});
  return make_mask(context, {batch, 1, queries, keys}, dtype, mask_function);
}

}  // namespace

Tensor cached_mask(Context& context, const KvCache& cache, std::int64_t batch, std::int64_t queries, DType dtype,
                   std::int64_t sliding_window, const Tensor& attention_mask, bool is_always_made) {
  MaskArguments given;
  given.is_always_made = is_always_made;
  return mask_with_cache(context, cache, batch, queries, dtype, sliding_window, attention_mask, given);
}

Tensor create_recurrent_attention_mask(const Tensor& inputs_embeds, const MaskArguments& given) {
  const Tensor& mask = given.attention_mask;
  if (!mask || inputs_embeds.size(1) == 1) return {};
  const NoGrad no_grad(inputs_embeds.context());
  {  // torch.all(attention_mask == 1)
    const Tensor attended = booleans(Op::eq, {&mask});
    const Tensor all = reduce(Op::all, attended, {0, 1}, false, DType::boolean);
  }
  return given.rows != nullptr && given.rows->are_padded(inputs_embeds.size(1)) ? mask : Tensor();
}

namespace {

/// `queries`: embeddings of the tokens that see; `length`: how many they see.
Tensor bidirectional_mask(const Tensor& queries, std::int64_t length, const MaskArguments& given, MaskedBy masked,
                          std::int64_t sliding_window) {
  Context& context = queries.context();
  const NoGrad no_grad(context);
  Tensor attention_mask;
  if (given.attention_mask) {
    attention_mask = to(given.attention_mask, DType::boolean);
    const Tensor are_attended = all(Op::all, attention_mask, {0, 1}, false);
  }
  const bool is_padded = attention_mask && given.rows != nullptr && given.rows->are_padded(length);
  const bool slides = sliding_window != 0 && length >= sliding_window && masked != MaskedBy::flash_attention;
  if (!is_padded && !slides) return {};
  if (masked == MaskedBy::flash_attention) return attention_mask;
  MaskFunction mask_function = [](const MaskIndices& at) { return booleans(Op::ge, {&at.query}); };
  if (sliding_window != 0) mask_function = and_masks({sliding_window_bidirectional_overlay, std::move(mask_function)});
  if (attention_mask) mask_function = and_masks({std::move(mask_function), padding_mask_function(attention_mask)});
  return make_mask(context, {queries.size(0), 1, queries.size(1), length},
                   masked == MaskedBy::eager ? queries.dtype() : DType::boolean, mask_function);
}

}  // namespace

Tensor create_bidirectional_mask(const Tensor& inputs_embeds, const MaskArguments& given, MaskedBy masked,
                                 std::int64_t sliding_window) {
  return bidirectional_mask(inputs_embeds, inputs_embeds.size(1), given, masked, sliding_window);
}

Tensor create_cross_mask(const Tensor& inputs_embeds, const Tensor& encoder_hidden_states, const MaskArguments& given,
                         MaskedBy masked) {
  return bidirectional_mask(inputs_embeds, encoder_hidden_states.size(1), given, masked, 0);
}

Tensor create_4d_causal_mask(const Tensor& inputs_embeds) {
  const NoGrad no_grad(inputs_embeds.context());
  return converter_mask(inputs_embeds, false);
}

MaskedBy masked_by(AttentionKind attention) {
  if (attention == AttentionKind::eager) return MaskedBy::eager;
  return is_flash_attention(attention) ? MaskedBy::flash_attention : MaskedBy::sdpa;
}

Tensor create_causal_mask(const Tensor& inputs_embeds, const MaskArguments& given, MaskedBy masked,
                          std::int64_t sliding_window) {
  Context& context = inputs_embeds.context();
  const bool eager = masked == MaskedBy::eager;
  const NoGrad no_grad(context);
  const std::int64_t batch = inputs_embeds.size(0), length = inputs_embeds.size(1);
  // To an empty cache that is made in training nothing is different.
  if (const KvCache* cache = context.past_key_values; cache && !(cache->takes_padding() && cache->length() == 0)) {
    if (cache->is_by_head()) return {};
    if (cache->masks) return cache->masks.of(sliding_window != 0);
    return mask_with_cache(context, *cache, batch, length, eager ? inputs_embeds.dtype() : DType::boolean,
                           sliding_window, cache->takes_padding() ? given.attention_mask : Tensor(), given);
  }
  const bool with_padding_mask = static_cast<bool>(given.attention_mask);
  switch (context.behaviours.causal_mask) {
    case CausalMask::converter:
      return eager ? converter_mask(inputs_embeds, with_padding_mask) : Tensor();
    case CausalMask::cache_position:
      return eager ? cache_position_mask(inputs_embeds, with_padding_mask, given.is_triangular) : Tensor();
    case CausalMask::always_packed: {
      if (!given.position_ids) break;
      Tensor mask = packed_mask(inputs_embeds, find_packed_sequences(context, batch, length, false));
      if (!eager) return mask;
      const Tensor zero = empty(context, Op::empty, {}, inputs_embeds.dtype());
      const Tensor minimum = empty(context, Op::empty, {}, inputs_embeds.dtype());
      return empty(context, Op::where, {batch, 1, length, length}, inputs_embeds.dtype());
    }
    case CausalMask::packed_when_detected:
      break;
  }
  return causal_mask_of_batch(inputs_embeds, given, masked, sliding_window);
}

}  // namespace oometer
