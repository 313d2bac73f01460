"""Scores of steps by a process reward model that the run holds as a frozen model, trained by a start stage."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.sampling import Sampling
from mmrl.core.types import Context, Episode
from mmrl.rewards.steps import StepScorer


class FrozenStepScorer(StepScorer):
    """Probability that a step is right, by a `StepScoringPolicy` in `model.frozen_models`.

    Args:
        model: its name there.
        batch_size: answers per forward pass.
    """

    def __init__(self, model: str = "step_scorer", batch_size: int = 64):
        check_at_least(1, "step scorer", batch_size=batch_size)
        self.model, self.batch_size = model, batch_size
        self.policy: Any = None

    def bind(self, ctx: Context) -> FrozenStepScorer:
        """Return the scorer that asks this context's model.

        Raises:
            ConfigError: there is no such model, or it does not score steps.
        """
        policy: Any = dict(ctx.models.items()).get(self.model)
        # a process reward model, known by the separator after which it predicts
        if policy is None or not hasattr(policy, "separator"):
            raise ConfigError(
                f"step scorer: model={self.model!r} is no process reward model of the run; name one under "
                f"model.frozen_models, as in +model.frozen_models.{self.model}={{_target_: "
                "mmrl.policies.text.process.step_scorer.StepScoringPolicy, path: FOLDER}"
            )
        bound = copy.copy(self)
        bound.policy = policy
        return bound

    def __call__(self, episodes: Sequence[Episode], steps: Sequence[Sequence[str]]) -> list[list[float]]:
        if self.policy is None:
            raise ConfigError("step scorer: its model is one of a run, and it is asked outside of a run's rollouts")
        scores: list[list[float]] = []
        rows = [
            self.policy.encode({"messages": list(episode.prompt.messages), "steps": list(texts)})
            for episode, texts in zip(episodes, steps, strict=True)
        ]
        for start in range(0, len(rows), self.batch_size):
            columns = self.policy.collate(rows[start : start + self.batch_size])
            on_device = {name: column.to(self.policy.device) for name, column in columns.items()}
            with torch.no_grad():
                scores += self.policy.act(on_device, Sampling(decode="argmax"), None).output
        return scores
