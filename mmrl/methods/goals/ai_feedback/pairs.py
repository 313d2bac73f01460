"""AI feedback: captions of episodes of mixed quality, the pairs that are drawn of them, and their labels on disk."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from gymnasium.vector import VectorEnv

from mmrl.core.errors import ConfigError
from mmrl.core.types import Sim
from mmrl.files.atomic import write_file
from mmrl.methods.goals.ai_feedback.annotators import EQUAL, FIRST, SECOND, UNSURE, CaptionPair, Label

_TARGETS = (FIRST, SECOND, EQUAL, UNSURE)


@runtime_checkable
class ProgressRule(Protocol):
    """Measures the progress of environments, for scripted annotators and for the accuracy of labels."""

    def measure(self, env: VectorEnv) -> np.ndarray:
        """Progress [n] of each environment as it stands; larger is further."""


@dataclass(frozen=True)
class LabelledPair:
    """Two captions, the annotator's label, and the label by the progress of the simulator, None where unknown."""

    first: str
    second: str
    label: Label
    true: Label = None


class CaptionReader:
    """Reads the captions of environments.

    Args:
        pattern: regular expression whose match in a caption is what is compared, rewarded and counted; None for all.
    """

    def __init__(self, pattern: str | None = None):
        try:
            self.pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ValueError(f"rollout.caption={pattern!r} is no regular expression: {error}") from error

    def read(self, env: VectorEnv) -> list[str]:
        """Captions [n] of each environment as it stands.

        Raises:
            ConfigError: the environments have no captions, or one without a match.
        """
        if not hasattr(env, "captions"):
            raise ConfigError(
                "rollout=ai_feedback reads env.captions(), states in words, which these environments do not have; take "
                "sim=craft with sim.workers=0, or give the vector environment of your simulator that method"
            )
        captions = env.captions()
        if self.pattern is None:
            return captions
        matches = [self.pattern.search(caption) for caption in captions]
        if None in matches:
            caption = captions[matches.index(None)]
            raise ConfigError(f"rollout.caption={self.pattern.pattern!r} does not match the caption {caption!r}")
        return [match[0] for match in matches]  # type: ignore[index]


def collect_captions(
    sim: Sim,
    seeds: Sequence[int],
    random_fractions: Sequence[float],
    decisions: int,
    reader: CaptionReader,
    progress: ProgressRule | None,
    rng: np.random.Generator,
) -> dict[str, float | None]:
    """Play episodes side by side and return each different caption with the progress where it was met first.

    Args:
        sim: the simulator, with numbered actions; its `expert` plays where a fraction is below 1.
        seeds: of the episodes.
        random_fractions: probability of a random action, of the players of the episodes in turn.
        decisions: of an episode at most.
        reader: of captions.
        progress: rule; None leaves the progress None.
        rng: of the players.
    """
    fractions = np.resize(np.asarray(random_fractions, np.float64), len(seeds))
    env, captions = sim.make(len(seeds)), dict[str, float | None]()
    try:
        env.reset(seed=list(seeds))
        over = np.zeros(len(seeds), bool)
        for number in range(decisions + 1):
            values = [None] * len(seeds) if progress is None else progress.measure(env).tolist()
            for i, caption in enumerate(reader.read(env)):
                captions.setdefault(caption, values[i])
            if over.all() or number == decisions:
                return captions
            actions = rng.integers(env.single_action_space.n, size=len(seeds))  # type: ignore[attr-defined]
            if (fractions < 1).any():
                scripted = rng.random(len(seeds)) >= fractions
                actions = np.where(scripted, sim.expert(env), actions)  # type: ignore[attr-defined]
            *_, terminated, truncated, _ = env.step(actions)
            over |= terminated | truncated
    finally:
        env.close()
    return captions


def draw_pairs(captions: dict[str, float | None], count: int, rng: np.random.Generator) -> list[CaptionPair]:
    """Draw pairs of two different captions uniformly.

    Raises:
        ConfigError: there are fewer than two captions.
    """
    if len(captions) < 2:
        raise ConfigError(
            f"rollout=ai_feedback: the episodes have {len(captions)} different caption, and pairs need two; raise "
            "rollout.episodes, or let rollout.caption match more of a caption"
        )
    texts, values = list(captions), list(captions.values())
    first = rng.integers(len(texts), size=count)
    second = (first + rng.integers(1, len(texts), size=count)) % len(texts)
    complete = None not in values
    return [
        CaptionPair(texts[i], texts[j], (values[i], values[j]) if complete else None)  # type: ignore[arg-type]
        for i, j in zip(first.tolist(), second.tolist())
    ]


def write_pairs(path: Path, pairs: Sequence[LabelledPair]) -> None:
    """Write one line of JSON a pair: first, second, label (1, 0, 0.5 or null) and true, the same by the simulator."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, "".join(json.dumps(vars(pair)) + "\n" for pair in pairs))


def read_labelled(path: Path) -> list[LabelledPair]:
    """Read a file of `write_pairs`.

    Raises:
        ConfigError: a line is no labelled pair, or there is none.
    """
    pairs = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        row = _parse(line)
        texts = [row.get("first"), row.get("second")]
        labels = [row.get("label", ""), row.get("true")]
        if not all(isinstance(text, str) for text in texts) or any(label not in _TARGETS for label in labels):
            raise ConfigError(
                f"{path} line {number}: {line[:120]} is no labelled pair; write first and second as captions and label "
                "as 1 (the first shows more progress), 0, 0.5 (equal) or null (unsure)"
            )
        pairs.append(LabelledPair(*texts, *labels))  # type: ignore[arg-type]
    if not pairs:
        raise ConfigError(f"rollout.labels={path} has no line; remove the file to ask the annotator")
    return pairs


def _parse(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}
