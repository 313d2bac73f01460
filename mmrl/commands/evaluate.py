"""Measure a run's checkpoints on held-out problems."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from mmrl.callbacks.progress import Progress
from mmrl.callbacks.start import load_policy
from mmrl.cli import CLI, check_checkpoint, load_run
from mmrl.commands.evaluation_words import Asked, parse
from mmrl.commands.versions import versions
from mmrl.config import ConfigError
from mmrl.evaluation import measured, report
from mmrl.evaluation.accuracy import Rate
from mmrl.evaluation.clips import clips
from mmrl.evaluation.contract import NAME, differences, recorded
from mmrl.evaluation.film import film
from mmrl.evaluation.video import write_video
from mmrl.types import Episode


def evaluate(words: Sequence[str]) -> dict[str, Any]:
    """Print a table, write evaluation.json and, when asked, videos into the run's folder; returns what was written."""
    asked = parse(words)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # hints about loggers and devices
    cli = load_run(asked.folder / "config.yaml", asked.words)
    data = _measured_data(cli, asked)
    cli.trainer.callbacks = [Progress()] if Console().is_terminal else []
    played: dict[str, dict[str, list[Episode]]] = {}
    numbers: dict[str, measured.Numbers] = {}
    shown: dict[str, dict[str, Any]] = {}
    for title, path in asked.checkpoints.items():
        _load(cli, path)
        cli.trainer.validate(cli.model, data, verbose=False)
        played[title], numbers[title] = data.evaluation.latest, measured.numbers(data.evaluation)
        if asked.video:
            for decode in asked.decodes or list(data.evaluation.sampling)[:1]:  # pictures cost more than playing
                shown.setdefault(decode, {})[title] = film(cli.trainer, cli.model, data, decode, asked.clips)
    pairs = _pairs(played, data.evaluation) if asked.compare else {}
    result = _result(asked, data, numbers, pairs)
    if cli.trainer.is_global_zero:
        _print(asked, numbers, pairs)
        _write(asked, result, shown, data.evaluation)
    return result


def _measured_data(cli: CLI, asked: Asked) -> Any:
    """The run's data module with the evaluation that was asked for; refused where it cannot be compared with it."""
    data = copy.copy(cli.datamodule)
    if getattr(data, "evaluation", None) is None:
        raise ConfigError(f"{asked.folder}: this run has no data.evaluation, so there is nothing to measure")
    if asked.compare and (asked.attempts or data.evaluation.attempts) > 1:
        raise ConfigError("compare=... pairs one attempt per problem; leave attempts out, or measure one by one")
    try:
        held_out = measured.asked(data.evaluation, data.sampling, asked.count, asked.attempts, asked.decodes)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    data.evaluation = held_out
    contract, before = data.task.contract(), recorded(asked.folder)
    if before is None and contract:
        raise ConfigError(f"{asked.folder / NAME} is missing: the run does not say in which simulator it was trained")
    if lines := differences(before or {}, contract):
        raise ConfigError(
            f"{asked.folder} was trained in another simulator than the one at hand:\n  "
            + "\n  ".join(lines)
            + "\nset the sim's options to those of the training, for example sim.renderer=ray"
        )
    if asked.video:
        _check_film(data)
    return data


def _check_film(data: Any) -> None:
    sim = getattr(data.task, "sim", None)
    if sim is None:
        raise ConfigError(f"video=true: task {data.task.name!r} has no simulator to film")
    env = sim.make(1)
    try:
        env.reset(seed=[0])
        env.render(0, 32)
    except TypeError as error:
        raise ConfigError(f"video=true: the environment of {sim.name!r} has no render(i, size)") from error
    finally:
        env.close()


def _load(cli: CLI, path: Path) -> None:
    check_checkpoint(str(path))
    try:
        load_policy(cli.model.policy, str(path))  # type: ignore[arg-type]
    except (ValueError, RuntimeError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _pairs(played: dict[str, dict[str, list[Episode]]], held_out: Any) -> dict[str, list[measured.Paired]]:
    """Per rate that is measured, one comparison per decode."""
    before, after = played.values()
    rates = {name: part for name, part in held_out.evaluators.items() if isinstance(part, Rate)}
    return {
        name: [measured.paired(decode, before[decode], after[decode], rate) for decode in before]
        for name, rate in rates.items()
    }


def _result(
    asked: Asked, data: Any, numbers: dict[str, measured.Numbers], pairs: dict[str, list[measured.Paired]]
) -> dict[str, Any]:
    held_out = data.evaluation
    return {
        "run": str(asked.folder),
        "checkpoints": {title: _described(path) for title, path in asked.checkpoints.items()},
        "task": data.task.name,
        "split": "held_out",
        "first": held_out.first,
        "count": min(held_out.count, len(data.task.on("held_out")) - held_out.first),
        "attempts": held_out.attempts,
        "seed": held_out.seed,
        "decodes": {name: asdict(sampling) for name, sampling in held_out.sampling.items()},
        "numbers": numbers,
        "comparison": {
            name: [
                row | each.plain()
                for row, each in zip(json.loads(report.as_json([p.comparison for p in parts])), parts)
            ]
            for name, parts in pairs.items()
        },
        "contract": data.task.contract(),
        "versions": versions(),
    }


def _described(path: Path) -> dict[str, Any]:
    state = torch.load(path, map_location="cpu", weights_only=False, mmap=True)
    return {"path": str(path), "optimiser_steps": state.get("global_step"), "epoch": state.get("epoch")}


def _print(asked: Asked, numbers: dict[str, measured.Numbers], pairs: dict[str, list[measured.Paired]]) -> None:
    console = Console(width=None if Console().is_terminal else 120)
    for name, parts in pairs.items():
        console.print(report.table([part.comparison for part in parts], f"{asked.folder}: {name}"))
        for part in parts:
            console.print(str(part), highlight=False)
    if not pairs:
        for title, values in numbers.items():
            console.print(measured.table(values, f"{asked.folder}, {title}, held-out"))


def _write(asked: Asked, result: dict[str, Any], shown: dict[str, dict[str, Any]], held_out: Any) -> None:
    console = Console(soft_wrap=True)
    path = asked.folder / "evaluation.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    console.print(f"written: {path}", highlight=False)
    score = next((part.score for part in held_out.evaluators.values() if isinstance(part, Rate)), None)
    for decode, films in shown.items():
        fps = next(iter(films.values())).fps
        video = write_video(clips(films, score), asked.folder / "videos" / f"{decode}.mp4", fps / 2)
        states = len(next(iter(films.values())).films)
        console.print(
            f"written: {video} (the first {states} held-out initial states in order, none chosen by its outcome; "
            "half speed)",
            highlight=False,
        )
