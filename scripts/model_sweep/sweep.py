"""Check model types one after the other, and their exports in fresh processes."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.model_sweep.checks import EXACT, Outcome, check_type

SECONDS = 180
"""Limit of one type, in seconds of the processor: a busy machine changes no outcome."""
BATCH = 50
"""Types whose exports are read in one fresh process."""
ROOT = Path(__file__).resolve().parents[2]


def sweep(types: Sequence[tuple[str, str]], results: Path | None = None) -> list[Outcome]:
    """Check types that the results file lacks, and add them to it.

    Args:
        types: pairs of model type and family.
        results: where outcomes are kept; None keeps none.

    Returns:
        All outcomes of the file, or those of this call.
    """
    outcomes = read_outcomes(results)
    known = {(outcome.kind, outcome.family) for outcome in outcomes}
    missing = [pair for pair in types if pair not in known]
    for start in range(0, len(missing), BATCH):
        with tempfile.TemporaryDirectory(prefix="sweep_models_") as place:
            outcomes += check_batch(missing[start : start + BATCH], Path(place))
        if results is not None:
            results.write_text(json.dumps([outcome.as_dict() for outcome in outcomes], indent=1) + "\n")
    return outcomes


def read_outcomes(results: Path | None) -> list[Outcome]:
    """Read the outcomes of earlier calls."""
    if results is None or not results.exists():
        return []
    return [Outcome(**fields) for fields in json.loads(results.read_text())]


def check_batch(types: Sequence[tuple[str, str]], place: Path) -> list[Outcome]:
    """Check types one by one, then read all their exports in one fresh process."""
    outcomes = []
    for kind, family in types:
        began, folder = time.perf_counter(), place / f"{family}-{kind}"
        outcomes.append(check_within(kind, family, folder))
        shutil.rmtree(folder / "start", ignore_errors=True)
        seconds, outcome = time.perf_counter() - began, outcomes[-1]
        print(f"{family:5} {kind:28} {seconds:5.1f} s {outcome.status:12} {outcome.reason[:150]}", flush=True)
    read_exports(outcomes, place)
    return outcomes


def check_within(kind: str, family: str, folder: Path) -> Outcome:
    """Check a type within a limit of processor time."""
    signal.signal(signal.SIGPROF, _raise_timeout)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return check_type(kind, family, folder)
    except TimeoutError:
        return Outcome(kind, family, "crash", f"it took longer than {SECONDS} s")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _raise_timeout(*_: Any) -> None:
    raise TimeoutError


def read_exports(outcomes: Sequence[Outcome], place: Path) -> None:
    """Compare every exported policy with its log-probs in one fresh process that does not import mmrl."""
    folders = {str(place / f"{o.family}-{o.kind}"): o for o in outcomes}
    exported = [folder for folder in folders if (Path(folder) / "rows.pt").exists()]
    if not exported:
        return
    command = [sys.executable, "-m", "scripts.model_sweep.plain", *exported]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        found = json.loads(line)
        outcome = folders[found.pop("folder")]
        outcome.export = found.get("difference", found.get("error", ""))
    for folder in exported:
        outcome = folders[folder]
        if outcome.status == "exact" and not (isinstance(outcome.export, float) and outcome.export <= EXACT):
            what = outcome.export if outcome.export != "" else done.stderr[-300:]
            outcome.status, outcome.reason = "wrong", f"the export is not the trained policy: {what}"
