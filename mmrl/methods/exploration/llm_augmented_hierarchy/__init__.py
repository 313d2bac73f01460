"""LLM Augmented Hierarchical Agents: a language model's opinion about skills biases which of them is explored.

LLM Augmented Hierarchical Agents, 2023, arXiv:2311.05596.
"""
