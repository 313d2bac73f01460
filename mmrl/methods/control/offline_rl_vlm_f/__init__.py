"""Offline RL-VLM-F: pairs of frames, who compares them, the reward model, and the recording that it labels."""
