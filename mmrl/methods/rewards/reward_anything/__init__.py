"""RewardAnything: a judge that reads a principle in words and grades a list of answers, trained by GRPO.

RewardAnything: Generalizable Principle-Following Reward Models, 2025, arXiv:2506.03637.
"""
