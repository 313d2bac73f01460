"""AI feedback: PPO with the reward of a model that was fitted to an annotator's preferences between captions.

On the Modeling Capabilities of Large Language Models for Sequential Decision Making, 2024, arXiv:2410.05656, with the
reward of Motif, 2023, arXiv:2310.00166.
"""
