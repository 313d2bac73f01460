"""Diffusion Policy in LeRobot's layout."""
