"""Losses of actors that learn from a critic without a policy gradient."""
