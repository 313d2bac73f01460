"""Rooms whose goal is a masked picture from another viewpoint and an event; importing registers them."""

import gymnasium

gymnasium.register("GoalView-v0", entry_point="sims.goal_views.environment:GoalViewEnv", max_episode_steps=30)
