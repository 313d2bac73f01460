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


def _data(words: list[str]) -> None:
    from mmrl.commands.data import data

    data(words)


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "fit": _fit,
    "evaluate": _evaluate,
    "data": _data,
    "list": _list,
    "doctor": _doctor,
}
