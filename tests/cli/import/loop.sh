for lr in 1e-4 2e-4; do
  trl sft --model_name_or_path Qwen/Qwen3-0.6B --max_length 512 --learning_rate $lr --per_device_train_batch_size $BATCH
done
