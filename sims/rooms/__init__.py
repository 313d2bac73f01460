"""Rooms with noise and with darkness, for rewards that come from observations alone; importing registers them."""

import gymnasium

gymnasium.register("NoisyRooms-v0", entry_point="sims.rooms.noisy_rooms:NoisyRooms")
gymnasium.register("SurpriseRooms-v0", entry_point="sims.rooms.players:make_players")
