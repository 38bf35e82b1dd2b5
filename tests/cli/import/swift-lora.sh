# two GPUs, a model that sees
NPROC_PER_NODE=2 \
MAX_PIXELS=501760 \
swift sft \
    --model Qwen/Qwen2.5-VL-3B-Instruct \
    --dataset me/pictures \
    --torch_dtype bfloat16 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps $(expr 16 / $GPUS) \
    --max_length 2048 \
    --deepspeed zero2
