"""Help text of each command, and the versions that `mmrl --version` prints; nothing large is imported."""

from __future__ import annotations

from mmrl.commands.help.rounds_usage import ROUNDS
from mmrl.commands.help.serving_usage import ROBOT, SERVE
from mmrl.commands.help.weights import WEIGHTS

USAGES = {
    "fit": """mmrl fit: train a policy

  mmrl fit recipe=NAME [GROUP=OPTION ...] [KEY=VALUE ...] [--print_config]
  mmrl fit method=NAME setting=NAME [GROUP=OPTION ...] [KEY=VALUE ...] [--print_config]
  mmrl fit --config FILE [--KEY VALUE ...]     FILE: config.yaml of a run, or what --print_config printed

What is run, with the defaults of recipe=grpo:
  recipe=grpo                            a method in a setting, by one name: mmrl list recipes
  method=grpo                            what a paper says, in place of the recipe's: mmrl list methods
  setting=sums                           task, policy, budget, optimiser, start: mmrl list settings
  start=null                             in place of a recipe: a warm start, alone: mmrl list starts
A recipe with a pretrained policy (policy.path=MODEL) runs its method in setting=pretrained_text, pretrained_vlm or
pretrained_vla, with adapters in ..._lora, and keeps its task. setting=paper has the numbers of the method's paper.

Groups, with the defaults of recipe=grpo (`mmrl list policies`, `mmrl list tasks`, ... show the options):
  task=arithmetic  sim=null  policy=tiny_text  engine=local  rollout=single_turn  curriculum=shuffled
  objective=clip  scheduler=linear  evaluation=text  data=default  learner=default  phases=null  trainer=default
  logger=tensorboard  strategy=auto

Common keys, with the defaults of recipe=grpo:
  seed=0                                 of every random generator
  run_dir=null                           folder of the run; null is runs/RECIPE/TIME
  ckpt_path=null                         checkpoint to resume from
  trainer.max_epochs=120                 iterations: collect episodes, then update the policy
  trainer.check_val_every_n_epoch=10     iterations between evaluations
  trainer.accelerator=auto               cpu, cuda, mps or auto; all of Lightning's trainer.* options
  trainer.devices=1
  trainer.precision=32-true              or bf16-mixed
  data.num_prompts=128                   prompts of an iteration
  data.group_size=8                      completions or episodes of a prompt
  data.update_epochs=1                   passes over the data of an iteration
  data.num_minibatches=4                 optimiser steps of a pass
  sampling.temperature=1.0
  sampling.max_tokens=8                  longest completion
  optimizer.lr=3e-4                      of random weights; 1e-6 in setting=pretrained_text
  trainer.callbacks.samples.groups=4     groups of each iteration that `mmrl show` can print
  policy.path=null                       model folder or name, as in policy=text policy.path=Qwen/Qwen2.5-0.5B-Instruct
  objective.terms.policy.clip_high=0.2   a key of a part of the recipe; KEY=null takes a part out

For this start alone:
  overwrite=true       begin a run in a folder that holds one
  trust=true           also load pickled objects of a checkpoint and code of other folders: whoever wrote it can run any

All keys: mmrl fit recipe=NAME --print_config. All of LightningCLI's options: mmrl fit --help all.
Several runs, each in RUN_DIR/NUMBER: mmrl fit --multirun recipe=grpo,rloo seed=0,1. Their results are printed and in
RUN_DIR/results.csv: the held-out mean of the first evaluator, or metric=NAME, which is also the objective of a search:
mmrl fit --multirun hydra/sweeper=optuna 'optimizer.lr=tag(log,interval(1e-5,1e-3))'
Options of your own: conf/GROUP/NAME.yaml in the working directory, or --config-dir DIR.

Examples:
  mmrl fit recipe=grpo task=dataset task.path=rows.jsonl policy=text policy.path=Qwen/Qwen2.5-0.5B-Instruct
  mmrl fit method=gspo setting=pretrained_text_lora policy.path=Qwen/Qwen2.5-0.5B-Instruct
  mmrl fit recipe=demo_vla sim=push trainer.max_epochs=40 run_dir=runs/push
  mmrl fit recipe=sac sim=gym sim.id=Pendulum-v1
  mmrl fit --config runs/push/config.yaml --trainer.max_epochs 80 --ckpt_path runs/push/checkpoints/last.ckpt
""",
    "rounds": ROUNDS,
    "plan": """mmrl plan: memory of a run by phase and rank, before it starts

  mmrl plan [mmrl fit arguments] [OPTIONS]

Nothing is trained and no weights are loaded: the policy is built from its configuration, and its passes are traced with
tensors that have no content. Printed are, for each rank, weights, gradients, optimiser state, reference, activations,
logits, KV cache, engine and the sum of every phase; whether it fits; and if not, what to change.

Options:
  --memory 80GB          of a device; default: the present GPU's or the host's; with it, accelerator=auto is cuda
  --prompt-tokens 512    length of a prompt; default: of the task's own prompts
  --response-tokens 64   length of a completion; default: sampling.max_tokens
  --from RUN_FOLDER      scale the seconds of that run's iterations; without it there is no time estimate
  --json                 print one JSON object, sizes in bytes

Examples:
  mmrl plan recipe=grpo policy=smollm2
  mmrl plan recipe=grpo policy=text policy.path=Qwen/Qwen2.5-7B-Instruct trainer.devices=8 --memory 80GB
""",
    "evaluate": """mmrl evaluate: measure a run's checkpoints on held-out problems, with confidence intervals

  mmrl evaluate RUN_FOLDER|FILE.ckpt [OPTION=VALUE ...] [KEY=VALUE ...]
  mmrl evaluate task=NAME policy.path=MODEL [GROUP=OPTION ...] [OPTION=VALUE ...] [KEY=VALUE ...]   without a run
  mmrl evaluate sim=NAME policy=random|expert [OPTION=VALUE ...] [KEY=VALUE ...]   random actions, or the sim's expert

Options:
  checkpoint=last      last, best, start, another name in the run's checkpoints folder, or a file
  compare=start        a paired test against start, a file or another run, on the same problems and random draws; with
                       several samples pass@k of both, where they meet, and who solves what
  count=512            held-out problems; default: the run's configuration
  num_samples=8        completions of each problem, for pass@k; default: the run's configuration
  decode=argmax        a decode of the configuration, or sample, argmax, mean; default: all that are configured
  video=true           record the first held-out initial states of a simulator; default: false
  video_episodes=6     number of those states
  send=true            also send metrics, samples and videos to the run's loggers; default: false
  accept=ENTRY         entry of the simulator's contract that may differ from the training's, as suite.renderer
  trust=true           also load pickled objects of a checkpoint and code of other folders: whoever wrote it can run any

KEY=VALUE changes the run's configuration: sim.renderer=ray engine.max_rows=64.
Written into the run's folder: report.html, evaluation.json, protocol.json, episodes.jsonl, videos/. Without a run it is
run_dir=FOLDER, or runs/evaluate/TIME; groups, keys and policies are those of `mmrl fit`.

Examples:
  mmrl evaluate runs/demo compare=start video=true
  mmrl evaluate runs/a compare=runs/b
  mmrl evaluate runs/a compare=start num_samples=64 model.reference=true
  mmrl evaluate task=arithmetic policy.path=Qwen/Qwen2.5-0.5B-Instruct compare=runs/a
""",
    "compare": """mmrl compare: the mean of a held-out number over seeds with its interval, group against group

  mmrl compare RUNS [RUNS ...] [OPTION=VALUE ...]

RUNS is the folder of a run, a folder of runs, or a pattern in quotes: runs that differ in their seed alone. Printed
are, for each group, the mean of the last values, Student's t interval over the seeds (of a single run the evaluator's
own, over held-out problems), and the difference to the first group, paired where both have the same seeds. The plot
has the mean of each group over the iterations, and its interval as a band.

Options:
  metric=NAME          column of metrics.csv; default: the held-out mean of the first evaluator
  out=FILE.png         default: compare.png
  level=0.95           of the intervals
  tasks=PREFIX         also the matrix of interference: how the runs of each group changed PREFIX/TASK/mean, such as
                       val/argmax/tasks of evaluation=suite, or the levels of an evaluator by a column

Examples:
  mmrl fit --multirun recipe=grpo seed=0,1,2 run_dir=runs/grpo
  mmrl fit --multirun recipe=rloo seed=0,1,2 run_dir=runs/rloo
  mmrl compare runs/grpo runs/rloo
""",
    "weights": WEIGHTS,
    "show": """mmrl show: what the policy wrote in an iteration of a run, in the terminal or as one HTML file

  mmrl show RUN_FOLDER [ITERATION] [failures] [OPTION=VALUE ...] [--html]

Without an iteration the newest one is shown. Colours are advantages: green above 0, red below, dim for tokens that the
policy did not choose, such as results of tools.

Options:
  failures             leave out episodes that succeeded
  sort=reward          reward or length, smallest first; sort=-reward puts the largest first
  groups=2             at most so many prompts
  max_chars=600        characters of a text; 0 for no limit
  --html               write RUN_FOLDER/rollouts.html: filters, sorting, colours by advantage, probability and ratio

A run keeps 4 groups of each iteration in RUN_FOLDER/rollouts: trainer.callbacks.samples.groups=8 for more,
trainer.callbacks.samples.every_n_iterations=10 for fewer files, trainer.callbacks.samples=null for none.

Examples:
  mmrl show runs/mine
  mmrl show runs/mine 40 failures sort=reward
  mmrl show runs/mine --html
""",
    "chat": """mmrl chat: talk to a text or vision-language policy of a run, with the run's chat template

  mmrl chat RUN_FOLDER [OPTION=VALUE ...]

Messages are read line by line, from the terminal or a pipe; the conversation is kept. /image PATH adds an image to the
next message, /new forgets the conversation, /quit ends.

Options:
  checkpoint=last      last, start, or a file
  decode=greedy        a decode of the run's evaluation (default: its first), argmax, or sample with seed=0
  system=TEXT          system message of every conversation, as in the rows that the policy was trained on
  regex='[0-9]+'       every answer matches this regular expression; json_schema='{"type": "object"}' a JSON schema

Example:
  echo "12+34=" | mmrl chat runs/mine
""",
    "serve": SERVE,
    "robot": ROBOT,
    "push": """mmrl push: upload a run's policy with a model card to the Hugging Face Hub

  mmrl push RUN_FOLDER repo=USER/NAME [OPTION=VALUE ...]
  mmrl push RUN_FOLDER --dry-run

The card, RUN_FOLDER/policy/README.md, states the method's paper, the numbers of `mmrl evaluate` with intervals and the
hash of their protocol, and how to load the policy. `hf auth login` stores the token of the Hub.

Options:
  repo=USER/NAME       repository; created if it does not exist
  private=true         or false
  endpoint=URL         of a Hub other than huggingface.co
  --dry-run            write the card alone
""",
    "data": """mmrl data: record episodes of a simulator, inspect a dataset, or convert one of an older format

  mmrl data record sim=NAME out=FOLDER [OPTION=VALUE ...]         episodes of the simulator's scripted expert
  mmrl data record run=RUN_FOLDER out=FOLDER [OPTION=VALUE ...]   episodes of a trained policy, in its simulator
  mmrl data inspect FOLDER|FILE.hdf5 [out=FOLDER] [write=true]    schema, counts, statistics, contact sheet
  mmrl data convert FOLDER|HUB_ID out=FOLDER [OPTION=VALUE ...]   a LeRobotDataset v2.0 or v2.1, or RLDS, as v3.0

Options of record:
  num_episodes=50      episodes
  split=train          initial states: train or held_out
  offset=0             index of the first initial state
  noise=0              std of the noise added to the expert's actions, in actions
  checkpoint=last      of the policy: last, start or a file
  decode=sample        of the policy: sample, argmax or mean
  video=true           false writes PNG into the tables, which is exact, instead of H.264
  format=lerobot       LeRobotDataset v3.0
  KEY=VALUE            of the configuration, as for mmrl fit: sim.renderer=ray

Options of inspect:
  out=FOLDER           folder of contact_sheet.png; default: the dataset's
  write=true           compute meta/stats.json again from the data; default: false

Options of convert, for RLDS as TensorFlow Datasets writes it (Open X-Embodiment):
  fps=NUMBER           control steps per second, which RLDS does not state
  split=train          part of the dataset
  action=PART,PART     parts of an action with named parts, in this order
  video=true           as for record

Read are LeRobotDataset v3.0, also by hub id, Minari HDF5 and robomimic HDF5.

Examples:
  mmrl data record sim=reach num_episodes=50 out=data/reach
  mmrl fit recipe=bc sim=reach rollout=offline rollout.path=data/reach curriculum=shuffled
""",
    "new": """mmrl new: write a part of your own into the working directory, which works, with its test

  mmrl new reward NAME                           a function: NAME.py
  mmrl new task NAME                             tasks/NAME/task.py, conf/task/NAME.yaml
  mmrl new sim NAME                              a gymnasium environment: sims/NAME/env.py, conf/sim/NAME.yaml
  mmrl new method NAME [theme=THEME] [slot=SLOT] [part=CLASS] [setting=SETTING]
                                                 what a paper says: conf/method/[THEME/]NAME.yaml, a recipe of it in
                                                 setting=sums, and with a slot NAME.py with a part that it uses
  mmrl new recipe NAME method=METHOD setting=SETTING
                                                 conf/recipe/NAME.yaml: a method in a setting, by one name

SLOT: term (of the loss), annotator or weighting. Parts have a test, tests/test_NAME.py. In a clone of mmrl a method has
a theme, a folder of all of its files. Nothing is overwritten. TODO stands where something is to be written. The last
line of the output is a command that trains with it.
""",
    "list": """mmrl list: the groups, their options, and the parts that a recipe can name

  mmrl list                 all groups
  mmrl list GROUP           its options with a line about each: recipes, policies, tasks, sims, engines, terms, ...
  mmrl list recipes         by theme, with minutes and result; a theme is a folder of conf/method
  mmrl list recipes NAME    one recipe: method, setting, paper, differences from it, groups, run time and result
  mmrl list methods [NAME]  by theme, with the recipes that run each; one has its paper and the paper's numbers
  mmrl list settings [NAME] where methods run: small policies, then pretrained ones
  mmrl list starts [NAME]   warm starts, which recipes begin with
""",
    "doctor": """mmrl doctor: versions, devices and renderers of this machine, and how to get what is missing

  mmrl doctor                         this machine; the exit status is 2 where something essential is missing
  mmrl doctor [mmrl fit arguments]    every process of that run, before a model is loaded; also under torchrun and Slurm

With a run's arguments, starts its processes, initialises the process group and the device mesh, and sums a tensor.
Compared are versions, mmrl's modules and the configuration of all ranks, and free memory of GPUs, hosts and /dev/shm
with the memory plan, which is printed.

Options, with a run's arguments:
  --timeout 60           seconds that a rank is waited for
  --memory, --prompt-tokens, --response-tokens   those of `mmrl plan`

Example:
  mmrl doctor recipe=grpo trainer.devices=8 strategy=fsdp2
""",
    "completion": """mmrl completion: completion of commands, groups, options, keys and run folders in a shell

  mmrl completion bash      for ~/.bashrc: source <(mmrl completion bash)
  mmrl completion zsh       for ~/.zshrc, after compinit: source <(mmrl completion zsh)
""",
}

PLAN_OPTIONS = ("--memory", "--prompt-tokens", "--response-tokens", "--from")


def format_versions() -> str:
    """Versions of mmrl and of what decides its numbers, without importing them."""
    from mmrl.runs.versions import versions

    by_name = versions()
    names = ("mmrl", "python", "torch", "lightning", "transformers")
    return "\n".join(f"{name} {by_name.get(name, 'not installed')}" for name in names)
