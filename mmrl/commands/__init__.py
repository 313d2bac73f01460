"""The commands of the console script; each imports its own module when it runs, so that `mmrl --help` is fast."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Command = Callable[[Sequence[str]], Any]


def _load_lazily(module: str, function: str, package: str = "mmrl.commands") -> Command:
    def run(arguments: Sequence[str]) -> Any:
        command = getattr(_import_uncollected(f"{package}.{module}"), function)
        return command(arguments)

    return run


def _import_uncollected(name: str) -> ModuleType:
    """Import a module without searching what it imports for garbage: nothing of it is, and the search is a quarter of
    the time until a run starts.

    A process that has imported the module has objects of its own, which are garbage some day: they are left alone.
    """
    if name in sys.modules or not gc.isenabled():
        return importlib.import_module(name)
    gc.disable()
    try:
        module = importlib.import_module(name)
        gc.freeze()
    finally:
        gc.enable()
    return module


COMMANDS: dict[str, Command] = {
    "fit": _load_lazily("fit", "fit"),
    "rounds": _load_lazily("rounds.rounds", "rounds"),
    "plan": _load_lazily("plan", "plan"),
    "evaluate": _load_lazily("evaluate", "evaluate"),
    "compare": _load_lazily("results.compare", "compare"),
    "weights": _load_lazily("results.weights", "print_weights"),
    "show": _load_lazily("show", "show"),
    "chat": _load_lazily("chat", "chat", "mmrl.api"),
    "serve": _load_lazily("serve", "serve", "mmrl.api"),
    "robot": _load_lazily("robots.command", "play_robot", "mmrl.api"),
    "push": _load_lazily("push", "push"),
    "data": _load_lazily("datasets.data", "data"),
    "new": _load_lazily("new.new", "new"),
    "list": _load_lazily("catalogue.listing", "print_list"),
    "doctor": _load_lazily("doctor.doctor", "doctor"),
    "completion": _load_lazily("completion", "print_completion"),
}
