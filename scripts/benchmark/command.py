"""Command line of the benchmark scripts, and the processes that they start."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmark.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
CASES: dict[str, dict[str, Any]] = {
    "short": {"prompt_tokens": 6, "new_tokens": 64},
    "long": {"prompt_tokens": 512, "new_tokens": 16},
    "vlm": {"prompt_tokens": 6, "new_tokens": 16, "images": True},
    "variable": {"prompt_tokens": 6, "new_tokens": 64, "lengths": "mean-16"},
}
"""The lengths at which a step is measured, with 16 prompts and 8 completions each."""


def parser_of(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    add("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the arithmetic; weights are fp32")
    add("--lora", type=int, help="rank of low-rank adapters; all weights are trained by default")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--word", action="append", default=[], help="further word of `mmrl fit`: --word engine.python=PATH")
    add("--threads", type=int, help="OMP_NUM_THREADS of the processes; as it is by default")
    add("--seed", type=int, default=0)
    return parser


def settings_of(chosen: argparse.Namespace, case: str | None, folder: Path) -> Settings:
    """Lengths of the case, updated with the given arguments."""
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
        lora=chosen.lora,
        words=chosen.word,
        seed=chosen.seed,
        **lengths,
    )


def prepare_settings(chosen: argparse.Namespace, case: str | None, folder: Path) -> Settings:
    """Prepare the checkpoint and the problems in the folder; returns the settings."""
    settings = settings_of(chosen, case, folder)
    model = chosen.model
    if model is None:
        model = str(folder / "model")
        child(sys.executable, "tests.checkpoints", chosen.threads, "llava" if settings.images else "qwen2", model)
    elif not Path(model, "config.json").exists():
        raise SystemExit(f"--model {model}: no config.json there; give a folder written by save_pretrained")
    settings.write(folder / "prepare.json")
    child(sys.executable, "benchmark.prepare", chosen.threads, Path(model).resolve(), folder / "prepare.json")
    return settings


def child(python: str, module: str, threads: int | None, *arguments: object) -> None:
    """Run a module in its own process, its output on our stderr. This process stays small, since a child's peak memory
    begins with its parent's."""
    path = os.pathsep.join(filter(None, [str(ROOT / "scripts"), str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {"TOKENIZERS_PARALLELISM": "false", **os.environ, "PYTHONPATH": path}
    environment |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    done = subprocess.run([python, "-m", module, *map(str, arguments)], stdout=sys.stderr, env=environment, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{module} ended with status {done.returncode}; see above")


def measure(python: str, module: str, settings: Settings, threads: int | None, folder: Path) -> dict[str, Any]:
    """Result of one benchmark process."""
    asked, result = folder / "settings.json", folder / "result.json"
    settings.write(asked)
    result.unlink(missing_ok=True)
    child(python, module, threads, asked, result)
    return json.loads(result.read_text())


def portable_settings(settings: Settings) -> dict[str, Any]:
    """The settings without machine-specific entries."""
    return {key: value for key, value in vars(settings).items() if key not in ("folder", "words")}
