"""Asynchronous RLHF: reward against KL of policies that learn from samples of older weights.

Asynchronous RLHF: Faster and More Efficient Off-Policy RL for Language Models, 2024, arXiv:2410.18252.

- samples of weights that are `data.staleness` iterations old: `mmrl.data.async_data.AsyncRolloutData`
- online DPO: `mmrl.transforms.best_worst.BestWorst` and `mmrl.objectives.preference.DPOLoss`
- proximal RLOO: `mmrl.objectives.policy.ClippedSurrogate` with the ratio of whole completions
- the two axes of the paper's figures: scores of a gold reward, and `AnswerKL`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.boundary.perplexity import OWN, START
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors


@dataclass(frozen=True)
class AnswerKL(Evaluator):
    """KL divergence of the policy from its start in nats per answer, from sampled answers.

    `mean` over episodes of sum_t log pi(y_t) - log pi_start(y_t), its `standard_error`, and `errors`. The evaluation
    needs the transform `mmrl.data.answer_logprobs.AnswerLogprobs` and `model.reference=true`. With a temperature of 1
    it is without bias. Source: arXiv:2410.18252, section 3, where it is the axis of off-policy runs.
    """

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        values = []
        for episode in drop_errors(episodes):
            if missing := [name for name in (OWN, START, "tokens") if name not in episode.info]:
                raise KeyError(
                    f"the episode of {episode.prompt.key!r} has no info {missing}; add evaluation.transforms."
                    "answer_logprobs._target_=mmrl.data.answer_logprobs.AnswerLogprobs and model.reference=true"
                )
            values.append(episode.info["tokens"] * (episode.info[OWN] - episode.info[START]))
        nan = float("nan")
        return {
            "mean": mean(values) if values else nan,
            "standard_error": stdev(values) / len(values) ** 0.5 if len(values) > 1 else nan,
            "errors": count_errors(episodes),
        }
