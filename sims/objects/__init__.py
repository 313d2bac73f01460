"""Simulators with object-centric states; importing registers them with gymnasium."""

import gymnasium

gymnasium.register("Catch-v0", entry_point="sims.objects.catch:Catch")
