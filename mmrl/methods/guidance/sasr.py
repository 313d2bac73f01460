"""SASR: draw each iteration as supervised fine-tuning or GRPO, by the gradient norm of the supervised loss.

Step-wise Adaptive Integration of Supervised Fine-tuning and Reinforcement Learning for Task-Specific LLMs, 2025,
arXiv:2505.13026.

- p = g / (g + gamma g_w), g the last norm and g_w that of the warm-up: `GradientShare`
- an iteration of demonstrations with probability p, else of completions: `StepMixture`
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.core.errors import check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt, Turn
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.rollouts.text.single_turn import SingleTurn
from mmrl.schedules.base import Schedule

IMITATION = "rollout/imitation"
"""Metric: 1 in an iteration of demonstrations, else 0."""


class GradientShare(Schedule):
    """Probability of a supervised iteration: g / (g + gamma g_w), 1 in the warm-up.

    g is the norm of the gradient in the last supervised iteration, which falls as the policy comes near to the
    demonstrations, and g_w its mean over the second half of the warm-up. An iteration of reinforcement learning leaves
    g as it is. Source: SASR, 2025, adaptive training step, arXiv:2505.13026.

    Args:
        warmup: supervised iterations at the beginning.
        gamma: larger values give more reinforcement learning.
        metric: the norm, as `mmrl.callbacks.gradient_norm.GradientNorm` logs it.
    """

    def __init__(self, warmup: int, gamma: float = 1.0, metric: str = "train/gradient_norm"):
        if warmup < 1 or not gamma > 0:
            raise ValueError(f"needs warmup >= 1 and gamma > 0, got {warmup} and {gamma}")
        self.warmup, self.gamma, self.metric = warmup, gamma, metric
        self.norms: list[float] = []  # of the warm-up
        self.last = 0.0

    def __call__(self, iteration: int) -> float:
        if iteration < self.warmup or not self.norms:
            return 1.0
        late = self.norms[len(self.norms) // 2 :]
        return share(self.last, sum(late) / len(late), self.gamma)

    def observe(self, metrics: Mapping[str, float]) -> None:
        learned = {name for name in metrics if name.startswith("train/")} - {"train/learning_rate"}
        if not metrics.get(IMITATION) or not learned:  # or an iteration without rows
            return
        if self.metric not in metrics:
            raise ValueError(
                f"GradientShare.metric={self.metric!r} is no metric of this run; add "
                "trainer.callbacks.gradient_norm={_target_: mmrl.callbacks.gradient_norm.GradientNorm}"
            )
        if math.isfinite(norm := metrics[self.metric]):
            self.last = norm
            if len(self.norms) < self.warmup:
                self.norms.append(norm)

    def state_dict(self) -> dict[str, Any]:
        return {"norms": list(self.norms), "last": self.last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.norms, self.last = list(state.get("norms", self.norms)), state.get("last", self.last)


def share(norm: float, reference: float, gamma: float) -> float:
    """g / (g + gamma g_w), 0 where both norms are 0. Source: SASR, 2025, arXiv:2505.13026."""
    total = norm + gamma * reference
    return norm / total if total > 0 else 0.0


class StepMixture(Rollout):
    """Rollout with demonstrations for all prompts with a probability per iteration, else with sampled completions.

    Rows of demonstrations are `is_demo`; `rollout/imitation` is 1 in their iterations. Source: SASR, 2025,
    arXiv:2505.13026.

    Args:
        imitation_probability: of an iteration of demonstrations; a `GradientShare` can stand here.
    """

    def __init__(self, imitation_probability: float = 0.5):
        check_fraction("rollout", imitation_probability=imitation_probability)
        self.imitation_probability, self._imitates = imitation_probability, False

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        draw = derive_rng("step_mixture", ctx.seed, ctx.purpose, ctx.iteration).random()
        self._imitates = bool(draw < self.imitation_probability)
        if not self._imitates:
            return SingleTurn().collect(prompts, ctx)
        decisions = ctx.task.demonstrations([prompt for _, prompt in prompts]) if prompts else []
        return [
            Episode(prompt, slot, 0, [Turn(demonstration(raw, output, ctx)) for raw, output in steps], source="demo")
            for (slot, prompt), steps in zip(prompts, decisions)
        ]

    def metrics(self) -> dict[str, float]:
        return {IMITATION: float(self._imitates)}
