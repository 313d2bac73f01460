"""Landlock: reads of the standard library and of the scratch folder, writes in the scratch folder, and nothing else."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

from mmrl.tools.sandbox.worker.system import call

_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
# execute, make a character device, make a socket, make a named pipe, make a block device, ioctl of a device
_NEVER = sum(1 << bit for bit in (0, 6, 9, 10, 11, 15))
_KNOWN = {1: 13, 2: 14, 3: 15, 5: 16}  # number of file rights by the first version that has them
_NETWORK, _SCOPES = 0b11, 0b11  # bind, connect; abstract sockets, signals
_FOREIGN = ("site-packages", "dist-packages")  # third-party packages, which may be in the standard library's folder


def version() -> int:
    """Return the version of the kernel's Landlock. Raises OSError if it has none."""
    try:
        return call("landlock_create_ruleset", None, ctypes.c_size_t(0), 1)
    except OSError as error:
        raise OSError(f"Landlock: {error}; it needs Linux 5.13 or newer with landlock among its `lsm`") from error


def create_ruleset(scratch: str) -> int:
    """Create a Landlock ruleset: read the standard library, write the scratch folder, nothing else. Raises OSError."""
    abi = version()
    rights = (1 << max(bits for since, bits in _KNOWN.items() if since <= abi)) - 1
    handled = struct.pack("=QQQ", rights, _NETWORK, _SCOPES)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    rules = call("landlock_create_ruleset", handled, ctypes.c_size_t(len(handled)), 0)
    for path, access in [*library_rights(), (scratch, rights & ~_NEVER)]:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        call("landlock_add_rule", rules, 1, struct.pack("=Qi", access, place), 0)
        os.close(place)
    return rules


def library_paths() -> list[str]:
    """Return this interpreter's module search path: only its standard library."""
    return [path for path in sys.path if os.path.exists(path)]


def library_rights() -> list[tuple[str, int]]:
    """List files and folders of the standard library with their rights.

    Folders can be listed, which shows the names of installed packages, but not their contents.
    """
    rights: list[tuple[str, int]] = []
    for path in library_paths():
        if not os.path.isdir(path):
            rights.append((path, _READ_FILE))
            continue
        rights.append((path, _READ_FOLDER))
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name not in _FOREIGN and os.path.exists(entry.path):
                    rights.append((entry.path, _READ_FILE | (_READ_FOLDER if entry.is_dir() else 0)))
    return rights


def restrict_files(rules: int) -> None:
    """Restrict this process irreversibly. Raises OSError."""
    call("landlock_restrict_self", rules, 0)
