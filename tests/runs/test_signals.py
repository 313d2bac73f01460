"""SIGTERM and Ctrl-C end a run with a checkpoint, the words to resume with and the status of the signal."""

import os
import shlex
import signal
import subprocess
import sys
import time

import lightning as L
import pytest

from mmrl.__main__ import main
from mmrl.callbacks.progress import STAGE
from mmrl.runs.checkpoint_file import read_checkpoint, read_manifest
from mmrl.runs.metrics_csv import read_rows
from tests.quick_python import quick_python
from tests.runs.processes import run
from tests.runs.words import LOGGED, fit
from tests.tiny_recipes import ROOT, TEXT, override


class Signalled(L.Callback):
    """Sends this process a signal after the first micro-batch of an iteration, or when training starts."""

    def __init__(self, number: int, epoch: int, times: int = 1, start: bool = False):
        self.number, self.epoch, self.times, self.start = number, epoch, times, start

    def on_fit_start(self, *_):
        if self.start:
            os.kill(os.getpid(), self.number)

    def on_train_batch_end(self, trainer, *_):
        if trainer.current_epoch == self.epoch:
            for _ in range(self.times):
                os.kill(os.getpid(), self.number)
            self.epoch = -1


def words(number, epoch=1, **more):
    given = {"_target_": "tests.runs.test_signals.Signalled", "number": int(number), "epoch": epoch, **more}
    inner = ", ".join(f"{name}: {value}" for name, value in given.items())
    return f"trainer.callbacks.signalled={{{inner}}}", "trainer.check_val_every_n_epoch=1", "trainer.max_epochs=3"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_ends_after_its_iteration_and_resumes_as_if_it_had_not(number, tmp_path, capsys):
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    quiet = (
        "trainer.callbacks.last.every_n_epochs=50",
        "trainer.callbacks.curve=null",
    )  # the stop makes the checkpoint
    with pytest.raises(SystemExit) as ended:
        fit(tmp_path / "run", *words(number), *quiet)
    assert ended.value.code == 128 + number
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    message = capsys.readouterr().err
    assert f"stopped by {number.name}" in message and f"--ckpt_path {last}" in message
    assert read_manifest(last)["epoch"] == 1 and not (tmp_path / "run" / "policy").exists()
    assert {each: signal.getsignal(each) for each in before} == before

    assert fit(tmp_path / "run", *words(number, -1), *quiet, f"ckpt_path={last}") == 0
    assert fit(tmp_path / "whole", *words(number, -1), *quiet[1:]) == 0
    for name in ("model.safetensors",):
        resumed, whole = (tmp_path / folder / "policy" / name for folder in ("run", "whole"))
        assert resumed.read_bytes() == whole.read_bytes()


def test_a_stage_leaves_the_hint_to_its_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv(STAGE, "sft")
    with pytest.raises(SystemExit):
        fit(tmp_path, *words(signal.SIGTERM))
    message = capsys.readouterr().err
    assert message.splitlines()[-1] == "mmrl fit: sft: stopped by SIGTERM" and "resume with" not in message


def test_the_checkpoint_is_not_written_twice(tmp_path):
    with pytest.raises(SystemExit):
        fit(tmp_path, *words(signal.SIGTERM, 0))
    assert read_checkpoint(tmp_path / "checkpoints" / "last.ckpt")["epoch"] == 0


def test_before_the_first_iteration_a_run_ends_at_once(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        fit(tmp_path, *words(signal.SIGTERM, -1, start="true"))
    assert ended.value.code == 143
    assert "there is no checkpoint yet" in capsys.readouterr().err


def interrupt_twice(folder):
    fit(folder, *words(signal.SIGINT, times=2))


def test_a_second_ctrl_c_ends_at_once(tmp_path):
    assert run(interrupt_twice, tmp_path) == 130
    assert read_manifest(tmp_path / "checkpoints" / "last.ckpt")["epoch"] == 0  # of the iteration before


def test_a_second_ctrl_c_ends_a_long_call_of_c():
    program = (
        "import hashlib, sys, threading\nfrom mmrl.runs.signals import stop_request\n"
        "sys.setswitchinterval(1000)  # another thread runs when the call of C lets it, and not before\n"
        "lock = threading.Lock()\nlock.acquire()\n"
        "def say():\n    with lock: print('begun', flush=True)\n"
        "with stop_request():\n    threading.Thread(target=say, daemon=True).start()\n"
        "    lock.release()\n    hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)"
    )
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": ROOT}
    with subprocess.Popen([quick_python(), "-c", program], **options) as process:
        assert process.stdout.readline() == b"begun\n"
        for _ in range(2):
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
        try:
            assert process.wait(60) == 130
        finally:
            process.kill()
        assert process.stderr.read() == b"mmrl fit: ended at once\n"


def test_a_process_that_is_stopped_names_the_commands_that_resume_and_evaluate_it(tmp_path):
    folder, more = tmp_path / "run", ("scheduler=constant", "trainer.check_val_every_n_epoch=1000")
    words = override([*TEXT, *LOGGED, f"run_dir={folder}", *more, "trainer.max_epochs=1000"], [])
    command = [quick_python(), "-m", "mmrl", "fit", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    for _ in range(1200):
        if (folder / "metrics.csv").is_file() and len(read_rows(folder / "metrics.csv")) > 1:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, message = process.communicate(timeout=120)
    assert process.returncode == 143 and "Traceback" not in message
    stopped, measured = message.splitlines()[-2:]
    assert stopped.startswith("mmrl fit: stopped by SIGTERM; resume with: mmrl fit ")
    assert measured.startswith("mmrl fit: the weights of this checkpoint are not evaluated; evaluate them with: ")

    last = folder / "checkpoints" / "last.ckpt"
    epochs = f"trainer.max_epochs={read_manifest(last)['epoch'] + 2}"
    assert main(shlex.split(measured.partition("with: ")[2])[1:]) == 0 and (folder / "evaluation.json").is_file()
    resume = shlex.split(stopped.partition("with: ")[2])[1:]
    assert main([*resume, *(f"--{epochs}".split("="))]) == 0
    assert fit(tmp_path / "whole", *more, epochs) == 0
    resumed, whole = (tmp_path / name / "policy" / "model.safetensors" for name in ("run", "whole"))
    assert resumed.read_bytes() == whole.read_bytes()


PARENT = """
import os, sys
from mmrl.runs import child_process
child_process.run([sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"], os.environ)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_stage_dies_with_a_run_that_is_killed():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env=environment)
    number = int(parent.stdout.readline())
    parent.kill()
    parent.wait(30)
    for _ in range(100):
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.kill(number, signal.SIGKILL)
    pytest.fail("the stage outlived the run")
