"""A measurement on disk: the protocol and every episode, so that a later one can be paired with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.evaluation.by_task import task_of
from mmrl.evaluation.protocol import NAME, Protocol
from mmrl.types import Episode, Prompt

EPISODES = "episodes.jsonl"

Played = Mapping[str, Mapping[str, Sequence[Episode]]]
"""checkpoint -> decode -> light episodes."""


@dataclass(frozen=True)
class Result:
    """What was measured under one protocol.

    Args:
        protocol: under which.
        played: light episodes of every checkpoint and decode.
    """

    protocol: Protocol
    played: Played

    def write(self, folder: str | Path) -> list[Path]:
        """<folder>/protocol.json and <folder>/episodes.jsonl, one episode a line."""
        path = Path(folder) / EPISODES
        rows = [
            {"checkpoint": title, "decode": decode, **row(episode)}
            for title, decodes in self.played.items()
            for decode, episodes in decodes.items()
            for episode in episodes
        ]
        path.write_text("".join(json.dumps(each) + "\n" for each in rows))
        return [self.protocol.write(folder), path]

    @classmethod
    def read(cls, folder: str | Path) -> Result:
        """What `write` left there."""
        folder = Path(folder)
        missing = [name for name in (NAME, EPISODES) if not (folder / name).exists()]
        if missing:
            raise ValueError(
                f"{folder} holds no measurement ({', '.join(missing)} missing): run mmrl evaluate {folder}"
            )
        played: dict[str, dict[str, list[Episode]]] = {}
        for line in (folder / EPISODES).read_text().splitlines():
            one = json.loads(line)
            decodes = played.setdefault(one["checkpoint"], {})
            decodes.setdefault(one["decode"], []).append(_episode(one))
        return cls(Protocol.read(folder), played)


def row(episode: Episode) -> dict[str, Any]:
    """One episode as plain values."""
    info = episode.info
    return {
        "key": episode.prompt.key,
        "slot": episode.group,
        "attempt": episode.attempt,
        "seed": episode.prompt.info.get("seed"),
        "task": task_of(episode),
        "instruction": info.get("instruction"),
        "ended": episode.ended,
        "error": info.get("error"),
        "scores": episode.scores,
        "decisions": info.get("decisions"),
        "tokens": info.get("tokens"),
    }


def _episode(one: Mapping[str, Any]) -> Episode:
    known = {name: one[name] for name in ("instruction", "error", "decisions", "tokens") if one[name] is not None}
    prompt = Prompt(one["key"], info={"seed": one["seed"], "task": one["task"]})
    return Episode(prompt, one["slot"], one["attempt"], scores=one["scores"], ended=one["ended"], info=known)
