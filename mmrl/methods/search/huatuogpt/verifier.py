"""HuatuoGPT-o1's verifier: a learned model reads the right answer beside a response, and its p is the coarse reward.

HuatuoGPT-o1, Towards Medical Complex Reasoning with LLMs, 2024, arXiv:2412.18925, section 3, and its released code
(ppo_utils): a language model with two labels reads a response and the reference; p(True) above 0.4 counts as right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mmrl.core.errors import check_fraction
from mmrl.core.messages import join_contents
from mmrl.core.types import Episode
from mmrl.methods.search.huatuogpt.traces import coarse_reward, read_response
from mmrl.rewards.models.scorer import ScorerReward


class VerifiedResponse(ScorerReward):
    """Reward of a reply: sum_k weights_k * scores_k, with `verified`, the verifier's p, and `coarse` of it among them.

    p = 1 / (1 + exp(-s)) of the score s that a frozen model gives the final response, after the question and the right
    answer. A reply without the two headings has p = 0 and `coarse` 0, and is not shown to the verifier.

    Args:
        model: its name in `model.frozen_models`, a `ScoringPolicy`.
        template: of what the verifier reads before the response, with {question} and {answer}.
        threshold: of p.
        right: reward above the threshold.
        wrong: reward up to the threshold.
        weights: by name of the score.
        batch_size: responses per forward pass.
    """

    def __init__(
        self,
        model: str = "verifier",
        template: str = "{question}{answer}?",
        threshold: float = 0.4,
        right: float = 1.0,
        wrong: float = 0.1,
        weights: dict[str, float] | None = None,
        batch_size: int = 64,
    ):
        super().__init__(model, weights=weights or {"coarse": 1.0}, batch_size=batch_size)
        check_fraction("reward", threshold=threshold)
        if missing := [mark for mark in ("{question}", "{answer}") if mark not in template]:
            raise ValueError(f"reward.template lacks {' and '.join(missing)}: {template!r}")
        self.template, self.threshold, self.right, self.wrong = template, threshold, right, wrong

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        formed = [episode for episode in episodes if read_response(str(episode.output)) is not None]
        verdicts = {id(e): s for e, s in zip(formed, super().scores(formed), strict=True)}
        return [self._grade(verdicts.get(id(episode))) for episode in episodes]

    def _grade(self, verdict: dict[str, float] | None) -> dict[str, float]:
        """Scores of a reply, given those of the frozen model; None for one without the headings."""
        p = None if verdict is None else torch.tensor(next(iter(verdict.values()))).sigmoid().item()
        return {"verified": p or 0.0, "coarse": coarse_reward(p, self.threshold, self.right, self.wrong)}

    def _read(self, episode: Episode) -> dict[str, Any]:
        prompt = episode.prompt
        if prompt.answer is None:
            raise ValueError(f"{prompt.place or prompt.key} has no answer, which the verifier reads beside a response")
        question = join_contents(prompt.messages)
        text = self.template.replace("{question}", question).replace("{answer}", str(prompt.answer))
        response = read_response(str(episode.output))
        return {"messages": [{"role": "user", "content": text}], "answer": response, "tools": None}
