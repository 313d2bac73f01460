"""Speed of a simulator with pins of its own through mmrl, beside that of its package as it comes."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import sims
from benchmark.spread import Played
from sims.workers.guest import GuestSim

_ROUNDS = 3


def compare_bare(sim: GuestSim, name: str, num_envs: int, camera: int, seconds: float) -> dict[str, float]:
    """Median control steps per second through mmrl and bare, measured in turn; with a camera also frames.

    Args:
        sim: one process steps all environments.
        name: of the simulator.
        num_envs: through mmrl; the bare side has one environment.
        camera: pixels a side; 0 measures no images.
        seconds: of all sides together.
    """
    sizes = {"steps": 0, **({"frames": camera} if camera else {})}
    slice_s = seconds / _ROUNDS / len(sizes) / 2
    out: dict[str, float] = {}
    for what, size in sizes.items():
        side = Played(replace(sim.stepwise(), image_size=size).make(num_envs))  # type: ignore[call-arg]
        side.decide()
        rates: dict[str, list[float]] = {"whole": [], "bare": []}
        for _ in range(_ROUNDS):
            before, start = side.decisions, time.perf_counter()
            while time.perf_counter() < start + slice_s:
                side.decide()
            rates["whole"].append((side.decisions - before) / (time.perf_counter() - start))
            rates["bare"].append(_run_bare(sim, name, size, slice_s))
        side.env.close()
        whole, bare = median(rates["whole"]), median(rates["bare"])
        out |= {f"{what}_per_second": round(whole, 1), f"raw_{what}_per_second": round(bare, 1)}
        out[f"{what}_ratio"] = round(whole / bare, 3)
    return out


def _run_bare(sim: GuestSim, name: str, size: int, seconds: float) -> float:
    program = sim.program()
    folders, options = json.dumps([str(path) for path in sims.__path__]), json.dumps(sim.guest_arguments())
    script = str(Path(__file__).with_name("guest_bare.py"))
    command: list[Any] = [str(program.python), script, folders, name, options, str(size), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=program.variables())
    return float(done.stdout.splitlines()[-1])
