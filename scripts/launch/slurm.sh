#!/usr/bin/env bash
# Train under Slurm: submit this script, in whose job srun starts a process for each GPU.
#   NODES=2 DEVICES=8 SBATCH_TIMELIMIT=8:00:00 scripts/launch/slurm.sh recipe=grpo run_dir=/shared/runs/big
#
# DEVICES      GPUs of a node; default 1
# NODES        default 1; with several, the weights are sharded within each node and replicated over the nodes (HSDP),
#              unless the words name a strategy
# SBATCH_*     sbatch's own variables: SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT, ...
# DRY_RUN=1    print the command of every node and the memory plan, and submit nothing; MEMORY=80GB of a GPU
# COMMAND      default fit; doctor checks the nodes for these words
#
# Slurm sends SIGTERM 300 seconds before the time limit: the run ends after its iteration and prints how to resume it.
set -euo pipefail
nodes=${NODES:-1} devices=${DEVICES:-1} python=${PYTHON:-python} words=("$@")
if [[ ${1:-} != --* ]]; then # a written configuration names devices, strategy and folder itself
  [[ " $* " == *" run_dir="* ]] || { echo "slurm.sh: give run_dir=FOLDER, which all processes must know" >&2; exit 2; }
  words+=("trainer.devices=$devices" "trainer.num_nodes=$nodes")
  if ((nodes > 1)) && [[ " $* " != *" strategy="* ]]; then words+=(strategy=fsdp2 "strategy.shard_size=$devices"); fi
fi

shape=(--job-name=mmrl "--nodes=$nodes" "--ntasks-per-node=$devices")
submit=(sbatch "${shape[@]}" --signal=TERM@300)
# every process sees all GPUs of its node, of which Lightning gives it one
[[ " $* " == *" trainer.accelerator=cpu "* ]] || submit+=("--gpus-per-node=$devices")
submit+=("$0" "$@")
command=(srun "${shape[@]}" --kill-on-bad-exit=1 "$python" -m mmrl "${COMMAND:-fit}" "${words[@]}")

if [[ ${DRY_RUN:-0} == 1 ]]; then
  echo "submit: ${submit[*]@Q}"
  for ((node = 0; node < nodes; node++)); do echo "node $node: ${command[*]@Q}"; done
  exec "$python" -m mmrl plan "${words[@]}" ${MEMORY:+--memory "$MEMORY"}
fi
if [[ -z ${SLURM_JOB_ID:-} ]]; then exec "${submit[@]}"; fi
exec "${command[@]}"
