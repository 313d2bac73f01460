"""Tiny random checkpoints of every model type of transformers, and what mmrl does with them."""
