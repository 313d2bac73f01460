"""RLBFF: reward models that say yes or no about a principle, which was extracted from written feedback.

RLBFF: Binary Flexible Feedback to Bridge Between Human Feedback and Verifiable Rewards, 2025, arXiv:2509.21319.

More than 150 lines, since principles are extracted, looked up in their source, merged and thinned before a model learns
them.
"""
