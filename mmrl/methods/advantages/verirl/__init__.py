"""VeriRL: a reward model from trees of repaired answers, and RL whose samples are weighed by reward and probability.

VeriRL: Boosting the LLM-based Verilog Code Generation via Reinforcement Learning, 2025, arXiv:2508.18462.
"""
