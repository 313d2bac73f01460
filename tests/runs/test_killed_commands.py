"""`mmrl fit` that is killed while it exports and `mmrl evaluate` while it writes leave a folder that both can use."""

import json
import os
import signal
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

from mmrl.__main__ import main
from mmrl.evaluation.report.result import EvaluationResult
from mmrl.runs.checkpoint_file import read_checkpoint
from tests.runs.processes import command, run
from tests.runs.words import LOGGED, fit
from tests.tiny_recipes import TEXT, override


def run_killed(words, log, event, place):
    """Run an mmrl command that is killed before its first call of the file system with a path."""

    def watch(name, arguments):
        if name == event and place in str(arguments[0]):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    command(words, log)


def kill(words, folder, event, place):
    log = folder.with_name("log")
    status = run(run_killed, words, log, event, f"{folder}/{place}")
    assert status == -signal.SIGKILL, log.read_text()[-3000:]


def assert_exported(folder):
    """The exported policy has the weights of the last checkpoint, as plain transformers reads them."""
    weights = AutoModelForCausalLM.from_pretrained(folder / "policy").state_dict()
    saved = read_checkpoint(folder / "checkpoints" / "last.ckpt")["state_dict"]
    expected = {
        name.removeprefix("policy.model."): value for name, value in saved.items() if name.startswith("policy.model.")
    }
    assert weights.keys() >= expected.keys() and len(expected) > 5
    assert all(torch.equal(weights[name], value) for name, value in expected.items())
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".policy")]


def test_a_run_that_is_killed_while_it_exports_can_be_measured_and_resumed(tmp_path):
    folder = tmp_path / "run"
    last = f"ckpt_path={folder / 'checkpoints/last.ckpt'}"
    first = override([*TEXT, *LOGGED, f"run_dir={folder}"], ["trainer.max_epochs=1"])
    # the weights are written, the tokenizer is not
    kill(["fit", *first], folder, "open", ".policy.part/tokenizer_config.json")
    assert not (folder / "policy").exists() and (folder / ".policy.part" / "model.safetensors").exists()
    assert main(["evaluate", str(folder)]) == 0
    assert list(EvaluationResult.read(folder).episodes) == ["last"]
    assert fit(folder, "trainer.max_epochs=1", last) == 0  # nothing is left to learn
    assert_exported(folder)
    # the old policy is there as a whole while a part of the new one is
    old = (folder / "policy" / "model.safetensors").read_bytes()
    kill(
        ["fit", *override(first, ["trainer.max_epochs=2", last])], folder, "open", ".policy.part/tokenizer_config.json"
    )
    assert (folder / "policy" / "model.safetensors").read_bytes() == old
    assert main(["evaluate", str(folder)]) == 0
    assert fit(folder, "trainer.max_epochs=2", last) == 0
    assert_exported(folder)


def test_a_measurement_that_is_killed_while_it_is_written_is_whole_or_missing(tmp_path):
    folder = tmp_path / "run"
    assert fit(folder, "trainer.max_epochs=1") == 0
    assert main(["evaluate", str(folder)]) == 0
    killed_before = [
        ("os.remove", "protocol.json"),
        ("os.rename", ".episodes.jsonl.part"),
        ("open", ".report.html.part"),
    ]
    measured = []
    for event, place in killed_before:
        kill(["evaluate", str(folder), "checkpoint=start"], folder, event, place)
        metrics = json.loads((folder / "evaluation.json").read_text())["metrics"]
        if (folder / "protocol.json").exists():
            assert list(EvaluationResult.read(folder).episodes) == list(metrics)
            measured += metrics
        else:
            with pytest.raises(ValueError, match=r"protocol\.json missing\): run mmrl evaluate"):
                EvaluationResult.read(folder)
            measured.append(None)
    assert measured == ["last", None, "start"]  # the old one, none and the new one
    assert main(["evaluate", str(folder)]) == 0
    assert list(EvaluationResult.read(folder).episodes) == ["last"]
