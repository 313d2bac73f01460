"""Evaluation result on disk: the protocol and every episode, for later paired comparisons."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.metrics.by_task import get_task
from mmrl.evaluation.protocol import NAME, Protocol
from mmrl.files.atomic import write_file
from mmrl.files.foreign import read_foreign
from mmrl.files.strict_json import kind, need_object, parse_json
from mmrl.samples.check import PROMPT, check_episode, check_form

EPISODES = "episodes.jsonl"
METRICS = "evaluation.json"
_LARGEST = 2**31  # bytes of it

_ENTRIES = (
    *("checkpoint", "decode", "key", "slot", "sample_index", "seed", "task", "instruction", "ended", "error"),
    *("scores", "decisions", "tokens"),
)

EpisodesByCheckpoint = Mapping[str, Mapping[str, Sequence[Episode]]]
"""checkpoint -> decode -> light episodes."""


@dataclass(frozen=True)
class EvaluationResult:
    """Episodes of all checkpoints and decodes under one protocol.

    Args:
        protocol: of the evaluation.
        episodes: light episodes of every checkpoint and decode.
    """

    protocol: Protocol
    episodes: EpisodesByCheckpoint

    def write(self, folder: str | Path, metrics: Mapping[str, Any] | None = None) -> list[Path]:
        """Write <folder>/protocol.json and <folder>/episodes.jsonl, one episode per line.

        The protocol is removed first and written last, so that it never stands beside episodes or metrics of another
        measurement, whenever this process is killed.

        Args:
            folder: of the run.
            metrics: content of <folder>/evaluation.json; None does not write it.
        """
        path = Path(folder) / EPISODES
        (Path(folder) / NAME).unlink(missing_ok=True)
        first = [] if metrics is None else [write_file(Path(folder) / METRICS, json.dumps(metrics, indent=2) + "\n")]
        rows = [
            {"checkpoint": title, "decode": decode, **episode_row(episode)}
            for title, decodes in self.episodes.items()
            for decode, episodes in decodes.items()
            for episode in episodes
        ]
        write_file(path, "".join(json.dumps(each) + "\n" for each in rows))
        return [*first, self.protocol.write(folder), path]

    @classmethod
    def read(cls, folder: str | Path) -> EvaluationResult:
        """Read the files that `write` wrote."""
        folder = Path(folder)
        missing = [name for name in (NAME, EPISODES) if not (folder / name).exists()]
        if missing:
            raise ValueError(
                f"{folder} holds no measurement ({', '.join(missing)} missing): run mmrl evaluate {folder}"
            )
        played: dict[str, dict[str, list[Episode]]] = {}
        protocol, remedy = Protocol.read(folder), f"measure again: mmrl evaluate {folder}"
        for number, line in enumerate(read_foreign(folder / EPISODES, remedy, _LARGEST).split(b"\n"), start=1):
            if line:
                one = _read_row(line, f"{folder / EPISODES}:{number}", remedy)
                played.setdefault(one["checkpoint"], {}).setdefault(one["decode"], []).append(_episode(one))
        if not played:
            raise ValueError(f"{folder / EPISODES} has no episodes; {remedy}")
        return cls(protocol, played)


def episode_row(episode: Episode) -> dict[str, Any]:
    """Convert an episode to plain values."""
    info = episode.info
    return {
        "key": episode.prompt.key,
        "slot": episode.group,
        "sample_index": episode.sample_index,
        "seed": episode.prompt.info.get("seed"),
        "task": get_task(episode),
        "instruction": info.get("instruction"),
        "ended": episode.ended,
        "error": info.get("error"),
        "scores": episode.scores,
        "decisions": info.get("decisions"),
        "tokens": info.get("tokens"),
        **({"sample": {k: v for k, v in info["sample"].items() if k != "images"}} if "sample" in info else {}),
    }


def _read_row(line: bytes, place: str, remedy: str) -> dict[str, Any]:
    """Parse one line of episodes.jsonl, which must have every entry that `episode_row` writes."""
    one = need_object(parse_json(line, place, remedy, finite=False), place, remedy)
    absent = [name for name in _ENTRIES if name not in one]
    if absent:
        raise ValueError(f"{place}: {absent} missing; {remedy}")
    for name in ("checkpoint", "decode", "key"):
        if not isinstance(one[name], str):
            raise ValueError(f"{place}: {name} must be a text, is {kind(one[name])}; {remedy}")
    for name, score in need_object(one["scores"], f"{place}: scores", remedy).items():
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise ValueError(f"{place}: score {name!r} must be a number, is {kind(score)}; {remedy}")
    if "sample" in one:
        check_form(one["sample"], PROMPT, f"{place}: sample", remedy)
        check_episode(one["sample"], f"{place}: sample", remedy)
    return one


def _episode(one: Mapping[str, Any]) -> Episode:
    names = ("instruction", "error", "decisions", "tokens", "sample")
    info = {name: one[name] for name in names if one.get(name) is not None}
    prompt = Prompt(one["key"], info={"seed": one["seed"], "task": one["task"]})
    return Episode(prompt, one["slot"], one["sample_index"], scores=one["scores"], ended=one["ended"], info=info)
