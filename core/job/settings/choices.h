#pragma once

#include "job/job.h"
#include "job/settings/setting.h"

/// The settings that have a few values: how a job spells each, what a form calls it, what one gets by it. `names.h` has
/// the spellings alone.
namespace oometer::settings {

inline constexpr Condition kTrains{.setting = "/task", .is = "train"};

inline constexpr Choice<Task> kTasks[] = {
    {"train", Task::train, "Training", "Forward, backward and the optimizer's step, twice"},
    {"inference", Task::inference, "Inference",
     "Prompts and their answers by transformers' generate(), a replica on each GPU"}};

inline constexpr Choice<Packing> kPackings[] = {
    {"bfd", Packing::bfd, "Best fit", "TRL's bfd: whole samples share a row, whose position_ids begin anew with each"},
    {"wrapped", Packing::wrapped, "Wrapped", "TRL's wrapped: all tokens in one stream, cut into rows"}};

inline constexpr Choice<Padding> kPaddings[] = {
    {"longest", Padding::longest, "To the longest", "As long as the longest sample of the micro-batch"},
    {"max", Padding::max, "To the maximum", "As long as sequence_length"}};

inline constexpr Choice<bool> kSides[] = {{"right", false, "Right", "After the tokens"},
                                          {"left", true, "Left", "Before the tokens"}};

inline constexpr Choice<ScoredKind> kScored[] = {
    {"all", ScoredKind::all, "All tokens", "All but padding and images"},
    {"completion", ScoredKind::completion, "Completions", "The second half of each sample"}};

inline constexpr Choice<CacheImplementation> kCaches[] = {
    {"dynamic", CacheImplementation::dynamic_, "Dynamic", "transformers' default: it grows with each token"},
    {"static", CacheImplementation::static_, "Static",
     "Allocated in full before the first token; no torch.compile here"},
    {"offloaded", CacheImplementation::offloaded, "On the host",
     "transformers' offloaded cache: the current layer and the next one are on the GPU"},
    {"headinfer", CacheImplementation::headinfer, "HeadInfer, on the host",
     "HeadInfer (arXiv 2502.12574): one key head at a time is on the GPU"},
    {"mtla", CacheImplementation::mtla, "MTLA, merged tokens",
     "Multi-head Temporal Latent Attention (arXiv 2505.13544), for DeepSeek's models: one latent for several tokens"},
    {"quantized", CacheImplementation::quantized, "Quantized",
     "transformers' QuantizedCache: stored in few bits, dequantized one layer at a time for each token"},
    {"paged", CacheImplementation::paged, "vLLM's blocks", "vLLM's pool of blocks"}};

inline constexpr Choice<CacheBackend> kCacheBackends[] = {
    {"quanto", CacheBackend::quanto, "optimum-quanto",
     "Groups of elements share a scale; recent tokens keep full precision"},
    {"hqq", CacheBackend::hqq, "HQQ", "Groups whose scales are fitted each time: more memory while quantizing"},
    {"fp8", CacheBackend::fp8, "fp8", "8 bits with one scale for each layer; takes none of the options of groups"}};

inline constexpr Choice<Logits> kLogits[] = {{"last", Logits::last, "Of the last token", "As generate() asks for"},
                                             {"all", Logits::all, "Of all tokens", "Large for long prompts"}};

inline constexpr Choice<Stage> kStages[] = {
    {"pretrain", Stage::pretrain, "Pre-train", "Only the projector between vision encoder and language model trains"},
    {"finetune", Stage::finetune, "Fine-tune", "Projector and language model train; the vision encoder is frozen"},
    {"full", Stage::full, "Full", "All weights train"},
    {"custom", Stage::custom, "Custom", "What trains is chosen by the names of modules"}};

inline constexpr Choice<Precision> kPrecisions[] = {
    {"fp32", Precision::fp32, "", "Four bytes per weight and activation"},
    {"bf16", Precision::bf16, "", "Two bytes per weight; the usual choice since the A100"},
    {"fp16", Precision::fp16, "", "Two bytes per weight; for older GPUs"},
    {"amp-bf16", Precision::amp_bf16, "Mixed, bf16", "fp32 weights, computation in bf16 (autocast)"},
    {"amp-fp16", Precision::amp_fp16, "Mixed, fp16", "fp32 weights, computation in fp16 (autocast)"}};

inline constexpr Choice<LoopProject> kLoopProjects[] = {
    {"none", LoopProject::none, "None", ""},
    {"axolotl", LoopProject::axolotl, "Axolotl",
     "Inputs of models with adapters want gradients; offloading of its own"},
    {"automodel", LoopProject::automodel, "NeMo Automodel", "The step of its recipe"},
};
inline constexpr Choice<LoraFunction> kLoraFunctions[] = {
    {"peft", LoraFunction::peft, "peft", ""},
    {"automodel", LoraFunction::automodel, "NeMo Automodel", "Saves its input alone"},
    {"automodel-triton", LoraFunction::automodel_triton, "NeMo Automodel, Triton", "The same by kernels of its own"},
    {"automodel-mlp", LoraFunction::automodel_mlp, "NeMo Automodel, MLP", "And a gated MLP is one function"},
    {"automodel-triton-mlp", LoraFunction::automodel_triton_mlp, "NeMo Automodel, Triton, MLP", "Both"},
};
inline constexpr Choice<LoopName> kLoops[] = {
    {"step", LoopName::step, "Plain PyTorch",
     "Forward, loss, backward, optimizer; outputs are dropped before backward"},
    {"transformers.Trainer", LoopName::trainer, "Hugging Face Trainer",
     "transformers.Trainer with its defaults: gradients clipped at 1, logits in float32 beside autocast"},
    {"llava.LLaVATrainer", LoopName::llava, "LLaVA",
     "The trainer of LLaVA's own code, on transformers 4.37: bf16 weights under autocast, a projector in float32"},
    {"trl.SFTTrainer", LoopName::sft, "TRL SFTTrainer",
     "TRL's supervised fine-tuning: bf16 autocast, activation checkpointing, and a loss that makes no logits"},
    {"trl.DPOTrainer", LoopName::dpo, "TRL DPOTrainer",
     "Direct preference optimization: chosen and rejected answers in one batch, compared with a reference"},
    {"trl.KTOTrainer", LoopName::kto, "TRL KTOTrainer",
     "Kahneman-Tversky optimization: single answers, wanted or not, with a forward of mismatched ones for its KL term"},
    {"trl.RewardTrainer", LoopName::reward, "TRL RewardTrainer",
     "A reward model: the language model with a head that scores a whole answer, chosen and rejected ones in one "
     "batch"},
    {"trl.experimental.orpo.ORPOTrainer", LoopName::orpo, "TRL ORPOTrainer",
     "Odds ratio preference optimization: chosen and rejected answers in one batch, without a reference"},
    {"llamafactory.PairwiseTrainer", LoopName::pairwise, "LLaMA-Factory reward",
     "Stage rm: a value head beside the model's own, chosen and rejected answers in one batch"},
    {"llamafactory.CustomDPOTrainer", LoopName::custom_dpo, "LLaMA-Factory DPO",
     "Stage dpo, ORPO and SimPO too: chosen and rejected answers in one batch"},
    {"llamafactory.CustomKTOTrainer", LoopName::custom_kto, "LLaMA-Factory KTO",
     "Stage kto: single answers, wanted or not, and mismatched ones"}};

inline constexpr Choice<Reference> kReferences[] = {
    {"trainer", Reference::of_trainer, "As the trainer decides", "The policy without its adapters, else a copy"},
    {"copy", Reference::copy, "A copy", "A second model of frozen weights"},
    {"shared", Reference::shared, "Shared", "The policy with its adapters turned off"},
    {"precomputed", Reference::precomputed, "Precomputed", "Its log-probabilities are among the data"}};

inline constexpr Choice<TokensSeen> kTokensSeen[] = {
    {"no", TokensSeen::none}, {"all", TokensSeen::all}, {"non_padding", TokensSeen::non_padding}};

inline constexpr Choice<Every> kEvery[] = {
    {"no", Every::no, "Never"}, {"steps", Every::steps, "Every so many steps"}, {"epoch", Every::epoch, "Each epoch"}};

inline constexpr Choice<OptimizerName> kOptimizers[] = {
    {"adamw", OptimizerName::adamw, "AdamW", "Two moments per weight; the usual choice"},
    {"adam", OptimizerName::adam, "Adam", "Two moments per weight"},
    {"sgd", OptimizerName::sgd, "SGD", "No state, or one moment per weight with momentum"},
    {"torch.optim.Adadelta", OptimizerName::adadelta, "Adadelta", "Two states per weight, and two temporaries"},
    {"torch.optim.Adafactor", OptimizerName::adafactor, "Adafactor of torch",
     "A number per row and per column of a weight; a temporary as large as the weights"},
    {"torch.optim.Adagrad", OptimizerName::adagrad, "Adagrad", "One state per weight, and two temporaries"},
    {"torch.optim.Adamax", OptimizerName::adamax, "Adamax", "Two states per weight"},
    {"torch.optim.ASGD", OptimizerName::asgd, "ASGD", "One state per weight: its average"},
    {"torch.optim.Muon", OptimizerName::muon, "Muon",
     "One moment per weight, of the matrices of the layers; `rest` has the others"},
    {"torch.optim.NAdam", OptimizerName::nadam, "NAdam", "Two moments per weight"},
    {"torch.optim.RAdam", OptimizerName::radam, "RAdam", "Two moments per weight"},
    {"torch.optim.RMSprop", OptimizerName::rmsprop, "RMSprop", "One to three states per weight"},
    {"torch.optim.Rprop", OptimizerName::rprop, "Rprop",
     "Two states per weight, and a temporary as large as the weights"},
    {"transformers.optimization.Adafactor", OptimizerName::hf_adafactor, "Adafactor of transformers",
     "A number per row and per column of a weight; float32 copies of one weight and its gradient at a time"},
    {"bitsandbytes.optim.Lion", OptimizerName::lion, "Lion", "One moment per weight, in 8 or 32 bits"},
    {"bitsandbytes.optim.AdEMAMix", OptimizerName::ademamix, "AdEMAMix", "Three moments per weight, in 8 or 32 bits"},
    {"schedulefree.AdamWScheduleFree", OptimizerName::schedule_free_adamw, "Schedule-free AdamW",
     "Two states per weight, and a temporary as large as the weights"},
    {"schedulefree.RAdamScheduleFree", OptimizerName::schedule_free_radam, "Schedule-free RAdam",
     "Two states per weight; from the fifth step on a temporary as large as the weights"},
    {"schedulefree.SGDScheduleFree", OptimizerName::schedule_free_sgd, "Schedule-free SGD", "One state per weight"},
    {"optimi.StableAdamW", OptimizerName::stable_adamw, "StableAdamW",
     "Two moments per weight, and a third state in half precision"},
    {"apollo_torch.APOLLOAdamW", OptimizerName::apollo_adamw, "APOLLO",
     "Moments of projected gradients of the layers that are named"},
    {"galore_torch.GaLoreAdamW", OptimizerName::galore_adamw, "GaLore",
     "Moments of projected gradients of the layers that are named"},
    {"galore_torch.GaLoreAdafactor", OptimizerName::galore_adafactor, "GaLore with Adafactor",
     "A number per row and per column of a projected gradient"},
    {"lomo_optim.Lomo", OptimizerName::lomo, "LOMO", "No state: a weight changes as soon as its gradient is there"},
    {"lomo_optim.AdaLomo", OptimizerName::adalomo, "AdaLOMO",
     "A number per row and per column of a weight, which changes as soon as its gradient is there"},
    {"grokadamw.GrokAdamW", OptimizerName::grokadamw, "GrokAdamW",
     "Three states per weight in host memory; those of one weight at a time come to the GPU"},
    {"torchao.optim.AdamW8bit", OptimizerName::torchao_adamw_8bit, "AdamW of torchao, 8 bit", "Two bytes per weight"},
    {"torchao.optim.AdamW4bit", OptimizerName::torchao_adamw_4bit, "AdamW of torchao, 4 bit", "One byte per weight"},
    {"torchao.optim.AdamWFp8", OptimizerName::torchao_adamw_fp8, "AdamW of torchao, fp8", "Two bytes per weight"},
    {"flashoptim.FlashAdamW", OptimizerName::flash_adamw, "FlashAdamW",
     "Two bytes per weight, and what half precision lacks of master weights"},
    {"flashoptim.FlashLion", OptimizerName::flash_lion, "FlashLion",
     "One byte per weight, and what half precision lacks of master weights"},
    {"transformer_engine.pytorch.optimizers.FusedAdam", OptimizerName::te_fused_adam, "FusedAdam of TE",
     "Two moments in float32 per weight, and master weights if asked for"},
    {"optimi.AdamW", OptimizerName::optimi_adamw, "AdamW of optimi",
     "Two moments per weight, and a third state in half precision"},
    {"optimi.Lion", OptimizerName::optimi_lion, "Lion of optimi",
     "One moment per weight, and a second state in half precision"},
    {"lion_pytorch.Lion", OptimizerName::lion_pytorch, "Lion of lion_pytorch", "One moment per weight"},
    {"came_pytorch.CAME", OptimizerName::came, "CAME",
     "A float32 moment per weight, and two numbers per row and per column"},
    {"bitsandbytes.optim.LAMB", OptimizerName::lamb, "LAMB", "Two moments in float32 per weight"},
    {"galore_torch.GaLoreAdamW8bit", OptimizerName::galore_adamw_8bit, "GaLore, 8 bit",
     "8-bit moments of projected gradients of the layers that are named"},
    {"prodigyopt.Prodigy", OptimizerName::prodigy, "Prodigy",
     "Two moments per weight, and two states of a slice of them: it finds its own learning rate"},
    {"axolotl.utils.optimizers.adopt.ADOPT", OptimizerName::adopt, "ADOPT", "Two moments per weight"},
    {"adam_mini.Adam_mini", OptimizerName::adam_mini, "Adam-mini",
     "One moment per weight, and one number per head, row or norm"},
    {"deepspeed.ops.lion.FusedLion", OptimizerName::deepspeed_lion, "Lion of DeepSpeed", "One moment per weight"},
    {"deepspeed.ops.lamb.FusedLamb", OptimizerName::deepspeed_lamb, "LAMB of DeepSpeed", "Two moments per weight"}};

inline constexpr Choice<OptimizerImplementation> kImplementations[] = {
    {"foreach", OptimizerImplementation::foreach_, "", "Many weights at once: temporaries as large as the weights"},
    {"fused", OptimizerImplementation::fused, "", "One kernel without temporaries"},
    {"for-loop", OptimizerImplementation::for_loop, "", "One weight after another: slow, with small temporaries"},
    {"bnb-8bit", OptimizerImplementation::bnb_8bit, "8-bit",
     "bitsandbytes: moments of one byte and a constant per block; embeddings keep fp32"},
    {"bnb-32bit", OptimizerImplementation::bnb_32bit, "32-bit", "bitsandbytes: fp32 moments"},
    {"deepspeed-fused", OptimizerImplementation::deepspeed_fused, "",
     "DeepSpeed's FusedAdam, for which an optimizer in the ds_config asks"}};

inline constexpr Choice<AttentionKind> kAttentions[] = {
    {"eager", AttentionKind::eager, "", "Plain PyTorch: keeps several scores per pair of tokens"},
    {"sdpa", AttentionKind::sdpa, "SDPA", "PyTorch picks the best kernel for the GPU"},
    {"sdpa-flash", AttentionKind::sdpa_flash, "SDPA, flash", "FlashAttention: keeps no score per pair of tokens"},
    {"sdpa-efficient", AttentionKind::sdpa_efficient, "SDPA, efficient", "The memory-efficient kernel"},
    {"sdpa-math", AttentionKind::sdpa_math, "SDPA, math", "No special kernel: a score per pair of tokens"},
    {"sdpa-cudnn", AttentionKind::sdpa_cudnn, "SDPA, cuDNN", "NVIDIA's own kernel"},
    {"flash_attention_2", AttentionKind::flash_attention_2, "FlashAttention 2",
     "The flash-attn package: padding is taken out, documents of a row are told apart"},
    {"kernels-community/flash-attn2", AttentionKind::flash_attention_2, "FlashAttention 2 of the hub",
     "The same kernels as flash_attention_2"},
    {"kernels-community/flash-attn", AttentionKind::flash_attention_2, "FlashAttention 2 of the hub, older name",
     "The same kernels as flash_attention_2"},
    {"flash_attention_3", AttentionKind::flash_attention_3, "FlashAttention 3",
     "flash-attn for Hopper: no padding, other buffers in backward"},
    {"kernels-community/flash-attn3", AttentionKind::flash_attention_3, "FlashAttention 3 of the hub",
     "The same kernels as flash_attention_3"}};

inline constexpr Choice<CheckpointMode> kCheckpointModes[] = {
    {"none", CheckpointMode::none, "Off", "Every activation is kept: fastest, and the most memory"},
    {"non-reentrant", CheckpointMode::non_reentrant, "On",
     "Only the input of each block is kept; about a third more time"},
    {"reentrant", CheckpointMode::reentrant, "On, reentrant", "PyTorch's older implementation, with peaks of its own"}};

inline constexpr Choice<SavesOn> kSavesOn[] = {
    {"none", SavesOn::device, "On the GPU", "PyTorch's default"},
    {"pageable", SavesOn::pageable, "All, pageable", "In ordinary host memory; slower than pinned"},
    {"pinned", SavesOn::pinned, "All on the host", "In pinned host memory; slow"}};

inline constexpr Choice<LoraBias> kLoraBiases[] = {
    {"none", LoraBias::none, "None", "peft's default"},
    {"all", LoraBias::all, "All", "All biases, those of norms too"},
    {"lora_only", LoraBias::lora_only, "Of layers with adapters", "The biases of layers that have an adapter"}};

inline constexpr Choice<bool> kQuantTypes[] = {
    {"fp4", false, "FP4", "As much memory as NF4"},
    {"nf4", true, "NF4", "Half a byte per weight, and a constant of four bytes per 64"}};
inline constexpr Choice<DType> kTorchFloats[] = {
    {"float32", DType::float32}, {"bfloat16", DType::bfloat16}, {"float16", DType::float16}};
inline constexpr Choice<DType> kQuantStorages[] = {
    {"uint8", DType::uint8}, {"bfloat16", DType::bfloat16}, {"float16", DType::float16}, {"float32", DType::float32}};

inline constexpr Choice<bool> kAccumulators[] = {
    {"weight", false, "As the weights", "Liger's default"},
    {"fp32", true, "", "More exact: four bytes for each weight of the head"}};

inline constexpr Choice<Strategy> kStrategies[] = {
    {"none", Strategy::none, "None", "One GPU holds everything"},
    {"ddp", Strategy::ddp, "DDP", "Each GPU has its own samples and holds everything"},
    {"deepspeed", Strategy::deepspeed, "DeepSpeed", "ZeRO: what each GPU holds of the states, the stage says"},
    {"fsdp1", Strategy::fsdp1, "FSDP1", "As FSDP2, with the weights of a block in one flat parameter"},
    {"fsdp2", Strategy::fsdp2, "FSDP2",
     "Weights, gradients and optimizer states are sharded over all GPUs; each block is gathered when it runs"}};

inline constexpr Choice<Framework> kFrameworks[] = {
    {"transformers", Framework::transformers, "", "Hugging Face transformers, compared with recorded runs"},
    {"llava", Framework::llava, "LLaVA's code", "The original LLaVA repository, from its source: less certain"}};

inline constexpr Choice<ExpertsImplementation> kExperts[] = {{"grouped_mm", ExpertsImplementation::grouped_mm},
                                                             {"batched_mm", ExpertsImplementation::batched_mm},
                                                             {"eager", ExpertsImplementation::eager}};

inline constexpr Choice<Kernels> kKernels[] = {
    {"torch", Kernels::torch, "The model's own", "Without the packages: slower, and most often larger"},
    {"packages", Kernels::packages, "Installed packages", "flash-linear-attention, mamba_ssm and causal_conv1d"},
    {"hub", Kernels::hub, "The Hub's", "use_kernels=True: not supported yet"}};
inline constexpr Choice<bool> kOperationKernels[] = {{"torch", false}, {"packages", true}};

inline constexpr Choice<DType> kFloats[] = {
    {"fp32", DType::float32}, {"bf16", DType::bfloat16}, {"fp16", DType::float16}};

inline constexpr Choice<FsdpConfig::Sharding> kShardings[] = {
    {"FULL_SHARD", FsdpConfig::Sharding::full_shard, "Shard again",
     "A block is gathered twice in a step: the least memory"},
    {"SHARD_GRAD_OP", FsdpConfig::Sharding::shard_grad_op, "Keep gathered", "All blocks stay gathered until backward"},
    {"NO_SHARD", FsdpConfig::Sharding::no_shard, "None", "As DDP, with one flat parameter per block"}};

inline constexpr Choice<FsdpConfig::Preparer> kPreparers[] = {
    {"accelerate", FsdpConfig::Preparer::accelerate, "accelerate", "Embeddings, and final norm and head, are units"},
    {"axolotl", FsdpConfig::Preparer::axolotl, "Axolotl", "Each adapter is a unit; the weights keep their type"},
    {"automodel", FsdpConfig::Preparer::automodel, "NeMo Automodel",
     "Embeddings and head that train and are not tied are units; the last block stays gathered"}};

inline constexpr Choice<FsdpConfig::BackwardPrefetch> kPrefetches[] = {
    {"BACKWARD_PRE", FsdpConfig::BackwardPrefetch::pre, "Before backward",
     "While the backward of this block runs; two blocks are gathered"},
    {"BACKWARD_POST", FsdpConfig::BackwardPrefetch::post, "After backward", "When the backward of this block is done"},
    {"NO_PREFETCH", FsdpConfig::BackwardPrefetch::none, "None",  // accelerate's name for None
     "Only when it is needed: the least memory"}};

}  // namespace oometer::settings
