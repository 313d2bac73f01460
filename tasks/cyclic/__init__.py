"""Cyclic preferences among a few answers, with a known Nash policy."""
