"""What a user did wrong, as one class."""

from __future__ import annotations


class ConfigError(ValueError):
    """A word, key or value of the configuration that cannot be used; the message says which and what to do."""
