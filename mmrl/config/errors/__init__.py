"""Refusals of the typed parser and of parts, as one message that names the key."""
