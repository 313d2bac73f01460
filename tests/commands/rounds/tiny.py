"""A rounds file of seconds, and the processes that run it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.quick_python import quick_python
from tests.runs.processes import command
from tests.tiny_recipes import COUNTING, Counting

COMMON = [
    *COUNTING,
    "data.sampling.max_tokens=5",
    "data.reward.weights={exact: 0.5, digits: 1.0}",
    "evaluation.count=8",
    "trainer.accelerator=cpu",
]
FIT = ["recipe=sft", "data.evaluation=null", "data.num_prompts=4", "data.num_minibatches=2", "optimizer.lr=1e-2"]
STAGES: dict[str, dict[str, Any]] = {
    "grow": {"kind": "sample", "count": 12, "num_samples": 4, "part": 2},
    "mark": {"kind": "score", "reads": "grow", "part": 2, "overrides": ["data.reward.weights={digits: 1.0}"]},
    "keep": {"kind": "filter", "reads": "mark", "min": {"reward": 0.3}, "cut": True},
    "learn": {"kind": "fit", "reads": "keep", "overrides": [*FIT, "trainer.max_epochs=4"]},
    "measure": {"kind": "evaluate", "overrides": ["recipe=sft"]},
}


class Imitated(Counting):
    """Counting with an expert, for files whose start imitates one."""

    def demonstrate(self, index: int) -> str:
        return str(index)


def write_file(path: Path, **values: Any) -> Path:
    """Write a rounds file of the tiny stages, with other values at the top."""
    path.write_text(yaml.safe_dump({"common": COMMON, "stages": STAGES, **values}, sort_keys=False))
    return path


def run_rounds(words: Sequence[str], log: Path, kill_before: tuple[str, ...] = ()) -> None:
    """Run `mmrl rounds` in this process, whose children begin quickly.

    The process kills itself with SIGKILL when it is about to rename a finished file to one of these, relative to the
    folder of the rounds: its content is written beside it then.
    """
    sys.executable = quick_python()
    rename = os.replace

    def replace_or_die(source: Any, target: Any) -> None:
        if any(str(target).endswith(ending) for ending in kill_before):
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)

    os.replace = replace_or_die
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[3])
    command(["rounds", *words], log)
