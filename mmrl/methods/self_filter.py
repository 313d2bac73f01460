"""SELF: train on the prompts that the policy does not solve greedily, since easy ones make it forget others.

The Reasoning Boundary Paradox: How Reinforcement Learning Constrains Language Models, 2025, arXiv:2510.02230.

- groups of prompts whose greedy completion is right are dropped: `DropGreedySolved`
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mmrl.groups import get_score, group_episodes
from mmrl.rollouts.text.single_turn import SingleTurn
from mmrl.transforms.base import EpisodeTransform
from mmrl.types import Context, Episode


@dataclass(frozen=True)
class DropGreedySolved(EpisodeTransform):
    """Drops the groups of prompts to which the greedy completion is right.

    Every prompt is completed once more, greedily, and scored. The paper does so before it samples; the rows that are
    trained on are the same. Put it before `DropZeroVariance`. Source: The Reasoning Boundary Paradox, 2025, SELF,
    arXiv:2510.02230.

    Args:
        score_name: "reward", or the name of a score.
        success_threshold: smallest value of it that is right.
    """

    score_name: str = "exact"
    success_threshold: float = 1.0

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = group_episodes(episodes)
        prompts = [(slot, group[0].prompt) for slot, group in groups.items()]
        greedy = replace(
            ctx,
            sampling=replace(ctx.sampling, decode="argmax"),
            requested_indices={slot: range(1) for slot in groups},
        )
        tried = SingleTurn().collect(prompts, greedy) if prompts else []
        ctx.collector.score(tried)
        solved = {
            episode.group
            for episode in tried
            if episode.ended != "error" and get_score(episode, self.score_name) >= self.success_threshold
        }
        return [episode for episode in episodes if episode.group not in solved]
