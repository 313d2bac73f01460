"""Dynamic sampling (DAPO): sample further prompts until enough groups have an advantage."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from mmrl.core.errors import check_at_least
from mmrl.core.groups import group_episodes, has_zero_variance
from mmrl.core.types import Context, Episode
from mmrl.transforms.base import EpisodeTransform

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DynamicSampling(EpisodeTransform):
    """Drops zero-variance groups and samples further prompts until enough groups are left or the rounds are used up.

    The dynamic sampling of DAPO. Processes count and ask together: the groups that are kept are the first `num_groups`
    of all of them that have variance, the same on one process and on many. With fewer the run continues, and a warning
    says so. Source: DAPO, 2025, equation 11, arXiv:2503.14476.

    Args:
        num_groups: how many to keep, over all processes: usually data.num_prompts. None keeps as many as
            arrive here; set the number after a transform that drops groups.
        max_rounds: how many times to sample what is missing.
        score_name: "reward", or the name of a score.
        tolerance: largest difference of rewards that counts as equal, in units of the score.
    """

    num_groups: int | None = None
    max_rounds: int = 3
    score_name: str = "reward"
    tolerance: float = 1e-6

    min_group_size = 2

    def __post_init__(self) -> None:
        if self.num_groups is not None and self.num_groups < 1:
            raise ValueError(f"dynamic_sampling.num_groups must be at least 1 or null, got {self.num_groups}")
        check_at_least(0, "dynamic_sampling", max_rounds=self.max_rounds)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        gather, groups = ctx.collector.gather, group_episodes(episodes)
        keys = set(groups)
        target = sum(gather([len(groups)])) if self.num_groups is None else self.num_groups
        groups = self._with_variance(groups)
        for _ in range(self.max_rounds):
            # all processes count alike, so they ask for the same and the answer does not depend on how many they are
            missing = target - len(gather(list(groups)))
            if missing <= 0:
                break
            further = ctx.collector.collect_prompts(missing)
            new = group_episodes([episode for episode in further if episode.ended != "error"])
            if keys & set(new):
                raise ValueError(
                    f"dynamic_sampling: group numbers {sorted(keys & set(new))} were given twice in one iteration"
                )
            keys |= set(new)
            groups |= self._with_variance(new)
        everyone = sorted(gather(list(groups)))
        if len(everyone) < target:
            log.warning(
                "dynamic_sampling: %d of %d groups after %d rounds; going on with fewer",
                len(everyone),
                target,
                self.max_rounds,
            )
        selected = set(everyone[:target])
        return [episode for key, group in groups.items() if key in selected for episode in group]

    def _with_variance(self, groups: dict[int, list[Episode]]) -> dict[int, list[Episode]]:
        return {
            key: group for key, group in groups.items() if not has_zero_variance(group, self.score_name, self.tolerance)
        }
