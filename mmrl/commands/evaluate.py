"""Measure a run's checkpoints on held-out problems."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from mmrl.callbacks.progress import Progress
from mmrl.callbacks.start import load_policy
from mmrl.cli import CLI, load_run
from mmrl.commands.evaluation_data import check_protocol, earlier, measured_data
from mmrl.commands.evaluation_words import Asked, parse
from mmrl.commands.versions import environment, versions
from mmrl.config import ConfigError
from mmrl.evaluation import measured, report
from mmrl.evaluation.clips import clips
from mmrl.evaluation.contract import warn
from mmrl.evaluation.film import Shown, film
from mmrl.evaluation.page import Page
from mmrl.evaluation.paired import Paired, pairs
from mmrl.evaluation.protocol import Protocol, instructions, posed
from mmrl.evaluation.result import Played, Result
from mmrl.evaluation.scenes import telling
from mmrl.evaluation.tables import table
from mmrl.evaluation.video import write_video
from mmrl.outputs import check_writable, writable
from mmrl.runs.checkpoint_file import CheckpointError, read_checkpoint, read_manifest


def evaluate(words: Sequence[str]) -> dict[str, Any]:
    """Print tables; write evaluation.json, protocol.json, episodes.jsonl, report.html and, when asked, videos.

    Everything is written into the run's folder. Returns what is in evaluation.json.
    """
    asked = parse(words)
    check_writable(asked.folder, "mmrl evaluate")
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # hints about loggers and devices
    cli = load_run(asked.folder / "config.yaml", asked.words)
    data = measured_data(cli, asked)
    there = earlier(asked, data)
    cli.trainer.callbacks = [Progress()] if Console().is_terminal else []  # type: ignore[attr-defined]
    played: dict[str, Any] = {} if there is None else {"before": list(there.played.values())[-1]}
    for title, path in asked.checkpoints.items():
        _load(cli, path, asked.trust)
        cli.trainer.validate(cli.model, data, verbose=False)
        played[title] = data.evaluation.latest
    compared = pairs(played["before"], played["after"], measured.rates(data.evaluation)) if len(played) > 1 else {}
    found = Result(_protocol(cli, data, played), played)
    if there is not None:
        # now with what was told in the episodes
        check_protocol(asked.against, found.protocol, there.protocol)  # type: ignore[arg-type]
        if lines := found.protocol.apart(there.protocol):
            warn(f"The same protocol as {asked.against}, but not the same policy or place:", lines)
    shown = _films(cli, asked, data, played) if asked.video else {}
    result = _result(asked, data, found, compared)
    if cli.trainer.is_global_zero:
        _print(asked, result, compared)
        with writable(asked.folder, "mmrl evaluate"):
            _write(asked, data, found, result, compared, shown)
    return result


def _load(cli: CLI, path: Path, trust: bool) -> None:
    try:
        load_policy(cli.model.policy, str(path), trust=trust)  # type: ignore[arg-type]
    except CheckpointError as error:
        raise ConfigError(str(error)) from error
    except (ValueError, RuntimeError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _protocol(cli: CLI, data: Any, played: Played) -> Protocol:
    told = instructions({f"{title}/{decode}": e for title, decodes in played.items() for decode, e in decodes.items()})
    policy: Any = cli.model.policy
    entries = {**posed(data.task, data.evaluation), "instructions": told}
    return Protocol(json.loads(json.dumps(entries)), json.loads(json.dumps(policy.contract())), environment())


def _films(cli: CLI, asked: Asked, data: Any, played: Played) -> dict[str, dict[str, Shown]]:
    """By decode and title: the first initial states, and those that the report shows."""
    out: dict[str, dict[str, Shown]] = {}
    judged = _score(data)
    decodes = asked.decodes or list(data.evaluation.sampling)[:1]  # pictures cost more than playing
    for title, path in asked.checkpoints.items():
        _load(cli, path, asked.trust)
        for decode in decodes:
            last = list(played.values())[-1][decode]
            slots = dict.fromkeys([*range(asked.clips), *telling(last, judged)])
            out.setdefault(decode, {})[title] = film(cli.trainer, cli.model, data, decode, list(slots))
    return out


def _score(data: Any) -> str | None:
    return next((rate.score for rate in measured.rates(data.evaluation).values()), None)


def _result(asked: Asked, data: Any, found: Result, compared: dict[str, list[Paired]]) -> dict[str, Any]:
    held_out = data.evaluation
    entries = found.protocol.entries
    return {
        "run": str(asked.folder),
        "protocol": found.protocol.hash,
        "checkpoints": {title: _described(path, asked.trust) for title, path in asked.checkpoints.items()},
        "against": None if asked.against is None else str(asked.against),
        "task": data.task.name,
        **{name: entries["problems"][name] for name in ("split", "first", "count")},
        "num_samples": held_out.num_samples,
        "seed": held_out.seed,
        "decodes": entries["decodes"],
        "numbers": {title: measured.numbers(held_out, decodes) for title, decodes in found.played.items()},
        "tasks": {title: measured.task_numbers(held_out, decodes) for title, decodes in found.played.items()},
        "comparison": {
            name: [
                row | each.plain()
                for row, each in zip(json.loads(report.as_json([p.comparison for p in parts])), parts)
            ]
            for name, parts in compared.items()
        },
        "contract": data.task.contract(),
        "versions": versions(),
    }


def _described(path: Path, trust: bool) -> dict[str, Any]:
    state = read_manifest(path) or read_checkpoint(path, trust)
    return {"path": str(path), "optimiser_steps": state.get("global_step"), "epoch": state.get("epoch")}


def _print(asked: Asked, result: dict[str, Any], compared: dict[str, list[Paired]]) -> None:
    console = Console(width=None if Console().is_terminal else 140)
    for name, parts in compared.items():
        console.print(report.table([part.comparison for part in parts], f"{asked.folder}: {name}"))
        for part in parts:
            console.print(str(part), highlight=False)
    if not compared:
        for title, values in result["numbers"].items():
            heading = f"{asked.folder}, {title}, held-out"
            console.print(table(values, heading, result["tasks"][title], result["num_samples"]))
    console.print(f"protocol {result['protocol']}", style="bold", highlight=False)


def _write(
    asked: Asked,
    data: Any,
    found: Result,
    result: dict[str, Any],
    compared: dict[str, list[Paired]],
    shown: dict[str, dict[str, Shown]],
) -> None:
    console = Console(soft_wrap=True)
    path, judged = asked.folder / "evaluation.json", _score(data)
    path.write_text(json.dumps(result, indent=2) + "\n")
    page = Page(asked.folder, found, result, compared, judged, shown).write()
    for file in (path, *found.write(asked.folder), page):
        console.print(f"written: {file}", highlight=False)
    for decode, films in shown.items():
        first = {title: part.only(range(asked.clips)) for title, part in films.items()}
        fps = next(iter(films.values())).fps
        video = write_video(clips(first, judged), asked.folder / "videos" / f"{decode}.mp4", fps / 2)
        states = len(next(iter(first.values())).films)
        console.print(
            f"written: {video} (the first {states} held-out initial states in order, none chosen by its outcome; "
            "half speed)",
            highlight=False,
        )
