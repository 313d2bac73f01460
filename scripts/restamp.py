"""Keep stored results valid after a code change that changed no number: scripts/restamp.py COMMIT [RECIPE ...].

A stored result is stale when the configuration or the code of a part that it names has changed. This script takes every
stale one, or those named, and compares the checkout with COMMIT, at which the result was current:

1. the hash stored with the result is that of COMMIT,
2. the composed configuration of every side (method, baseline) is the same at both,
3. a tiny run of every side from the same seed, two iterations with optimiser steps, gives the same weights bit for bit.

Runs are made tiny by `shrink` of each checkout's own tests/test_recipes.py, so COMMIT has to have it.
Where all three hold, today's hash is stored. Otherwise the result is left as it is, and the reason is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tiny_runs import train

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = ("callbacks", "logger", "plugins", "default_root_dir")
"""Keys of the trainer that decide what is written down, and not what is learned."""


def config_of(words: Sequence[str]) -> dict[str, Any]:
    """The composed configuration without seed and folder."""
    from omegaconf import OmegaConf

    from mmrl.config.compose import compose

    plain: Any = OmegaConf.to_container(compose([*words, "run_dir=same"]), resolve=False)
    start = ((plain["trainer"].get("callbacks") or {}).get("warm_start") or {}).get("stages")
    trainer = {name: value for name, value in plain["trainer"].items() if name not in WRITTEN}
    return {"trainer": trainer, "model": plain["model"], "data": plain["data"], "start": start}


def record(recipes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Content hash, configuration and weights of a tiny run by recipe and side, in the imported checkout."""
    from mmrl.experiments.stored import plan_of

    from mmrl.experiments.content import content

    sums: dict[tuple[str, ...], str] = {}
    result: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for recipe in recipes:
            plan = plan_of(recipe)
            for side, words in (plan.sides() if plan else {}).items():
                key = tuple(words)
                if key not in sums:
                    sums[key] = train(words, Path(folder) / str(len(sums)))["weights"]
                one = {"content": content(words), "config": config_of(words), "weights": sums[key]}
                result.setdefault(recipe, {})[side] = one
            print(recipe, file=sys.stderr, flush=True)
    return result


def record_in(tree: Path, recipes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`record` with the packages of another checkout."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(Path(__file__).resolve()), "--record", out.name, *recipes]
        subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL)
        return json.loads(Path(out.name).read_text())


def reason(stored: dict[str, str], before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """Why a stored result has to be measured again; None if no number changed."""
    if {side: one["content"] for side, one in before.items()} != stored:
        return "it was not current at that commit"
    for side, one in now.items():
        if one["config"] != before[side]["config"]:
            return f"the configuration of the {side} has changed"
        if one["weights"] != before[side]["weights"]:
            return f"a tiny run of the {side} gives other weights"
    return None


def restamp(commit: str, recipes: Sequence[str]) -> dict[str, str | None]:
    """Store the current hashes where only code changed; returns the reason for each other recipe."""
    from mmrl.experiments.stored import FOLDER, plan_of, proof_of, state

    plans = [plan for name in recipes or sorted(p.stem for p in FOLDER.glob("*.json")) if (plan := plan_of(name))]
    stale = [plan.recipe for plan in plans if state(plan) == "stale"]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), commit], cwd=ROOT, check=True)
        try:
            before, now = record_in(tree, stale), record_in(ROOT, stale)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    reasons: dict[str, str | None] = {}
    for recipe in stale:
        proof = proof_of(recipe)
        assert proof is not None  # it is stale
        reasons[recipe] = reason(proof["content"], before[recipe], now[recipe])
        if reasons[recipe] is None:
            contents = {side: one["content"] for side, one in now[recipe].items()}
            path = FOLDER / f"{recipe}.json"
            text = path.read_text()
            for side, old in proof["content"].items():
                text = text.replace(f'"{side}": "{old}"', f'"{side}": "{contents[side]}"')
            path.write_text(text)
            if proof_of(recipe)["content"] != contents:  # type: ignore[index]
                raise RuntimeError(f"{path}: the hash could not be replaced")
    return reasons


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", metavar="COMMIT [RECIPE ...]")
    given = parser.parse_args()
    if given.record:
        Path(given.record).write_text(json.dumps(record(given.words)))
        return
    if not given.words:
        parser.error("name the commit at which the stored results were current")
    for recipe, why in restamp(given.words[0], given.words[1:]).items():
        print(f"{recipe}: {'kept' if why is None else 'run it again, ' + why}")


if __name__ == "__main__":
    main()
