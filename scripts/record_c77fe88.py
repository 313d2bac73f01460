"""Record commit c77fe88 for scripts/restamp.py; its own script writes neither metrics nor the stages' configurations.

Run in a checkout of that commit, with its packages. Delete this file when no result is restamped from there any more.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, "scripts")

from mmrl.proofs.content import _usual, content
from mmrl.proofs.stored import plan_of
from omegaconf import OmegaConf
from tiny_runs import train

from mmrl.config import compose


def describe(words: list[str]) -> tuple[dict[str, Any], list[list[str]]]:
    """Configuration of a run and of its start stages, and the overrides of each in that order."""
    plain: Any = OmegaConf.to_container(compose(words), resolve=False)
    trainer = plain["trainer"]
    callbacks = trainer.get("callbacks") or {}
    start = callbacks.get("start") or {}
    stages = {name: describe([*start["common"], *own])[0] for name, own in (start.get("stages") or {}).items() if own}
    config = {
        "trainer": {name: value for name, value in trainer.items() if name not in ("callbacks", "logger")},
        "callbacks": {name: value for name, value in callbacks.items() if name not in _usual()},
        "model": plain["model"],
        "data": plain["data"],
        "warm_start": {name: start.get(name) for name in ("checkpoint", "take")},
        "stages": stages,
    }
    resolved: Any = OmegaConf.to_container(compose(words).trainer, resolve=True)
    start = (resolved.get("callbacks") or {}).get("start") or {}
    below = [describe([*start["common"], *own])[1] for own in (start.get("stages") or {}).values() if own]
    return config, [words, *(run for runs in below for run in runs)]


def main() -> None:
    result: dict[str, dict[str, Any]] = {}
    trained: dict[tuple[str, ...], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for recipe in sys.argv[3:]:
            for side, words in plan_of(recipe).sides().items():
                config, runs = describe(words)
                for run in map(tuple, runs):
                    if run not in trained:
                        trained[run] = train(run, Path(folder) / str(len(trained)))
                numbers = [trained[tuple(run)] for run in runs]
                one = {"content": content(words), "config": config, "runs": numbers}
                result.setdefault(recipe, {})[side] = one
            Path(sys.argv[2]).write_text(json.dumps(result))
            print(f"c77fe88: {recipe}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
