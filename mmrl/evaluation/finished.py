"""What evaluators have in common: which episodes count, and what they scored."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.types import Episode


def finished(episodes: Sequence[Episode]) -> list[Episode]:
    """Episodes that did not end by a failure of the simulator or a tool; the failed ones say nothing of the policy."""
    if not episodes:
        raise ValueError("no episodes to evaluate")
    return [episode for episode in episodes if episode.ended != "error"]


def failures(episodes: Sequence[Episode]) -> float:
    """How many episodes ended by a failure; reported beside every measurement that leaves them out."""
    return float(sum(episode.ended == "error" for episode in episodes))


def score_of(episode: Episode, name: str) -> float:
    """One named score of a finished episode."""
    if name not in episode.scores:
        raise KeyError(f"no score {name!r} in the episode of {episode.prompt.key!r}; it has {sorted(episode.scores)}")
    return episode.scores[name]


def binary_score(episode: Episode, name: str) -> float:
    """One named score that must be 0 or 1, as success counts and their intervals need."""
    value = score_of(episode, name)
    if value not in (0, 1):
        raise ValueError(
            f"score {name!r} of {episode.prompt.key!r} is {value}, neither 0 nor 1; measure it with MeanScores"
        )
    return float(value)
