"""LaSeR: last-token self-rewards of answers, and their use as confidence.

LaSeR: Reinforcement Learning with Last-Token Self-Rewarding, 2025, arXiv:2510.14943.
"""
