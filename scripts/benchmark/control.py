"""Control benchmark, our side: `python -m benchmark.control ASKED RESULT`.

An algorithm is a module of this package with

  NUMBERS   {environment: {name: value}}: the hyperparameters, network included, that both sides read
  words     (environment, numbers, steps) -> words of `mmrl fit`
  peer      (environment, numbers, seed) -> a model of Stable-Baselines3 that has not learned yet
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmark import dqn, ppo, process, sac

ALGORITHMS: dict[str, Any] = {"dqn": dqn, "ppo": ppo, "sac": sac}
QUIET = (
    "trainer.accelerator=cpu",
    "trainer.logger=false",
    "trainer.enable_progress_bar=false",
    "trainer.enable_checkpointing=false",
    "trainer.callbacks.warm_start=null",
    "data.evaluation=null",
    "scheduler=constant",
    *(f"trainer.callbacks.{name}=null" for name in ("progress", "checkpoint", "last", "export", "curve")),
)
"""Words that leave out what the peer does not do either: files, bars, held-out measurements."""


def words(asked: dict[str, Any], run_dir: str, result: str) -> list[str]:
    """Command-line words of the same run, with the stopwatch."""
    algorithm = ALGORITHMS[asked["algorithm"]]
    return [
        *algorithm.words(asked["env"], algorithm.NUMBERS[asked["env"]], asked["steps"]),
        *QUIET,
        f"trainer.callbacks.stopwatch={{_target_: benchmark.stopwatch.Stopwatch, file: '{result}'}}",
        f"rollout.stats_window_size={asked['last']}",
        f"seed={asked['seed']}",
        f"run_dir={run_dir}",
        *asked["words"],
    ]


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the rounds of one side."""
    names = ("env_steps_per_second", "final_return", "seconds", "cpu_seconds")
    out: dict[str, Any] = {name: median(run[name] for run in runs) for name in names}
    return out | {"env_steps": runs[-1]["env_steps"], "rounds": [run["env_steps_per_second"] for run in runs]}


class Watch:
    """Wall-clock and CPU seconds of a whole run, and its decisions."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self, file: str | Path, env_steps: float, final_return: float, **more: Any) -> None:
        seconds, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        out = {"env_steps": env_steps, "env_steps_per_second": env_steps / seconds, "seconds": seconds}
        process.report(file, out | {"cpu_seconds": cpu, "final_return": final_return, **more})


def main(asked: dict[str, Any], result: str) -> None:
    from mmrl.commands.fit import fit

    with tempfile.TemporaryDirectory() as run_dir:
        fit(words(asked, run_dir, result))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2])
