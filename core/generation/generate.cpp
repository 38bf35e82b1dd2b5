#include "generation/generate.h"

#include <algorithm>
#include <vector>

#include "generation/cache.h"
#include "models/masking.h"
#include "ops/cub.h"
#include "ops/integers.h"
#include "ops/ops.h"
#include "rounding.h"

namespace oometer {

namespace {

/// Tokens of an answer that are decoded in full, half of them at its beginning, half at its end.
constexpr std::int64_t kExecuted = 4;

/// In how many steps, at most, the cache grows through those between.
constexpr std::int64_t kGrowths = 128;

/// One call of generate(), and its frames' names.
class Generation {
 public:
  Generation(Context& context, Model& model, const ModelOptions& options, const InferenceConfig& inference,
             GrowingCache& cache)
      : context_(context), model_(model), options_(options), inference_(inference), cache_(cache) {}

  /// What comes before the prefill: special tokens, checks, position ids.
  void prepare(const ModelInputs& inputs, bool with_images);
  /// _prefill.
  void prefill();
  void prefill_in_chunks(std::int64_t past);
  /// _sample's loop: `tokens` are chosen, all but the last are run.
  bool sample(std::int64_t tokens, std::int64_t executed);

 private:
  Tensor booleans(Op op, const Shape& sizes) const { return empty(context_, op, sizes, DType::boolean); }
  Tensor isin(const Shape& sizes) const {
    Tensor found = booleans(Op::isin, sizes);
    const Tensor equal = booleans(Op::eq, sizes), any = booleans(Op::any, sizes);
    return found;
  }
  void check(Op op, const Shape& sizes, Op reduction) const {
    const Tensor compared = booleans(op, sizes);
    const Tensor whole = booleans(reduction, {});
  }
  CausalMasks attention_mask(const ModelInputs& inputs) const;
  /// Of so many tokens.
  Shape position_sizes(std::int64_t tokens) const {
    Shape sizes = first_position_ids_.sizes();
    sizes[-1] = tokens;
    return sizes;
  }
  void forward(const ModelInputs& inputs);
  void choose();

  Context& context_;
  Model& model_;
  const ModelOptions& options_;
  const InferenceConfig& inference_;
  GrowingCache& cache_;
  Tensor bos_token_, eos_token_, pad_token_;
  Tensor first_position_ids_, position_ids_;  ///< generate()'s own; the loop's, which grow
  Tensor input_features_, audio_mask_;
  Tensor input_ids_, mm_token_type_ids_, unfinished_sequences_, next_token_logits_, next_tokens_;
  TensorList mm_encoder_outputs_;
  ModelInputs inputs_;  ///< model_inputs, bound until the next step's are there
  ModelOutputs outputs_;
  std::int64_t length_ = 0;  ///< of input_ids
};

void Generation::prepare(const ModelInputs& inputs, bool with_images) {
  const std::int64_t batch = inputs.input_ids.size(0);
  const Shape tokens = inputs.attention_mask.sizes();
  input_ids_ = inputs.input_ids;
  length_ = input_ids_.size(1);
  // _prepare_special_tokens: without a pad_token_id it is a view of eos_token_id
  bos_token_ = integers(context_, Op::to_copy, {});
  eos_token_ = integers(context_, Op::to_copy, {});
  if (model_.has_pad_token) pad_token_ = integers(context_, Op::to_copy, {});
  {
    const Tensor same = isin({1});
    const Tensor any = booleans(Op::any, {});
  }
  check(Op::lt, {1}, Op::any);
  if (batch > 1) check(Op::eq, {batch}, Op::any);  // has_right_padding
  if (with_images) mm_token_type_ids_ = inputs.mm_token_type_ids;
  if (model_.takes_position_ids) {  // _prepare_position_ids_for_generation
    Tensor text_positions;
    {
      Tensor positions = integers(context_, Op::cumsum, tokens);
      if (batch == 1) const Workspace scan(context_, Op::cumsum, cub_scan_bytes(tokens[1]));
      positions = integers(context_, Op::sub, tokens);
      const Tensor masked = booleans(Op::eq, tokens);
      text_positions = integers(context_, Op::masked_fill, tokens);
    }
    first_position_ids_ = model_.prepare_position_ids(inputs, std::move(text_positions), cache_.length() > 0);
    position_ids_ = first_position_ids_;
  }
  check(Op::eq, tokens, Op::all);  // nothing is masked: the mask is dropped
  if (with_images) {
    mm_encoder_outputs_ = model_.encoded_images(inputs);
    input_features_ = inputs.input_features;
    if (input_features_) audio_mask_ = inputs.pixel_attention_mask;
  }
  check(Op::lt, tokens, Op::any);
  unfinished_sequences_ = integers(context_, Op::fill, {batch});
}

/// What prepare_inputs_for_generation makes for a cache of one size: create_masks_for_generate, one for each type that
/// the layers have, contiguous.
CausalMasks Generation::attention_mask(const ModelInputs& inputs) const {
  CausalMasks masks;
  if (!cache_.is_compileable()) return masks;
  const std::int64_t queries = inputs.input_ids.size(1);
  const bool has_own = model_.create_masks_for_generate(inputs, masks);
  const DType dtype = options_.attention == AttentionKind::eager ? options_.dtype : DType::boolean;
  for (const std::int64_t window : has_own ? std::vector<std::int64_t>() : cache_.windows) {
    Tensor& mask = window != 0 ? masks.sliding_attention : masks.full_attention;
    if (!mask) mask = cached_mask(context_, cache_, input_ids_.size(0), queries, dtype, window);
  }
  for (Tensor* mask : {&masks.full_attention, &masks.sliding_attention})
    if (*mask) *mask = contiguous(*mask);
  return masks;
}

void Generation::forward(const ModelInputs& inputs) {
  cache_.masks = inputs.causal_masks;
  outputs_ = model_.forward(inputs);
  cache_.masks = {};
}

void Generation::prefill() {
  const std::int64_t past = cache_.length();
  if (inference_.prefill_chunk_size != 0) return prefill_in_chunks(past);
  const Shape tokens{input_ids_.size(0), length_ - past};
  ModelInputs inputs;
  // A StaticLayer's length is on the device: input_ids.shape[1] - past_length too.
  Tensor next_sequence_length;
  if (past > 0 && cache_.is_compileable() && cache_.windows[0] == 0) {
    next_sequence_length = integers(context_, Op::sub, {});
    const Tensor start = integers(context_, Op::neg, {});
  }
  inputs.input_ids = integers(context_, Op::clone, tokens);
  inputs.position_ids = past > 0 ? integers(context_, Op::clone, position_sizes(tokens[1])) : position_ids_;
  inputs.mm_token_type_ids = mm_token_type_ids_;
  inputs.causal_masks = attention_mask(inputs);
  if (!mm_encoder_outputs_.empty()) inputs.images = &mm_encoder_outputs_;
  inputs.input_features = input_features_;
  inputs.pixel_attention_mask = audio_mask_;
  inputs.logits_to_keep = inference_.logits == Logits::last;
  model_.prepare_inputs_for_generation(inputs, true);
  forward(inputs);
}

/// The names of one chunk are bound until the next one's are there.
void Generation::prefill_in_chunks(std::int64_t past) {
  const std::int64_t batch = input_ids_.size(0);
  const Tensor token_positions = position_ids_;
  ModelInputs model_inputs;
  while (past < length_) {
    const std::int64_t tokens = std::min(inference_.prefill_chunk_size, length_ - past);
    ModelInputs inputs;
    inputs.input_ids = integers(context_, Op::clone, {batch, tokens});
    inputs.position_ids = slice(token_positions, -1, past, tokens);
    inputs.causal_masks = attention_mask(inputs);
    inputs.logits_to_keep = inference_.logits == Logits::last;
    model_inputs = std::move(inputs);
    forward(model_inputs);
    past += tokens;
  }
}

/// From the logits to the next token, and whether all are done.
void Generation::choose() {
  Tensor& logits = outputs_.others[0];
  const std::int64_t batch = logits.size(0);
  {  // _update_model_kwargs_for_generation
    const Tensor shorter = mm_token_type_ids_;
    if (shorter) {
      Tensor text;
      if (!model_.has_token_type_ids) text = integers(context_, Op::zeros, {batch, 1});
      mm_token_type_ids_ = integers(context_, Op::cat, {batch, length_ + 1});
    }
    if (position_ids_) {
      Tensor next = integers(context_, Op::arange, {1});
      next = integers(context_, Op::add, position_sizes(1));
      next = integers(context_, Op::add, position_sizes(1));
      position_ids_ = integers(context_, Op::cat, position_sizes(length_ + 1));
    }
    model_.update_model_kwargs_for_generation(shorter, mm_token_type_ids_);
  }
  next_token_logits_ = empty(context_, Op::to_copy, {batch, logits.size(-1)}, DType::float32);
  next_tokens_ = reduce(Op::argmax, next_token_logits_, {1}, false, DType::int64);
  {
    const Tensor going_on = integers(context_, Op::mul, {batch});
    Tensor padding;
    {
      const Tensor finished = integers(context_, Op::sub, {batch});
      padding = integers(context_, Op::mul, {batch});
    }
    next_tokens_ = integers(context_, Op::add, {batch});
  }
  input_ids_ = integers(context_, Op::cat, {batch, ++length_});
  {  // MaxLengthCriteria, EosTokenCriteria
    Tensor is_done = booleans(Op::fill, {batch});
    {
      const Tensor too_long = booleans(Op::fill, {batch});
      is_done = booleans(Op::bitwise_or, {batch});
    }
    {
      Tensor ended = isin({batch});
      ended = booleans(Op::any, {batch});
      is_done = booleans(Op::bitwise_or, {batch});
    }
    is_done = booleans(Op::bitwise_not, {batch});
    unfinished_sequences_ = integers(context_, Op::bitwise_and, {batch});
  }
  const Tensor most = reduce(Op::max, unfinished_sequences_, {0}, false, DType::int64);
  const Tensor all_finished = booleans(Op::eq, {});
}

bool Generation::sample(std::int64_t tokens, std::int64_t executed) {
  const std::int64_t batch = input_ids_.size(0);
  const Scoped<bool> decodes(cache_.decodes, true);
  const std::int64_t from = std::min(tokens, (executed + 1) / 2), until = std::max(from, tokens - executed / 2);
  WorkLog& work = context_.log.work;
  WorkRange step{work.mark(), {}},
      before;                      // a forward and the choice after it; the last one before those that are left out
  std::ptrdiff_t first_event = 0;  // of a forward
  for (std::int64_t i = 0;;) {
    choose();
    const Shape logits = outputs_.others[0].sizes();
    outputs_ = {};
    step.end = work.mark();
    // What a step computes and moves grows by the same from one to the next, so that the steps on both sides stand for
    // those between: half of them each, exactly where these are an even number.
    if (++i == until + 1 && until > from) {
      work.repeat(before, (until - from) - (until - from) / 2);
      work.repeat(step, (until - from) / 2);
    }
    if (i == tokens) break;
    if (i == from && until > from) {
      before = step;
      const std::vector<Event>& events = context_.log.events;
      cache_.has_workspaces = std::any_of(events.begin() + first_event, events.end(), [](const Event& event) {
        return event.op == static_cast<OpId>(Op::cublas_workspace);
      });
      const std::int64_t stride = (until - from + kGrowths - 1) / kGrowths;
      for (std::int64_t grown = 0; i < until; i += grown, length_ += grown) {
        grown = std::min(stride, until - i);
        cache_.grow(grown);
        // What else is large: the logits, and their float32 copy, which lives on.
        const Tensor of_model = empty(context_, Op::mm, {batch, 1, logits[-1]}, options_.dtype);
        next_token_logits_ = empty(context_, Op::to_copy, {batch, logits[-1]}, DType::float32);
      }
      work.works.resize(step.end.work);  // which stood for the steps' memory
    }
    step.begin = work.mark();
    first_event = static_cast<std::ptrdiff_t>(context_.log.events.size());
    ModelInputs inputs;
    inputs.input_ids = integers(context_, Op::clone, {batch, 1});
    if (position_ids_) inputs.position_ids = integers(context_, Op::clone, position_sizes(1));
    if (mm_token_type_ids_) inputs.mm_token_type_ids = integers(context_, Op::clone, {batch, 1});
    inputs.causal_masks = attention_mask(inputs);
    inputs.logits_to_keep = inference_.logits == Logits::last;
    model_.prepare_inputs_for_generation(inputs, false);
    inputs_ = std::move(inputs);
    forward(inputs_);
  }
  return until > from;
}

/// get_layer_types_and_kwargs (cache_utils.py): each layer's window.
std::vector<std::int64_t> windows_of(const std::vector<std::int64_t>& given, const Log& log) {
  const auto layers = std::count_if(log.modules.begin(), log.modules.end(), [](const ModuleRecord& module) {
    return module.index >= 0 && module.modality == Modality::language;
  });
  std::vector<std::int64_t> windows = given;
  windows.resize(static_cast<std::size_t>(layers));
  return windows;
}

/// EngineArgs.get_batch_defaults (vLLM 0.1x, vllm/engine/arg_utils.py), of its server: by the GPU's size, but for the
/// A100.
std::int64_t batched_tokens(const Context& context, std::int64_t capacity) {
  constexpr std::int64_t kLarge = 70LL << 30;
  return capacity >= kLarge && context.device.major >= 9 ? 8192 : 2048;
}

}  // namespace

Generated run_generation(Context& context, Model& model, const ModelOptions& options, const DataConfig& data,
                         const InferenceConfig& inference, const std::vector<std::int64_t>& windows, bool every_step) {
  const NoGrad no_grad(context);
  context.training = false;
  Generated generated;
  const std::int64_t executed = every_step ? inference.new_tokens : std::min(inference.new_tokens, kExecuted);
  if (model.generate(inference.new_tokens, executed)) {
    generated.skipped = executed < inference.new_tokens;
    return generated;
  }
  const std::int64_t batch = data.micro_batch_size;
  std::int64_t length = data.sequence_length;
  const auto tokens = [&] { return empty(context, Op::input, {batch, length}, DType::int64, Role::input); };
  ModelInputs inputs;
  inputs.input_ids = tokens();
  model.make_images(inputs, data.images_per_sample);
  model.make_audios(inputs);
  inputs.attention_mask = tokens();
  std::unique_ptr<GrowingCache> cache =
      make_cache(context, inference.cache, inference.cached_tokens(length), windows_of(windows, context.log));
  const Scoped<KvCache*> passed(context.past_key_values, cache.get());
  for (int turn = 1; turn <= inference.turns; ++turn) {
    context.begin_phase(PhaseName::prefill, turn);
    if (turn > 1) {  // all that was said, and more
      length += inference.turn_tokens;
      Tensor longer_ids = tokens(), longer_mask = tokens();
      if (inference.turn_images > 0) model.make_images(inputs, inference.turn_images);
      inputs.input_ids = std::move(longer_ids);
      inputs.attention_mask = std::move(longer_mask);
    }
    Generation generation(context, model, options, inference, *cache);
    generation.prepare(inputs, turn == 1 || inference.turn_images > 0);
    generation.prefill();
    context.begin_phase(PhaseName::decode, turn);
    generated.skipped |= generation.sample(inference.new_tokens, executed);
    length += inference.new_tokens;
    generated.host_bytes = cache->host_bytes();
    if (inference.turns == 1) cache.reset();  // generate()'s own
  }
  context.finish();  // the caller has its batch still
  return generated;
}

Generated run_paged(Context& context, Model& model, const DataConfig& data, const InferenceConfig& inference,
                    std::int64_t capacity) {
  const NoGrad no_grad(context);
  context.training = false;
  const CacheConfig& config = inference.cache;
  const std::int64_t users = data.micro_batch_size;
  const Shape tokens{
      1, config.max_num_batched_tokens != 0 ? config.max_num_batched_tokens : batched_tokens(context, capacity)};
  PagedCache cache(context);
  const Scoped<KvCache*> passed(context.past_key_values, &cache);
  // _dummy_run and _dummy_sampler_run (vllm/v1/worker/gpu_model_runner.py)
  const auto forward = [&] {
    ModelInputs inputs;
    inputs.input_ids = empty(context, Op::input, tokens, DType::int64, Role::input);
    inputs.position_ids = empty(context, Op::input, tokens, DType::int64, Role::input);
    inputs.logits_to_keep = std::min(users, tokens[1]);
    ModelOutputs outputs = model.forward(inputs);
    const Tensor logits = to(outputs.others[0], DType::float32);
  };
  context.begin_phase(PhaseName::prefill, 1);
  forward();
  const auto blocks_of = [&](std::int64_t held) { return divide_up(held, config.block_size); };
  const std::int64_t shared = config.shared_prefix / config.block_size;  // whole blocks only
  const std::int64_t own = blocks_of(inference.cached_tokens(data.sequence_length)) - shared;
  Generated generated;
  generated.blocks = shared + checked_product(users, own);
  context.begin_phase(PhaseName::decode, 1);
  TensorList pool;
  for (const PagedCache::Layer& layer : cache.layers) {
    const ModuleScope scope(context, layer.module);
    const std::int64_t block_bytes = checked_product(config.block_size, layer.token_bytes);
    generated.block_bytes += block_bytes;
    pool.push_back(empty(context, Op::zeros, {generated.blocks, block_bytes}, DType::uint8, Role::kv_cache));
  }
  forward();
  context.finish();
  return generated;
}

void run_forward(Context& context, Model& model) {
  const NoGrad no_grad(context);
  context.training = false;
  const ModelInputs inputs = model.make_inputs(false);
  context.begin_phase(PhaseName::prefill, 1);
  const ModelOutputs outputs = model.forward(inputs);
  context.finish();
}

}  // namespace oometer
