#!/bin/bash
# preferences with adapters
MODEL=Qwen/Qwen3-0.6B
ARGS=(
  --per_device_train_batch_size 2
  --max_length 1024   # cut
)
trl dpo --model_name_or_path "$MODEL" --dataset_name me/pairs "${ARGS[@]}" \
  --use_peft --lora_r 32 --lora_target_modules q_proj v_proj \
  --output_dir out 2>&1 | tee log
