"""What the console script can do: one file a command."""

from __future__ import annotations

from collections.abc import Callable


def _fit(words: list[str]) -> None:
    from mmrl.commands.fit import fit

    fit(words)


def _evaluate(words: list[str]) -> None:
    from mmrl.commands.evaluate import evaluate

    evaluate(words)


def _list(words: list[str]) -> None:
    from mmrl.commands.catalogue import show

    show(words)


def _doctor(words: list[str]) -> None:
    from mmrl.commands.doctor import doctor

    doctor(words)


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "fit": _fit,
    "evaluate": _evaluate,
    "list": _list,
    "doctor": _doctor,
}
