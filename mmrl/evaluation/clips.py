"""The video of a policy, or of two side by side, on the first held-out initial states."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mmrl.evaluation.film import Shown
from mmrl.evaluation.video import Clip, side_by_side
from mmrl.types import Episode

HOLD = 15  # pictures for which the last one of an episode stays


def clips(shown: Mapping[str, Shown], score: str | None) -> list[np.ndarray]:
    """One initial state after the other, in the order of the split, each with all policies next to each other.

    Nothing is chosen by its outcome: failures are shown as they come.

    Args:
        shown: filmed episodes of each policy, by title; all of the same initial states.
        score: of 0 or 1 that says whether an episode succeeded; None when there is none.
    """
    frames: list[np.ndarray] = []
    count = _checked(shown)
    for i in range(count):
        frames += clip(shown, i, score, f"{i + 1}/{count}  ")
    return frames


def clip(shown: Mapping[str, Shown], i: int, score: str | None, before: str = "") -> list[np.ndarray]:
    """The i-th filmed initial state with all policies next to each other; `before` stands before the instruction."""
    _checked(shown)
    instruction = next(iter(shown.values())).films[i].instruction
    row = [
        Clip(part.films[i].frames, title, outcome(part.episodes[i], score), success(part.episodes[i], score))
        for title, part in shown.items()
    ]
    made = side_by_side(row, f"{before}{instruction}".strip())
    return made + made[-1:] * HOLD


def _checked(shown: Mapping[str, Shown]) -> int:
    """How many initial states were filmed; refused when they are not the same for all policies."""
    first, *others = ([episode.prompt.key for episode in part.episodes] for part in shown.values())
    if any(other != first for other in others):
        raise ValueError("clips side by side must be of the same initial states")
    return len(first)


def success(episode: Episode, score: str | None) -> bool | None:
    """Whether it succeeded; None where nothing says so, or where the simulator failed."""
    if score is None or episode.ended == "error" or score not in episode.scores:
        return None
    return episode.scores[score] == 1


def outcome(episode: Episode, score: str | None) -> str:
    """How it ended, in a few words: the event that the simulator named, else the return."""
    if episode.ended == "error":
        return "simulator error"
    if score is None:
        return f"return {episode.scores['return']:.1f}" if "return" in episode.scores else ""
    if success(episode, score):
        return score
    events = [name for name, value in episode.scores.items() if value == 1 and name not in (score, "return")]
    return events[0].replace("_", " ") if events else "out of time" if episode.ended == "time" else f"no {score}"
