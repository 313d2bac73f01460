"""Offline data in the replay buffer: recorded transitions, and what is refused in them."""
