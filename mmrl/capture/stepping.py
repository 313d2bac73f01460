"""Step optimisers of small networks on a CPU without the checks that Lightning and torch make around each step."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.optim import Optimizer


def step(optimizer: Optimizer, trainer: Any) -> None:
    """Step an optimiser directly, with the count that Lightning keeps of steps."""
    counted = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
    counted.increment_ready()
    optimizer.step()
    counted.increment_completed()


def disable_checks(optimizer: Optimizer) -> None:
    """Disable the checks for a GPU that an optimiser makes at every step.

    torch's check for CUDA graphs, and the search for NVML.
    """
    optimizer._accelerator_graph_capture_health_check = lambda: None  # type: ignore[method-assign]
    disable_nvml_search()


def disable_nvml_search() -> None:
    """Without a GPU, disable the search for NVML on the disk at every `torch.cuda.is_available()`.

    Lightning asks for it by an environment variable.
    """
    if torch.cuda.device_count() == 0:
        os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
