"""LGE: a language guide that leaves the explorer of a text world the actions that are relevant to the task.

Language Guided Exploration for RL Agents in Text Environments, 2024, arXiv:2403.03141; released code,
hitzkrieg/drrn-scienceworld-clone.
"""
