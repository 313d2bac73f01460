"""Settings that the processes of one sandbox share."""

from __future__ import annotations

from dataclasses import dataclass

from mmrl.tools.sandbox.worker.scratch import FolderScratch, MountedScratch


@dataclass
class Place:
    """Settings of the sandbox in which programs run.

    Args:
        scratch: the scratch folder.
        rules: file descriptor of a Landlock ruleset; None without one, which only an unsafe sandbox accepts.
        calls: the filter of system calls; None likewise.
        unsafe: whether programs run without what this machine cannot confine.
        processes: file descriptor of /proc; None without it.
    """

    scratch: MountedScratch | FolderScratch
    unsafe: bool
    processes: int | None
    rules: int | None = None
    calls: bytes | None = None
