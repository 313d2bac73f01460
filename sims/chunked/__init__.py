"""Chunks of actions that are played in part, and observations with a history."""
