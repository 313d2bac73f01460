"""Compare the numbers of every recipe before and after a change: python scripts/tiny_runs.py record|compare FILE.

Each recipe, or those named after FILE, makes two iterations at a tiny size from random weights, with a reward that
gives them something to learn. Metrics and the weights at the end have to be equal bit for bit; names of weights and of
metrics may differ. Record and compare on one machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmrl.rewards.base import Reward

TIMED = ("second", "gib")
"""Parts of the names of metrics that no two runs share."""


class Alternating(Reward):
    """Pays the attempts at a problem 0 and 1 in turn, so that a policy without any training has something to learn."""

    def __call__(self, group: Sequence[Any]) -> list[float]:
        if len(group) == 1 and isinstance(group[0].output, str):
            return [float(zlib.crc32(group[0].output.encode()) % 2)]
        return [float((place + episode.group + episode.group // 2) % 2) for place, episode in enumerate(group)]


def train(words: Sequence[str], folder: Path) -> dict[str, Any]:
    """Run two tiny iterations of these words; a hash of the weights, and the sorted metrics."""
    from mmrl.cli import CLI
    from mmrl.config import compose, typed
    from tests.test_recipes import SMALL, TINY

    cfg = compose(words)
    tiny = [*words, *TINY, *SMALL[cfg.choices.policy], f"run_dir='{folder}'", "trainer.max_epochs=2"]
    if cfg.data.get("evaluation") is not None:
        tiny.append("data.evaluation.count=4")
    if cfg.data.group_size > 1:
        tiny.append("data.group_size=2")
    if "max_tokens" in cfg.data.sampling:
        tiny.append("data.sampling.max_tokens=3")
    if "replay" in cfg.data:
        tiny += ["data.random=8", "data.replay.batch=4", "data.replay.capacity=100"]
    else:
        tiny.append("data.passes=1")
    if cfg.choices.rollout == "hinted":
        tiny.append("data.rollout.rounds=2")
    if cfg.choices.rollout == "segments":
        tiny += ["data.rollout.num_envs=2", "data.rollout.horizon=8"]
    cfg = compose(tiny)
    if "replay" not in cfg.data:
        cfg.data.reward = {"_target_": "tiny_runs.Alternating"}
    cli = CLI(typed(cfg))
    cli.fit()
    found = {**cli.trainer.callback_metrics, **cli.datamodule.metrics}
    metrics = sorted(repr(float(value)) for name, value in found.items() if not any(part in name for part in TIMED))
    digest = hashlib.sha256()
    for value in cli.model.state_dict().values():
        digest.update(value.detach().cpu().contiguous().view(-1).numpy().tobytes())
    return {"weights": digest.hexdigest(), "metrics": metrics}


def record(recipes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By recipe, what its tiny run gives."""
    from mmrl.config import groups

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for recipe in recipes or groups()["recipe"]:
            found[recipe] = train([f"recipe={recipe}"], Path(folder) / recipe)
            print(recipe, file=sys.stderr, flush=True)
    return found


def compare(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[str]:
    """What differs, a line for each recipe."""
    lines = []
    for recipe, one in now.items():
        if recipe not in before:
            lines.append(f"{recipe}: not in the record")
            continue
        parts = [part for part in one if one[part] != before[recipe].get(part)]
        if parts:
            lines.append(f"{recipe}: other {' and '.join(parts)}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("recipes", nargs="*", metavar="RECIPE")
    given = parser.parse_args()
    before = json.loads(given.file.read_text()) if given.action == "compare" else {}
    now = record(given.recipes)
    if given.action == "record":
        given.file.write_text(json.dumps(now, indent=1))
        print(f"{len(now)} recipes written to {given.file}")
        return 0
    lines = compare(before, now)
    print("\n".join([*lines, f"{len(now) - len(lines)} of {len(now)} recipes give the same numbers"]))
    return bool(lines)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for tests.test_recipes
    sys.exit(main())
