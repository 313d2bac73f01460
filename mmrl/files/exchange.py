"""Exchange two files or folders of one file system in a single step, which Linux has on most local file systems."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
_LIBC = ctypes.CDLL(None, use_errno=True)
_MISSING = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)
"""Errors of kernels, file systems and sandboxes that cannot exchange names."""


def exchange_paths(first: Path, second: Path) -> bool:
    """Exchange the names of two paths, of which a reader never finds one missing.

    Args:
        first: exists.
        second: exists.

    Returns:
        False where the system or the file system cannot do it (NFS, macOS), and nothing has changed.
    """
    rename = getattr(_LIBC, "renameat2", None)
    if rename is None or rename(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _EXCHANGE) == 0:
        return rename is not None
    number = ctypes.get_errno()
    if number in _MISSING:
        return False
    raise OSError(number, os.strerror(number), str(first), None, str(second))
