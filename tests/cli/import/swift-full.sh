swift sft --model Qwen/Qwen3-8B --train_type full --max_length 4096 --attn_impl flash_attn --use_liger_kernel true --packing true
