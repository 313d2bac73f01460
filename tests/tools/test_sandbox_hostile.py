"""Hostile programs, as root and as an ordinary user, with a file system of their own and without."""

import os
import tempfile
import time
from collections import Counter
from functools import partial

import pytest

from mmrl.tools.sandbox import Limits, Ran, Sandbox
from tests.tools import hostile_calls, hostile_files, hostile_others, hostile_outcomes
from tests.tools.confined import bare, in_process, planted
from tests.tools.hostile import Hostile

PROGRAMS = [
    hostile_calls.ALL,
    *hostile_files.PROGRAMS,
    *hostile_others.PROGRAMS,
    *hostile_outcomes.PROGRAMS,
]
LIMITS = Limits(seconds=8.0, cpu_seconds=1, memory_mb=96, files_mb=4, files=256, output=4000)
REFUSALS = {"PermissionError", "FileNotFoundError", "OSError", "ModuleNotFoundError", "gaierror", "URLError"}
LASTING = ("scratch", "outcome", "resource")  # what could be left for the next program
WAIT = 0.25  # seconds of a program that is known to run into its limit
LATE = 5.0  # seconds after its limit at which a program has not been ended: what escapes sleeps for 60


def run_timed(sandbox: Sandbox, source: str) -> tuple[Ran, float]:
    """How a program ended, and after how many seconds."""
    began = time.monotonic()
    return sandbox.run(source), time.monotonic() - began


def attack(programs: list[Hostile]) -> list[str]:
    """Run hostile programs in this process's sandbox; what went wrong, in words."""
    wrong: list[str] = []
    with planted() as (targets, untouched):
        patient, short = Sandbox(LIMITS), Sandbox(Limits(**{**vars(LIMITS), "seconds": WAIT}))
        patient.run(""), short.run("")  # their workers are there
        for program in programs:
            sandbox = short if program.ends == ("timed_out",) else patient
            worker = sandbox._worker.pid
            ran, took = run_timed(sandbox, program.aim(targets))
            if took > sandbox.limits.seconds + LATE:  # once more: a busy machine is late now and then, an escape always
                took = run_timed(sandbox, program.aim(targets))[1]
            if "ESCAPED" in ran.output or ran.outcome not in program.ends:
                wrong.append(f"{program.name}: {ran}")
            refused = program.ends == ("raised",) and not program.name.startswith(LASTING)
            if refused and ran.reason.partition(":")[0] not in REFUSALS:
                wrong.append(f"{program.name}: ended with {ran.reason}, which is no refusal")
            if took > sandbox.limits.seconds + LATE:
                wrong.append(f"{program.name}: took {took:.1f} s of {sandbox.limits.seconds}")
            if len(ran.output) > LIMITS.output or len(ran.reason) > 2000 or not ran.reason.isprintable():
                wrong.append(f"{program.name}: says too much")
            if sandbox._worker is None or sandbox._worker.pid != worker:
                wrong.append(f"{program.name}: the worker ended")
            if program.name.startswith(LASTING) or program is programs[-1]:
                after = sandbox.run("import os; print(os.listdir('.'))")
                if (after.outcome, after.output) != ("ok", "[]\n"):
                    wrong.append(f"{program.name}: the next program finds {after}")
            wrong += [f"{program.name}: {change}" for change in untouched()]
        folders = [sandbox._folder for sandbox in (patient, short) if sandbox._folder is not None]
        patient.close()
        short.close()
        wrong += [f"left behind: {folder}" for folder in folders if os.path.exists(folder)]
    return wrong


@pytest.mark.parametrize("user", [0, 65534], ids=["root", "ordinary user"])
def test_hostile_programs_are_contained(user):
    assert in_process(partial(attack, PROGRAMS), user=user) == []


@pytest.mark.parametrize("user", [0, 65534], ids=["root", "ordinary user"])
def test_hostile_programs_are_contained_where_nothing_can_be_mounted(user):
    programs = [*hostile_files.PROGRAMS, *hostile_outcomes.PROGRAMS]
    assert in_process(partial(attack, programs), user=user, refused=("unshare", "mount")) == []


def test_the_table_is_as_large_as_it_says():
    programs = [*PROGRAMS, *hostile_calls.PROGRAMS]
    assert len(PROGRAMS) > 200 and len(programs) > 320 and max(Counter(p.name for p in programs).values()) == 1


def try_unconfined() -> list[str]:
    """Run the programs that are marked as controls without any sandbox; those that did not get what they wanted."""
    failed = []
    with bare() as run:
        for program in (*PROGRAMS, *hostile_calls.PROGRAMS):
            if program.control:
                with planted() as (targets, _), tempfile.TemporaryDirectory() as folder:
                    shown = run(program.aim(targets), folder)
                if "ESCAPED" not in shown:
                    failed.append(f"{program.name}: {shown}")
    return failed


def test_the_programs_are_able_to_do_what_they_try():
    if os.getuid() != 0:
        pytest.skip("only root may do all of it")
    assert in_process(try_unconfined, user=0) == []
