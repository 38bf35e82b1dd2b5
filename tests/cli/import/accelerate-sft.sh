accelerate launch --config_file zero3.yaml --num_processes 4 finetune.py \
    --model_name_or_path Qwen/Qwen3-0.6B --bf16 True \
    --per_device_train_batch_size 2 --gradient_checkpointing True --seed $SEED
