"""Compare verdicts on function calls with BFCL's own checker: python scripts/peers/bfcl_verdicts.py [FOLDER].

Right answers to all requests of the parts in Python are changed at random: values, types, names, order, what is given
and left out. Each answer is read and judged by the package bfcl-eval (`make bfcl`, or FOLDER that holds bfcl_eval), and
here. Its functions that read and judge run as they are, without the clients of model servers that its package imports.
Prints how many answers were judged, how many of them are right, and those with two verdicts.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import random
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tasks.bfcl.files import PARTS, CallRequest, find_folder, read_part
from tasks.bfcl.forms import read_calls, write_calls
from tasks.bfcl.task import choose_arguments, name_outcome

Verdict = Callable[[CallRequest, str], bool]
READERS = ("ast_parse", "resolve_ast_call", "resolve_ast_by_type", "default_decode_ast_prompting")


def load_peer(folder: Path | None) -> Verdict:
    """The leaderboard's verdict of an answer to a request.

    Args:
        folder: that holds the package bfcl_eval; None if it is installed.
    """
    if folder is not None:
        sys.path.insert(0, str(folder))
    models = ModuleType("bfcl_eval.constants.model_config")
    models.MODEL_CONFIG_MAPPING = {"any": SimpleNamespace(underscore_to_dot=False)}  # type: ignore[attr-defined]
    sys.modules[models.__name__] = models  # its own imports the clients of all servers
    checker = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
    enums = importlib.import_module("bfcl_eval.constants.enums")
    file = Path(checker.__file__).parents[2] / "model_handler" / "utils.py"  # type: ignore[arg-type]
    functions = [node for node in ast.parse(file.read_text()).body if getattr(node, "name", None) in READERS]
    readers: dict[str, Any] = {"ast": ast, "re": re, "ReturnFormat": enums.ReturnFormat}
    exec(compile(ast.Module(functions, []), str(file), "exec"), readers)

    def judge(request: CallRequest, answer: str) -> bool:
        try:
            calls = readers["default_decode_ast_prompting"](answer)
        except Exception:  # as its runner: what cannot be read is wrong, and right where no call is asked for
            calls = None
        if not request.answers:
            called = bool(calls) and all(len(call) == 1 for call in calls)
            return called == (request.part == "live_relevance")
        if calls is None:
            return False
        rights = [{name: values} for name, values in request.answers]
        try:
            verdict = checker.ast_checker(
                list(request.functions), calls, rights, enums.Language.PYTHON, request.part, "any"
            )
        except Exception:  # its checker expects dictionaries where a list of them is right
            return False
        return bool(verdict["valid"])

    return judge


def change_value(value: Any, rng: random.Random) -> Any:
    """Change a value: its spelling, its type, its size or what it consists of."""
    if isinstance(value, bool):
        return rng.choice([not value, int(value), str(value)])
    if isinstance(value, int):
        return rng.choice([value + 1, float(value), str(value), -value, [value], None])
    if isinstance(value, float):
        return rng.choice([value + 0.5, int(value), str(value), value * 2])
    if isinstance(value, str):
        spelled = [value.upper(), value.replace(" ", ""), f"{value}.", f"{value}x", value.replace("'", '"')]
        return rng.choice([*spelled, value[1:], [value], len(value), ""])
    if isinstance(value, list | tuple):
        parts = list(value)
        one = rng.randrange(len(parts)) if parts else None
        changed = parts if one is None else [*parts[:one], change_value(parts[one], rng), *parts[one + 1 :]]
        return rng.choice([parts[::-1], tuple(parts), [*parts, *parts[:1]], parts[:-1], changed, str(parts)])
    if isinstance(value, dict):
        key = rng.choice([*value]) if value else "key"
        without = {name: item for name, item in value.items() if name != key}
        changed = {**value, key: change_value(value.get(key), rng)}
        return rng.choice([without, {**value, "further": 1}, changed, [value], str(value)])
    return rng.choice([0, "None", False])


def change_calls(request: CallRequest, rng: random.Random) -> str:
    """Write the right calls with one or two changes, or none."""
    required = {one["name"]: one["parameters"].get("required", ()) for one in request.functions}
    calls = [(name, choose_arguments(answer, required[name])) for name, answer in request.answers]
    calls = calls or [(next(iter(required), "any"), {})]
    for _ in range(rng.randint(0, 2)):
        i = rng.randrange(len(calls))
        name, arguments = calls[i]
        answer = dict(request.answers).get(name, {})
        kind = rng.choice(["value", "value", "value", "leave out", "give", "name", "calls", "order"])
        if kind == "value" and arguments:
            key = rng.choice([*arguments])
            calls[i] = (name, {**arguments, key: change_value(arguments[key], rng)})
        elif kind == "leave out" and arguments:
            gone = rng.choice([*arguments])
            calls[i] = (name, {key: value for key, value in arguments.items() if key != gone})
        elif kind == "give":
            key = rng.choice([*answer, "further"])
            calls[i] = (name, {**arguments, key: rng.choice([*answer.get(key, [1]), 1])})
        elif kind == "name":
            calls[i] = (rng.choice([*required, "other.name", name.replace(".", "_")]), arguments)
        elif kind == "calls":
            calls = rng.choice([calls + [calls[i]], calls[:i] + calls[i + 1 :] or calls])
        else:
            rng.shuffle(calls)
    return change_text(write_calls(calls, "prompt"), rng)


def change_text(text: str, rng: random.Random) -> str:
    """Write the list in another way that a model would, or break it."""
    ways: Sequence[str] = (
        *(text, text, text, text, text[1:-1], f"```\n{text}\n```", f" {text}\n", f"`{text}`"),
        *(f"Here it is: {text}", text[:-2], text.replace("=", ": "), "", "I cannot do that.", "[]"),
        *(
            text.replace("(", "(1, ", 1),
            text.replace("'", "", 2),
            text.replace("=", "=2*", 1),
            text.replace("=", "=-", 1),
        ),
    )
    return rng.choice(ways)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="holds bfcl_eval")
    parser.add_argument("--times", type=int, default=10, help="answers to each request")
    options = parser.parse_args()
    judge = load_peer(options.folder)
    data = find_folder(None if options.folder is None else str(options.folder / "bfcl_eval" / "data"))
    rng, judged, right, apart = random.Random(0), 0, 0, []
    for part in PARTS:
        for request in read_part(data, part):
            for _ in range(options.times):
                text = change_calls(request, rng)
                theirs, ours = judge(request, text), name_outcome(read_calls(text), request) == "right"
                judged, right = judged + 1, right + theirs
                if theirs != ours:
                    apart.append((request.place, theirs, text))
    for place, theirs, text in apart:
        print(f"{place}: {'right' if theirs else 'wrong'} there, not here: {text}")
    print(f"{judged} answers, {right} right by the leaderboard's checker, {len(apart)} with two verdicts")


if __name__ == "__main__":
    main()
