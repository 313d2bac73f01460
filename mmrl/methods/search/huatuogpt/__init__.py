"""HuatuoGPT-o1: chains that are searched for, and the learned verifier of PPO's reward.

More than 150 lines, since the chains that the policy imitates are searched for by four strategies.
"""
