"""RLMEC: token rewards from a generative reward model that corrects answers with few edits.

Improving Large Language Models via Fine-grained Reinforcement Learning with Minimum Editing Constraint, 2024,
arXiv:2401.06081.
"""
