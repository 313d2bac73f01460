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
    first, *others = shown.values()
    keys = [episode.prompt.key for episode in first.episodes]
    for other in others:
        if [episode.prompt.key for episode in other.episodes] != keys:
            raise ValueError("clips side by side must be of the same initial states")
    frames: list[np.ndarray] = []
    for i in range(len(keys)):
        instruction = f"{i + 1}/{len(keys)}  {first.films[i].instruction}".strip()
        row = [
            Clip(part.films[i].frames, title, outcome(part.episodes[i], score), success(part.episodes[i], score))
            for title, part in shown.items()
        ]
        made = side_by_side(row, instruction)
        frames += made + made[-1:] * HOLD
    return frames


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
