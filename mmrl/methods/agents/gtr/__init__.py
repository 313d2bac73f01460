"""GTR: PPO over turns of a thought and an action, with imitation of corrected thoughts.

GTR: Guided Thought Reinforcement Prevents Thought Collapse in RL-based VLM Agent Training, 2025, arXiv:2503.08525.
"""
