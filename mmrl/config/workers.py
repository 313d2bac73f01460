"""The options sim.workers and sim.timeout_s, which every simulator takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmrl.config.signatures import constructor_parameters, import_class
from mmrl.errors import ConfigError

_CLASS = "sims.workers.WorkerSim"
"""Wraps a simulator. The options are not its constructor's, so that all simulators have them without declaring them."""
_OPTIONS = ("workers", "timeout_s")


def split_workers(sim: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a simulator's node into its own arguments and those of its processes.

    Args:
        sim: {_target_, argument: value}.
    """
    kind = import_class(sim.get("_target_"))
    own = constructor_parameters(kind) if isinstance(kind, type) else {}
    options = {name: sim[name] for name in _OPTIONS if name in sim and name not in own}
    if not options.get("workers"):  # 0 steps in this process; a time limit alone stays, and is refused by the parser
        options = {"workers": options["workers"]} if "workers" in options else {}
    return {name: value for name, value in sim.items() if name not in options}, options


def spread_sim(data: dict[str, Any]) -> None:
    """Wrap the simulator of a data module with sim.workers=N above 0, in place.

    Args:
        data: {task: {sim: ...}, rollout: ...}, nodes with `_target_`, without interpolations.

    Raises:
        ConfigError: there are fewer environments than processes.
    """
    task = data.get("task")
    if not isinstance(task, dict) or not isinstance(task.get("sim"), dict):
        return
    sim, options = split_workers(task["sim"])
    rollout = data.get("rollout") or {}
    workers = task["sim"].get("workers")
    for name in ("num_envs", "max_envs"):
        if isinstance(workers, int) and isinstance(rollout.get(name), int) and workers > rollout[name]:
            raise ConfigError(
                f"sim.workers={workers}: rollout.{name}={rollout[name]} environments occupy at most so many processes"
            )
    task["sim"] = {"_target_": _CLASS, **options, "sim": sim} if options.get("workers") else sim
