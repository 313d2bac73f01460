"""Time whole iterations of a Lightning run."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import lightning as L
import torch

from benchmark import process


class Clock(L.Callback):
    """Writes the medians of a run to a file when it ends.

    Nothing between two iterations escapes: collecting, annotating, learning with its optimiser step, and
    Lightning's own work belong to the step. Phases are what the run logs about itself.

    Args:
        file: for the result, as JSON.
    """

    def __init__(self, file: str):
        self.file = Path(file)
        self.steps = process.Steps()
        self.tokens: list[int] = []
        self.lengths: list[float] = []
        self.prompts: list[int] = []
        self.phases: list[dict[str, float]] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.steps.begin()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._note(trainer)  # Lightning shows what an epoch logged once it is over

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize()
        self.steps.end()
        episodes = trainer.datamodule.last_episodes
        self.tokens.append(sum(episode.tokens for episode in episodes))
        self.lengths.append(self.tokens[-1] / len(episodes))
        self.prompts.append(int(episodes[0].turns[0].completion.observation["input_ids"].shape[-1]))

    def _note(self, trainer: Any) -> None:
        logged = trainer.callback_metrics
        if self.steps.seconds:
            self.phases.append({k: float(v) for k, v in logged.items() if k.startswith(("time/", "engine/"))})

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._note(trainer)
        counted = self.phases[1:]
        phases = {name: median(row[name] for row in counted if name in row) for name in counted[0]}
        more: dict[str, Any] = {}
        if pl_module.device.type == "cuda":
            more["peak_cuda_gib"] = torch.cuda.max_memory_allocated(pl_module.device) / 2**30
        process.report(
            self.file,
            process.summary(
                self.steps,
                self.tokens,
                self.lengths,
                rollout_seconds=phases["time/rollout"],
                learn_seconds=phases["time/learn"],
                phases={name: round(value, 4) for name, value in phases.items()},
                prompt_tokens=self.prompts[-1],
                parameters=sum(p.numel() for p in pl_module.policy.parameters()),
                **more,
            ),
        )
