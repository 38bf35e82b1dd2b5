#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "result.h"

/// What a version of a library does, by name. The one place that knows versions: models, operators and strategies read
/// flags, never a version (rule 7 of the design).
namespace oometer {

/// A release of a library; comparable. Patch releases are kept, no flag depends on one except where it says so.
struct Version {
  int major = 0;
  int minor = 0;
  int patch = 0;

  auto operator<=>(const Version&) const = default;
};

/// "2.15", "v4.37.2", "2.15.0+cu132" (what follows the digits is dropped); nothing else.
Result<Version> parse_version(const std::string& text);
std::string to_string(const Version& version);

/// Whose code trains: Hugging Face transformers, or the original LLaVA repository (haotian-liu/LLaVA v1.2.2).
enum class Framework : std::uint8_t { transformers, llava };

/// How transformers runs mixture-of-experts layers.
enum class ExpertsImplementation : std::uint8_t { grouped_mm, batched_mm, eager };

/// Operations that transformers gives to an installed package, each by itself where that is
/// (integrations/hub_kernels.py, use_kernel_func_from_hub_with_fallback; 5.x), a bit each; without it runs the code of
/// the model's class.
enum class Kernels : std::uint8_t {
  torch = 0,             ///< none is installed
  linear_attention = 1,  ///< flash-linear-attention (fla 0.6)
  mamba2 = 2,            ///< mamba_ssm 2.3: chunked scans
  causal_conv1d = 4,     ///< causal_conv1d 1.7
  mamba = 8,             ///< mamba_ssm 2.3: selective scans, of the first Mamba
  packages = 15,         ///< all are
  hub = 16,              ///< from_pretrained(..., use_kernels=True): kernels-community's
};
constexpr Kernels operator&(Kernels a, Kernels b) {
  return static_cast<Kernels>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}
constexpr Kernels operator|(Kernels a, Kernels b) {
  return static_cast<Kernels>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr bool has(Kernels installed, Kernels operation) { return (installed & operation) != Kernels::torch; }

/// The job's `runtime`, resolved. The defaults are the versions that the reference cases were made with.
struct Runtime {
  Framework framework = Framework::transformers;
  Version torch{2, 15, 0};
  Version transformers{5, 23, 0};
  Version deepspeed{0, 19, 8};
  Version peft{0, 21, 2};
  Version trl{1, 16, 0};
  bool cudnn = true;
  bool expandable_segments = false;
  ExpertsImplementation experts = ExpertsImplementation::grouped_mm;
  Kernels kernels = Kernels::torch;

  bool operator==(const Runtime&) const = default;
};

/// The versions a framework is used with where the job names none: the original LLaVA code pins torch 2.1.2,
/// transformers 4.37.2 and deepspeed 0.12.6 (its pyproject.toml, v1.2.2).
Runtime default_runtime(Framework framework);

/// How image features get into the text embeddings.
enum class LlavaMerge : std::uint8_t {
  legacy_index_put,  ///< _merge_input_ids_with_image_features; transformers 4.37 - 4.45 (read: 4.37.2, 4.40.2, 4.44.2)
  masked_scatter,    ///< 4.46 and later
  split_and_cat,     ///< the original code: embed the pieces, torch.cat each sample, pad, torch.stack
};

/// How the language-model loss shifts labels against logits.
enum class LossShift : std::uint8_t {
  shift_logits_copy,  ///< logits[..., :-1, :].contiguous(): a copy; up to transformers 4.50
  pad_labels,         ///< ForCausalLMLoss: the labels are padded, the logits stay; 4.51.3 and later
};

/// Who makes a causal mask for a batch without padding, and when (masking_utils.py and its forerunners).
enum class CausalMask : std::uint8_t {
  converter,       ///< AttentionMaskConverter._make_causal_mask: eager only; 4.37
  cache_position,  ///< LlamaModel._update_causal_mask: eager only; 4.38 - 4.52 (read: 4.44.2, 4.46.3, 4.48.3, 4.51.3)
  always_packed,   ///< masking_utils.py that takes every batch for a packed one, so that SDPA gets a mask too; 4.53
                   ///< - 4.57 (read: 4.57.1), with torch 2.6 and later
  packed_when_detected,  ///< looks whether sequences are packed, else eager only; 5.x
};

/// Where the rotary embedding's cosines and sines come from (modeling_llama.py).
enum class Rotary : std::uint8_t {
  cached_per_layer,  ///< each attention gathers from its own buffers, max_position_embeddings long; 4.37
  matmul_per_layer,  ///< each attention multiplies frequencies and positions; 4.38 - 4.42 (read: 4.40.2)
  matmul,            ///< the model does so once, cosines and sines scaled at last; 4.43 - 4.48 (read: 4.44.2, 4.46.3,
                     ///< 4.48.3)
  matmul_scaled,     ///< the same, scaled as they are made; 4.49 - 4.57 (read: 4.51.3, 4.57.1)
  pointwise,         ///< the model multiplies them pointwise; 5.x
};

/// How LlavaForConditionalGeneration makes sure that there are as many image tokens as features.
enum class PlaceholderCheck : std::uint8_t {
  count,     ///< input_ids == token, summed; up to 4.48
  by_index,  ///< inputs_embeds[mask].numel(): a gather of the whole features, 24 bytes of indices an element; 4.49
             ///< - 4.57 (read: 4.51.3, 4.57.1)
  scalar,    ///< the count times the width; 5.x
};

/// Named behaviours. A flag says what is done, the comment since when and where that was read. To add one: a field
/// here with its source, a line in `resolve_behaviours`.
struct Behaviours {
  // --- torch ---------------------------------------------------------------------------------------------------------

  /// Each GEMM allocates its cuBLAS workspace after its output and frees it when it ends (2.15:
  /// ATen/cuda/CublasHandlePool.cpp, isCUDABlasWorkspaceCachingEnabled is off by default); otherwise one workspace a
  /// (handle, stream) is allocated at the first GEMM and kept: with autograd's own thread two in training (<= 2.14,
  /// seen on a T4 with 2.14.0).
  bool cublas_workspace_per_call = true;
  /// cuBLASLt (addmm with a 1-D bias) takes its own 1 MiB a call: <= 2.6 (gemm_and_bias) and 2.15
  /// (CublasLtWorkspace, ATen/cuda/detail/CublasLtUtils.h).
  bool cublaslt_workspace_per_call = true;
  /// cuBLASLt uses the cuBLAS workspace of its stream instead of one of its own: 2.13 - 2.14. Neither flag: 2.7 - 2.12,
  /// one cached 1 MiB a (handle, stream).
  bool cublaslt_workspace_unified = false;
  /// The 32 MiB cuBLAS workspace is for compute capability 9 to 12 (2.13 and later); before only for 9.0
  /// (CublasHandlePool.cpp, getChosenWorkspaceSize: `major - 9 < 4u`). Others: 8,519,680 bytes.
  bool cublas_large_workspace_on_blackwell = true;
  /// PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; 2.1 and later, off by default.
  bool expandable_segments = false;
  /// cuDNN's SDPA is PyTorch's first choice on compute capability 9.0, 10.0 and 10.3 where cuDNN is present (2.9 and
  /// later: sdp_utils.cpp, check_prefer_cudnn_attention; newer builds also ask for cuDNN above 9.15).
  bool sdpa_prefers_cudnn = false;
  /// The memory-efficient SDPA kernel takes grouped queries as they are (seen on a T4 in 2.10 and 2.14, TinyLlama's
  /// runs in tests/measured, and in 2.15; 2.5 - 2.8 refuse them: sdp_utils.cpp,
  /// check_batch_size_and_num_heads_dense; 2.9 was not read, and is taken for one of these).
  bool efficient_attention_takes_gqa = true;
  /// Fused SDPA kernels take a single head of keys for many of queries without enable_gqa, spread like any operand
  /// (torch._fused_sdp_choice in 2.14 and 2.15; 2.13 takes math, as Falcon 7B did on an H200 with 2.11).
  bool fused_attention_spreads_keys = true;
  /// F.rms_norm is one kernel on CUDA, which keeps its input and a number a row (ATen/native/layer_norm.cpp,
  /// _fused_rms_norm; 2.9 and later, seen in 2.15); before, five operators (rms_norm_composite, read as of 2.8).
  bool fused_rms_norm = true;
  /// cuDNN is there: convolutions take its kernels instead of im2col, its SDPA can be chosen.
  bool cudnn = true;
  /// Recomputation stops when the last tensor that backward needs has been rebuilt
  /// (torch/utils/checkpoint.py, _CheckpointFrame.early_stop; 2.1 and later).
  bool checkpoint_early_stop = true;

  // --- transformers --------------------------------------------------------------------------------------------------

  /// Blocks take everything but hidden_states as keywords, which a checkpoint keeps by reference
  /// (modeling_layers.py, GradientCheckpointingLayer; 4.52 and later, read: 4.57.1); before, everything went
  /// positionally, so that a checkpoint saves mask, positions and cosines as tensors, and hands back no block output
  /// but in a tuple.
  bool checkpoint_passes_keywords = true;
  /// Turning checkpointing on makes the input embeddings' outputs require gradients (5.x,
  /// _activation_checkpointing_enable; the original LLaVA code calls enable_input_require_grads itself; 4.x only with
  /// PEFT).
  bool checkpointing_requires_input_grads = true;
  LossShift loss_shift = LossShift::pad_labels;  ///< of LlamaForCausalLM
  /// LlavaForConditionalGeneration holds a whole LlamaForCausalLM (language_model.model.layers, language_model.lm_head)
  /// and has a loss of its own; up to 4.51. Since 4.52 a LlavaModel and an lm_head.
  bool llava_holds_causal_lm = false;
  PlaceholderCheck placeholder_check = PlaceholderCheck::scalar;
  CausalMask causal_mask = CausalMask::packed_when_detected;
  Rotary rotary = Rotary::pointwise;
  /// position_ids are arange + past_seen_tokens (5.x); before plainly arange(past, past + length).
  bool positions_are_offset = true;
  /// SDPA gets keys and values repeated for each query head (repeat_kv), not enable_gqa; up to 4.53
  /// (integrations/sdpa_attention.py, use_gqa_in_sdpa; read: absent in 4.51.3, there in 4.57.1).
  bool sdpa_repeats_kv = false;
  /// SDPA gets contiguous copies of queries, keys and values, mask or none (sdpa_attention_forward, 4.48 - 4.52; read:
  /// 4.48.3, 4.51.3).
  bool sdpa_makes_contiguous = false;
  /// Attention is a function out of ALL_ATTENTION_FUNCTIONS (4.48 and later). Before, each implementation was a class
  /// of its own, which bound the repeated keys and values to their old names and dropped eager weights that nobody had
  /// asked for (LlamaAttention, LlamaSdpaAttention; read: 4.37.2, 4.44.2, 4.46.3).
  bool attention_interface = true;
  /// The model itself turns the logits to fp32 and returns those (LlamaForCausalLM.forward, `logits.float()`; up to
  /// 4.44); later the loss does and the outputs stay in the model's dtype.
  bool logits_float_in_model = false;
  /// The tower's hidden states are all kept until the features are selected (`output_hidden_states=True`; up to 4.57
  /// and the original code); 5.x captures only the selected ones (utils/output_capturing.py, select_hidden_states).
  bool captures_all_hidden_states = false;
  LlavaMerge llava_merge = LlavaMerge::masked_scatter;
  /// The legacy merge finds the features' places by looking for rows of zeros, a boolean the size of the embeddings
  /// (`torch.all(final_embedding == 0, dim=-1)`; 4.37 - 4.40; read: 4.37.2, 4.40.2, not in 4.44.2).
  bool legacy_merge_looks_for_zeros = false;
  /// The legacy merge blanks padding at its end: one more index_put, which autograd follows (4.38 - 4.45; read: not in
  /// 4.37.2, in 4.40.2 and 4.44.2).
  bool legacy_merge_blanks_padding = false;
  /// Which merge it is to be is found out from the input's image tokens (`legacy_processing`; 4.46 - 4.47,
  /// read: 4.46.3).
  bool llava_chooses_merge = false;
  /// CLIP's attention is bmm, softmax, bmm whatever is asked for: CLIPSdpaAttention came with 4.44 (modeling_clip.py;
  /// read: not in 4.37.2, in 4.44.2).
  bool clip_attention_always_eager = false;
  /// CLIPAttention, when eager, scales the queries, copies all three into [b x heads, s, d] and takes the softmax in
  /// the model's own type (up to 4.51); later it is as everybody's eager_attention_forward.
  bool clip_eager_is_bmm = false;
  /// CLIP's text tower always has a mask (_create_4d_causal_attention_mask; up to 4.57): SDPA is never told "causal".
  bool clip_text_always_masked = false;
  /// CLIPModel runs both towers, then both projections (up to 4.57); in 5.x each tower's features are projected at once
  /// (get_image_features).
  bool clip_projects_last = false;
  /// CLIPModel divides embeddings by tensor.norm() (up to 4.45; read: 4.44.2); later by _get_vector_norm, three
  /// operators (read: 4.46.3).
  bool clip_norm_is_one_operator = false;
  /// CLIPModel takes logit_scale.exp() before the logits' product (up to 4.48; read: 4.48.3, not 4.51.3).
  bool clip_scales_first = false;

  // --- peft ---------------------------------------------------------------------------------------------------------

  /// get_peft_model turns adapters of half-precision weights to float32 (autocast_adapter_dtype; 0.12 and later, read:
  /// 0.12.0, 0.15.2, 0.21.2); before they had the weights' own type, always (read: 0.10.0, 0.11.1).
  bool peft_casts_adapters = true;

  // --- DeepSpeed -----------------------------------------------------------------------------------------------------

  /// ZeRO 1/2 asks the device for its free memory and flattens a group there if it fits; else through host memory
  /// (stage_1_and_2.py, __init__; 0.16 and later). Before: always through host memory (`move_to_cpu`).
  bool zero_flattens_on_gpu = true;
  /// Stage 1 goes without overlap_comm, contiguous_gradients and round_robin_gradients, whatever the configuration says
  /// (engine.py, _configure_zero_optimizer, "meaningless in stage 1"; 0.12.6, not 0.14.4).
  bool zero1_reduces_after_backward = false;
  /// initialize_optimizer_states calls optimizer.step(): the moments are created at initialisation (0.12.6); later
  /// versions leave them to the first real step (0.14.4, 0.19.8).
  bool zero_optimizer_states_at_init = false;
  /// The reduce buckets are allocated at the first gradient hook (setup_buckets, 0.19.8); before at the start of
  /// backward, ahead of the logits' gradient (0.12.6, 0.14.4).
  bool zero_buckets_at_first_gradient = true;
  /// The gradient hooks are register_post_accumulate_grad_hook's (utils/torch.py, register_grad_hook; 0.19.8), not post
  /// hooks of the AccumulateGrad nodes, during which the engine still holds the gradient (0.12.6, 0.14.4).
  bool zero_post_accumulate_hooks = true;
  /// A parameter whose values are in host memory keeps one float on the device (`torch.empty(1)`, __init__; 0.14.4,
  /// 0.19.8); in 0.12.6 nothing (move_to_cpu).
  bool zero_leaves_placeholders = true;
  /// What the reduction stream works on is told so with record_stream (allreduce_and_copy_with_multiple_ranks; 0.19.8,
  /// not 0.12.6, 0.14.4).
  bool zero_records_streams = true;
  /// The overflow check runs for every precision (check_grad_overflow; 0.19.8), before for fp16 only (0.12.6, 0.14.4).
  bool zero_checks_overflow_always = true;
  /// The gradient norm is summed on the host (get_grad_norm_direct: `param_norm.item()`; 0.12.6).
  bool zero_norm_on_host = false;
  /// `gradient_clipping` is 1.0 where the configuration has none (runtime/constants.py, GRADIENT_CLIPPING_DEFAULT;
  /// 0.19.8); before 0, no clipping (0.12.6, 0.14.4).
  bool deepspeed_clips_by_default = true;
  /// The engine turns the model's buffers into halves too, by module.bfloat16() or half() (engine.py,
  /// _configure_distributed_model; 0.12.6, 0.14.4, not 0.19.8, which casts parameters alone).
  bool deepspeed_halves_buffers = false;
  /// The engine keeps the mean loss until the step (`self.losses`, engine.py; 0.14.4; not 0.12.6, 0.19.8).
  bool deepspeed_keeps_losses = false;

  /// ZeRO-3's master weights are converted, then cloned (stage3.py, _create_fp32_partitions; 0.19.8); before cloned,
  /// then converted (0.12.6, 0.14.4).
  bool zero_3_converts_first = true;
  /// Param.all_gather() gathers one parameter in place (_allgather_params_sequential; 0.19.8); before it copied it out
  /// of the buffer (_allgather_params; 0.12.6, 0.14.4).
  bool zero_3_gathers_in_place = true;
  /// The parameters' trace ends with backward (stage3.py, backward; 0.12.6, 0.14.4), and ranks compare their lists
  /// without their lengths; later it ends with the next forward, and both are compared.
  bool zero_3_trace_ends_in_backward = false;
  /// What a recomputation gathers of frozen parameters stays until the backward of the module that asked for it is over
  /// (partitioned_param_coordinator.py, update_recompute_parameters; 0.19.8, not 0.12.6, 0.14.4).
  bool zero_3_keeps_recomputed = true;

  // --- packages of kernels -------------------------------------------------------------------------------------------

  Kernels kernels = Kernels::torch;

  // --- the reference tests -------------------------------------------------------------------------------------------

  /// Under a TorchDispatchMode no gradient is accumulated in place (isTensorSubclassLike is then true:
  /// ATen/TensorSubclassLikeUtils.h). Only the tests that compare with a recorded mode set it.
  bool dispatch_mode = false;
};

/// The flags of a runtime. Total: the job's validation has refused versions outside the known range.
Behaviours resolve_behaviours(const Runtime& runtime);

/// How far what these versions do was checked, where it is less than the defaults; for the report's assumptions.
std::vector<std::string> runtime_caveats(const Runtime& runtime);

/// The first and last version that the flags are known for.
struct VersionRange {
  Version first;
  Version last;
};
inline constexpr VersionRange known_torch{{2, 0, 0}, {2, 15, 99}};
inline constexpr VersionRange known_transformers{{4, 37, 0}, {5, 23, 99}};
inline constexpr VersionRange known_deepspeed{{0, 12, 6}, {0, 19, 99}};
inline constexpr VersionRange known_peft{{0, 10, 0}, {0, 21, 99}};
inline constexpr VersionRange known_trl{{0, 29, 0}, {1, 16, 99}};

}  // namespace oometer
