"""Tasks that cannot be solved without a memory; importing registers them with gymnasium."""

import gymnasium

gymnasium.register("TMaze-v0", entry_point="sims.memory.t_maze:TMaze", max_episode_steps=60)
