"""Check every stage of a rounds file before the first one runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmrl.commands.cli import CLI
from mmrl.commands.rounds.file import RoundsFile
from mmrl.commands.rounds.rows import NAME as ROWS
from mmrl.commands.rounds.schedule import StageRun, list_readers
from mmrl.commands.rounds.stages import EvaluateStage, FitStage, RecordStage, SampleStage, ScoreStage, WriteStage
from mmrl.commands.rounds.words import build_words, fit_words, play_words, reserved_words, score_words, seed_words
from mmrl.config.compose import compose, groups, to_hydra_overrides, to_lightning
from mmrl.config.overrides import check_groups
from mmrl.config.signatures import import_class
from mmrl.core.errors import ConfigError
from mmrl.rollouts.text.scripted import Scripted
from mmrl.rollouts.text.single_turn import SingleTurn
from mmrl.tools.programs.writers import build_writer


def check_steps(file: RoundsFile, steps: Sequence[StageRun], run_dir: Path) -> None:
    """Compose and parse the configuration of every distinct stage; nothing is built.

    Raises:
        ConfigError: naming the stage and what is wrong with it.
    """
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)  # every parsed configuration sets the seed
    for step in list_readers(steps):
        if reserved := reserved_words(file, step):
            raise ConfigError(
                f"{step.place}: {reserved[0]} is set by the rounds themselves; use the keys seed, run_dir, base and "
                "weights of the file"
            )
        try:
            _check_step(file, steps, step, run_dir)
        except (ConfigError, ValueError) as error:
            raise ConfigError(f"{step.place}: {' '.join(str(error).split())}") from error


def _check_step(file: RoundsFile, steps: Sequence[StageRun], step: StageRun, run_dir: Path) -> None:
    folder = run_dir / step.name
    words = build_words(file, step, run_dir)
    if isinstance(step.stage, FitStage):
        pairs = any(each.pairs for each in steps if each.name in step.reads)
        rows = run_dir / step.reads[0] / ROWS if step.reads else None
        _parse([*fit_words(words, step, rows, pairs, None), *seed_words(file, step), f"run_dir='{folder}'"])
    elif isinstance(step.stage, ScoreStage):
        _parse([*score_words(words), *seed_words(file, step), f"run_dir='{folder}'"])
    elif isinstance(step.stage, SampleStage | EvaluateStage):
        config = _parse([*play_words(words), *seed_words(file, step), f"run_dir='{folder}'"])
        evaluation = config["data"]["init_args"].get("evaluation")
        if evaluation is None:
            raise ConfigError(f"data.evaluation is null, which a stage of kind {step.kind} plays by; leave it in")
        if isinstance(step.stage, SampleStage):
            _check_rollout(evaluation["init_args"]["rollout"]["class_path"])
    elif isinstance(step.stage, RecordStage):
        config = _parse([*play_words(words), *seed_words(file, step), f"run_dir='{folder}'"])
        path = config["data"]["init_args"]["task"]["class_path"]
        if "sim" not in config["data"]["init_args"]["task"].get("init_args", {}):
            raise ConfigError(f"{path} has no simulator to record; take task=sim")
    elif isinstance(step.stage, WriteStage):
        config = _parse([*play_words(words), *seed_words(file, step), f"run_dir='{folder}'"])
        path = config["data"]["init_args"]["task"]["class_path"]
        if not hasattr(import_class(path), "record_random"):
            raise ConfigError(f"{path} names no state for a written reward; take task=written_reward")
        build_writer(step.stage.writer)
    elif words := step.stage.overrides:
        raise ConfigError(f"overrides: a filter runs no configuration; leave {words[0]} out")


def _parse(words: Sequence[str]) -> dict[str, Any]:
    to_hydra_overrides(words)
    check_groups(words, groups())
    config: Any = CLI(to_lightning(compose(words)), build=False).config
    return config.as_dict()


def _check_rollout(path: str) -> None:
    if not issubclass(import_class(path), SingleTurn | Scripted):
        raise ConfigError(
            f"evaluation.rollout {path} plays more than one turn, and rows have one answer each; sample with "
            "rollouts of single answers"
        )
