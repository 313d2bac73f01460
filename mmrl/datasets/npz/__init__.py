"""Flat arrays of transitions in NumPy's .npz files."""
