"""HuatuoGPT-o1: chains that are searched for, and the learned verifier of PPO's reward."""
