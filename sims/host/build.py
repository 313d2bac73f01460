"""Build a simulator from its description: an import path and plain arguments."""

from __future__ import annotations

import importlib
import sys
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
    standard = module.partition(".")[0] in sys.stdlib_module_names
    part = None if standard else getattr(importlib.import_module(module), name)
    if not isinstance(part, type):
        raise ValueError(f"{description[TARGET]} is no class of a simulator; name a class of your own or of a package")
    return part(**arguments)
