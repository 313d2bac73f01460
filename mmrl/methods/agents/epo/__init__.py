"""EPO: the policy writes a strategy per turn, a frozen model acts on it, and decisive turns get the final score.

EPO: Explicit Policy Optimization for Strategic Reasoning in LLMs via Reinforcement Learning, 2025, arXiv:2502.12486.
"""
