"""Check the limits of this process before a command that builds models, which fails in odd places without them."""

from __future__ import annotations

import errno
import resource
import sys

from mmrl.core.errors import ConfigError

OPEN_FILES = 128
ADDRESS_SPACE = 3 * 2**30
"""Importing torch alone maps more than 1 GiB."""
SYSTEM = {
    errno.EMFILE: "too many open files; raise the limit with `ulimit -n 1024`",
    errno.ENFILE: "the machine has too many open files; close other programs",
    errno.ENOSPC: "the disk is full; make room",
    errno.EDQUOT: "the disk quota is used up; make room",
    errno.EFBIG: "a file may not become as large; raise the limit with `ulimit -f unlimited`",
    errno.EROFS: "the file system is read-only; work in another folder",
    errno.EACCES: "permission denied; work in another folder, or change the rights",
    errno.EPERM: "permission denied; work in another folder, or change the rights",
    errno.ENOMEM: "out of memory; close other programs, or lower the sizes of the run",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
    errno.ELOOP: "a link leads to itself; remove it",
}
"""What to do about errors of the operating system, by their number."""


def check_limits() -> None:
    """Raise the limit of open files to what is allowed, and refuse one, or an address space, that is too small.

    Raises:
        ConfigError: with the limit and the command that changes it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES:
        limit = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
        if limit < OPEN_FILES:
            raise ConfigError(f"at most {hard} open files are allowed, and a run needs {OPEN_FILES}: ulimit -n 1024")
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if sys.platform == "linux" and space != resource.RLIM_INFINITY and space < ADDRESS_SPACE:
        raise ConfigError(
            f"the address space is limited to {space / 2**30:.1f} GiB, and a run needs {ADDRESS_SPACE / 2**30:.0f}: "
            "ulimit -v unlimited"
        )


def explain_system_error(error: BaseException) -> str | None:
    """Describe an error of the operating system with the file and what to do; None of other errors."""
    if isinstance(error, MemoryError):
        return "out of memory; lower the sizes of the run, or close other programs"
    if not isinstance(error, OSError) or error.errno not in SYSTEM:
        return None
    place = f"{error.filename}: " if isinstance(error.filename, str) else ""
    return f"{place}{SYSTEM[error.errno]}"
