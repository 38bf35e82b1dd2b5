#!/usr/bin/bash
set -ex
NGPU=${NGPU:-"8"}
MODULE=${MODULE:-"llama3"}
CONFIG=${CONFIG:-"llama3_8b"}
torchrun --nproc_per_node=${NGPU} --rdzv_backend c10d --local-ranks-filter 0 --role rank --tee 3 \
  -m torchtitan.train --module ${MODULE} --config ${CONFIG} --training.local_batch_size 2 activation_checkpoint:full "$@"
