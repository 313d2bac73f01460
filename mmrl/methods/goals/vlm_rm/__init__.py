"""VLM-RM: SAC with the similarity of a picture and a sentence about the goal as the only reward.

Vision-Language Models are Zero-Shot Reward Models for Reinforcement Learning, 2023, arXiv:2310.12921.
"""
