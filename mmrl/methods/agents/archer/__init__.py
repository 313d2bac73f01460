"""ArCHer: an utterance-level critic with replay, whose advantage is the reward of a token-level actor.

ArCHer: Training Language Model Agents via Hierarchical Multi-Turn RL, 2024, arXiv:2402.19446.
"""
