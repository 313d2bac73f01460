"""Asking again for problems that can be learnt from, a bounded number of times."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from mmrl.episodes.base import EpisodeTransform
from mmrl.episodes.filter import grouped, uniform
from mmrl.types import Context, Episode

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Refill(EpisodeTransform):
    """Drops uniform groups and plays further prompts until enough groups are left, or the rounds are used up.

    Processes count and ask together: the groups that are kept are the first `groups` mixed ones of all of them, the
    same on one process and on many. Fewer are gone on with, and a warning says so.

    Args:
        groups: how many to keep, over all processes: usually data.num_prompts. None keeps as many as arrive here, so
            that after a transform that drops groups the number has to be given.
        rounds: how many times to ask for what is missing.
        field: "reward", or the name of a score.
        tolerance: largest difference that counts as the same, in units of the field.
    """

    groups: int | None = None
    rounds: int = 3
    field: str = "reward"
    tolerance: float = 1e-6

    min_group_size = 2

    def __post_init__(self) -> None:
        if self.groups is not None and self.groups < 1:
            raise ValueError(f"refill.groups must be at least 1 or null, got {self.groups}")
        if self.rounds < 0:
            raise ValueError(f"refill.rounds must be >= 0, got {self.rounds}")

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        if ctx.collect_prompts is None:
            raise RuntimeError("refill: this loop cannot collect further prompts; leave refill out of data.transforms")
        kept = grouped(episodes)
        seen = set(kept)
        wanted = sum(ctx.gather([len(kept)])) if self.groups is None else self.groups
        kept = self._mixed(kept)
        for _ in range(self.rounds):
            # all processes count alike, so they ask for the same and the answer does not depend on how many they are
            further = ctx.collect_prompts(max(wanted - len(ctx.gather(list(kept))), 0))
            if further is None:
                break
            new = grouped([episode for episode in further if episode.ended != "error"])
            if seen & set(new):
                raise ValueError(f"refill: group numbers {sorted(seen & set(new))} were given twice in one iteration")
            seen |= set(new)
            kept |= self._mixed(new)
        everyone = sorted(ctx.gather(list(kept)))
        if len(everyone) < wanted:
            log.warning(
                "refill: %d of %d groups after %d rounds; going on with fewer", len(everyone), wanted, self.rounds
            )
        chosen = set(everyone[:wanted])
        return [episode for key, group in kept.items() if key in chosen for episode in group]

    def _mixed(self, groups: dict[int, list[Episode]]) -> dict[int, list[Episode]]:
        return {key: group for key, group in groups.items() if not uniform(group, self.field, self.tolerance)}
