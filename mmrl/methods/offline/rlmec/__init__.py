"""RLMEC: a generative reward model corrects answers with few edits, and its probabilities are rewards of tokens.

Improving Large Language Models via Fine-grained Reinforcement Learning with Minimum Editing Constraint, 2024,
arXiv:2401.06081.
"""
