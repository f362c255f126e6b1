#!/bin/bash
# One shard a task: sbatch sweeps/cluster/slurm_array.sh SPEC.toml OUT [options of fastsim sweep]
# Afterwards: fastsim merge OUT/shard-* --out OUT/whole
#
# To go on after a time limit or a failure, submit the same line again: each shard resumes where it stopped.
#SBATCH --job-name=fastsim
#SBATCH --array=1-8                # from 1: the task's number is the shard's
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem-per-cpu=1G
#SBATCH --time=02:00:00
#SBATCH --signal=B:TERM@60         # a minute before the limit: fastsim stops cleanly and keeps what it has
#SBATCH --requeue
#SBATCH --output=fastsim-%A_%a.log
set -euo pipefail

spec=${1:?the spec is missing: sbatch slurm_array.sh SPEC.toml OUT}
out=${2:?the folder is missing: sbatch slurm_array.sh SPEC.toml OUT}
shift 2

# Compiled kernels are kept on the node: home may be slow, or shared by nodes with other processors.
export FASTSIM_CACHE_DIR=${FASTSIM_CACHE_DIR:-${TMPDIR:-/tmp}/fastsim-cache-$(id -u)}

exec fastsim sweep "$spec" --out "$out/shard-$SLURM_ARRAY_TASK_ID" \
  --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --workers "$SLURM_CPUS_PER_TASK" "$@"
