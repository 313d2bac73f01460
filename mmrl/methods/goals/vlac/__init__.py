"""VLAC: PPO with the reward of a critic that compares two images and is asked whether the task is done."""
