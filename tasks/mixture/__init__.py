"""Mixture of several tasks."""

from tasks.mixture.task import Mixture

__all__ = ["Mixture"]
