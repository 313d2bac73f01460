"""RLCoder: a retriever learns to rank first what most lowers a frozen generator's loss on the true completion.

RLCoder: Reinforcement Learning for Repository-Level Code Completion, 2024, arXiv:2407.19487.
"""
