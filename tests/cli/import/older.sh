trl sft --model_name_or_path Qwen/Qwen3-0.6B --dataset_name a/b --max_seq_length 512
