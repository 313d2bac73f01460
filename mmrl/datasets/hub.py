"""Find the folder of a dataset: a path here, or a repository of the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path

from mmrl.files.strict_json import quote

_ID = re.compile(r"[\w.-]+/[\w.-]+")
LEROBOT_VERSION = "v3.0"
"""Tag of the revision that LeRobot's repositories have of this version of the format."""


def locate_dataset(path: str | Path) -> Path:
    """The path itself if something stands there, else the folder to which a hub repository is downloaded.

    Args:
        path: of a folder or file, or the id of a dataset, OWNER/NAME.

    Raises:
        ValueError: it is neither, or the hub does not give the dataset; the message says why.
    """
    local = Path(path)
    try:
        present = local.exists()
    except (OSError, ValueError) as error:  # too long for a path, or a zero byte in it
        reason = getattr(error, "strerror", None) or str(error)[:100]
        raise ValueError(f"{quote(str(path))} is no path of a folder or file ({reason}); name a dataset") from error
    if present:
        return local
    if not _ID.fullmatch(str(path)):
        raise ValueError(f"{path}: no such folder or file; name the folder or file of a dataset, or a hub id")
    return _download(str(path))


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RevisionNotFoundError

    try:
        try:
            return Path(snapshot_download(name, repo_type="dataset", revision=LEROBOT_VERSION))
        except RevisionNotFoundError:
            return Path(snapshot_download(name, repo_type="dataset"))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:150]
        raise ValueError(
            f"{name}: no such folder or file, and the hub gave no dataset of that name ({type(error).__name__}: "
            f"{reason}); name the folder or file of a dataset"
        ) from error
