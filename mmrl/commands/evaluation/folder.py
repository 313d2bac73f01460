"""The folder of an evaluation without a run: the configuration that the command line composes, and no checkpoints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from mmrl.commands.cli import CLI
from mmrl.commands.evaluation.arguments import OPTIONS
from mmrl.config.compose import compose, groups, to_hydra_overrides, to_lightning
from mmrl.config.overrides import check_groups
from mmrl.core.errors import ConfigError
from mmrl.files.atomic import write_file
from mmrl.runs.run_folder import checkpoints_of

BASELINES = {
    "policy=oracle": ["policy=no_policy", "evaluation.rollout._target_=mmrl.rollouts.text.scripted.Expert"],
    "policy=random": ["policy=no_policy", "evaluation.rollout._target_=mmrl.rollouts.text.scripted.Guess"],
}
"""Words in which the task answers in place of a policy: its expert, the ceiling, or random answers, the floor."""
_ONE_DECODE = ["evaluation.sampling.mean=null", "evaluation.sampling.argmax=null"]
SIM_BASELINES = {
    "policy=expert": [
        *("policy=no_policy", "evaluation.rollout._target_=mmrl.rollouts.env.scripted.SimExpert", *_ONE_DECODE),
    ],
    "policy=random": [
        *("policy=no_policy", "evaluation.rollout._target_=mmrl.rollouts.env.scripted.RandomActions", *_ONE_DECODE),
    ],
}
"""Words in which a simulator's scripted expert acts in place of a policy, or random actions, once for each state."""
_OF_SIM = ["task=sim", "evaluation=sim", "data.reward.weights.exact=null"]
"""Words of an evaluation in a simulator where neither a recipe nor a task is named."""
TEXT = "mmrl.policies.text.policy.TextPolicy"
"""The policy that a path is read by, unless a recipe names another class, such as a reward model's."""
_DEFAULTS = {"capture": "false", "trainer.callbacks.warm_start.stages": "null"}


def names_no_run(arguments: Sequence[str]) -> bool:
    """Whether the arguments choose a task or a policy and name no folder or checkpoint."""
    keys = [argument.partition("=")[0] for argument in arguments]
    places = [a for a, key in zip(arguments, keys) if "=" not in a or (key not in OPTIONS and Path(a).exists())]
    return not places and bool(set(keys) & set(groups()))


def build_folder(arguments: Sequence[str]) -> list[str]:
    """Write the configuration into a folder; returns the arguments that evaluate it: the folder and the options.

    The folder is `run_dir`, or runs/evaluate/<time>.
    """
    options = [argument for argument in arguments if argument.partition("=")[0] in OPTIONS]
    baselines = SIM_BASELINES if any(a.startswith("sim=") for a in arguments) else BASELINES
    words = [word for a in arguments if a not in options for word in baselines.get(a, [a])]
    keys = {word.partition("=")[0] for word in words}
    if "policy.path" in keys and "policy" not in keys and compose(words).model.policy.get("_target_") == TEXT:
        words.append("policy=text")  # without the architecture of a small policy
    if "sim" in keys and not keys & {"recipe", "task"}:
        words += [word for word in _OF_SIM if word.partition("=")[0] not in keys]
    words += [f"{key}={value}" for key, value in _DEFAULTS.items() if key not in keys]
    if "run_dir" not in keys:
        words.append(f"run_dir=runs/evaluate/{time.strftime('%Y%m%d-%H%M%S')}")
    to_hydra_overrides(words)  # an unknown option is reported before one that is given twice
    check_groups(words, groups())
    cli = CLI(to_lightning(compose(words)), build=False)
    folder = Path(cli.config.run_dir)
    if checkpoints_of(folder) or (folder / "policy").exists():
        raise ConfigError(f"run_dir={folder} holds a run: evaluate it with mmrl evaluate {folder}, or name another one")
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / "config.yaml", cli.to_yaml())
    return [str(folder), *options]
