"""Run the command of a step in a process group of its own, within a limit, and describe how it ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

GRACE = 5.0  # seconds between SIGTERM and SIGKILL
TAIL = 4000  # characters of the output that a result keeps

PASSED, FAILED, BROKEN_OFF, SKIPPED = "passed", "failed", "broken off", "skipped"


@dataclass(frozen=True)
class Step:
    """One step of the check.

    Args:
        name: as in the results.
        purpose: what it shows, one line of the page.
        command: arguments of the process; "{folder}" stands for the folder of the step.
        limit: seconds after which its process group is killed.
        read: numbers of what it has written so far, from its folder and its standard output.
        missing: why it cannot run here; None where it can.
    """

    name: str
    purpose: str
    command: tuple[str, ...]
    limit: float
    read: Callable[[Path, str], dict[str, Any]] = lambda folder, text: {}
    missing: str | None = None


@dataclass
class Outcome:
    """How a step ended: status, reason, seconds, exit status, numbers, and the end of its output."""

    name: str
    purpose: str
    status: str
    reason: str = ""
    seconds: float = 0.0
    limit: float = 0.0
    command: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    tail: str = ""

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def run_step(step: Step, folder: Path, left: float, environment: Mapping[str, str], root: Path) -> Outcome:
    """Run a step; what it wrote before it was broken off is read as well.

    Args:
        step: its limit is shortened to `left`.
        folder: of its files; emptied.
        left: seconds that the whole check has left.
        environment: of the process.
        root: working directory of the process.
    """
    command = [word.replace("{folder}", str(folder)) for word in step.command]
    outcome = Outcome(
        step.name, step.purpose, SKIPPED, step.missing or "", limit=min(step.limit, left), command=command
    )
    if step.missing is not None:
        return outcome
    if left <= 0:
        outcome.reason = "the check's own limit is used up"
        return outcome
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier check
    folder.mkdir(parents=True)
    output, errors = folder / "stdout.txt", folder / "stderr.txt"
    started = time.monotonic()
    with output.open("w") as out, errors.open("w") as err:
        process = subprocess.Popen(
            command, cwd=root, env=dict(environment), stdout=out, stderr=err, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(outcome.limit)
            outcome.status = PASSED if code == 0 else FAILED
            outcome.reason = "" if code == 0 else f"exit status {code}"
        except subprocess.TimeoutExpired:
            outcome.status, outcome.reason = BROKEN_OFF, f"its limit of {outcome.limit:.0f} s"
        finally:
            end_group(process)  # also what a process that ended has left behind
    outcome.seconds = round(time.monotonic() - started, 1)
    text = output.read_text(errors="replace")
    outcome.tail = (text + errors.read_text(errors="replace"))[-TAIL:] if outcome.status != PASSED else text[-TAIL:]
    try:
        outcome.numbers = step.read(folder, text)
    except Exception as error:  # a result that was broken off may be half written
        if outcome.status == PASSED:
            outcome.status, outcome.reason = FAILED, f"its results cannot be read: {type(error).__name__}: {error}"
    if outcome.status == PASSED and outcome.numbers.get("skipped") and not outcome.numbers.get("passed"):
        outcome.status, outcome.reason = SKIPPED, "its tests need what this machine lacks"
    return outcome


def end_group(process: subprocess.Popen) -> None:
    """End all processes of a group, by SIGTERM and after some seconds by SIGKILL."""
    for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        until = time.monotonic() + seconds
        while time.monotonic() < until and _lives(process):
            time.sleep(0.05)
    process.wait()


def _lives(process: subprocess.Popen) -> bool:
    """Whether any process of the group is left."""
    process.poll()  # without it an ended leader would count until this process waits for it
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True
