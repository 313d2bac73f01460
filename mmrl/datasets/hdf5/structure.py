"""Check the structure of an HDF5 file in a process with limits, because a damaged one can crash or hold the library."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from mmrl.files.foreign import MAX_RATIO, SMALL, check_regular
from mmrl.files.limited import find_failure

_SECONDS, _BYTES_PER_SECOND = 10, 5_000_000
_MEMORY_MB = 1024
_WALK = """
import json, os
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
import h5py
given = json.load(sys.stdin)

def check_array(rows):
    properties = rows.id.get_create_plist()
    if rows.is_virtual or properties.get_external_count():
        sys.exit(f"{rows.name}: its numbers lie in another file")
    stated, stored = rows.size * rows.dtype.itemsize if rows.shape else 0, rows.id.get_storage_size()
    if stated > max(given["small"], given["ratio"] * stored):
        sys.exit(f"{rows.name}: states {stated:,} bytes and holds {stored:,}")
    if rows.dtype.kind == "O":
        rows[()]  # texts lie in a heap
    elif rows.shape and rows.shape[0]:
        rows[0], rows[len(rows) - 1]

def check_members(group, above):
    for name in group:
        link = group.get(name, getlink=True)
        place = f"{group.name}: {name!r}"
        if isinstance(link, h5py.ExternalLink):
            sys.exit(f"{place} is a link to {link.filename!r}")
        member = group.get(name)
        if member is None:  # a link to nothing: whoever needs it says so
            continue
        if member.file.filename != file.filename:
            sys.exit(f"{place} is a link to {member.file.filename!r}")
        address = h5py.h5o.get_info(member.id).addr
        if address in above or len(above) > 32:
            sys.exit(f"{place} is a group within itself, or too deep")
        if address not in known:
            known.add(address)
            dict(member.attrs)
            if isinstance(member, h5py.Dataset):
                check_array(member)
            elif isinstance(member, h5py.Group):
                groups.append((member, above | {address}))

known = set()
try:
    file = h5py.File(given["path"], "r")
except OSError as error:
    sys.exit(f"not a readable HDF5 file ({error})")
try:
    with file:
        dict(file.attrs)
        groups = [(file, frozenset([h5py.h5o.get_info(file.id).addr]))]
        while groups:
            check_members(*groups.pop())
except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
    sys.exit("cannot be read (" + " ".join(str(error).split())[:200] + ")")
"""


def check_hdf5(path: Path, remedy: str) -> None:
    """Refuse an HDF5 file whose structure cannot be read, leads to other files, or states more than it holds.

    Every group, attribute and array is opened; of arrays of numbers the first and the last row are read.

    Args:
        path: of the file.
        remedy: end of the message.

    Raises:
        ValueError: with the file, the place in it and what is wrong.
    """
    check_regular(path, remedy)
    status = path.stat()
    if failure := _find_failure(str(path.resolve()), status.st_size, status.st_mtime_ns):
        raise ValueError(f"{path}: {failure}; {remedy}")


@lru_cache(maxsize=64)
def _find_failure(path: str, size: int, modified_ns: int) -> str | None:
    arguments = {"path": path, "small": SMALL, "ratio": MAX_RATIO}
    return find_failure(_WALK, arguments, _SECONDS + size // _BYTES_PER_SECOND, _MEMORY_MB)
