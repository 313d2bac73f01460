"""Select the episodes that evaluators count, and read their scores."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.core.types import Episode


def drop_errors(episodes: Sequence[Episode]) -> list[Episode]:
    """Drop episodes that ended by an error of the simulator or a tool: they do not measure the policy."""
    if not episodes:
        raise ValueError("no episodes to evaluate")
    return [episode for episode in episodes if episode.ended != "error"]


def count_errors(episodes: Sequence[Episode]) -> float:
    """Count the episodes that ended by an error; reported beside every metric that leaves them out."""
    return float(sum(episode.ended == "error" for episode in episodes))


def get_score(episode: Episode, name: str) -> float:
    """Get a named score of a finished episode."""
    if name not in episode.scores:
        raise KeyError(
            f"no score {name!r} in the episode of {episode.prompt.key!r}; it has {sorted(episode.scores)}. Leave out "
            f"the evaluator that reads it (evaluation.evaluators.{name}=null), or give it another score_name"
        )
    return episode.scores[name]


def get_binary_score(episode: Episode, name: str) -> float:
    """Get a named score that must be 0 or 1, as success rates and their intervals need."""
    value = get_score(episode, name)
    if value not in (0, 1):
        raise ValueError(
            f"score {name!r} of {episode.prompt.key!r} is {value}, neither 0 nor 1; measure it with MeanScores"
        )
    return float(value)
