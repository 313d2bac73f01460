"""Planted subsequences: traces that search for the letters of a prompt."""
