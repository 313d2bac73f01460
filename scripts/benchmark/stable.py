"""The same run by Stable-Baselines3: `python -m benchmark.stable ASKED RESULT`. Needs stable-baselines3."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmark import process
from benchmark.control import ALGORITHMS, Watch

PHASES = {"collect_rollouts": "time/rollout", "train": "time/learn"}


def main(asked: dict[str, Any], result: str) -> None:
    torch.set_num_threads(int(process.threads() or torch.get_num_threads()))
    algorithm = ALGORITHMS[asked["algorithm"]]
    model = algorithm.peer(asked["env"], algorithm.NUMBERS[asked["env"]], asked["seed"])
    model._stats_window_size = asked["last"]  # an argument of every algorithm, here of none of ours
    spent = {name: record_times(model, method) for method, name in PHASES.items()}
    watch = Watch()
    model.learn(asked["steps"])
    returns = [episode["r"] for episode in model.ep_info_buffer]
    watch.stop(
        result,
        model.num_timesteps,
        float(np.mean(returns)) if returns else float("nan"),
        phases={name: float(np.median(seconds)) for name, seconds in spent.items()},
        versions=process.versions("stable-baselines3", "torch", "gymnasium", "mujoco"),
    )


def record_times(model: Any, method: str) -> list[float]:
    """Record the seconds of each call of the method from now on."""
    seconds: list[float] = []
    inner = getattr(model, method)

    def outer(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        out = inner(*args, **kwargs)
        seconds.append(time.perf_counter() - started)
        return out

    setattr(model, method, outer)
    return seconds


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2])
