"""A module that is imported when it is first used, so that processes which do not use it start sooner."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """Stand-in for a module: reading one of its attributes imports the module and returns the module's attribute.

    Args:
        name: import path of the module.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)
