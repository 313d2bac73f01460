"""Actors whose action ends a chain of denoising steps."""
