"""Repositories of files of which one fails a test, and agents that open files and patch one."""

from tasks.patches.task import GuidedPatches, OpenFile, Patches

__all__ = ["GuidedPatches", "OpenFile", "Patches"]
