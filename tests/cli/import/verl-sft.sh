set -x
if [ "$#" -lt 1 ]; then
  echo "usage: $0 <GPUs>"
fi
NPROC=${NPROC:-8}
torchrun --standalone --nnodes=1 --nproc_per_node=$NPROC \
  -m verl.trainer.sft_trainer \
  data.train_files=$HOME/data/gsm8k/train.parquet \
  data.micro_batch_size_per_gpu=4 \
  data.max_length=2048 \
  data.use_dynamic_bsz=True \
  model.path=Qwen/Qwen2.5-0.5B-Instruct \
  engine=fsdp engine.strategy=fsdp2 \
  optim.lr=1e-5 trainer.total_epochs=1
