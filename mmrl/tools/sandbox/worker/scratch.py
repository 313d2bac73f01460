"""Scratch folder of a program: a mounted file system, or a folder whose size is watched."""

from __future__ import annotations

import os
import stat
import tempfile

from mmrl.tools.sandbox.worker.mounts import RUN, SCRATCH, mount_scratch
from mmrl.tools.sandbox.worker.system import unmount


class MountedScratch:
    """File system in memory with a fixed size, created for every program and removed after it."""

    folder = RUN
    ruled = SCRATCH  # Landlock checks the folders above a mount, not the folder that it covers
    watched = False

    def begin(self, megabytes: int, files: int) -> None:
        mount_scratch(megabytes, files)

    def end(self) -> None:
        unmount(RUN)


class FolderScratch:
    """Folder that is emptied after every program; its size is measured while a program runs."""

    watched = True

    def __init__(self) -> None:
        self.folder = self.ruled = tempfile.mkdtemp(prefix="mmrl-sandbox-")
        tempfile.tempdir = None  # a program looks again, and finds its scratch folder

    def begin(self, megabytes: int, files: int) -> None:
        pass

    def end(self) -> None:
        empty_folder(self.folder)


def measure_folder(folder: str, most: int) -> tuple[int, int]:
    """Measure the bytes of a folder's files, and count its files and folders.

    Counting stops above `most`. A file that is deleted meanwhile counts as empty.
    """
    size = files = 0
    waiting = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        while waiting and files <= most:
            place = waiting.pop()
            try:
                for name in os.listdir(place):
                    files += 1
                    try:
                        status = os.stat(name, dir_fd=place, follow_symlinks=False)
                        size += status.st_blocks * 512
                        if stat.S_ISDIR(status.st_mode):
                            waiting.append(os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place))
                    except FileNotFoundError:
                        pass
                    if files > most:
                        break
            finally:
                os.close(place)
    finally:
        for place in waiting:
            os.close(place)
    return size, files


def empty_folder(folder: str) -> None:
    """Remove everything in a folder, at any depth and with any modes, with one open folder at a time.

    No other process may change the folder meanwhile. Raises OSError.
    """
    place, depth = os.open(folder, os.O_RDONLY | os.O_DIRECTORY), 0
    try:
        while True:
            below = None
            for name in os.listdir(place):
                if not stat.S_ISDIR(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=place)
                    continue
                try:
                    os.rmdir(name, dir_fd=place)
                except OSError:  # it is not empty
                    below = name
            if below is None and depth == 0:
                return
            if below is not None:
                os.chmod(below, 0o700, dir_fd=place)
            up = os.open(below or "..", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place, depth = up, depth + (1 if below else -1)
    finally:
        os.close(place)
