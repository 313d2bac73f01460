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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TIMED = ("second", "time/", "gib")
"""Parts of the names of metrics that no two runs share."""


def train(words: Sequence[str], folder: Path) -> dict[str, Any]:
    """Run two tiny iterations of these words; a hash of the weights, and the sorted metrics."""
    from mmrl.commands.cli import CLI
    from mmrl.config.compose import compose, to_lightning
    from tests.test_recipes import shrink

    cfg = compose([*shrink(tuple(words), folder), "trainer.max_epochs=2"])
    if "replay" not in cfg.data:
        cfg.data.reward = {"_target_": "tests.tiny_recipes.Alternating"}
    cli = CLI(to_lightning(cfg))
    cli.fit()
    result = {**cli.trainer.callback_metrics, **cli.datamodule.metrics}
    metrics = sorted(repr(float(value)) for name, value in result.items() if not any(part in name for part in TIMED))
    digest = hashlib.sha256()
    for value in cli.model.state_dict().values():
        digest.update(value.detach().cpu().contiguous().view(-1).numpy().tobytes())
    return {"weights": digest.hexdigest(), "metrics": metrics}


def record(recipes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Results of a tiny run of each recipe."""
    from mmrl.config.compose import groups

    result = {}
    with tempfile.TemporaryDirectory() as folder:
        for recipe in recipes or groups()["recipe"]:
            result[recipe] = train([f"recipe={recipe}"], Path(folder) / recipe)
            print(recipe, file=sys.stderr, flush=True)
    return result


def compare(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[str]:
    """Differences between two records, one line per recipe."""
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
    options = parser.parse_args()
    before = json.loads(options.file.read_text()) if options.action == "compare" else {}
    now = record(options.recipes)
    if options.action == "record":
        options.file.write_text(json.dumps(now, indent=1))
        print(f"{len(now)} recipes written to {options.file}")
        return 0
    lines = compare(before, now)
    print("\n".join([*lines, f"{len(now) - len(lines)} of {len(now)} recipes give the same numbers"]))
    return bool(lines)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for tests.test_recipes
    sys.exit(main())
