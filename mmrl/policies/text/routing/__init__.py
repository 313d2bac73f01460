"""Routers of mixtures of experts: their weights, their probabilities, and the experts that they choose."""
