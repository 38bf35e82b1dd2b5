#pragma once

#include "importers/context.h"

namespace oometer::importers {

/// What DeepSpeed's, accelerate's and FSDP's keys and files say of a run that TrainingArguments start: into
/// `parallel`. Call after the importer.
void take_parallel(Context& context, Keys& keys);

/// One that the trainer runs itself, in place of accelerate: DistributedDataParallel where there are several GPUs.
void take_gpus(Context& context, const char* strategy);

}  // namespace oometer::importers
