"""Goal-conditioned reinforcement learning."""
