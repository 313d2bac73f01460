"""A tree of proposed programs whose next node a controller chooses; importing registers it with gymnasium."""

import gymnasium

gymnasium.register("ProgramTree-v0", entry_point="sims.program_tree.tree:ProgramTree")
