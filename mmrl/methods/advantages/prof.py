"""PROF: select completions by process rewards that agree with the outcome, and train on the outcome rewards.

Beyond Correctness: Harmonizing Process and Outcome Rewards through RL Training, 2025, arXiv:2509.03403.

- how many correct and wrong completions stay: `balance`
- correct ones with good steps and wrong ones with bad steps: `ProcessConsistencyFilter`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.groups import group_episodes
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode
from mmrl.rewards.steps import StepScorer, split_steps
from mmrl.transforms.base import EpisodeTransform


def balance(correct: int, wrong: int, count: int) -> tuple[int, int]:
    """Return how many correct and wrong completions to keep: `count` in all, as balanced as possible.

    k+ + k- = count with the largest k+ k-, k+ <= correct, k- <= wrong. The odd one is a correct one where both would
    do. Source: PROF, 2025, arXiv:2509.03403.
    """
    count = min(count, correct + wrong)
    num_correct = min(correct, max((count + 1) // 2, count - wrong))
    return num_correct, count - num_correct


@dataclass(frozen=True)
class ProcessConsistencyFilter(EpisodeTransform):
    """Keeps `count` completions per prompt: correct ones with the best and wrong ones with the worst process (PROF).

    The value of a completion is the mean score of its steps, minus `length_penalty` if it has a single step or at least
    `max_steps`. Of equal values the first completion counts. Source: Beyond Correctness: Harmonizing Process and
    Outcome Rewards through RL Training, 2025, PROF, arXiv:2509.03403.

    Args:
        scorer: of steps, usually in [0, 1].
        count: completions of a prompt that are kept; all where there are no more.
        sides: "both" chooses wrong completions by their values too (PROF-Both); "correct" draws them at random, for
            scorers that do not know wrong solutions (PROF-Pos).
        length_penalty: subtracted from the value of a completion with too few or too many steps.
        max_steps: number of steps from which on it is subtracted; null for no such number.
        success_threshold: smallest reward of a correct completion.
        separator: a step ends with it.
    """

    scorer: StepScorer
    count: int = 4
    sides: str = "both"
    length_penalty: float = 0.0
    max_steps: int | None = None
    success_threshold: float = 1.0
    separator: str = "\n"

    min_group_size = 2

    def __post_init__(self) -> None:
        if self.count < 2:
            raise ValueError(f"process_filter.count must be at least 2, a correct and a wrong one, got {self.count}")
        if self.sides not in ("both", "correct"):
            raise ValueError(f"process_filter.sides must be 'both' or 'correct', got {self.sides!r}")
        if not self.separator:
            raise ValueError("process_filter.separator is empty; name the text with which a step ends")
        if self.max_steps is not None and self.max_steps < 2:
            raise ValueError(f"process_filter.max_steps must be at least 2 or null, got {self.max_steps}")

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        # one value per completion, scored in one call over all groups
        members = [episode for group in group_episodes(episodes).values() for episode in group]
        values = iter(self.rate(members, self.scorer.bind(ctx)))
        out: list[Episode] = []
        for key, group in group_episodes(episodes).items():
            group_values = [next(values) for _ in group]
            rng = derive_rng(ctx.seed, "process_filter", ctx.purpose, ctx.iteration, key)
            out += [
                group[place]
                for place in self.choose([e.reward >= self.success_threshold for e in group], group_values, rng)
            ]
        return out

    def choose(self, correct: Sequence[bool], values: Sequence[float], rng: np.random.Generator) -> list[int]:
        """Return the indices of the completions of a group to keep, in order."""
        right = sorted((i for i, good in enumerate(correct) if good), key=lambda i: -values[i])
        wrong = [i for i, good in enumerate(correct) if not good]
        wrong = sorted(wrong, key=values.__getitem__) if self.sides == "both" else list(rng.permutation(wrong))
        best, worst = balance(len(right), len(wrong), self.count)
        return sorted([*right[:best], *wrong[:worst]])

    def rate(self, episodes: Sequence[Episode], scorer: StepScorer) -> list[float]:
        """Return the value of each completion: the mean score of its steps, less the penalty of their number."""
        steps = [split_steps(str(episode.output), self.separator) for episode in episodes]
        out = []
        for scores in scorer.score_steps(episodes, steps):
            odd = len(scores) == 1 or (self.max_steps is not None and len(scores) >= self.max_steps)
            out.append(sum(scores) / len(scores) - self.length_penalty * odd)
        return out
