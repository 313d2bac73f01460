"""Malformed files of a run's folder: its contract, its environment, and an earlier measurement."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmrl.evaluation.protocol import Protocol
from tests.malformed.files.case import Case

EPISODE = {
    "checkpoint": "last",
    "decode": "greedy",
    "key": "arithmetic/held_out/0",
    "slot": 0,
    "sample_index": 0,
    "seed": None,
    "task": "arithmetic",
    "instruction": None,
    "ended": "done",
    "error": None,
    "scores": {"exact": 1.0},
    "decisions": None,
    "tokens": 3,
}


def stated(name: str, content: bytes | str) -> Callable[[Path], Path]:
    """A run's folder in which one file has this content."""

    def build(folder: Path) -> Path:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return folder

    return build


def _directory(name: str) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        (folder / name).mkdir()
        return folder

    return build


def result(protocol: Any = None, episodes: bytes | str | None = None) -> Callable[[Path], Path]:
    """A measurement whose protocol is this text or changed by this function, or whose episodes are this text."""

    def build(folder: Path) -> Path:
        path = Protocol({"problems": {"count": 1}}).write(folder)
        if callable(protocol):
            stored = json.loads(path.read_text())
            protocol(stored)
            path.write_text(json.dumps(stored))
        elif protocol is not None:
            path.write_bytes(protocol if isinstance(protocol, bytes) else protocol.encode())
        content = json.dumps(EPISODE) + "\n" if episodes is None else episodes
        (folder / "episodes.jsonl").write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder

    return build


def row(**changed: Any) -> str:
    return json.dumps({name: value for name, value in {**EPISODE, **changed}.items() if value != "gone"}) + "\n"


def _broken(name: str) -> list[Case]:
    place = name.replace(".", r"\.")
    return [
        Case(f"{name}: a list", stated(name, "[]"), place, "a list, not an object.*copy"),
        Case(f"{name}: a text", stated(name, '"sim"'), place, "a text, not an object.*copy"),
        Case(f"{name}: null", stated(name, "null"), place, "null, not an object.*copy"),
        Case(f"{name}: empty", stated(name, ""), place, "broken JSON.*copy"),
        Case(f"{name}: cut", stated(name, '{"sim": "pu'), place, "broken JSON.*copy"),
        Case(f"{name}: binary", stated(name, b"\xff\xfe\x00"), place, "not UTF-8.*save"),
        Case(f"{name}: a key twice", stated(name, '{"sim": 1, "sim": 2}'), place, "'sim' stands twice"),
        Case(f"{name}: nested too deeply", stated(name, '{"a":' * 100_000), place, "nested too deeply"),
        Case(f"{name}: a number of 6,000 digits", stated(name, '{"a": ' + "9" * 6000 + "}"), place, "6000 digits"),
        Case(f"{name}: a folder", _directory(name), place, "cannot be read .*copy"),
    ]


STATED = [*_broken("contract.json"), *_broken("environment.json")]

_PROTOCOL, _EPISODES = r"protocol\.json", r"episodes\.jsonl:1"
_AGAIN = ".*measure again"
RESULTS = [
    Case("protocol.json: a list", result("[]"), _PROTOCOL, "a list, not an object" + _AGAIN),
    Case("protocol.json: not JSON", result("{'a': 1}"), _PROTOCOL, "broken JSON" + _AGAIN),
    Case("protocol.json: empty", result(""), _PROTOCOL, "broken JSON" + _AGAIN),
    Case("protocol.json: binary", result(b"\x80"), _PROTOCOL, "not UTF-8"),
    Case("protocol.json: no entries", result(lambda p: p.pop("entries")), _PROTOCOL, "entries: must be an object"),
    Case("protocol.json: entries a list", result(lambda p: p.update(entries=[])), _PROTOCOL, "entries: must be an"),
    Case("protocol.json: no policy", result(lambda p: p.pop("policy")), _PROTOCOL, "policy: must be an object"),
    Case("protocol.json: no environment", result(lambda p: p.pop("environment")), _PROTOCOL, "environment: must be"),
    Case("protocol.json: no hash", result(lambda p: p.pop("hash")), _PROTOCOL, "hash None.* edited" + _AGAIN),
    Case("protocol.json: another hash", result(lambda p: p.update(hash=7)), _PROTOCOL, "hash 7.* edited" + _AGAIN),
    Case("protocol.json: edited", result(lambda p: p["entries"].update(x=1)), _PROTOCOL, "was edited" + _AGAIN),
    Case("episodes.jsonl: no rows", result(episodes=""), r"episodes\.jsonl", "has no episodes" + _AGAIN),
    Case("episodes.jsonl: cut", result(episodes=row()[:50]), _EPISODES, "broken JSON" + _AGAIN),
    Case("episodes.jsonl: a list", result(episodes="[]\n"), _EPISODES, "must be an object.* a list" + _AGAIN),
    Case("episodes.jsonl: binary", result(episodes=b"\x80"), _EPISODES, "not UTF-8"),
    Case("episodes.jsonl: no key", result(episodes=row(key="gone")), _EPISODES, r"\['key'\] missing" + _AGAIN),
    Case("episodes.jsonl: no scores", result(episodes=row(scores="gone")), _EPISODES, r"\['scores'\] missing" + _AGAIN),
    Case("episodes.jsonl: scores a list", result(episodes=row(scores=[1])), _EPISODES, "scores: must be an object"),
    Case(
        "episodes.jsonl: a score of text",
        result(episodes=row(scores={"exact": "1"})),
        _EPISODES,
        "score 'exact' must be a number, is a text",
    ),
    Case(
        "episodes.jsonl: a score that is null",
        result(episodes=row(scores={"exact": None})),
        _EPISODES,
        "score 'exact' must be a number, is null",
    ),
    Case("episodes.jsonl: a checkpoint of 7", result(episodes=row(checkpoint=7)), _EPISODES, "must be a text"),
]
