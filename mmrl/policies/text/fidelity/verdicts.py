"""Stored verdicts of comparisons: a folder of small files, of which the newest are kept."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mmrl.files.atomic import replace_file
from mmrl.files.strict_json import read_json_object

FOLDER = "MMRL_FIDELITY"
"""Environment variable: the folder of stored verdicts, in place of the one in the user's cache."""
ENTRIES = 256
"""Stored verdicts at most; those that were not used for longest are removed."""


@dataclass(frozen=True)
class FidelityVerdict:
    """What the comparison of a checkpoint showed.

    Args:
        shares: the policy's own attention, which shares prompts, is exact.
        pads: rows beside longer ones, which are padded, are exact.
        refusal: why the checkpoint cannot be used; empty if it can.
        line: what is printed when the model keeps its own attention; empty if it does not.
        differences: the largest differences in nats by what was compared, with the attention that is used.
        videos: why prompts with videos are refused; empty if they are exact, or if the policy takes none.
        idle: a batch may leave out weights, so that they have no gradient.
    """

    shares: bool
    pads: bool = True
    refusal: str = ""
    line: str = ""
    differences: dict[str, float] = field(default_factory=dict)
    videos: str = ""
    idle: bool = False

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> FidelityVerdict:
        """Read a stored verdict.

        Raises:
            TypeError: it is none.
        """
        verdict = cls(**entry)
        numbers = verdict.differences.values() if isinstance(verdict.differences, dict) else [None]
        types = [
            *((flag, bool) for flag in (verdict.shares, verdict.pads, entry.get("idle"))),
            *((text, str) for text in (verdict.refusal, verdict.line, verdict.videos)),
            *((number, float) for number in numbers),
        ]
        if not all(isinstance(value, kind) for value, kind in types):
            raise TypeError(f"no verdict: {entry}")
        return verdict


known: dict[str, FidelityVerdict] = {}
"""Verdicts that this process has read or measured."""


def recall(key: str) -> FidelityVerdict | None:
    """Return the stored verdict of a checkpoint; None without one, or if its file cannot be read."""
    if key not in known:
        file = cache_folder() / f"{key}.json"
        with suppress(OSError, ValueError, TypeError):
            known[key] = FidelityVerdict.from_json(read_json_object(file, "remove it"))
            os.utime(file)  # used: the last to be removed
    return known.get(key)


def remember(key: str, verdict: FidelityVerdict) -> None:
    """Store a verdict for this process, and for later ones where the folder can be written.

    A refusal is measured again: it may come from this machine, such as from too little memory.
    """
    if verdict.refusal:
        return
    known[key] = verdict
    with suppress(OSError):
        with replace_file(cache_folder() / f"{key}.json", ending=f"{os.getpid()}.part", sync=False) as file:
            file.write(json.dumps(asdict(verdict)).encode())
        remove_oldest(cache_folder(), ENTRIES)


def remove_oldest(folder: Path, entries: int) -> None:
    """Remove the files of a folder that were not used for longest, beyond a number of them."""
    ages: dict[Path, float] = {}
    for file in folder.iterdir():
        with suppress(OSError):  # another process may remove it at the same time
            ages[file] = file.lstat().st_mtime
    for file in sorted(ages, key=lambda each: ages[each])[: max(len(ages) - entries, 0)]:
        with suppress(OSError):
            file.unlink()


def cache_folder() -> Path:
    """Folder of stored verdicts: `MMRL_FIDELITY`, or the folder `fidelity` of mmrl in the user's cache folder."""
    folder = os.environ.get(FOLDER)
    return Path(folder or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mmrl" / "fidelity")
