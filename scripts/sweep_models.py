"""Build a tiny random checkpoint of every causal and image-text type of transformers, try it, and write docs/models.md.

`python scripts/sweep_models.py` takes a quarter of an hour; what the results file has is not tried again, so that a
sweep that was ended goes on. `--types qwen2,llava` tries some types and prints what came; the page is written of all.
`--features features.json` tries adapters, videos and experts of the types that the page says are exact, and writes the
page's second part; with `--types` it writes the rows of these types alone. `--processes FILE` and `--vllm FILE` add
what `scripts.model_sweep.processes` and `.vllm_types` wrote.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import transformers  # noqa: E402

from scripts.model_sweep.configs import every_type  # noqa: E402
from scripts.model_sweep.features import measure_types  # noqa: E402
from scripts.model_sweep.features_page import (  # noqa: E402
    add_sample,
    find_part,
    format_features,
    merge_features,
    read_features,
    replace_part,
)
from scripts.model_sweep.page import PAGE, format_page, list_exact  # noqa: E402
from scripts.model_sweep.sweep import sweep  # noqa: E402


def main() -> None:
    """Read the arguments, sweep, and write the page if all types were tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default="", help="comma-separated model types; all without it")
    parser.add_argument("--family", choices=["text", "image"])
    parser.add_argument("--results", type=Path, default=Path("models.json"), help="where outcomes are kept")
    parser.add_argument("--features", type=Path, help="where features are kept; writes the second part of the page")
    parser.add_argument("--processes", type=Path, help="results of a sample of types in two processes")
    parser.add_argument("--vllm", type=Path, help="results of a sample of types in vLLM")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    kinds = set(filter(None, options.types.split(",")))
    if unknown := kinds - {kind for kind, _ in every_type()}:
        parser.error(f"--types: {sorted(unknown)} are no causal or image-text types of transformers")
    if options.features is not None:
        write_features(options)
        return
    types = [
        (kind, family)
        for kind, family in every_type()
        if (not kinds or kind in kinds) and options.family in (None, family)
    ]
    outcomes = sweep(types, options.results)
    if {(outcome.kind, outcome.family) for outcome in outcomes} >= set(every_type()):
        part = find_part((ROOT / PAGE).read_text())
        (ROOT / PAGE).write_text(replace_part(format_page(outcomes), part) if part else format_page(outcomes))
        print(f"written: {PAGE}")


def write_features(options: argparse.Namespace) -> None:
    """Measure features of the types that the page says are exact, and write its second part."""
    page = ROOT / PAGE
    kinds = set(filter(None, options.types.split(",")))
    types = [pair for pair in list_exact(page.read_text()) if not kinds or pair[0] in kinds]
    features = measure_types(types, options.features)
    samples = {} if options.processes is None else json.loads(options.processes.read_text())
    if options.vllm is not None:
        samples["vLLM"] = json.loads(options.vllm.read_text())
    for column, results in samples.items():
        add_sample(features, column, results)
    features = merge_features(read_features(page.read_text()) if kinds else [], features)
    page.write_text(replace_part(page.read_text(), format_features(features)))
    print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
