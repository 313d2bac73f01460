"""Environments of the package openenv, played over their server's protocol."""

from tasks.openenv.task import OpenEnv

__all__ = ["OpenEnv"]
