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

    Processes ask together, so each plays the same number of rounds. One that still lacks groups goes on with fewer and
    logs a warning.

    Args:
        groups: how many to keep, over all processes: usually data.prompts. None keeps as many as arrive here, so that
            after a transform that drops groups the number has to be given.
        rounds: how many times to ask for what is missing.
        field: "reward", or the name of a score.
        tolerance: largest difference that counts as the same, in units of the field.
    """

    groups: int | None = None
    rounds: int = 3
    field: str = "reward"
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        if self.groups is not None and self.groups < 1:
            raise ValueError(f"refill.groups must be at least 1 or null, got {self.groups}")
        if self.rounds < 0:
            raise ValueError(f"refill.rounds must be >= 0, got {self.rounds}")

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        if ctx.more is None:
            raise RuntimeError("refill: this loop cannot collect further prompts; leave refill out of data.episodes")
        kept = grouped(episodes)
        wanted = len(kept) if self.groups is None else self._share(self.groups, ctx)
        seen = set(kept)
        kept = self._mixed(kept)
        for _ in range(self.rounds):
            # collective: also a process that has enough takes part, until none asks for more
            further = ctx.more(max(wanted - len(kept), 0))
            if further is None:
                break
            new = grouped([episode for episode in further if episode.ended != "error"])
            if seen & set(new):
                raise ValueError(f"refill: group numbers {sorted(seen & set(new))} were given twice in one iteration")
            seen |= set(new)
            kept |= self._mixed(new)
        if len(kept) < wanted:
            log.warning("refill: %d of %d groups after %d rounds; going on with fewer", len(kept), wanted, self.rounds)
        return [episode for group in list(kept.values())[:wanted] for episode in group]

    def _mixed(self, groups: dict[int, list[Episode]]) -> dict[int, list[Episode]]:
        return {key: group for key, group in groups.items() if not uniform(group, self.field, self.tolerance)}

    @staticmethod
    def _share(groups: int, ctx: Context) -> int:
        """This rank's part; the first ranks take what does not divide evenly, as they do with prompts."""
        return len(range(ctx.rank, groups, ctx.world_size))
