"""Usage of `mmrl weights`."""

from __future__ import annotations

WEIGHTS = """mmrl weights: how training changed the weight matrices of a policy, by the kind of layer

  mmrl weights BEFORE AFTER [OPTION=VALUE ...]

BEFORE and AFTER are checkpoint files, or folders of runs, whose checkpoints/last.ckpt is read. A row has the mean over
the matrices of a kind: the share of entries without a change that bfloat16 shows, the spectral shift, the share of
changed entries among the principal ones beside that of chance; and the largest principal angles, in degrees.

Options:
  rank=8               singular directions of the subspaces
  share=0.1            share of the entries that are principal: the largest of the matrix of that rank
  other=CHECKPOINT     another run from the same start: how many changed entries the two have in common
  out=FILE.json        also write the numbers, those of each matrix too
  trust=true           also load pickled objects of a checkpoint: whoever wrote it can run any code

Examples:
  mmrl weights runs/mine/checkpoints/start.ckpt runs/mine
  mmrl weights runs/base runs/grpo other=runs/sft
"""
