"""RLMT: think, then answer; a reward model that never sees the thought scores the response alone.

Language Models that Think, Chat Better, 2025, arXiv:2509.20357.

- the reward of the response, and of an empty one where the form is wrong: `mmrl.rewards.models.scorer.ScorerReward`
  with thoughts=required
- demonstrations for the warm start, a thought before each response: `ThoughtDemonstrations`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmrl.core.types import Completion, Context
from mmrl.rollouts.offline.demonstrations import Demonstrations


class ThoughtDemonstrations(Demonstrations):
    """The task's own expert answers every prompt once, with a thought before the response: <think>...</think>.

    It stands in for the thoughts of a larger model. The thought is a plan of the response: its characters in the order
    of the alphabet.

    Args:
        cache_episodes: keep the encoded demonstrations in memory, as they were first drawn.
    """

    def encode(self, raw: Mapping[str, Any], output: Any, ctx: Context) -> Completion:
        if not isinstance(output, str):
            raise ValueError("rollout=ThoughtDemonstrations needs a task whose demonstrations are texts")
        return super().encode(raw, add_thought(output), ctx)


def add_thought(response: str) -> str:
    """Write a plan before a response: <think>abc</think>cab."""
    return f"<think>{''.join(sorted(response))}</think>{response}"
