"""Corruption of another reward, to see how much of a learning curve its correctness explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Task
from mmrl.rewards.base import Reward


@dataclass(frozen=True)
class Corruption(Reward):
    """Reward of an episode: low + high - r with probability `flip`, drawn from {low, high} with probability `random`.

    r is the inner reward, which stays with the remaining probability. Which answers are corrupted depends on the seed,
    the prompt and the output, so that equal answers to a prompt are mirrored alike, as by a verifier that is wrong
    about them. A random reward is drawn for each episode, so that no answer to a prompt earns more than another on
    average.

    Source of the arms: Wu et al., "Model-Task Alignment Drives Distinct RL Outcomes", arXiv 2508.21188 (random and
    wrong rewards beside the true one).

    Args:
        inner: the reward that is corrupted.
        flip: probability with which the reward is mirrored between low and high.
        random: probability with which the reward is low or high, each half of the time.
        low: reward of a wrong answer.
        high: reward of a right answer.
        seed: of the draws.
    """

    inner: Reward
    flip: float = 0.0
    random: float = 0.0
    low: float = 0.0
    high: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.flip, self.random) < 0 or self.flip + self.random > 1:
            raise ValueError(
                f"data.reward: flip and random must be probabilities with a sum of at most 1, got {self.flip} and "
                f"{self.random}"
            )

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        return self.inner.scores(episodes)

    def check_task(self, task: Task) -> None:
        self.inner.check_task(task)

    def at(self, iteration: int) -> Reward:
        return replace(self, inner=self.inner.at(iteration))

    def sampled_models(self) -> frozenset[str]:
        return self.inner.sampled_models()

    def bind(self, ctx: Context) -> Reward:
        return replace(self, inner=self.inner.bind(ctx))

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return [self._corrupt(episode, reward) for episode, reward in zip(group, self.inner(group))]

    def _corrupt(self, episode: Episode, reward: float) -> float:
        uniform = derive_rng("corruption", self.seed, episode.prompt.key, str(episode.output)).random()
        if uniform < self.flip:
            return self.low + self.high - reward
        if uniform < self.flip + self.random:
            place = episode.prompt.key, episode.group, episode.sample_index
            return self.high if derive_rng("random_reward", self.seed, *place).random() < 0.5 else self.low
        return reward
