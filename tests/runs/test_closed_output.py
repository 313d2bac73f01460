"""A reader of the output that leaves early, as `head -1`, does not end a run."""

import os
import subprocess

import pytest

from mmrl.runs.closed_output import DroppingStream
from tests.quick_python import quick_python
from tests.tiny_recipes import ROOT, TEXT

PLAIN = ("trainer.accelerator=cpu", "trainer.callbacks.warm_start.stages=null", "trainer.max_epochs=3")


@pytest.mark.parametrize("streams", ["|", "2>&1 |"])
def test_a_run_whose_output_is_cut_off_goes_on_to_its_end(streams, tmp_path):
    words = " ".join(f"'{word}'" for word in (*TEXT, *PLAIN, f"run_dir={tmp_path / 'run'}"))
    line = f"set -o pipefail; {quick_python()} -m mmrl fit {words} {streams} head -1"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr
    assert (tmp_path / "run" / "policy" / "model.safetensors").is_file() and "Traceback" not in done.stderr


def test_a_list_that_is_cut_off_ends_quietly():
    line = f"{quick_python()} -m mmrl list recipes | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.stdout.splitlines()[-1] in ("0", "141") and done.stderr == ""


def test_writes_after_the_reader_has_gone_are_dropped():
    reading, writing = os.pipe()
    with open(writing, "w") as plain:
        stream = DroppingStream(plain)
        os.close(reading)
        for _ in range(3):
            assert stream.write("text" * 10_000) == 40_000
            stream.flush()
        assert stream.encoding == plain.encoding and not stream.isatty()
