"""Print the files and functions of one training iteration: python scripts/trace_iteration.py [WORD ...].

A tiny run of these words (default: GRPO on a task that random weights score on, so that it learns) is traced from the
start of its first epoch to the end of the epoch's last optimiser step; configuration, set-up and shut-down are not.
Each line is a file of this project in the order of first entry, with its functions in the order of their first call;
the last line is the number of files. Left out are methods of a base class that return a constant, such as {} or None,
and what callbacks do (progress, samples, checkpoints).
"""

from __future__ import annotations

import argparse
import ast
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import lightning as L

GRPO = (
    *("recipe=grpo", "capture=false", "data.task._target_=tests.tiny_recipes.Counting"),
    "data.reward.weights={exact: 0.5, digits: 1.0}",
)
"""Traced without words."""
ROOT = Path(__file__).resolve().parent.parent
FOLDERS = tuple(f"{ROOT / name}/" for name in ("mmrl", "tasks", "sims"))
CALLBACKS = f"{ROOT / 'mmrl' / 'callbacks'}/"


class Tracer(L.Callback):
    """Records the functions of this project that the main thread enters in the first epoch, by file."""

    def __init__(self) -> None:
        self.functions: dict[str, dict[str, None]] = {}
        self.callback: FrameType | None = None  # the callback's call that runs

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.current_epoch == 0:
            sys.setprofile(self._enter)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx + 1 == trainer.num_training_batches:
            sys.setprofile(None)

    def _enter(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event == "return" and frame is self.callback:
            self.callback = None
        if event != "call" or self.callback is not None or not code.co_filename.startswith(FOLDERS):
            return
        if code.co_filename.startswith(CALLBACKS):
            self.callback = frame
        elif code.co_name != "<module>":
            file = str(Path(code.co_filename).relative_to(ROOT))
            self.functions.setdefault(file, {})[code.co_qualname.replace("<locals>.", "")] = None


def trace(words: list[str]) -> dict[str, dict[str, None]]:
    """The functions of the first iteration of these words, by file."""
    from mmrl.commands.cli import CLI
    from mmrl.config.compose import compose, to_lightning
    from tests.test_recipes import shrink

    tracer = Tracer()
    with tempfile.TemporaryDirectory() as folder:
        cli = CLI(to_lightning(compose(shrink(tuple(words), Path(folder)))))
        cli.trainer.callbacks.insert(0, tracer)  # before the others: their work after the last step is not counted
        cli.fit()
    return {file: names for file, all_names in tracer.functions.items() if (names := _drop_constants(file, all_names))}


def _drop_constants(file: str, names: dict[str, None]) -> dict[str, None]:
    """The functions of a file that compute something."""
    constants = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        for item in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(item, ast.FunctionDef) and _is_constant(item):
                constants.add(f"{node.name}.{item.name}")
    return {name: None for name in names if name not in constants and name.rpartition(".")[0] not in constants}


def _is_constant(function: ast.FunctionDef) -> bool:
    """Whether a function has only a docstring, or returns an expression without a call except frozenset()."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body:
        return True
    if len(body) > 1 or not isinstance(body[0], ast.Return):
        return False
    used = [node for node in ast.walk(body[0]) if isinstance(node, ast.Call | ast.Attribute | ast.Subscript)]
    return all(ast.unparse(node) == "frozenset()" for node in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD", help="arguments of mmrl fit")
    functions = trace(parser.parse_args().words or list(GRPO))
    for number, (file, names) in enumerate(functions.items(), start=1):
        print(f"{number:3} {file}: {', '.join(names)}")
    folders = Counter(file.split("/")[0] for file in functions)
    print(f"{len(functions)} files: {', '.join(f'{count} of {name}/' for name, count in folders.items())}")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # for tests.test_recipes
    main()
