"""Build a tiny random checkpoint of every causal and image-text type of transformers, try it, and write docs/models.md.

`python scripts/sweep_models.py` takes a quarter of an hour; what the results file has is not tried again, so that a
sweep that was ended goes on. `--types qwen2,llava` tries some types and prints what came; the page is written of all.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import transformers  # noqa: E402

from scripts.model_sweep.configs import every_type  # noqa: E402
from scripts.model_sweep.page import PAGE, format_page  # noqa: E402
from scripts.model_sweep.sweep import sweep  # noqa: E402


def main() -> None:
    """Read the arguments, sweep, and write the page if all types were tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default="", help="comma-separated model types; all without it")
    parser.add_argument("--family", choices=["text", "image"])
    parser.add_argument("--results", type=Path, default=Path("models.json"), help="where outcomes are kept")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    kinds = set(filter(None, options.types.split(",")))
    if unknown := kinds - {kind for kind, _ in every_type()}:
        parser.error(f"--types: {sorted(unknown)} are no causal or image-text types of transformers")
    types = [
        (kind, family)
        for kind, family in every_type()
        if (not kinds or kind in kinds) and options.family in (None, family)
    ]
    outcomes = sweep(types, options.results)
    if {(outcome.kind, outcome.family) for outcome in outcomes} >= set(every_type()):
        (ROOT / PAGE).write_text(format_page(outcomes))
        print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
