"""GTR: PPO over turns of a thought and an action, beside imitation of thoughts that a corrector wrote.

GTR: Guided Thought Reinforcement Prevents Thought Collapse in RL-based VLM Agent Training, 2025, arXiv:2503.08525.
"""
