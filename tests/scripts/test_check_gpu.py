"""`make gpu-check` runs to its end on a CPU, and what is broken off leaves its result and no process."""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.quick_python import quick_python

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_gpu  # noqa: E402

from scripts.gpu_check.page import format_page  # noqa: E402
from scripts.gpu_check.runner import BROKEN_OFF, FAILED, PASSED, SKIPPED, Step, run_step  # noqa: E402
from scripts.gpu_check.steps import Place, build_steps, read_lines, read_tests  # noqa: E402


def run(tmp_path, command: str, limit: float = 20.0, left: float = 20.0, **changes):
    step = replace(Step("it", "tries it", ("sh", "-c", command), limit, read_lines), **changes)
    return run_step(step, tmp_path / "it", left, os.environ, ROOT)


def test_all_steps_run_to_their_end_on_a_cpu(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ["check_gpu", "--device", "cpu", "--tiny", "--out", str(tmp_path), "--python", quick_python()]
    monkeypatch.setattr(sys, "argv", words)
    assert check_gpu.main() == 0, (tmp_path / "gpu_check.md").read_text()
    steps = {step["name"]: step for step in json.loads((tmp_path / "gpu_check.json").read_text())["steps"]}
    assert list(steps) == [step.name for step in build_steps(Place("cpu", tiny=True))]
    assert steps["vllm"]["status"] == SKIPPED and "needs a GPU" in steps["vllm"]["reason"]
    assert steps["tests"]["status"] == SKIPPED and "this machine lacks" in steps["tests"]["reason"]
    ran = [step for name, step in steps.items() if step["status"] != SKIPPED]
    assert len(ran) >= 5 and all(step["status"] == PASSED and step["numbers"] for step in ran)
    assert steps["bf16_lora"]["numbers"]["val/greedy/exact/mean"].keys() == {"0.0", "1.0"}
    assert steps["bf16_lora"]["numbers"]["learned"] == steps["curve"]["numbers"]["learned"] == 1
    assert steps["grpo"]["numbers"]["line 1"]["seconds_per_step"] > 0
    assert steps["capture"]["numbers"]["line 1"]["captured"]["difference"] == 0
    page = (tmp_path / "gpu_check.md").read_text()
    assert all(f"| {name} | {step['status']}" in page for name, step in steps.items())


def test_a_step_beyond_its_limit_leaves_its_result_and_no_process(tmp_path):
    began = time.monotonic()
    outcome = run(tmp_path, "echo '{\"n\": 3}'; sleep 300 & echo $!; trap '' TERM; sleep 300 & wait", limit=1.0)
    assert outcome.status == BROKEN_OFF and outcome.reason == "its limit of 1 s"
    assert outcome.numbers == {"line 1": {"n": 3}} and time.monotonic() - began < 20
    child = int((tmp_path / "it" / "stdout.txt").read_text().split()[-1])
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_what_a_step_leaves_behind_is_ended(tmp_path):
    assert run(tmp_path, "sleep 300 & echo $!").status == PASSED
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "it" / "stdout.txt").read_text()), 0)


def test_how_steps_end(tmp_path):
    failed = run(tmp_path, "echo why >&2; exit 3")
    assert (failed.status, failed.reason) == (FAILED, "exit status 3") and "why" in failed.tail
    assert "```text\nwhy\n```" in format_page({}, [failed])
    assert run(tmp_path, "true", missing="no card").status == SKIPPED
    assert run(tmp_path, "echo 2 skipped in 0.10s", read=read_tests).status == SKIPPED  # nothing was tried
    assert run(tmp_path, "echo 1 passed, 2 skipped in 0.10s", read=read_tests).status == PASSED
    assert run(tmp_path, "true", left=0.0).reason == "the check's own limit is used up"
    assert run(tmp_path, "sleep 60", left=0.5).status == BROKEN_OFF
    broken = run(tmp_path, "echo '{1}'")
    assert broken.status == FAILED and "cannot be read" in broken.reason


def test_tests_of_vllm_say_why_they_cannot_run():
    reasons = [
        next(step.missing for step in build_steps(place) if step.name == "vllm")
        for place in (Place("cpu"), Place("cuda"), Place("cuda", vllm_python="python"))
    ]
    assert "needs a GPU" in reasons[0] and "vLLM is not installed" in reasons[1] and reasons[2] is None


def test_counts_of_tests():
    assert read_tests(Path(), "..s\n2 passed, 1 skipped in 3.20s\n") == {"passed": 2, "skipped": 1}
    assert read_tests(Path(), "..") == {}


@pytest.mark.parametrize("gpus", [1, 2])
def test_the_limits_are_25_minutes_and_a_gpu_is_named_in_every_command(gpus):
    steps = build_steps(Place("cuda", gpus=gpus, vllm_python="python"))
    assert sum(step.limit for step in steps) <= 60 * check_gpu.MINUTES == 1500
    assert all(
        {"cuda", "gpu and not vllm", "vllm and gpu", "trainer.accelerator=gpu"} & {*step.command} for step in steps
    )
    assert [step.missing for step in steps if step.name == "scale"] == [
        "needs 2 GPUs, there is 1" if gpus == 1 else None
    ]


def test_without_a_gpu_the_command_says_so(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["check_gpu"])
    monkeypatch.setattr(check_gpu.torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        check_gpu.main()
    assert "--device cpu --tiny" in capsys.readouterr().err
