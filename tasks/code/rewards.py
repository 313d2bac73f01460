"""Rewards of programs by what happened when they ran: reward=tasks.code.rewards:unit_test_feedback."""

from __future__ import annotations


def unit_test_feedback(parses: float, runs: float, tests: float) -> float:
    """-1 for a program that does not compile, -0.6 for a failing call, else -0.3 + 1.3 * (share of passed tests).

    Source: Liu et al., "RLTF: Reinforcement Learning from Unit Test Feedback", arXiv 2307.04349, section 3.2.
    """
    if parses < 1:
        return -1.0
    return -0.3 + 1.3 * tests if runs >= 1 else -0.6
