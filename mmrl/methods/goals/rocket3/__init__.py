"""ROCKET-3: a policy on goal pictures from another viewpoint, cloned with labels of the target and tuned by PPO.

Scalable Multi-Task Reinforcement Learning for Generalizable Spatial Intelligence in Visuomotor Agents, 2025.
Tasks are synthesised by `sims.goal_views.tasks`.
"""
