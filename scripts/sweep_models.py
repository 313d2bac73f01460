"""Build a tiny checkpoint of every causal and image-text type of transformers, and try it: scripts/sweep_models.py."""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import transformers

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.model_sweep.checks import EXACT, Outcome, check_type
from scripts.model_sweep.configs import causal_types, image_types

SECONDS = 120
"""Limit of one type."""


def every_type() -> list[tuple[str, str]]:
    """List the (type, family) pairs of the installed transformers."""
    return [(kind, "text") for kind in causal_types()] + [(kind, "image") for kind in image_types()]


def sweep(types: list[tuple[str, str]], results: Path) -> dict[str, dict[str, Any]]:
    """Check types one after the other; results of earlier calls that the file has are taken from it."""
    stored = read_results(results)
    for kind, family in types:
        if f"{family}/{kind}" in stored:
            continue
        began = time.time()
        folder = Path(tempfile.mkdtemp(prefix="sweep_"))
        try:
            outcome = _check_with_limit(kind, family, folder)
            if (folder / "rows.pt").exists():
                reread([(outcome, folder)])
        finally:
            shutil.rmtree(folder)
        print(f"{family:5} {kind:28} {time.time() - began:5.1f} s {outcome.status:12} {outcome.reason[:150]}", flush=True)
        stored[f"{family}/{kind}"] = outcome.as_dict()
        results.write_text(json.dumps(stored, indent=1) + "\n")
    return stored


def _check_with_limit(kind: str, family: str, folder: Path) -> Outcome:
    signal.signal(signal.SIGALRM, _raise_timeout)
    signal.alarm(SECONDS)
    try:
        return check_type(kind, family, folder)
    except TimeoutError:
        return Outcome(kind, family, "crash", f"took longer than {SECONDS} s")
    finally:
        signal.alarm(0)


def _raise_timeout(*_: Any) -> None:
    raise TimeoutError


def reread(made: list[tuple[Outcome, Path]]) -> None:
    pass


def read_results(results: Path) -> dict[str, dict[str, Any]]:
    return json.loads(results.read_text()) if results.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--types", default="", help="comma-separated model types; all without it")
    parser.add_argument("--family", choices=["text", "image"])
    parser.add_argument("--results", type=Path, default=Path("models.json"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    chosen = set(filter(None, options.types.split(",")))
    types = [
        (kind, family)
        for kind, family in every_type()
        if (not chosen or kind in chosen) and options.family in (None, family)
    ]
    sweep(types, options.results)


if __name__ == "__main__":
    main()
