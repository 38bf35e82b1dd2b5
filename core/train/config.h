#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/attention.h"
#include "nn/checkpointing.h"
#include "nn/components.h"
#include "nn/precision.h"
#include "nn/quantizer.h"
#include "ops/liger.h"
#include "peft/config.h"
#include "peft/lora_function.h"
#include "runtime/trl_behaviours.h"
#include "tensor/context.h"

/// What a training step is made of. The job's `training` object turned into values; see the design of the job.
namespace oometer {

/// Which parts train. `pretrain`: the projector only; `finetune`: all but the vision tower; `custom`: as listed.
enum class Stage : std::uint8_t { pretrain, finetune, full, custom };

/// Classes of optimizers; adam, adamw and sgd are torch's, or bitsandbytes' where the implementation says so.
enum class OptimizerName : std::uint8_t {
  adamw,
  adam,
  sgd,
  adadelta,
  adagrad,
  adamax,
  asgd,
  nadam,
  radam,
  rmsprop,
  rprop,
  adafactor,
  muon,
  hf_adafactor,
  lion,
  ademamix,
  schedule_free_adamw,
  schedule_free_radam,
  schedule_free_sgd,
  stable_adamw,
  apollo_adamw,
  galore_adamw,
  galore_adafactor,
  lomo,
  adalomo,
  grokadamw,
  torchao_adamw_8bit,
  torchao_adamw_4bit,
  torchao_adamw_fp8,
  flash_adamw,
  flash_lion,
  te_fused_adam,
  optimi_adamw,
  optimi_lion,
  lion_pytorch,
  came,
  lamb,
  galore_adamw_8bit,
  prodigy,
  adopt,
  adam_mini,
  deepspeed_lion,
  deepspeed_lamb
};

/// torch.optim's three implementations, `foreach=True`, `fused=True`, or neither; bitsandbytes' optimizers, by the bits
/// of their states; and DeepSpeed's FusedAdam.
enum class OptimizerImplementation : std::uint8_t { foreach_, fused, for_loop, bnb_8bit, bnb_32bit, deepspeed_fused };

/// What the classes' own arguments decide of memory, by their own names.
struct OptimizerArgs {
  double weight_decay = 0;  ///< of the first group where there are two; not 0: gradients are copied, if not decoupled
  bool decoupled_weight_decay = false;
  bool amsgrad = false;
  bool nesterov = false;
  bool centered = false;
  std::int64_t ns_steps = 5;
  bool beta1 = false;                       ///< of Adafactor: there is one
  bool scale_parameter = true;              ///< of Adafactor
  bool kahan_sum = true;                    ///< of optimi's; null there: where weights are in half precision
  std::int64_t rank = 128;                  ///< of the projections of APOLLO and GaLore
  std::string proj = "random";              ///< APOLLO's projection: random, or svd, as GaLore's is
  std::string proj_type = "std";            ///< on which side both project: std, reverse_std, left, right
  std::string scale_type = "channel";       ///< what of a gradient APOLLO scales alike: channel, or tensor
  std::vector<std::string> target_modules;  ///< whose weights they project; Trainer's optim_target_modules

  std::int64_t block_size = 256;         ///< elements of a state of torchao's that share a scale
  bool bf16_stochastic_round = false;    ///< of torchao's
  std::int64_t master_weight_bits = 24;  ///< of FlashOptim's: those that are kept of weights in half precision; 0: none
  bool quantize = true;                  ///< FlashOptim's states are in 8 bits
  bool master_weights = false;           ///< Transformer Engine's: float32 copies of the weights
  bool store_param_remainders = false;   ///< ... of which only the 16 bits that a bf16 weight lacks
  std::string exp_avg_dtype = "float32";  ///< Transformer Engine's; both moments are in that type

  std::int64_t slice_p = 1;             ///< Prodigy's: of how many elements one is looked at
  std::int64_t dim = 2048, heads = 32;  ///< Adam-mini's: the model's width, and its heads (n_heads)

  bool operator==(const OptimizerArgs&) const = default;
};

struct OptimizerConfig {
  OptimizerName name = OptimizerName::adamw;
  OptimizerImplementation implementation = OptimizerImplementation::fused;
  double momentum = 0.0;          ///< 0: no momentum buffer
  std::int64_t param_groups = 2;  ///< 1, or 2: with and without weight decay, as HF Trainer makes them
  bool paged = false;             ///< bitsandbytes' is_paged: large states lie in unified memory
  OptimizerArgs args;
  std::vector<OptimizerConfig> rest;  ///< at most one: it has all but the matrices of the layers
  bool in_backward = false;           ///< one for each weight, which steps as soon as its gradient is there

  /// After how many steps all later ones are alike.
  std::int64_t steps() const { return name == OptimizerName::schedule_free_radam ? 7 : 3; }
  bool is_bitsandbytes() const {
    return implementation == OptimizerImplementation::bnb_8bit || implementation == OptimizerImplementation::bnb_32bit;
  }
  bool operator==(const OptimizerConfig&) const = default;
};

/// Whose code runs the steps: core/train/loops.
enum class LoopName : std::uint8_t {
  step,
  trainer,
  llava,  ///< LLaVA's own, of its own code (Framework::llava)
  sft,
  dpo,
  kto,
  reward,
  orpo,
  pairwise,  ///< LLaMA-Factory's trainers, by their classes
  custom_dpo,
  custom_kto
};

/// What is counted as input tokens seen (TrainingArguments.include_num_input_tokens_seen).
enum class TokensSeen : std::uint8_t { none, all, non_padding };

/// When Trainer evaluates or saves (IntervalStrategy, SaveStrategy).
enum class Every : std::uint8_t { no, steps, epoch };

/// Whose loader and mixins stand around a trainer of a library.
enum class LoopProject : std::uint8_t { none, axolotl, automodel };

/// A loop, and what of its arguments no other setting says; by their own names.
struct LoopConfig {
  LoopName name = LoopName::step;
  LoopProject project = LoopProject::none;
  LoraFunction lora_function = LoraFunction::peft;
  bool loads_on_host = false;    ///< weights are made on the host, then moved (Module.to)
  bool compute_metrics = false;  ///< Trainer is given a function of that name: it gathers what it predicts
  std::int64_t max_steps = -1;   ///< Trainer's; -1: more than are run
  double label_smoothing_factor = 0;
  bool average_tokens_across_devices = true;
  TokensSeen include_num_input_tokens_seen = TokensSeen::none;
  std::int64_t torch_empty_cache_steps = 0;   ///< 0: never
  std::optional<double> neftune_noise_alpha;  ///< none: the embeddings of tokens get no noise
  Every eval_strategy = Every::no;
  std::int64_t eval_steps = 500;
  std::int64_t per_device_eval_batch_size = 8;
  bool prediction_loss_only = false;
  std::int64_t eval_accumulation_steps = 0;  ///< 0: what is predicted stays on the device
  Every save_strategy = Every::steps;
  std::int64_t save_steps = 500;

  // TRL's
  TrlBehaviours trl;
  std::optional<std::int64_t> max_length = 1024;  ///< longer samples are cut; none: they are not
  bool padding_free = false;                      ///< a micro-batch is one row of all its samples
  std::string loss_type;                          ///< "": the trainer's own
  bool disable_dropout = true;                    ///< of the trainers of preferences; of adapters too
  bool precompute_ref_log_probs = false;          ///< the reference was asked before the run
  bool activation_offloading = false;             ///< what is saved for backward goes to the host

  std::optional<double> center_rewards_coefficient;  ///< RewardConfig's

  // LLaMA-Factory's; its pref_loss is `loss_type`
  double pref_ftx = 0;             ///< the weight of the chosen answers' own loss beside that of preferences
  std::optional<double> ld_alpha;  ///< the weight of what the longer answer has beyond the shorter one; none: 1

  /// A library's loop, with defaults of its own.
  bool is_trainer() const { return name != LoopName::step; }
  bool is_trl() const { return name >= LoopName::sft && name <= LoopName::orpo; }
  bool is_llamafactory() const { return name >= LoopName::pairwise; }
  /// Its collator gives an attention_mask, of full samples too.
  bool gives_masks() const { return is_trl() || is_llamafactory(); }
  /// add_fused_lm_head (trl 1.16): the model makes no logits.
  bool has_fused_head() const {
    return trl.fused_head && (name == LoopName::sft || name == LoopName::dpo || name == LoopName::kto);
  }
  /// SFTTrainer's loss is that of ChunkedNll.
  bool chunks_loss() const {
    return name == LoopName::sft && trl.chunked != ChunkedTokens::none &&
           (loss_type == "chunked_nll" || (loss_type.empty() && trl.chunks_by_default));
  }
  /// A sample is a chosen answer and a rejected one.
  bool takes_pairs() const {
    return name == LoopName::dpo || name == LoopName::reward || name == LoopName::orpo || name == LoopName::pairwise ||
           name == LoopName::custom_dpo;
  }
  /// Its collator tells prompts from answers.
  bool asks_for_turns() const {
    return name == LoopName::kto || name == LoopName::orpo || name == LoopName::custom_kto;
  }
  /// enable_input_require_grads() comes after get_peft_model(), as in TRL's trainers. ORPOTrainer, other projects and
  /// who makes a model for transformers' Trainer call them the other way round.
  bool hooks_adapters() const {
    return project == LoopProject::none &&
           (name == LoopName::sft || name == LoopName::dpo || name == LoopName::kto || name == LoopName::reward);
  }
  /// Dropout is turned off, that of adapters too (disable_dropout_in_model).
  bool turns_dropout_off() const {
    return gives_masks() && name != LoopName::sft && name != LoopName::pairwise && disable_dropout;
  }
  /// The policy is compared with another model, or with itself as it was.
  bool has_reference() const {
    if (name == LoopName::custom_dpo) return loss_type != "orpo" && loss_type != "simpo";
    return name == LoopName::dpo || name == LoopName::kto || name == LoopName::custom_kto;
  }
  /// Of the optimizer, where the data has `of_data` of them (0: any number): the third finds the allocator's blocks as
  /// all later ones of the same shapes do.
  std::int64_t steps(std::int64_t enough) const { return max_steps < 0 ? enough : std::min(max_steps, enough); }

  bool operator==(const LoopConfig&) const = default;
};

struct TrainingConfig {
  LoopConfig loop;
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
  /// The loop averages the weights in a copy of the model (EMA): torch.optim.swa_utils.AveragedModel, on the device.
  bool ema = false;
  bool use_cache = false;          ///< the model is called with use_cache: its outputs hold a DynamicCache
  std::optional<LoraConfig> lora;  ///< at most one of these three; none: the weights themselves train
  std::optional<Ia3Config> ia3;
  std::vector<PeftAdapter> peft;  ///< adapters of any method, all of one
  LigerConfig liger;
  bool cut_cross_entropy = false;                  ///< the loss of Apple's package, which makes no logits
  std::int64_t cross_entropy_chunks = 0;           ///< into which the loss cuts the sequence; 0: it is taken whole
  SavesOn save_on_cpu = SavesOn::device;           ///< around forward and loss
  std::optional<QuantizationConfig> quantization;  ///< none: weights as `precision` says
  /// Modules that are float32 whatever `precision` says, cast once the model is loaded: by a part of their path, or,
  /// behind a dot, by their name.
  std::vector<std::string> float32_modules;
  std::string loss;  ///< "": the model's own from labels; else the output whose fp32 mean is the loss

  /// Something of peft's trains beside frozen weights.
  bool has_adapters() const { return lora || ia3 || !peft.empty(); }

  bool operator==(const TrainingConfig&) const = default;
};

}  // namespace oometer
