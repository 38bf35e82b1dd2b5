#pragma once

#include <string>

#include "importers/context.h"

namespace oometer::importers {

/// transformers' TrainingArguments, which most trainers take over: their keys and defaults.
const Table& training_arguments();

/// What is computed in half precision: "bf16", "fp16" or "": neither. A refusal where both are asked for.
struct Autocast {
  const char* key;  ///< the argument that says it
  std::string dtype;
};
/// `is_usual`: bf16 unless fp16 is said or bf16 is false, as TRL has it.
Autocast autocast_of(Context& context, Keys& keys, bool is_usual = false);

/// Takes those of TrainingArguments that are the same in every trainer: batch, accumulation, clipping, optimizer,
/// Liger, evaluation, saving. Precision and checkpointing are the caller's.
void take_training_arguments(Context& context, Keys& keys);

/// dataloader_num_workers, of the host's memory.
void take_data_workers(Keys& keys);

/// gradient_checkpointing and its options; `is_reentrant`: what the trainer has where they do not say it.
void take_checkpointing(Keys& keys, bool is_reentrant);

/// LoRA and bitsandbytes in the words of TRL's ModelConfig, as which a script's LoraConfig and BitsAndBytesConfig are
/// read, too.
void take_adapters(Context& context, Keys& keys);

/// Reads a file of TrainingArguments alone, or the command line of a script that takes them.
void read_training_arguments(Context& context, Keys& keys);

}  // namespace oometer::importers
