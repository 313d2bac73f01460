"""Rewards of tool calls: reward=tasks.calls.rewards:tool_rl and reward=tasks.calls.rewards:error_penalty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmrl.rewards.extract import build_extractor, remove_thoughts
from tasks.calls.match import PENALTIES, Call, measure_correctness
from tasks.calls.task import name_outcome, read_calls

Extract = str | Mapping[str, Any] | None
"""How the task finds the answer; None for the whole completion without its thoughts."""


def tool_rl(completion: str, right: list[Any], format: float, extract: Extract = None) -> float:
    """ToolRL's reward: format in {0, 1} plus correctness in [-3, 3] (0 where no call is right).

    Source: Qian et al., "ToolRL: Reward is All Tool Learning Needs", arXiv 2504.13958, section 3.3.
    """
    return format + measure_correctness(_read_calls(completion, extract), right)


def error_penalty(
    completion: str, right: list[Any], parameters: dict[str, list[str]], extract: Extract = None
) -> float:
    """TL-Training's reward by the kind of error of a call, from -2 to 1; a call more or less than needed earns -2.

    Source: Ye et al., "TL-Training", arXiv 2412.15495, section 4.3.
    """
    return PENALTIES.get(name_outcome(_read_calls(completion, extract), right, parameters), -2.0)


def _read_calls(completion: str, extract: Extract) -> list[Call] | None:
    """Read the calls that the task reads too."""
    answer = remove_thoughts(completion) if extract is None else build_extractor(extract)(completion)
    return read_calls(answer or "")
