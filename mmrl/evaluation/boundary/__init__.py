"""LimitOfRLVR: what a trained policy solves with many samples beside what its start does."""
