"""B-Coder: a language model as a dueling Q-network, trained offline on programs with a conservative Bellman target.

B-Coder: Value-Based Deep Reinforcement Learning for Program Synthesis, 2023, arXiv:2310.03173.
"""
