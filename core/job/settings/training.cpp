#include "job/settings/choices.h"
#include "job/settings/sections.h"

namespace oometer::settings {

namespace {

constexpr Condition kIsTrl{
    .setting = "/training/loop/name",
    .is = "trl.SFTTrainer trl.DPOTrainer trl.KTOTrainer trl.RewardTrainer trl.experimental.orpo.ORPOTrainer"};
constexpr Condition kHasPreferences{
    .setting = "/training/loop/name",
    .is = "trl.DPOTrainer trl.KTOTrainer trl.RewardTrainer trl.experimental.orpo.ORPOTrainer"};
constexpr Condition kHasReference{.setting = "/training/loop/name", .is = "trl.DPOTrainer trl.KTOTrainer"};
constexpr Condition kIsFactoryDpo{.setting = "/training/loop/name", .is = "llamafactory.CustomDPOTrainer"};
constexpr Condition kIsFactory{
    .setting = "/training/loop/name",
    .is = "llamafactory.CustomDPOTrainer llamafactory.CustomKTOTrainer llamafactory.PairwiseTrainer"};
constexpr Condition kIsReward{.setting = "/training/loop/name", .is = "trl.RewardTrainer"};
constexpr Condition kIsPlainLoop{.setting = "/training/loop", .is = "step"};
constexpr Condition kIsTrainer{.setting = "/training/loop", .is_not = "step"};
constexpr Condition kEvaluates{.setting = "/training/loop/args/eval_strategy", .is_not = "no"};
constexpr Condition kIsCustom{.setting = "/training/stage", .is = "custom"};

constexpr Remedy kLowerPrecision[] = {
    {"\"amp-bf16\"", Price::numerics, 1, "Autocast to bf16", "precision: matrix products and attention run in bf16"},
    {"\"bf16\"", Price::numerics, 2, "Pure bf16",
     "precision: weights are bf16, and optimizer states too unless DeepSpeed keeps float32 ones, so small updates are "
     "lost; training can be less stable"},
};
constexpr Remedy kOtherOptimizers[] = {
    {R"({"implementation": "fused", "paged": null})", Price::nothing, 1, "Fused optimizer",
     "no cost: same update in one kernel"},
    {R"({"implementation": "bnb-32bit", "paged": true})", Price::time, 4, "Paged optimizer",
     "slower where memory is short: states are in unified memory and move during the step; needs bitsandbytes"},
    {R"({"implementation": "bnb-8bit"})", Price::numerics, 1, "8-bit optimizer",
     "precision: moments are quantized to 8 bits in blocks of 256; needs bitsandbytes"},
    {R"({"implementation": "bnb-8bit", "paged": true})", Price::numerics, 2, "Paged 8-bit optimizer",
     "precision and time: moments of 8 bits in unified memory; needs bitsandbytes"},
};
constexpr Remedy kFusedAttention[] = {
    {"\"sdpa\"", Price::nothing, 1, "SDPA attention",
     "no cost: same computation in a fused kernel; rounding may differ"},
};
constexpr Remedy kCheckpointing[] = {
    {"\"non-reentrant\"", Price::time, 3, "Activation checkpointing",
     "slower: each block's forward runs again during backward"},
    {R"({"mode": "non-reentrant", "offload": true})", Price::time, 4, "Checkpoints in host memory",
     "slower: each block's forward runs again, and its input is copied to pinned host memory and back"},
};
constexpr Remedy kDroppedOutputs[] = {
    {"false", Price::nothing, 1, "Free the model's outputs", "no cost: del outputs once the loss is computed"},
};
// Beside checkpoints it can be more than without (Llama-2 7B under ZeRO-2 with 4 samples: 20.3 GiB, not 19.9).
constexpr Remedy kSavedOnHost[] = {
    {"\"pinned\"", Price::time, 8, "Saved tensors in host memory",
     "much slower: whatever forward saves for backward is copied to pinned host memory and back", false},
};
constexpr Remedy kLossInChunks[] = {
    {"8", Price::time, 1, "Loss in 8 chunks",
     "slightly slower: the loss is computed one chunk of the sequence at a time"},
};
constexpr Remedy kLiger[] = {
    {"true", Price::nothing, 1, "Liger kernels",
     "no cost: same computation in fused kernels; rounding may differ; needs liger-kernel"},
};
constexpr Remedy kFrozenTower[] = {
    {"\"finetune\"", Price::training, 1, "Frozen vision tower", "different training: the vision tower is not trained"},
};
constexpr Remedy kSgd[] = {
    {"\"sgd\"", Price::training, 4, "SGD instead of Adam",
     "different training: no moments; needs another learning rate, and transformers often train worse"},
};

constexpr const char* kPeftSchema =
    R"({"anyOf": [{"type": "null"}, {"type": "object", "required": ["peft_type"]}, {"type": "array", "items": {"type": "object", "required": ["peft_type"]}, "minItems": 1}]})";

constexpr Setting kTrainingRows[] = {
    {.key = "stage",
     .takes = one_of<kStages, &TrainingConfig::stage>(),
     .words = "Which parts of the model train",
     .option = "--stage",
     .label = "Stage",
     .link = "stage",
     .applies = {kTrains},
     .remedies = kFrozenTower},
    {.key = "freeze",
     .takes = in<&TrainingConfig::components, &Components::freeze>(),
     .words = "Modules that do not train, by dotted name at any depth",
     .option = "--freeze",
     .label = "Frozen modules",
     .link = "freeze",
     .applies = {kTrains, kIsCustom}},
    {.key = "train_only",
     .takes = in<&TrainingConfig::components, &Components::train_only>(),
     .words = "The only modules that train, by dotted name at any depth; empty: all",
     .option = "--train-only",
     .label = "Trained modules",
     .link = "trainonly",
     .applies = {kTrains, kIsCustom}},
    {.key = "no_grad",
     .takes = in<&TrainingConfig::components, &Components::no_grad>(),
     .words = "Modules whose forward runs under torch.no_grad, so that nothing is kept for backward",
     .label = "Modules without gradient",
     .link = "nograd",
     .applies = {kTrains, kIsCustom}},
    {.key = "loop",
     .takes = one_of<kLoops, &TrainingConfig::loop, &LoopConfig::name>() | loop_section,
     .words = "Whose code runs the steps: a plain loop, or a trainer with its arguments",
     .option = "--loop",
     .label = "Training loop",
     .link = "loop",
     .applies = {kTrains}},
    {.key = "precision",
     .takes = one_of<kPrecisions, &TrainingConfig::precision>() | precision_section,
     .words =
         "Data type of the weights and of computation; amp-*: fp32 weights under autocast; an object: the weights' "
         "type and autocast's apart",
     .option = "--precision",
     .label = "Precision",
     .link = "precision",
     .remedies = kLowerPrecision},
    {.key = "optimizer",
     .takes = any(kText) | optimizer_section,
     .words = "The optimizer: an object, or only its name; also a name of transformers' `optim`, which stands for an "
              "object",
     .applies = {kTrains},
     .remedies = kOtherOptimizers},
    {.key = "attention",
     .takes = one_of<kAttentions, &TrainingConfig::attention>(),
     .words = "Which implementation or kernel computes attention",
     .option = "--attention",
     .label = "Attention",
     .link = "attention",
     .remedies = kFusedAttention},
    {.key = "activation_checkpointing",
     .takes =
         one_of<kCheckpointModes, &TrainingConfig::checkpointing, &CheckpointingConfig::mode>() | checkpointing_section,
     .words = "Drop the activations of each block in forward and compute them again in backward",
     .option = "--activation-checkpointing",
     .label = "Activation checkpointing",
     .link = "checkpointing",
     .applies = {kTrains},
     .remedies = kCheckpointing},
    {.key = "max_grad_norm",
     .takes = in<&TrainingConfig::max_grad_norm>(0, 1e12),
     .words = "Gradients are clipped to this norm; null or 0: they are not clipped",
     .option = "--max-grad-norm",
     .label = "Gradient clipping",
     .link = "clip",
     .offers = "null 1",
     .applies = {kTrains}},
    {.key = "gradient_accumulation_steps",
     .takes = in<&TrainingConfig::gradient_accumulation_steps>(Range{1, 1 << 20}),
     .words = "Micro-batches per optimizer step",
     .option = "--gradient-accumulation-steps",
     .label = "Gradient accumulation",
     .link = "accumulate",
     .applies = {kTrains}},
    {.key = "keep_outputs",
     .takes = in<&TrainingConfig::keep_outputs>(),
     .words =
         "The training loop holds the model's outputs, logits too, until the step is over, as loops written by hand "
         "often do; HF Trainer keeps the loss only",
     .option = "--keep-outputs",
     .label = "Keep model outputs",
     .link = "outputs",
     .link_values = "dropped kept",
     .applies = {kTrains},
     .remedies = kDroppedOutputs},
    {.key = "ema",
     .takes = in<&TrainingConfig::ema>(),
     .words = "The training loop averages the weights in a copy of the model on the device (EMA), as "
              "torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn does after every step of the optimizer; "
              "a copy in host memory takes none of the device's",
     .option = "--ema",
     .label = "Average of the weights",
     .link = "ema",
     .link_values = "none kept",
     .applies = {kTrains, kIsPlainLoop}},
    {.key = "use_cache",
     .takes = in<&TrainingConfig::use_cache>(),
     .words = "The model is called with use_cache, transformers' default: its outputs hold keys and values, copied, as "
              "long as they live themselves; without effect where activations are checkpointed",
     .label = "Cache in training",
     .link = "usecache",
     .applies = {kTrains, kIsPlainLoop}},
    {.key = "save_on_cpu",
     .takes = one_of<kSavesOn, &TrainingConfig::save_on_cpu>(),
     .words =
         "torch.autograd.graph.save_on_cpu around forward and loss: what is saved for backward, weights too, lies in "
         "host memory",
     .option = "--save-on-cpu",
     .label = "Saved for backward",
     .link = "saved",
     .applies = {kTrains},
     .remedies = kSavedOnHost},
    {.key = "chunked_cross_entropy",
     .takes = in_or_zero<&TrainingConfig::cross_entropy_chunks>(Range{1, 1024}),
     .words =
         "The loss is computed in this many chunks of the sequence, one at a time in fp32, as Axolotl and torchtune "
         "do",
     .unit = "chunks",
     .option = "--chunked-cross-entropy",
     .label = "Loss in chunks",
     .link = "losschunks",
     .offers = "null 2 4 8 16 32",
     .applies = {kTrains},
     .remedies = kLossInChunks},
    {.key = "cut_cross_entropy",
     .takes = in<&TrainingConfig::cut_cross_entropy>(),
     .words = "The head and the loss in Apple's cut_cross_entropy, as Axolotl's fork puts it into a model: no logits "
              "are made",
     .option = "--cut-cross-entropy",
     .applies = {kTrains}},
    {.key = "float32_modules",
     .takes = in<&TrainingConfig::float32_modules>(),
     .words = "Modules that are float32 whatever training.precision says, cast once the model is loaded: by a part of "
              "their path (norm), or by their name behind a dot (.gate)",
     .applies = {kTrains}},
    {.key = "liger",
     .takes = any(kBoolean) | liger_section,
     .words = "Fused kernels of liger-kernel for the language model and the loss: true, or which of them",
     .option = "--liger",
     .label = "Liger kernels",
     .link = "liger",
     .applies = {kTrains},
     .otherwise = "false",
     .remedies = kLiger},
    {.key = "loss",
     .takes = any(kText | kNull),
     .words = "The output whose mean is the loss, for a model without a loss of its own, or mean or cross_entropy of a "
              "graph's first output; null: the model's own loss",
     .option = "--loss",
     .label = "Loss",
     .link = "loss",
     .offers = "null pooler_output last_hidden_state predicted_depth pred_masks mean cross_entropy",
     .applies = {kTrains},
     .otherwise = "null",
     .schema = R"({"enum": [null, "pooler_output", "last_hidden_state", "predicted_depth", "pred_masks", "mean",
                           "cross_entropy"]})"},
    {.key = "lora",
     .takes = any(kNull) | lora_section,
     .words = "LoRA, as peft does it: small matrices train beside frozen weights",
     .label = "LoRA",
     .link = "adapters",
     .applies = {kTrains},
     .otherwise = "null"},
    {.key = "ia3",
     .takes = any(kNull) | ia3_section,
     .words = "(IA)^3, as peft does it: one trained vector per layer scales its output or its input",
     .label = "(IA)^3",
     .link = "adapters",
     .applies = {kTrains},
     .otherwise = "null"},
    {.key = "peft",
     .takes = any(kNull | kObject | kList),
     .words =
         "Adapters of any of peft's methods, each an adapter_config.json with autocast_adapter_dtype; or a list of "
         "them with name and active (docs/adapters.md)",
     .applies = {kTrains},
     .otherwise = "null",
     .schema = kPeftSchema},
    {.key = "torch_compile",
     .takes = any(kBoolean),
     .words = "The model is compiled, which is not modelled: the answer is the eager run's, and says so",
     .otherwise = "false"},
    {.key = "fp8",
     .takes = any(kBoolean),
     .words = "Products run in fp8, which is not modelled: the answer is that of 16 bits, and says so",
     .otherwise = "false"},
    {.key = "quantization",
     .takes = any(kNull) | quantization_section,
     .words = "Weights in 4 bits, as transformers' BitsAndBytesConfig says; training needs LoRA with it (QLoRA)",
     .option = "--quantization",
     .label = "Frozen weights",
     .link = "quantization",
     .otherwise = "null"},
};

constexpr Setting kOptimizerRows[] = {
    {.key = "name",
     .takes = one_of<kOptimizers, &OptimizerConfig::name>(),
     .words = "The optimizer, which decides what is kept for each trained weight",
     .option = "--optimizer",
     .label = "Optimizer",
     .link = "optimizer",
     .remedies = kSgd},
    {.key = "implementation",
     .takes = one_of<kImplementations, &OptimizerConfig::implementation>(),
     .words = "Which implementation runs the optimizer: it decides what a step allocates",
     .option = "--optimizer-implementation",
     .label = "Optimizer kernels",
     .link = "impl"},
    {.key = "paged",
     .takes = in<&OptimizerConfig::paged>(),
     .words = "States of large weights are in unified memory",
     .option = "--paged",
     .link = "impl",
     .applies = {{.setting = "/training/optimizer/implementation", .is = "bnb-8bit bnb-32bit"}}},
    {.key = "momentum",
     .takes = in<&OptimizerConfig::momentum>(0, 1),
     .words = "Above 0: one moment per weight",
     .option = "--momentum",
     .link = "optimizer",
     .applies = {{.setting = "/training/optimizer/name", .is = "sgd torch.optim.RMSprop"}}},
    {.key = "args",
     .takes = any(0) | optimizer_arguments_section,
     .words = "Arguments of the class, by their own names; of those that change no memory (lr, betas, eps ...) nothing "
              "is kept. With the path of a class the others have its defaults, so that foreach runs, in one group"},
    {.key = "rest",
     .takes = any(kText | kObject),
     .words = "A second optimizer, spelled as the first: it has all that is not a matrix of a layer, as Muon needs it",
     .schema = R"({"type": ["string", "object"]})"},
    {.key = "in_backward",
     .takes = in<&OptimizerConfig::in_backward>(),
     .words = "Each weight has an optimizer of its own, which steps in a hook (register_post_accumulate_grad_hook) as "
              "soon as its gradient is there, and lets it go; transformers' \"..._layerwise\""},
    {.key = "param_groups",
     .takes = in<&OptimizerConfig::param_groups>(Range{1, 4}),
     .words = "Parameter groups: 2, with and without weight decay, as HF Trainer makes them, or 1; LLaVATrainer with "
              "mm_projector_lr has 4",
     .label = "Parameter groups",
     .link = "groups",
     .offers = "2 1"},
};

constexpr Setting kOptimizerArgumentsRows[] = {
    {.key = "weight_decay",
     .takes = in<&OptimizerArgs::weight_decay>(-1e9, 1e9),
     .words = "Not 0: gradients are copied, unless weight decay is decoupled"},
    {.key = "decoupled_weight_decay",
     .takes = in<&OptimizerArgs::decoupled_weight_decay>(),
     .words = "Weight decay changes the weights, not the gradients"},
    {.key = "amsgrad", .takes = in<&OptimizerArgs::amsgrad>(), .words = "One more state: the largest second moment"},
    {.key = "nesterov", .takes = in<&OptimizerArgs::nesterov>(), .words = "Nesterov momentum"},
    {.key = "centered", .takes = in<&OptimizerArgs::centered>(), .words = "One more state: the mean of gradients"},
    {.key = "ns_steps",
     .takes = in<&OptimizerArgs::ns_steps>(Range{0, 99}),
     .words = "Steps of the Newton-Schulz iteration"},
    {.key = "slice_p",
     .takes = in<&OptimizerArgs::slice_p>(Range{1, 1 << 20}),
     .words = "Of so many elements of a weight Prodigy looks at one to find its learning rate"},
    {.key = "dim",
     .takes = in<&OptimizerArgs::dim>(Range{1, 1 << 20}),
     .words = "Adam-mini's: the model's hidden size"},
    {.key = "n_heads",
     .takes = in<&OptimizerArgs::heads>(Range{1, 1 << 20}),
     .words = "Adam-mini's: the model's attention heads"},
    {.key = "beta1", .takes = in<&OptimizerArgs::beta1>(), .words = "Adafactor keeps a first moment, too"},
    {.key = "scale_parameter",
     .takes = in<&OptimizerArgs::scale_parameter>(),
     .words = "Adafactor scales its step by the size of the weights"},
    {.key = "kahan_sum",
     .takes = in<&OptimizerArgs::kahan_sum>(),
     .words = "optimi's classes compensate for rounding where weights are in half precision"},
    {.key = "block_size",
     .takes = in<&OptimizerArgs::block_size>(Range{1, 1 << 20}),
     .words = "Elements of a state of torchao's that share a scale"},
    {.key = "bf16_stochastic_round",
     .takes = in<&OptimizerArgs::bf16_stochastic_round>(),
     .words = "torchao's round bf16 weights at random"},
    {.key = "master_weight_bits",
     .takes = in<&OptimizerArgs::master_weight_bits>(Range{0, 32}),
     .words = "Bits of weights in half precision that FlashOptim's keep: 24 or 32; null or 0: their own"},
    {.key = "quantize", .takes = in<&OptimizerArgs::quantize>(), .words = "FlashOptim's states are in 8 bits"},
    {.key = "master_weights",
     .takes = in<&OptimizerArgs::master_weights>(),
     .words = "Transformer Engine's FusedAdam keeps float32 copies of the weights"},
    {.key = "store_param_remainders",
     .takes = in<&OptimizerArgs::store_param_remainders>(),
     .words = "... and of these only the 16 bits that bf16 weights lack"},
    {.key = "exp_avg_dtype",
     .takes = in<&OptimizerArgs::exp_avg_dtype>(),
     .words = "The type of both moments of Transformer Engine's FusedAdam: float32 or bfloat16"},
    {.key = "rank",
     .takes = in<&OptimizerArgs::rank>(Range{1, 1 << 16}),
     .words = "Rows or columns of the gradients that APOLLO and GaLore project"},
    {.key = "proj",
     .takes = in<&OptimizerArgs::proj>(),
     .words = "APOLLO's projection: random, or svd, as GaLore's is"},
    {.key = "proj_type",
     .takes = in<&OptimizerArgs::proj_type>(),
     .words = "On which side APOLLO and GaLore project: std, reverse_std, left or right"},
    {.key = "scale_type",
     .takes = in<&OptimizerArgs::scale_type>(),
     .words = "What of a gradient APOLLO scales alike: channel, or tensor (APOLLO-Mini)"},
    {.key = "target_modules",
     .takes = in<&OptimizerArgs::target_modules>(),
     .words = "Parts of the paths of the linear layers whose gradients APOLLO and GaLore project; transformers' "
              "optim_target_modules"},
};

constexpr Setting kLoopRows[] = {
    {.key = "name", .takes = one_of<kLoops, &LoopConfig::name>(), .words = "The trainer's class", .link = "loop"},
    {.key = "args",
     .takes = any(0) | trainer_arguments_section,
     .words = "The fields of the trainer's own arguments class, by their own names; those that a plain setting of the "
              "job says too (per_device_train_batch_size, bf16, gradient_checkpointing ...) may stand here or there"},
    {.key = "compute_metrics",
     .takes = in<&LoopConfig::compute_metrics>(),
     .words = "The trainer is given a function compute_metrics: evaluation gathers logits and labels on the device",
     .label = "compute_metrics",
     .link = "metrics",
     .applies = {kIsTrainer, kEvaluates}},
    {.key = "load",
     .takes = any(kText),
     .words = "Where the weights are made: host (the trainer moves them) or device; a plain step: device",
     .otherwise = R"("host")",
     .schema = R"({"enum": ["host", "device"]})"},
    {.key = "project",
     .takes = one_of<kLoopProjects, &LoopConfig::project>(),
     .words = "Whose loader and mixins stand around the trainer"},
    {.key = "lora_function",
     .takes = one_of<kLoraFunctions, &LoopConfig::lora_function>(),
     .words = "Whose function a layer with LoRA is"},
};

constexpr Setting kTrainerArgumentsRows[] = {
    {.key = "label_smoothing_factor",
     .takes = in<&LoopConfig::label_smoothing_factor>(0, 1),
     .words = "LabelSmoother computes the loss, from float32 log-probabilities of all classes",
     .label = "Label smoothing",
     .link = "smoothing",
     .offers = "0 0.1",
     .applies = {kIsTrainer}},
    {.key = "average_tokens_across_devices",
     .takes = in<&LoopConfig::average_tokens_across_devices>(),
     .words = "The loss is scaled by the number of processes"},
    {.key = "include_num_input_tokens_seen",
     .takes = one_of<kTokensSeen, &LoopConfig::include_num_input_tokens_seen>() | kBoolean,
     .words = "Which input tokens are counted"},
    {.key = "torch_empty_cache_steps",
     .takes = in_or_zero<&LoopConfig::torch_empty_cache_steps>(positive),
     .words = "torch.cuda.empty_cache() after the forward pass of every so many steps",
     .label = "Empty the cache",
     .link = "emptycache",
     .offers = "null 1",
     .applies = {kIsTrainer}},
    {.key = "neftune_noise_alpha",
     .takes = in<&LoopConfig::neftune_noise_alpha>(0, 1e12),
     .words = "NEFTune: what the embeddings of tokens give gets noise in training; null: none"},
    {.key = "max_steps",
     .takes = in<&LoopConfig::max_steps>(Range{-1, 1 << 30}),
     .words = "Optimizer steps; -1: whole epochs. Three are run here at most: later ones repeat the third"},
    {.key = "eval_strategy",
     .takes = one_of<kEvery, &LoopConfig::eval_strategy>(),
     .words = "When the trainer evaluates; here also after the second step and the last",
     .label = "Evaluation",
     .link = "eval",
     .applies = {kIsTrainer}},
    {.key = "eval_steps", .takes = in<&LoopConfig::eval_steps>(positive), .words = "Steps between evaluations"},
    {.key = "per_device_eval_batch_size",
     .takes = in<&LoopConfig::per_device_eval_batch_size>(Range{1, 1 << 20}),
     .words = "Samples per forward of an evaluation",
     .unit = "samples",
     .label = "Evaluation batch",
     .link = "evalbatch",
     .applies = {kIsTrainer, kEvaluates}},
    {.key = "prediction_loss_only",
     .takes = in<&LoopConfig::prediction_loss_only>(),
     .words = "An evaluation keeps the loss only; so it does without compute_metrics"},
    {.key = "eval_accumulation_steps",
     .takes = in_or_zero<&LoopConfig::eval_accumulation_steps>(positive),
     .words = "After so many batches what was predicted is taken to the host; null: when the evaluation is over",
     .unit = "batches",
     .label = "Predictions to the host",
     .link = "evalaccumulate",
     .offers = "null 1 8",
     .applies = {{.setting = "/training/loop/compute_metrics", .is = "true"}, kEvaluates}},
    {.key = "save_strategy", .takes = one_of<kEvery, &LoopConfig::save_strategy>(), .words = "When the trainer saves"},
    {.key = "save_steps", .takes = in<&LoopConfig::save_steps>(positive), .words = "Steps between checkpoints"},
    {.key = "max_length",
     .takes = in<&LoopConfig::max_length>(positive),
     .words = "Longer samples are cut, and rows of documents are as long; null: they are not cut",
     .unit = "tokens",
     .applies = {kIsTrl}},
    {.key = "padding_free",
     .takes = in<&LoopConfig::padding_free>(),
     .words = "The samples of a micro-batch lie one behind the other in one row, without padding",
     .applies = {kIsTrl}},
    {.key = "loss_type",
     .takes = in<&LoopConfig::loss_type>(),
     .words = "The loss: of trl.SFTTrainer nll or dft; of trl.DPOTrainer sigmoid, sigmoid_norm, hinge, ipo, exo_pair, "
              "nca_pair, robust, bco_pair, sppo_hard, apo_zero, apo_down, discopop or sft; of trl.KTOTrainer kto or "
              "apo_zero_unpaired; of llamafactory.CustomDPOTrainer sigmoid, hinge, ipo, kto_pair, orpo or simpo"},
    {.key = "disable_dropout",
     .takes = in<&LoopConfig::disable_dropout>(),
     .words = "Dropout does nothing, that of adapters too",
     .applies = {kHasPreferences}},
    {.key = "precompute_ref_log_probs",
     .takes = in<&LoopConfig::precompute_ref_log_probs>(),
     .words = "What the reference says is computed before the run",
     .applies = {kHasReference}},
    {.key = "activation_offloading",
     .takes = in<&LoopConfig::activation_offloading>(),
     .words = "What is saved for backward goes to pinned host memory while it is not needed (TRL's OffloadActivations)",
     .applies = {kIsTrl}},
    {.key = "center_rewards_coefficient",
     .takes = in<&LoopConfig::center_rewards_coefficient>(-1e9, 1e9),
     .words = "Weight of a loss that centres the rewards; null: there is none",
     .applies = {kIsReward}},
    {.key = "pref_ftx",
     .takes = in<&LoopConfig::pref_ftx>(0, 1e9),
     .words = "Weight of the chosen answers' own loss",
     .applies = {kIsFactory}},
    {.key = "ld_alpha",
     .takes = in<&LoopConfig::ld_alpha>(0, 1),
     .words = "Weight of what the longer answer has beyond the shorter one (LD-DPO); null: there is none",
     .applies = {kIsFactoryDpo}},
};

constexpr Setting kPrecisionRows[] = {
    {.key = "weights", .takes = one_of<kFloats>(), .words = "The weights' own type", .otherwise = R"("bf16")"},
    {.key = "autocast",
     .takes = one_of<kFloats>() | kNull,
     .words = "The type that autocast computes in, bf16 or fp16; null: there is no autocast",
     .otherwise = "null"},
};

constexpr Setting kCheckpointingRows[] = {
    {.key = "mode",
     .takes = one_of<kCheckpointModes, &CheckpointingConfig::mode>(),
     .words = "The kind of checkpoint",
     .link = "checkpointing"},
    {.key = "every",
     .takes = in<&CheckpointingConfig::every>(layer_count),
     .words = "Checkpoint every k-th block only, as transformers' every_n_layers",
     .unit = "blocks",
     .label = "Checkpointed blocks",
     .link = "ckptevery",
     .offers = "1 2 3 4"},
    {.key = "offload",
     .takes = in<&CheckpointingConfig::offload>(),
     .words = "What a checkpoint keeps is in pinned host memory (transformers 5.23)",
     .link = "saved"},
    {.key = "segments",
     .takes = any(kObject),
     .words =
         "The only blocks to checkpoint: for each stack, by dotted name, single blocks and ranges [first, one past "
         "the last], each run again as one region",
     .label = "Chosen blocks",
     .link = "ckptplan",
     .schema = R"({"type": "object", "minProperties": 1, "additionalProperties": {"type": "array", "items": {"anyOf": [
       {"type": "integer", "minimum": 0, "maximum": 9999},
       {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 10000}, "minItems": 2, "maxItems": 2}]}}})"},
};

constexpr Setting kLigerRows[] = {
    {.key = "rope",
     .takes = in<&LigerConfig::rope>(),
     .words = "Rotary embedding in place, without rotated copies",
     .label = "Liger rotary embedding",
     .link = "ligerrope"},
    {.key = "rms_norm",
     .takes = in<&LigerConfig::rms_norm>(),
     .words = "RMSNorm in one kernel, which keeps its input and one number per token",
     .label = "Liger RMSNorm",
     .link = "ligernorm"},
    {.key = "swiglu",
     .takes = in<&LigerConfig::swiglu>(),
     .words = "Activation and product of the MLP in one kernel, which keeps its two inputs (Gemma's geglu, too)",
     .label = "Liger SwiGLU",
     .link = "ligermlp"},
    {.key = "layer_norm",
     .takes = in<&LigerConfig::layer_norm>(),
     .words = "LayerNorm of a vision tower in one kernel; as Liger's function for the model has it where left out"},
    {.key = "cross_entropy",
     .takes = in<&LigerConfig::cross_entropy>(),
     .words = "Cross-entropy whose gradient takes the place of the logits",
     .link = "ligerloss"},
    {.key = "fused_linear_cross_entropy",
     .takes = in<&LigerConfig::fused_linear_cross_entropy>(),
     .words = "Head and loss together, one chunk of tokens at a time: the logits never exist as a whole",
     .label = "Liger loss",
     .link = "ligerloss"},
    {.key = "accum_dtype",
     .takes = one_of<kAccumulators, &LigerConfig::accumulates_in_fp32>(),
     .words = "Data type in which fused_linear_cross_entropy accumulates the gradient of the head",
     .label = "Liger accumulation",
     .link = "ligersum",
     .applies = {{.setting = "/training/liger/fused_linear_cross_entropy", .is = "true"}}},
};

constexpr const char* kTargetsSchema =
    R"({"anyOf": [{"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}, {"type": "string", "minLength": 1}]})";
constexpr const char* kTargetWords =
    "Which layers get an adapter: names, a regular expression of the whole path, or all-linear; absent: peft's own "
    "choice for the model_type, where it has one";
constexpr const char* kSavedModules = "Modules that train in full, as a copy beside the frozen original";
constexpr const char* kAlsoTrained =
    "Modules that train in full without a copy (requires_grad after get_peft_model, as LLaVA does with its projector)";
constexpr const char* kAdapterType =
    "Adapters of bf16 and fp16 weights are fp32, which is peft's default; false: they have the type of the weights";

constexpr Setting kLoraRows[] = {
    {.key = "rank",
     .takes = in<&LoraConfig::rank>(Range{1, 1 << 16}),
     .words = "r of peft: columns of A and rows of B",
     .option = "--lora-rank",
     .label = "LoRA rank",
     .link = "rank"},
    {.key = "alpha",
     .takes = in<&LoraConfig::alpha>(0, 1e9),
     .words = "lora_alpha of peft: the scale is alpha / rank; changes no memory",
     .option = "--lora-alpha"},
    {.key = "dropout",
     .takes = in<&LoraConfig::dropout>(0, 1),
     .words =
         "lora_dropout of peft, less than 1: above 0 each adapted layer keeps a mask and its own copy of its input",
     .option = "--lora-dropout",
     .label = "LoRA dropout",
     .link = "dropout",
     .offers = "0 0.05 0.1"},
    {.key = "bias",
     .takes = one_of<kLoraBiases, &LoraConfig::bias>(),
     .words = "Which biases of the model train beside the adapters",
     .option = "--lora-bias",
     .label = "LoRA biases",
     .link = "lorabias"},
    {.key = "target_modules",
     .takes = any(kList | kText),
     .words = kTargetWords,
     .option = "--lora-target-modules",
     .label = "LoRA layers",
     .link = "targets",
     .schema = kTargetsSchema},
    {.key = "target_parameters",
     .takes = in<&LoraConfig::target_parameters>(),
     .words =
         "Parameters that are no layer's weight, such as experts.gate_up_proj of a mixture of experts: each forward "
         "computes the adapted weights of all experts, which are kept for backward",
     .option = "--lora-target-parameters"},
    {.key = "modules_to_save",
     .takes = in<&LoraConfig::modules_to_save>(),
     .words = kSavedModules,
     .option = "--lora-modules-to-save",
     .label = "Modules saved whole",
     .link = "loratrain"},
    {.key = "also_train", .takes = in<&LoraConfig::also_train>(), .words = kAlsoTrained, .option = "--lora-also-train"},
    {.key = "use_dora",
     .takes = in<&LoraConfig::use_dora>(),
     .words = "DoRA: a trained length for each column of the adapted weight; each forward computes that weight anew",
     .option = "--lora-use-dora",
     .link = "adapters"},
    {.key = "use_rslora",
     .takes = in<&LoraConfig::use_rslora>(),
     .words = "The scale is alpha / sqrt(rank); changes no memory",
     .label = "LoRA scale by √rank",
     .link = "lorascale"},
    {.key = "lora_bias",
     .takes = in<&LoraConfig::lora_bias>(),
     .words = "B has a bias (peft 0.14 or later)",
     .label = "Bias of LoRA's B",
     .link = "lorab",
     .applies = {{.setting = "/training/lora/use_dora", .is = "false"}}},
    {.key = "autocast_adapter_dtype",
     .takes = in<&LoraConfig::autocast_adapter_dtype>(),
     .words = kAdapterType,
     .option = "--lora-autocast-adapter-dtype",
     .label = "Adapters in fp32",
     .link = "adapterdtype",
     .link_values = "weights fp32"},
    {.key = "lora_mlp_kernel",
     .takes = in<&LoraConfig::lora_mlp_kernel>(),
     .words = "Axolotl's function for a gated MLP with adapters, which saves its input, gate and up",
     .option = "--lora-mlp-kernel"},
    {.key = "lora_qkv_kernel",
     .takes = in<&LoraConfig::lora_qkv_kernel>(),
     .words =
         "Axolotl's function for the projections of queries, keys and values with adapters, which saves their input",
     .option = "--lora-qkv-kernel"},
    {.key = "lora_o_kernel",
     .takes = in<&LoraConfig::lora_o_kernel>(),
     .words = "The same for attention's output projection",
     .option = "--lora-o-kernel"},
};

constexpr Setting kIa3Rows[] = {
    {.key = "target_modules",
     .takes = any(kList | kText),
     .words = kTargetWords,
     .option = "--ia3-target-modules",
     .schema = kTargetsSchema},
    {.key = "feedforward_modules",
     .takes = any(kList | kText),
     .words = "Those of target_modules whose input is scaled: names, or a regular expression of the whole path",
     .option = "--ia3-feedforward-modules",
     .schema = kTargetsSchema},
    {.key = "modules_to_save", .takes = in<&Ia3Config::modules_to_save>(), .words = kSavedModules},
    {.key = "also_train", .takes = in<&Ia3Config::also_train>(), .words = kAlsoTrained, .option = "--ia3-also-train"},
    {.key = "autocast_adapter_dtype",
     .takes = in<&Ia3Config::autocast_adapter_dtype>(),
     .words = kAdapterType,
     .option = "--ia3-autocast-adapter-dtype",
     .link = "adapterdtype",
     .link_values = "weights fp32"},
};

constexpr Setting kQuantizationRows[] = {
    {.key = "load_in_4bit", .takes = any(kBoolean), .words = "Must be true", .link = "quantization"},
    {.key = "load_in_8bit",
     .takes = any(kBoolean),
     .words = "LLM.int8, which is not modelled: the answer is that of weights that are not quantized, and says so",
     .otherwise = "false"},
    {.key = "bnb_4bit_quant_type",
     .takes = one_of<kQuantTypes, &QuantizationConfig::is_nf4>(),
     .words = "The format of four bits; both take the same memory",
     .link = "quantization"},
    {.key = "bnb_4bit_use_double_quant",
     .takes = in<&QuantizationConfig::double_quant>(),
     .words = "The constant of 64 weights takes one byte instead of four",
     .link = "quantization"},
    {.key = "bnb_4bit_compute_dtype",
     .takes = one_of<kTorchFloats, &QuantizationConfig::compute_dtype>(),
     .words = "Data type in which a quantized layer computes"},
    {.key = "bnb_4bit_quant_storage",
     .takes = one_of<kQuantStorages, &QuantizationConfig::quant_storage>(),
     .words = "Data type that holds the packed weights; FSDP shards those of floating-point types only"},
    {.key = "llm_int8_skip_modules",
     .takes = any(kList),
     .words = "Modules that are not quantized; absent: the output embeddings"},
    {.key = "prepare_model_for_kbit_training",
     .takes = in<&QuantizationConfig::prepares>(),
     .words = "peft's function of that name is called before training: what is not quantized becomes fp32",
     .applies = {kTrains}},
    {.key = "quantize_moe_experts",
     .takes = in<&QuantizationConfig::moe_experts>(),
     .words =
         "Axolotl's: experts whose weights are in one tensor are in 4 bits, too, and come back as a whole while they "
         "run",
     .applies = {kTrains}},
};

const void* checkpointing_defaults() {
  static const CheckpointingConfig defaults = [] {
    CheckpointingConfig config;
    config.mode = CheckpointMode::non_reentrant;
    return config;
  }();
  return &defaults;
}
const void* liger_defaults() {
  static const LigerConfig defaults = LigerConfig::usual();
  return &defaults;
}

}  // namespace

constexpr SectionOf<TrainingConfig> training_section{
    {"/training", fields<TrainingConfig, kTrainingRows>, remedies<kTrainingRows>}};
constexpr SectionOf<LoopConfig> loop_section{{"/training/loop", fields<LoopConfig, kLoopRows>}};
constexpr SectionOf<LoopConfig> trainer_arguments_section{
    {"/training/loop/args", fields<LoopConfig, kTrainerArgumentsRows>}};
constexpr SectionOf<Precision> precision_section{{"/training/precision", fields<Precision, kPrecisionRows>}};
constexpr SectionOf<OptimizerConfig> optimizer_section{
    {"/training/optimizer", fields<OptimizerConfig, kOptimizerRows>, remedies<kOptimizerRows>}};
constexpr SectionOf<OptimizerArgs> optimizer_arguments_section{
    {"/training/optimizer/args", fields<OptimizerArgs, kOptimizerArgumentsRows>}};
constexpr SectionOf<CheckpointingConfig> checkpointing_section{
    {"/training/activation_checkpointing", fields<CheckpointingConfig, kCheckpointingRows>}};
constexpr SectionOf<LigerConfig> liger_section{{"/training/liger", fields<LigerConfig, kLigerRows>}};
constexpr SectionOf<LoraConfig> lora_section{{"/training/lora", fields<LoraConfig, kLoraRows>}};
constexpr SectionOf<Ia3Config> ia3_section{{"/training/ia3", fields<Ia3Config, kIa3Rows>}};
constexpr SectionOf<QuantizationConfig> quantization_section{
    {"/training/quantization", fields<QuantizationConfig, kQuantizationRows>}};

constexpr SectionWords training_words{training_section, "The training step", kTrainingRows,
                                      defaults_of<TrainingConfig>};
constexpr SectionWords loop_words{loop_section, "A training loop with its arguments", kLoopRows,
                                  defaults_of<LoopConfig>};
constexpr SectionWords trainer_arguments_words{
    trainer_arguments_section, "Arguments of transformers' Trainer that no plain setting of the job says",
    kTrainerArgumentsRows, defaults_of<LoopConfig>};
constexpr SectionWords precision_words{precision_section, "The weights' type and autocast's apart", kPrecisionRows};
constexpr SectionWords optimizer_words{optimizer_section, "The optimizer", kOptimizerRows,
                                       defaults_of<OptimizerConfig>};
constexpr SectionWords optimizer_arguments_words{optimizer_arguments_section,
                                                 "What the optimizer's own arguments decide of memory",
                                                 kOptimizerArgumentsRows, defaults_of<OptimizerArgs>};
constexpr SectionWords checkpointing_words{checkpointing_section, "Activation checkpointing with options",
                                           kCheckpointingRows, checkpointing_defaults};
constexpr SectionWords liger_words{
    liger_section, "Which kernels: the arguments of apply_liger_kernel_to_llama or its kin for the model", kLigerRows,
    liger_defaults};
constexpr SectionWords lora_words{lora_section, "peft's LoraConfig", kLoraRows, defaults_of<LoraConfig>};
constexpr SectionWords ia3_words{ia3_section, "peft's IA3Config", kIa3Rows, defaults_of<Ia3Config>};
constexpr SectionWords quantization_words{quantization_section, "transformers' BitsAndBytesConfig", kQuantizationRows,
                                          defaults_of<QuantizationConfig>};

}  // namespace oometer::settings
