"""Group episodes by prompt, and compare the rewards of a group."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from mmrl.core.types import Episode


def group_episodes(episodes: Sequence[Episode]) -> dict[int, list[Episode]]:
    """Group episodes by their group, in order of first appearance."""
    out: dict[int, list[Episode]] = {}
    for episode in episodes:
        out.setdefault(episode.group, []).append(episode)
    return out


def has_zero_variance(group: Sequence[Episode], score_name: str, tolerance: float) -> bool:
    """Whether all episodes of the group have the same reward, up to a tolerance."""
    all_earned = [get_score(episode, score_name) for episode in group]
    return max(all_earned) - min(all_earned) <= tolerance


def get_score(episode: Episode, score_name: str) -> float:
    """Return the reward of an episode, or one of its scores."""
    if score_name == "reward":
        return episode.reward
    if score_name not in episode.scores:
        raise KeyError(
            f"score_name={score_name!r} is neither 'reward' nor a score of {episode.prompt.key!r}, "
            f"which has {sorted(episode.scores)}; set score_name of the transform"
        )
    return episode.scores[score_name]


def number_distinct(keys: Iterable[Hashable | None]) -> list[int]:
    """Number keys from 0 in the order of their first appearance; None equals no other key."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(object() if key is None else key, len(numbers)) for key in keys]
