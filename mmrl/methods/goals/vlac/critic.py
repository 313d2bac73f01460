"""VLAC: the critic's two questions, how much of the remaining way lies between two images, and whether it is done.

VLAC: A Vision-Language-Action-Critic Model for Robotic Real-World Reinforcement Learning, 2025, arXiv:2509.15937.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mmrl.core.errors import check_fraction
from mmrl.rewards.models.progress import PairProgress, concat_images
from mmrl.rollouts.offline.progress_pairs import ProgressPairs

DONE = "at the goal of "
"""Before the instruction, where the critic is asked whether the task is done."""


class ProgressCritic(PairProgress):
    """`PairProgress` that also answers whether the task is done, from one image beside itself.

    Source: arXiv:2509.15937, sections 3 and 4: one model, switched by its prompt.

    Args:
        both_orders: ask in both orders and return half the difference, so that equal images have no progress, whatever
            the critic's bias is.
        options: of `PairProgress`.
    """

    def __init__(self, critic: Any, both_orders: bool = False, **options: Any):
        super().__init__(critic, **options)
        self.both_orders = both_orders

    def __call__(self, before: np.ndarray, after: np.ndarray, instructions: Sequence[str]) -> np.ndarray:
        shares = self._ask(concat_images(before, after), instructions)
        if self.both_orders:
            shares = (shares - self._ask(concat_images(after, before), instructions)) / 2
        return self.scale * np.where(np.abs(shares) > self.dead_zone, shares, 0.0)

    def predict_done(self, images: np.ndarray, instructions: Sequence[str]) -> np.ndarray:
        """Estimate for images uint8 [n, H, W, 3] the probability [n] that the task is done; about 0 to 1."""
        return self._ask(concat_images(images, images), [DONE + text for text in instructions])

    def _ask(self, pairs: np.ndarray, questions: Sequence[str]) -> np.ndarray:
        """Answers [n] to questions about pairs of images, in batches."""
        parts = [slice(i, i + self.batch_size) for i in range(0, len(pairs), self.batch_size)]
        return np.concatenate([self._shares(pairs[part], questions[part]) for part in parts])


class CriticPairs(ProgressPairs):
    """`ProgressPairs` with the question whether the task is done: one image beside itself, answer 1 or 0.

    The answer is 1 at the end of a demonstration. Half of these questions show the end, the others any earlier moment.

    Args:
        done_fraction: of the pairs that ask whether the task is done.
        options: of `ProgressPairs`.
    """

    def __init__(self, done_fraction: float = 0.3, **options: Any):
        super().__init__(**options)
        check_fraction("rollout", done_fraction=done_fraction)
        self.done_fraction = done_fraction

    def _pair(
        self, raws: Sequence[Mapping[str, Any]], instructions: Sequence[str], rng: np.random.Generator
    ) -> tuple[dict[str, Any], float]:
        if rng.random() >= self.done_fraction:
            return super()._pair(raws, instructions, rng)
        at_end = len(raws) == 1 or rng.random() < 0.5
        moment = raws[-1] if at_end else raws[int(rng.integers(len(raws) - 1))]
        image = np.asarray(moment["image"])[None]
        nothing = np.zeros_like(np.asarray(moment["proprio"], np.float32))
        question = {"image": concat_images(image, image)[0], "proprio": nothing}
        return {**question, "instruction": DONE + str(moment["instruction"])}, float(at_end)
