"""VeriRL: a reward model from trees of repairs, and RL with sample weights by reward and probability.

VeriRL: Boosting the LLM-based Verilog Code Generation via Reinforcement Learning, 2025, arXiv:2508.18462.
"""
