"""Errors whose text is written for the user: ConfigError, and others that mmrl raises on purpose."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

OWN = tuple(str(Path(__file__).parents[2] / name) + os.sep for name in ("mmrl", "tasks", "sims"))


class ConfigError(ValueError):
    """An argument, key or value of the configuration that cannot be used; the message says which and what to do."""


def is_user_error(error: BaseException) -> bool:
    """Whether a `raise` statement of mmrl, tasks or sims raised the error: then its text is written for the user."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename.startswith(OWN) and (frames[-1].line or "").startswith("raise ")
