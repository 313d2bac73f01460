"""Imagined conversations: offline RL on dialogues that a writer imagines and a critic judges.

Zero-Shot Goal-Directed Dialogue via RL on Imagined Conversations, 2023, arXiv:2311.05584.
"""
