#!/usr/bin/env bash
# fit-sbatch JOB.json SBATCH-ARGUMENTS...: submits to the first partition, the cheapest first, on whose GPU the job fits.
#
#   PARTITIONS="l40s=l40s a100=a100-80gb h100=h100-80gb" fit-sbatch job.json train.sbatch
set -euo pipefail
job=$1
shift
for pair in ${PARTITIONS:-l40s=l40s a100=a100-80gb h100=h100-80gb}; do
  if sentence=$(oometer check "$job" --strict --gpu "${pair#*=}"); then
    echo "${pair%%=*}: $sentence" >&2
    exec "${SBATCH:-sbatch}" --partition="${pair%%=*}" "$@"
  elif [ $? -eq 2 ]; then
    exit 2 # what is wrong with the job was said
  fi
  echo "${pair%%=*}: $sentence" >&2
done
echo "the job fits on no partition; oometer advise $job says what would help" >&2
exit 1
