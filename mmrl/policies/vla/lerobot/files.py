"""Files of a policy folder or hub repository."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError

CONFIG, WEIGHTS = "config.json", "model.safetensors"


def find_file(path: str, name: str) -> Path | None:
    """Return a file of a folder or, downloaded, of a hub repository; None if it has no such file."""
    if Path(path).is_dir():
        file = Path(path) / name
        return file if file.is_file() else None
    try:
        return Path(hf_hub_download(path, name))
    except EntryNotFoundError:
        return None
