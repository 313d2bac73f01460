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
from tests.test_recipes import SMALL

SMALL["tiny_flow_vla_scaled"] = SMALL["tiny_flow_vla"]  # a start stage has this policy


def stages_of(trainer: dict[str, Any]) -> dict[str, list[str]]:
    """Overrides of each start stage."""
    start = (trainer.get("callbacks") or {}).get("start") or {}
    return {name: [*start["common"], *words] for name, words in (start.get("stages") or {}).items() if words}


def describe(words: list[str]) -> dict[str, Any]:
    """Configuration of a run and of its start stages."""
    plain: Any = OmegaConf.to_container(compose(words), resolve=False)
    trainer = plain["trainer"]
    callbacks = trainer.get("callbacks") or {}
    start = callbacks.get("start") or {}
    return {
        "trainer": {name: value for name, value in trainer.items() if name not in ("callbacks", "logger")},
        "callbacks": {name: value for name, value in callbacks.items() if name not in _usual()},
        "model": plain["model"],
        "data": plain["data"],
        "warm_start": {name: start.get(name) for name in ("checkpoint", "take")},
        "stages": {name: describe(stage) for name, stage in stages_of(trainer).items()},
    }


def list_runs(words: list[str]) -> list[tuple[str, ...]]:
    """Overrides of a run and of its start stages."""
    trainer: Any = OmegaConf.to_container(compose(words).trainer, resolve=True)
    return [tuple(words), *(run for stage in stages_of(trainer).values() for run in list_runs(stage))]


def main() -> None:
    result: dict[str, dict[str, Any]] = {}
    trained: dict[tuple[str, ...], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for recipe in sys.argv[3:]:
            for side, words in plan_of(recipe).sides().items():
                runs = list_runs(words)
                for run in runs:
                    if run not in trained:
                        trained[run] = train(run, Path(folder) / str(len(trained)))
                numbers = [trained[run] for run in runs]
                one = {"content": content(words), "config": describe(words), "runs": numbers}
                result.setdefault(recipe, {})[side] = one
            Path(sys.argv[2]).write_text(json.dumps(result))
            print(f"c77fe88: {recipe}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
