"""Private file system root of the sandbox, which has only the standard library."""

from __future__ import annotations

import os

from mmrl.tools.sandbox.worker.system import call, mount, unmount, unshare

SCRATCH = "/scratch"
RUN = SCRATCH + "/run"
_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _NO_EXEC, _REMOUNT, _BIND = 1, 2, 4, 8, 32, 4096
_RECURSIVE, _PRIVATE = 16384, 1 << 18
_PLACE = "/proc"  # mounted over in this process only: every Linux has it, and no standard library is below it


def enter_private_root(library: list[str]) -> None:
    """Give this process a private root in which it can mount: as root, or in a user namespace.

    Raises OSError if neither is permitted, as in most containers.
    """
    _enter_namespaces()
    mount("none", "/", None, _RECURSIVE | _PRIVATE)
    mount("mmrl", _PLACE, "tmpfs", _NO_SETUID | _NO_DEVICES, "size=1m,mode=755")
    for path in library:
        inside = _PLACE + path
        if os.path.exists(inside):
            continue  # a subfolder of the previous one
        if os.path.isdir(path):
            os.makedirs(inside)
        else:
            os.makedirs(os.path.dirname(inside), exist_ok=True)
            os.close(os.open(inside, os.O_CREAT | os.O_WRONLY))
        mount(path, inside, None, _BIND | _RECURSIVE)
    os.makedirs(_PLACE + RUN)
    os.chdir(_PLACE)
    call("pivot_root", b".", b".")  # pivot_root stacks the old root on the new one; it is unmounted from there
    unmount(".")
    os.chdir("/")
    mount("none", "/", None, _REMOUNT | _BIND | _READ_ONLY | _NO_SETUID | _NO_DEVICES)


def _enter_namespaces() -> None:
    user, group = os.getuid(), os.getgid()
    try:
        unshare(_NEW_MOUNTS)
    except PermissionError:
        unshare(_NEW_USER | _NEW_MOUNTS)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


def mount_scratch(megabytes: int, files: int) -> None:
    """Mount an empty file system in memory, with a limit on bytes and files."""
    options = f"size={megabytes}m,nr_inodes={files + 1},mode=700"
    mount("mmrl", RUN, "tmpfs", _NO_SETUID | _NO_DEVICES | _NO_EXEC, options)
