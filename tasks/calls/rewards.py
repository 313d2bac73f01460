"""Rewards of tool calls: reward=tasks.calls.rewards:tool_rl and reward=tasks.calls.rewards:error_penalty."""

from __future__ import annotations

from typing import Any

from mmrl.rewards.extract import remove_thoughts
from tasks.calls.match import PENALTIES, measure_correctness
from tasks.calls.task import name_outcome, read_calls


def tool_rl(completion: str, right: list[Any], format: float) -> float:
    """ToolRL's reward: format in {0, 1} plus correctness in [-3, 3] (0 where no call is right).

    Source: Qian et al., "ToolRL: Reward is All Tool Learning Needs", arXiv 2504.13958, section 3.3.
    """
    return format + measure_correctness(read_calls(remove_thoughts(completion) or ""), right)


def error_penalty(completion: str, right: list[Any], parameters: dict[str, list[str]]) -> float:
    """TL-Training's reward by the kind of error of a call, from -2 to 1; a call more or less than needed earns -2.

    Source: Ye et al., "TL-Training", arXiv 2412.15495, section 4.3.
    """
    outcome = name_outcome(read_calls(remove_thoughts(completion) or ""), right, parameters)
    return PENALTIES.get(outcome, -2.0)
