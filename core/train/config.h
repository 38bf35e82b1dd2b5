#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "peft/config.h"

/// What a training step is made of. The job's `training` object turned into values; see the design of the job.
namespace oometer {

/// Which parts train. `pretrain`: the projector only; `finetune`: all but the vision tower; `custom`: as listed.
enum class Stage : std::uint8_t { pretrain, finetune, full, custom };

/// fp32, bf16, fp16: the dtype of the weights themselves. amp_*: fp32 weights under autocast.
enum class Precision : std::uint8_t { fp32, bf16, fp16, amp_bf16, amp_fp16 };

enum class OptimizerName : std::uint8_t { adamw, adam, sgd };

/// torch.optim's three implementations: `foreach=True`, `fused=True`, or neither.
enum class OptimizerImplementation : std::uint8_t { foreach_, fused, for_loop };

/// `sdpa` leaves the choice of kernel to PyTorch; the others force one.
enum class AttentionKind : std::uint8_t { eager, sdpa, sdpa_flash, sdpa_efficient, sdpa_math, sdpa_cudnn };

enum class CheckpointMode : std::uint8_t { none, non_reentrant, reentrant };

struct OptimizerConfig {
  OptimizerName name = OptimizerName::adamw;
  OptimizerImplementation implementation = OptimizerImplementation::fused;
  double momentum = 0.0;          ///< SGD only; 0: no momentum buffer
  std::int64_t param_groups = 2;  ///< 1, or 2: with and without weight decay, as HF Trainer makes them

  bool operator==(const OptimizerConfig&) const = default;
};

/// Activation checkpointing of every block that `gradient_checkpointing_enable` covers, or of every k-th.
struct CheckpointingConfig {
  CheckpointMode mode = CheckpointMode::none;
  std::int64_t every = 1;  ///< transformers 5.23's `every_n_layers`
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

struct TrainingConfig {
  Stage stage = Stage::full;
  Components components;  ///< what `stage` means for this model; as listed where it is `custom`
  Precision precision = Precision::bf16;
  OptimizerConfig optimizer;
  AttentionKind attention = AttentionKind::sdpa;
  CheckpointingConfig checkpointing;
  std::optional<double> max_grad_norm;  ///< none: gradients are not clipped
  std::int64_t gradient_accumulation_steps = 1;
  std::optional<LoraConfig> lora;  ///< at most one of these; none: the weights themselves train
  std::optional<Ia3Config> ia3;
  std::string loss;  ///< "": the model's own from labels; else the output whose fp32 mean is the loss

  bool operator==(const TrainingConfig&) const = default;
};

}  // namespace oometer
