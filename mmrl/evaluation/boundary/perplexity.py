"""LimitOfRLVR: perplexity of right answers under the policy that wrote them and under its start.

Does Reinforcement Learning Really Incentivize Reasoning Capacity in LLMs Beyond the Base Model?, 2025,
arXiv:2504.13837, section 4.1: PPL_m(y | x) = exp(-1/T sum_t log P_m(y_t | x, y_<t)). A trained policy whose right
answers have a low perplexity under the start writes what the start could write.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from mmrl.core.types import Episode
from mmrl.evaluation.metrics.finished_episodes import get_binary_score

OWN, START = "logprob_own", "logprob_start"
"""Entries of an episode's `info`: mean log-probability of a chosen token in nats, under the policy and the start.

`mmrl.data.answer_logprobs.AnswerLogprobs` writes them."""


def right_perplexities(episodes: Sequence[Episode], score_name: str, entry: str) -> list[float]:
    """Perplexity of every right answer of which `info` has this entry."""
    return [
        math.exp(-episode.info[entry])
        for episode in episodes
        if episode.ended != "error" and entry in episode.info and get_binary_score(episode, score_name)
    ]


def summarize_perplexity(before: Sequence[Episode], after: Sequence[Episode], score_name: str) -> dict[str, float]:
    """Median perplexities of right answers; those that were measured.

    start_by_start: the start's right answers under the start. policy_by_start: the policy's right answers under the
    start. policy_by_policy: the same answers under the policy. Without the log-probabilities of both measurements, as
    where one of them is read from files, there are none.
    """
    values = {
        "start_by_start": right_perplexities(before, score_name, OWN),
        "policy_by_start": right_perplexities(after, score_name, START),
        "policy_by_policy": right_perplexities(after, score_name, OWN),
    }
    if not any(OWN in episode.info for episode in before):
        return {}
    return {f"perplexity_{name}": median(each) for name, each in values.items() if each}
