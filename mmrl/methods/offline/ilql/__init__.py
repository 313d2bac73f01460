"""ILQL: implicit language Q-learning from logged texts, with decoding perturbed by Q - V, and its reference learners.

LMRL-Gym: Benchmarks for Multi-Turn Reinforcement Learning with Language Models, 2023, arXiv:2311.18232; Offline RL for
Natural Language Generation with Implicit Language Q Learning, 2022, arXiv:2206.11871.
"""
