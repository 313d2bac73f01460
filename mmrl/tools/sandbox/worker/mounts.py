"""A view of files that only the sandbox has: a root that holds the standard library and nothing else."""

from __future__ import annotations

import os

from mmrl.tools.sandbox.worker.system import call, mount, unmount, unshare

SCRATCH = "/scratch"
RUN = SCRATCH + "/run"
_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _NO_EXEC, _REMOUNT, _BIND = 1, 2, 4, 8, 32, 4096
_RECURSIVE, _PRIVATE = 16384, 1 << 18
_PLACE = "/proc"  # covered in this process alone: every Linux has it, and no standard library lies beneath it


def enter_private_root(library: list[str]) -> None:
    """Give this process a root of its own, in which it can mount: as root, or in a user namespace. Raises OSError where
    neither may be done, as in most containers."""
    _enter_namespaces()
    mount("none", "/", None, _RECURSIVE | _PRIVATE)
    mount("mmrl", _PLACE, "tmpfs", _NO_SETUID | _NO_DEVICES, "size=1m,mode=755")
    for path in library:
        inside = _PLACE + path
        if os.path.exists(inside):
            continue  # a folder of the one before
        if os.path.isdir(path):
            os.makedirs(inside)
        else:
            os.makedirs(os.path.dirname(inside), exist_ok=True)
            os.close(os.open(inside, os.O_CREAT | os.O_WRONLY))
        mount(path, inside, None, _BIND | _RECURSIVE)
    os.makedirs(_PLACE + RUN)
    os.chdir(_PLACE)
    call("pivot_root", b".", b".")  # the old root lies above the new one, from where it is taken away
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
    """An empty file system in memory, with room for so much and so many."""
    options = f"size={megabytes}m,nr_inodes={files + 1},mode=700"
    mount("mmrl", RUN, "tmpfs", _NO_SETUID | _NO_DEVICES | _NO_EXEC, options)
