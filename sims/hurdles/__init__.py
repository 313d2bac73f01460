"""Hurdles of a height and a spacing that are chosen for every episode; importing registers them with gymnasium."""

import gymnasium

gymnasium.register("Hurdles-v0", entry_point="sims.hurdles.runner:Hurdles", max_episode_steps=150)
