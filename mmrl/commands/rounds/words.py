"""The overrides of a stage's process: of the file, the stage and the command line, and what the machine sets."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mmrl.commands.rounds.file import RoundsFile
from mmrl.commands.rounds.schedule import StageRun, folder_names, write_folders
from mmrl.config.compose import SHORT, groups
from mmrl.core.rng import derive_seed

NO_POLICY = ("policy=no_policy", "evaluation.rollout={_target_: mmrl.rollouts.text.scripted.Expert}")
"""Of a stage that scores rows and asks no policy."""
QUIET = ("trainer.logger=false", "trainer.callbacks=null")
CHECKPOINT = "trainer.callbacks.warm_start.checkpoint"
STAGES = "trainer.callbacks.warm_start.stages"
_RESERVED = ("run_dir", "seed", "data.seed", "ckpt_path", CHECKPOINT, "overwrite")


def merge_words(*lists: Sequence[str]) -> list[str]:
    """Join lists of overrides: of one key the last one counts, and a group's option removes earlier keys below it."""
    merged: dict[str, str] = {}
    for word in (word for words in lists for word in words):
        key = word.partition("=")[0].lstrip("+")
        if key in groups():
            full = SHORT.get(key, key)
            heads = (f"{key}.", f"{full}.")
            merged = {name: other for name, other in merged.items() if name != full and not name.startswith(heads)}
        merged.pop(key, None)
        merged[key] = word
    return list(merged.values())


def build_words(file: RoundsFile, step: StageRun, run_dir: Path) -> list[str]:
    """Return the overrides of a step without weights, rows and folder of its run."""
    folders = {name: str(run_dir / target) for name, target in folder_names(step).items()}
    overrides = [write_folders(word, folders) for word in step.stage.overrides]
    words = merge_words(file.values["common"], overrides, file.words)
    if not {word.partition("=")[0] for word in words} & set(groups()):
        words.insert(0, "recipe=grpo")  # the default recipe, as of `mmrl fit`
    return words


def reserved_words(file: RoundsFile, step: StageRun) -> list[str]:
    """List the overrides of a step whose keys the machine sets itself."""
    words = [*file.values["common"], *step.stage.overrides, *file.words]
    return [word for word in words if word.partition("=")[0].lstrip("+") in _RESERVED]


def seed_words(file: RoundsFile, step: StageRun) -> list[str]:
    """The seed of the initial weights, which all steps share, and the seed of the step's own draws."""
    return [f"seed={file.values['seed']}", f"data.seed={derive_step_seed(file, step)}"]


def derive_step_seed(file: RoundsFile, step: StageRun) -> int:
    """Derive the seed of a step's draws, of 31 bits."""
    return derive_seed("rounds", file.values["seed"], step.number) >> 33


def fit_words(words: Sequence[str], step: StageRun, rows: Path | None, pairs: bool, weights: str | None) -> list[str]:
    """Add the rows that a fit learns from, and the weights that it starts from."""
    more: list[str] = []
    if rows is not None:
        more += [f"rollout={'answer_pairs' if pairs else 'answers'}", f"rollout.path='{rows}'"]
    if weights is not None:
        more += [f"{CHECKPOINT}='{weights}'", f"{STAGES}=null"]
    return merge_words(words, more)


def play_words(words: Sequence[str]) -> list[str]:
    """Add what a process needs that plays or scores episodes and trains nothing."""
    return merge_words(words, ["capture=false", f"{STAGES}=null"])


def score_words(words: Sequence[str]) -> list[str]:
    """The overrides of a stage that scores rows: those without the policy."""
    policy = ("policy=", "policy.", "model.policy", "capture=")
    return merge_words([word for word in words if not word.startswith(policy)], play_words(NO_POLICY))


def stage_environment(name: str) -> Mapping[str, str]:
    """The environment of a step's process, without the variables of a launcher that started this one."""
    launched = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK")
    return {**{key: value for key, value in os.environ.items() if key not in launched}, "MMRL_STAGE": name}
