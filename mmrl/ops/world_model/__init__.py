"""Equations of world models: divergences of latent states, and returns of imagined trajectories."""
