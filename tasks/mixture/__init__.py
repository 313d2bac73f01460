"""Several tasks as one."""

from tasks.mixture.task import Mixture

__all__ = ["Mixture"]
