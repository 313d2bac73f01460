"""RL-GPT: programs that language models write become macro-actions of a policy that PPO trains.

RL-GPT: Integrating Reinforcement Learning and Code-as-policy, 2024, arXiv:2402.19299.
"""
