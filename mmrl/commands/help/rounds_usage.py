"""The usage of `mmrl rounds`."""

ROUNDS = """mmrl rounds: sample, score, filter, fit and evaluate in rounds, as a file says

  mmrl rounds NAME|FILE.yaml [KEY=VALUE ...]

NAME is a file of conf/rounds: mmrl list rounds. Every stage of every round is a folder of its own below run_dir, which
is runs/rounds/NAME. The same command resumes what was interrupted, and the result is the same bit for bit. At the end a
table is printed and in run_dir/table.csv, and run_dir/scores.png has the held-out scores with their intervals.

Keys of the file:
  rounds=1             how often `stages` are run; more rounds than before go on
  seed=0               of initial weights and draws
  run_dir=FOLDER       a folder runs one file with the same keys
  base=FILE.ckpt       weights of the start; default: the policy as it is configured
  metric=DECODE/NAME   held-out mean of the table; default: the first one
  common=[...]         overrides of mmrl fit for all stages
  start.NAME.KEY=...   of a stage that runs once, before the rounds
  stages.NAME.KEY=...  of a stage of each round

Every other KEY=VALUE is an override of mmrl fit and takes precedence in all stages: policy=text policy.path=MODEL.

Examples:
  mmrl rounds rest rounds=1
  mmrl rounds star start={} stages.fit.weights=base policy=text policy.path=MODEL task=dataset task.path=rows.jsonl
  mmrl rounds mine.yaml stages.grow.num_samples=16
"""
