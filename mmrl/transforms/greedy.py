"""Greedy completions beside the sampled ones: one attempt per prompt without randomness, as a baseline or a filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from mmrl.core.groups import get_score, group_episodes
from mmrl.core.types import Context, Episode, Request, Turn
from mmrl.transforms.base import EpisodeTransform


def play_greedy(prompts: Sequence[Episode], ctx: Context) -> list[Episode]:
    """Complete the prompts of these episodes greedily in a single turn, and score them; one episode for each.

    They are groups of their own, and are neither trained on nor counted.
    """
    for episode in prompts:
        if len(episode.turns) != 1 or not episode.prompt.messages:
            raise ValueError(
                f"greedy completions are for answers of one turn, but {episode.prompt.key!r} was played in "
                f"{len(episode.turns)}; choose rollout=single_turn"
            )
    requests = [Request(e.prompt.observation, 0, prompt_id=("greedy", e.group)) for e in prompts]
    done = ctx.engine.sample(requests, replace(ctx.sampling, decode="argmax")) if requests else []
    greedy = [Episode(e.prompt, e.group, 0, [Turn(c)], ended=c.ended) for e, c in zip(prompts, done)]
    ctx.collector.score(greedy)
    return greedy


@dataclass(frozen=True)
class GreedyReward(EpisodeTransform):
    """Write `greedy_reward`: the reward of the greedy completion of the same prompt by the same weights (ReMax).

    Source: ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for Aligning Large Language Models,
    2023, arXiv:2310.10505.
    """

    def writes(self) -> frozenset[str]:
        return frozenset({"greedy_reward"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = group_episodes(episodes)
        greedy = play_greedy([group[0] for group in groups.values()], ctx)
        column = {e.group: torch.tensor(float(e.reward)) for e in greedy}
        return [
            replace(e, turns=[turn.with_columns(greedy_reward=column[e.group]) for turn in e.turns]) for e in episodes
        ]


@dataclass(frozen=True)
class DropGreedySuccesses(EpisodeTransform):
    """Drops the groups of prompts that the policy solves greedily; those that it cannot solve yet are trained on.

    Source: The Reasoning Boundary Paradox: How Reinforcement Learning Constrains Language Models, 2025,
    arXiv:2510.02230, the filter of SELF.

    Args:
        score_name: "reward", or the name of a score.
        success_threshold: smallest score of a solved prompt.
    """

    score_name: str = "reward"
    success_threshold: float = 1.0

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = group_episodes(episodes)
        greedy = play_greedy([group[0] for group in groups.values()], ctx)
        solved = {e.group for e in greedy if get_score(e, self.score_name) >= self.success_threshold}
        return [episode for episode in episodes if episode.group not in solved]
