#include "runtime/behaviours.h"

#include <algorithm>
#include <iterator>

namespace oometer {
namespace {

constexpr Version torch(int minor) { return {2, minor, 0}; }

}  // namespace

Result<Version> parse_version(const std::string& text) {
  const Error error{"out-of-range", "", "\"" + text + "\" is not a version; expected one like \"2.15\" or \"4.37.2\""};
  int parts[3] = {0, 0, 0};
  int count = 0;
  std::size_t at = !text.empty() && text[0] == 'v' ? 1 : 0;
  for (; count < 3; ++count) {
    const std::size_t start = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9' && at - start < 5) {
      parts[count] = parts[count] * 10 + (text[at++] - '0');
    }
    if (at == start) return error;
    if (at == text.size() || text[at] != '.') {
      ++count;
      break;
    }
    ++at;
  }
  // Only a local label ("+cu132") or a pre-release ("rc1", ".dev0") may follow.
  if (count < 2 || (at < text.size() && text[at] >= '0' && text[at] <= '9') ||
      (at == text.size() && text.back() == '.')) {
    return error;
  }
  return Version{parts[0], parts[1], parts[2]};
}

std::string to_string(const Version& version) {
  std::string text = std::to_string(version.major) + "." + std::to_string(version.minor);
  return version.patch == 0 ? text : text + "." + std::to_string(version.patch);
}

Runtime default_runtime(Framework framework) {
  Runtime runtime;
  runtime.framework = framework;
  if (framework == Framework::llava) {
    runtime.torch = {2, 1, 2};
    runtime.transformers = {4, 37, 2};
    runtime.deepspeed = {0, 12, 6};
  }
  return runtime;
}

Behaviours resolve_behaviours(const Runtime& runtime) {
  const Version& hf = runtime.transformers;
  const Version& ds = runtime.deepspeed;
  const bool original = runtime.framework == Framework::llava;
  Behaviours b;

  b.cublas_workspace_per_call = runtime.torch >= torch(15);
  b.cublaslt_workspace_per_call = runtime.torch >= torch(15) || runtime.torch < torch(7);
  b.cublaslt_workspace_unified = runtime.torch >= torch(13) && runtime.torch < torch(15);
  b.cublas_large_workspace_on_blackwell = runtime.torch >= torch(13);
  b.kernels = runtime.kernels;
  b.expandable_segments = runtime.expandable_segments && runtime.torch >= torch(1);
  b.checkpoint_early_stop = runtime.torch >= torch(1);
  b.efficient_attention_takes_gqa = runtime.torch >= torch(10);
  b.fused_attention_spreads_keys = runtime.torch >= torch(14);
  b.sdpa_prefers_cudnn = runtime.cudnn && runtime.torch >= torch(9);
  b.fused_rms_norm = runtime.torch >= torch(9);
  b.cudnn = runtime.cudnn;

  b.checkpoint_passes_keywords = hf >= Version{4, 52, 0};
  b.checkpointing_requires_input_grads = original || hf >= Version{5, 0, 0};
  b.logits_float_in_model = hf < Version{4, 45, 0};
  b.llava_holds_causal_lm = !original && hf < Version{4, 52, 0};
  b.loss_shift = hf >= Version{4, 51, 3} ? LossShift::pad_labels : LossShift::shift_logits_copy;
  b.legacy_merge_looks_for_zeros = hf < Version{4, 41, 0};
  b.legacy_merge_blanks_padding = hf >= Version{4, 38, 0};
  b.llava_chooses_merge = hf >= Version{4, 46, 0} && hf < Version{4, 48, 0};
  b.placeholder_check = hf < Version{4, 49, 0}  ? PlaceholderCheck::count
                        : hf < Version{5, 0, 0} ? PlaceholderCheck::by_index
                                                : PlaceholderCheck::scalar;
  b.causal_mask = hf < Version{4, 38, 0}                               ? CausalMask::converter
                  : hf < Version{4, 53, 0}                             ? CausalMask::cache_position
                  : hf < Version{5, 0, 0} && runtime.torch >= torch(6) ? CausalMask::always_packed
                                                                       : CausalMask::packed_when_detected;
  b.rotary = hf < Version{4, 38, 0}   ? Rotary::cached_per_layer
             : hf < Version{4, 43, 0} ? Rotary::matmul_per_layer
             : hf < Version{4, 49, 0} ? Rotary::matmul
             : hf < Version{5, 0, 0}  ? Rotary::matmul_scaled
                                      : Rotary::pointwise;
  b.positions_are_offset = hf >= Version{5, 0, 0};
  b.sdpa_repeats_kv = hf < Version{4, 54, 0} || runtime.torch < torch(5);
  b.sdpa_makes_contiguous = hf >= Version{4, 48, 0} && hf < Version{4, 53, 0};
  b.attention_interface = hf >= Version{4, 48, 0};
  b.captures_all_hidden_states = original || hf < Version{5, 0, 0};
  b.clip_attention_always_eager = hf < Version{4, 44, 0};
  b.clip_eager_is_bmm = hf < Version{4, 52, 0};
  b.clip_text_always_masked = hf < Version{5, 0, 0};
  b.clip_projects_last = hf < Version{5, 0, 0};
  b.clip_norm_is_one_operator = hf < Version{4, 46, 0};
  b.clip_scales_first = hf < Version{4, 49, 0};
  b.llava_merge = original                 ? LlavaMerge::split_and_cat
                  : hf < Version{4, 46, 0} ? LlavaMerge::legacy_index_put
                                           : LlavaMerge::masked_scatter;

  b.peft_casts_adapters = runtime.peft >= Version{0, 12, 0};

  b.zero_flattens_on_gpu = ds >= Version{0, 16, 0};
  b.zero_optimizer_states_at_init = ds < Version{0, 14, 0};
  b.zero1_reduces_after_backward = ds < Version{0, 14, 0};
  b.zero_buckets_at_first_gradient = ds >= Version{0, 16, 0};
  b.zero_post_accumulate_hooks = ds >= Version{0, 16, 0};
  b.zero_leaves_placeholders = ds >= Version{0, 14, 0};
  b.zero_records_streams = ds >= Version{0, 16, 0};
  b.zero_checks_overflow_always = ds >= Version{0, 16, 0};
  b.zero_norm_on_host = ds < Version{0, 14, 0};
  b.deepspeed_clips_by_default = ds >= Version{0, 16, 0};
  b.deepspeed_halves_buffers = ds < Version{0, 16, 0};
  b.zero_3_converts_first = ds >= Version{0, 16, 0};
  b.zero_3_gathers_in_place = ds >= Version{0, 16, 0};
  b.zero_3_trace_ends_in_backward = ds < Version{0, 16, 0};
  b.zero_3_keeps_recomputed = ds >= Version{0, 16, 0};
  b.deepspeed_keeps_losses = ds >= Version{0, 14, 0} && ds < Version{0, 16, 0};
  return b;
}

namespace {

/// The versions of transformers that the versions.jsonl of a family (tests/reference) have recordings of.
bool is_recorded(const Version& transformers) {
  constexpr Version kRecorded[] = {{4, 37, 2}, {4, 40, 2}, {4, 44, 2}, {4, 46, 3}, {4, 48, 3}, {4, 51, 3}, {4, 57, 1}};
  return std::find(std::begin(kRecorded), std::end(kRecorded), transformers) != std::end(kRecorded);
}

}  // namespace

std::vector<std::string> runtime_caveats(const Runtime& runtime) {
  std::vector<std::string> notes;
  const std::string transformers = "transformers " + to_string(runtime.transformers);
  if (runtime.framework == Framework::llava)
    notes.push_back(
        "The original LLaVA code was not measured on a GPU; small models of it, recorded without a GPU on torch 2.15 "
        "and "
        "transformers 4.37.2, allocate exactly what is computed here.");
  else if (is_recorded(runtime.transformers))
    notes.push_back(transformers + " was checked with small models only; full-size models were checked with 5.23.");
  if (runtime.transformers != Version{5, 23, 0} && !is_recorded(runtime.transformers))
    notes.push_back(transformers +
                    " was not compared with recorded runs; its behaviour follows the source of the nearest versions: "
                    "4.37.2, 4.40.2, 4.44.2, 4.46.3, 4.48.3, 4.51.3, 4.57.1 and 5.23.");
  if (runtime.torch != Version{2, 15, 0}) {
    notes.push_back("torch " + to_string(runtime.torch) +
                    " was not compared with recorded runs; known differences from 2.15 are simulated.");
  }
  return notes;
}

}  // namespace oometer
