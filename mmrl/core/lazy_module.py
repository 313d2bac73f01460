"""Modules that are imported when they are first used, so that processes which do not use them start sooner.

Processes of simulators import no torch in this way: `from mmrl.core.lazy_module import torch`.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any


class LazyModule(ModuleType):
    """Stand-in for a module: reading one of its attributes imports the module and returns the module's attribute.

    Args:
        name: import path of the module.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


if TYPE_CHECKING:
    import torch as torch
else:
    torch = LazyModule("torch")
