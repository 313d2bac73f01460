"""Translation between toy languages that are ciphers of one word list."""

from tasks.ciphers.task import Ciphers

__all__ = ["Ciphers"]
