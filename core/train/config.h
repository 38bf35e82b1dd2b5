#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "peft/config.h"
#include "tensor/context.h"
#include "trace/dtype.h"

/// What a training step is made of. The job's `training` object turned into values; see the design of the job.
namespace oometer {

/// Which parts train. `pretrain`: the projector only; `finetune`: all but the vision tower; `custom`: as listed.
enum class Stage : std::uint8_t { pretrain, finetune, full, custom };

/// fp32, bf16, fp16: the dtype of the weights themselves. amp_*: fp32 weights under autocast.
enum class Precision : std::uint8_t { fp32, bf16, fp16, amp_bf16, amp_fp16 };

enum class OptimizerName : std::uint8_t { adamw, adam, sgd };

/// torch.optim's three implementations, `foreach=True`, `fused=True`, or neither; bitsandbytes' optimizers, by the bits
/// of their states; and DeepSpeed's FusedAdam.
enum class OptimizerImplementation : std::uint8_t { foreach_, fused, for_loop, bnb_8bit, bnb_32bit, deepspeed_fused };

/// `sdpa` leaves the choice of kernel to PyTorch; the others force one.
enum class AttentionKind : std::uint8_t { eager, sdpa, sdpa_flash, sdpa_efficient, sdpa_math, sdpa_cudnn };

enum class CheckpointMode : std::uint8_t { none, non_reentrant, reentrant };

struct OptimizerConfig {
  OptimizerName name = OptimizerName::adamw;
  OptimizerImplementation implementation = OptimizerImplementation::fused;
  double momentum = 0.0;          ///< SGD only; 0: no momentum buffer
  std::int64_t param_groups = 2;  ///< 1, or 2: with and without weight decay, as HF Trainer makes them
  bool paged = false;             ///< bitsandbytes' is_paged: large states lie in unified memory

  bool is_bitsandbytes() const {
    return implementation == OptimizerImplementation::bnb_8bit || implementation == OptimizerImplementation::bnb_32bit;
  }
  bool operator==(const OptimizerConfig&) const = default;
};

/// Blocks [begin, end) of a stack that are one checkpointed region: run again together, from the first one's input.
struct CheckpointSegment {
  std::size_t begin = 0, end = 0;

  bool operator==(const CheckpointSegment&) const = default;
};

struct StackSegments {
  std::string stack;  ///< dotted name, at any depth: `language_model.layers`
  std::vector<CheckpointSegment> segments;

  bool operator==(const StackSegments&) const = default;
};

/// Activation checkpointing of every block that `gradient_checkpointing_enable` covers, of every k-th, or of those
/// listed.
struct CheckpointingConfig {
  CheckpointMode mode = CheckpointMode::none;
  std::int64_t every = 1;               ///< transformers 5.23's `every_n_layers`
  bool offload = false;                 ///< transformers 5.23's: what a region keeps lies in pinned host memory
  std::vector<StackSegments> segments;  ///< if any: these and no others, as a loop of one's own would have it
  /// The model's enable_input_require_grads() is called, as whoever trains adapters has to. Follows from the rest.
  bool input_require_grads = false;

  bool operator==(const CheckpointingConfig&) const = default;
};

/// Components by dotted name, at any depth: `vision_tower` matches `model.vision_tower.x`.
struct Components {
  std::vector<std::string> freeze;      ///< requires_grad = False
  std::vector<std::string> train_only;  ///< if any: everything else is frozen
  std::vector<std::string> no_grad;     ///< forward runs under torch.no_grad

  bool operator==(const Components&) const = default;
};

/// Kernels of liger-kernel 0.8.5 in place of transformers' modules and loss: what `apply_liger_kernel_to_llama` (and
/// its kin) are told. All off: no Liger.
struct LigerConfig {
  bool rope = false, rms_norm = false, swiglu = false;
  bool cross_entropy = false;               ///< F.cross_entropy alone
  bool fused_linear_cross_entropy = false;  ///< the head and the loss, by chunks of tokens
  bool accumulates_in_fp32 = false;         ///< of the latter: accum_dtype=torch.float32

  bool operator==(const LigerConfig&) const = default;
};

/// BitsAndBytesConfig of 4 bits (transformers 5.23, utils/quantization_config.py), and what peft does next. fp4 or nf4:
/// the same memory.
struct QuantizationConfig {
  bool is_nf4 = false;                                   ///< bnb_4bit_quant_type
  bool double_quant = false;                             ///< bnb_4bit_use_double_quant
  DType compute_dtype = DType::float32;                  ///< bnb_4bit_compute_dtype
  std::optional<std::vector<std::string>> skip_modules;  ///< llm_int8_skip_modules; none: the output embeddings
  bool prepares = true;  ///< prepare_model_for_kbit_training: everything else becomes float32

  bool operator==(const QuantizationConfig&) const = default;
};

struct TrainingConfig {
  Stage stage = Stage::full;
  Components components;  ///< what `stage` means for this model; as listed where it is `custom`
  Precision precision = Precision::bf16;
  OptimizerConfig optimizer;
  AttentionKind attention = AttentionKind::sdpa;
  CheckpointingConfig checkpointing;
  std::optional<double> max_grad_norm;  ///< none: gradients are not clipped
  std::int64_t gradient_accumulation_steps = 1;
  /// The loop's own name for what the model returned (`outputs = model(**batch)`) lives until the step is over, and its
  /// logits with it, as in most loops written by hand; HF Trainer keeps the loss only.
  bool keep_outputs = false;
  std::optional<LoraConfig> lora;  ///< at most one of these; none: the weights themselves train
  std::optional<Ia3Config> ia3;
  LigerConfig liger;
  std::int64_t cross_entropy_chunks = 0;           ///< into which the loss cuts the sequence; 0: it is taken whole
  SavesOn save_on_cpu = SavesOn::device;           ///< around forward and loss
  std::optional<QuantizationConfig> quantization;  ///< none: weights as `precision` says
  std::string loss;  ///< "": the model's own from labels; else the output whose fp32 mean is the loss

  bool operator==(const TrainingConfig&) const = default;
};

}  // namespace oometer
