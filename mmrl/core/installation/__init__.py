"""Packages that the core does not need: which extra brings each, and one line for a user who lacks one."""
