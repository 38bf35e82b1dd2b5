#include "runtime/behaviours.h"

namespace oometer {
namespace {

constexpr Version torch(int minor) { return {2, minor, 0}; }

}  // namespace

Result<Version> parse_version(const std::string& text) {
  const Error error{"out-of-range", "", "\"" + text + "\" is not a version; write it as \"2.15\" or \"4.37.2\""};
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
  b.allocator_tie_break = runtime.torch >= torch(9) ? TieBreak::segment_counter : TieBreak::address;
  b.expandable_segments = runtime.expandable_segments && runtime.torch >= torch(1);
  b.checkpoint_early_stop = runtime.torch >= torch(1);
  b.efficient_attention_takes_gqa = runtime.torch >= torch(14);
  b.sdpa_prefers_cudnn = runtime.cudnn && runtime.torch >= torch(9);
  b.cudnn = runtime.cudnn;

  b.checkpoint_reentrant_by_default = hf < Version{5, 0, 0};
  b.checkpoint_passes_keywords = hf >= Version{5, 0, 0};
  b.checkpointing_requires_input_grads = original || hf >= Version{5, 0, 0};
  b.logits_float_in_model = hf < Version{4, 45, 0};
  b.loss_shift = hf >= Version{4, 51, 3} ? LossShift::pad_labels : LossShift::shift_logits_copy;
  b.captures_all_hidden_states = original || hf < Version{5, 0, 0};
  b.clip_attention_always_eager = hf < Version{4, 47, 0};
  b.vision_tower_no_grad = original;
  b.llava_merge = original                 ? LlavaMerge::split_and_cat
                  : hf < Version{4, 46, 0} ? LlavaMerge::legacy_index_put
                  : hf < Version{5, 0, 0}  ? LlavaMerge::masked_scatter_expanded
                                           : LlavaMerge::masked_scatter;

  b.zero_flattens_on_gpu = ds >= Version{0, 16, 0};
  b.zero_optimizer_states_at_init = ds < Version{0, 14, 0};
  b.zero_buckets_at_first_gradient = ds >= Version{0, 16, 0};
  b.zero_post_accumulate_hooks = ds >= Version{0, 16, 0};
  b.zero_leaves_placeholders = ds >= Version{0, 14, 0};
  b.zero_records_streams = ds >= Version{0, 16, 0};
  b.zero_checks_overflow_always = ds >= Version{0, 16, 0};
  b.zero_norm_on_host = ds < Version{0, 14, 0};
  b.deepspeed_clips_by_default = ds >= Version{0, 16, 0};
  b.deepspeed_keeps_losses = ds >= Version{0, 14, 0} && ds < Version{0, 16, 0};
  return b;
}

std::vector<std::string> runtime_caveats(const Runtime& runtime) {
  std::vector<std::string> notes;
  if (runtime.framework == Framework::llava) {
    notes.push_back("The original LLaVA code was checked against its source only, not against a measured run.");
  } else if (runtime.transformers < Version{5, 0, 0}) {
    notes.push_back("transformers " + to_string(runtime.transformers) +
                    " was checked against its source only; 5.23 is the version that was measured.");
  }
  if (runtime.torch != Version{2, 15, 0}) {
    notes.push_back("torch " + to_string(runtime.torch) +
                    " differs from 2.15, which was measured, only where its source is known to.");
  }
  return notes;
}

}  // namespace oometer
