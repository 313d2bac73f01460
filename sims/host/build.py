"""Build a simulator from its description: an import path and plain arguments."""

from __future__ import annotations

import importlib
from typing import Any

TARGET = "_target_"


def build(description: Any) -> Any:
    """Build what {"_target_": "package.module.Class", argument: value} describes, with what its arguments describe."""
    if isinstance(description, (list, tuple)):
        return type(description)(build(item) for item in description)
    if not isinstance(description, dict):
        return description
    arguments = {name: build(value) for name, value in description.items() if name != TARGET}
    if TARGET not in description:
        return arguments
    path = description[TARGET].replace(":", ".")
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)(**arguments)
