"""Policies that choose among admissible strings."""
