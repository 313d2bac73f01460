"""Time a whole Lightning run in a simulator."""

from __future__ import annotations

from statistics import median
from typing import Any

import lightning as L

from benchmark.control import Watch


class Stopwatch(L.Callback):
    """Writes the decisions of a run, its seconds and its last return to a file when it ends.

    From the start of training to its end: the simulator's start, collecting, learning and all that Lightning does
    between. Phases are medians over the iterations of what the run logs about itself.

    Args:
        file: for the result, as JSON.
    """

    def __init__(self, file: str):
        self.file = file
        self.phases: list[dict[str, float]] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.watch = Watch()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._note(trainer)  # Lightning shows what an epoch logged once it is over

    def _note(self, trainer: Any) -> None:
        seen = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("time/")}
        if seen:
            self.phases.append(seen)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._note(trainer)
        names = self.phases[-1] if self.phases else {}
        phases = {name: median(row[name] for row in self.phases if name in row) for name in names}
        metrics = trainer.datamodule.rollout.metrics()
        last = next((value for name, value in metrics.items() if name.startswith("return_")), float("nan"))
        self.watch.stop(self.file, metrics["env_steps"], last, phases=phases)
