#!/usr/bin/env bash
# Train with torchrun. On one node:
#   DEVICES=8 scripts/launch/torchrun.sh recipe=grpo run_dir=runs/big
# On several, the same command on each with its number, and run_dir on storage that they share:
#   NODES=2 NODE_RANK=0 MASTER_ADDR=node0 DEVICES=8 scripts/launch/torchrun.sh recipe=grpo run_dir=/shared/runs/big
#
# DEVICES      processes of a node, one for each GPU; default 1
# NODES        default 1; with several, the weights are sharded within each node and replicated over the nodes (HSDP),
#              unless the words name a strategy
# MASTER_ADDR  address of node 0, and MASTER_PORT, default 29500
# DRY_RUN=1    print the command of every node and the memory plan, and start nothing; MEMORY=80GB of a GPU
# COMMAND      default fit; doctor checks the nodes for these words
set -euo pipefail
nodes=${NODES:-1} devices=${DEVICES:-1} python=${PYTHON:-python} words=("$@")
if [[ ${1:-} != --* ]]; then # a written configuration names devices, strategy and folder itself
  [[ " $* " == *" run_dir="* ]] || { echo "torchrun.sh: give run_dir=FOLDER, which all processes must know" >&2; exit 2; }
  words+=("trainer.devices=$devices" "trainer.num_nodes=$nodes")
  if ((nodes > 1)) && [[ " $* " != *" strategy="* ]]; then words+=(strategy=fsdp2 "strategy.shard_size=$devices"); fi
fi

build_command() { # of the node with this number
  where=(--standalone)
  if ((nodes > 1)); then
    where=("--nnodes=$nodes" "--node-rank=$1" "--master-addr=${MASTER_ADDR:?give the address of node 0}")
    where+=("--master-port=${MASTER_PORT:-29500}")
  fi
  command=("$python" -m torch.distributed.run "${where[@]}" "--nproc-per-node=$devices")
  command+=(-m mmrl "${COMMAND:-fit}" "${words[@]}")
}

if [[ ${DRY_RUN:-0} == 1 ]]; then
  for ((node = 0; node < nodes; node++)); do build_command "$node"; echo "node $node: ${command[*]@Q}"; done
  exec "$python" -m mmrl plan "${words[@]}" ${MEMORY:+--memory "$MEMORY"}
fi
build_command "${NODE_RANK:-0}"
exec "${command[@]}"
