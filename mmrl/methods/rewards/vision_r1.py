"""Vision-R1: progressive thinking suppression by a length limit that grows over stages, and the reward of both parts.

Vision-R1: Incentivizing Reasoning Capability in Multimodal Large Language Models, 2025, arXiv:2503.06749.

- reward of format and result together: `hard_format_result`
- stages of the length limit, and fewer completions of each prompt at longer ones: `sampling.max_tokens` and
  `group_size` as schedules `mmrl.schedules.Piecewise(steps=True)`
"""

from __future__ import annotations


def hard_format_result(exact: float, format: float, truncated: bool) -> float:
    """1 for a right answer in a valid format, from a completion that ended by itself, else 0.

    Source: Vision-R1, 2025, hard formatting result reward, arXiv:2503.06749.
    """
    return float(exact >= 1 and format >= 1 and not truncated)
