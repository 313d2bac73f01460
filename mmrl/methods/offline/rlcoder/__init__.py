"""RLCoder: train a retriever to rank first the candidate that most lowers a frozen generator's loss.

RLCoder: Reinforcement Learning for Repository-Level Code Completion, 2024, arXiv:2407.19487.
"""
