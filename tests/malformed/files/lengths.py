"""Problems that do not fit into a context of 2,048 tokens, one token a character."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.dataset import DatasetTask
from tasks.preferences import Preferences
from tests.malformed.files.case import Case

CONTEXT = 2048


def rows(result: list[dict[str, Any]], **settings: Any) -> Callable[[Path], DatasetTask]:
    def build(folder: Path) -> DatasetTask:
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in result))
        (folder / "held.jsonl").write_text('{"question": "a held-out one", "answer": 1}\n')
        return DatasetTask(str(folder / "rows.jsonl"), held_out_path=str(folder / "held.jsonl"), **settings)

    return build


def problem(question: str, answer: str = "1", max_tokens: int = 64, **settings: Any) -> Callable[[Path], Any]:
    result = [{"question": "short", "answer": 1}, {"question": question, "answer": answer}]
    return lambda folder: (rows(result, **settings)(folder), max_tokens)


def pair(chosen: str, rejected: str) -> Callable[[Path], Any]:
    def build(folder: Path) -> Any:
        result = [{"prompt": f"p{i}", "chosen": chosen, "rejected": rejected} for i in range(5)]
        (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in result))
        return Preferences(str(folder / "pairs.jsonl")), 64

    return build


_LINE = r"rows\.jsonl:2"
_LONG = "more than the model's context of 2048.*shorten the prompt, lower sampling.max_tokens"
CASES = [
    Case("a line of 100 million characters", problem("x" * 10**8), _LINE, "more than 67,108,864 bytes"),
    Case("a question of 50 million characters", problem("x" * (5 * 10**7)), _LINE, "more than 2048 tokens.*" + _LONG),
    Case("a question of 200,000 characters", problem("word " * 40_000), _LINE, "more than 2048 tokens.*" + _LONG),
    Case("a question of 200,000 emoji", problem("😀" * 200_000), _LINE, "more than 2048 tokens.*" + _LONG),
    Case("a question of 3,000 characters", problem("x" * 3000), _LINE, "has 3000 tokens.*" + _LONG),
    Case("a token too many", problem("x" * 1985), _LINE, "has 1985 tokens and sampling.max_tokens=64.*" + _LONG),
    Case(
        "a template that is too long", problem("x" * 990, template="y" * 1000 + "{question}"), r"rows\.jsonl:2", _LONG
    ),
    Case(
        "completions of 10^9 tokens",
        problem("x", max_tokens=10**9),
        r"rows\.jsonl:1",
        "max_tokens=1000000000.*" + _LONG,
    ),
    Case("completions of the whole context", problem("x", max_tokens=CONTEXT), r"rows\.jsonl:1", _LONG),
    Case("an answer of 200,000 characters", problem("x", "y" * 200_000), _LINE, "its answer more than 2048"),
    Case("an answer of 2,050 characters", problem("x", "y" * 2050), _LINE, "its answer 2050, more.*shorten the answer"),
    Case("a preferred answer that is too long", pair("y" * 2050, "n"), r"pairs\.jsonl:\d", "its answer 2050"),
    Case("a rejected answer that is too long", pair("y", "n" * 2050), r"pairs\.jsonl:\d", "its answer 2050"),
]

FITTING = [
    problem("x" * 1984),
    problem("x" * 10, max_tokens=CONTEXT - 11),
    problem("x", "y" * 2000),
    problem("é" * 990),  # two bytes, and at most two tokens, each
    pair("y" * 2000, "n"),
]
