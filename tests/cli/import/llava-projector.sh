#!/bin/bash
deepspeed --num_gpus 8 llava/train/train_mem.py --deepspeed ./scripts/zero2.json \
    --model_name_or_path lmsys/vicuna-7b-v1.5 --version plain \
    --vision_tower openai/clip-vit-large-patch14-336 --mm_projector_type mlp2x_gelu \
    --tune_mm_mlp_adapter True --mm_vision_select_layer -2 \
    --mm_use_im_start_end False --mm_use_im_patch_token False \
    --bf16 True --per_device_train_batch_size 32 --model_max_length 2048 --gradient_checkpointing True
