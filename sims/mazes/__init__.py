"""Grid mazes whose blocks, goal and start are the level of an episode; importing registers them with gymnasium."""

import gymnasium

gymnasium.register("BlockMaze-v0", entry_point="sims.mazes.maze:BlockMaze", max_episode_steps=20)
