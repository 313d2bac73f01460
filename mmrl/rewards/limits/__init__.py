"""Limits of processor time and memory of what a verifier does with an answer."""

from mmrl.rewards.limits.calls import LimitPassed, limit_cpu, run_limited

__all__ = ["LimitPassed", "limit_cpu", "run_limited"]
