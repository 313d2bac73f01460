"""What the processes of one sandbox share."""

from __future__ import annotations

from dataclasses import dataclass

from mmrl.tools.sandbox.worker.scratch import FolderScratch, MountedScratch


@dataclass
class Place:
    """Where programs run.

    Args:
        scratch: where they write.
        rules: an open Landlock ruleset; None where there is none, which only an unsafe sandbox accepts.
        calls: the filter of system calls; None likewise.
        unsafe: whether programs run without what this machine cannot confine.
        processes: /proc, open; None where there is none.
    """

    scratch: MountedScratch | FolderScratch
    unsafe: bool
    processes: int | None
    rules: int | None = None
    calls: bytes | None = None
