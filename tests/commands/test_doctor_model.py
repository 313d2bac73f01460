"""`mmrl doctor policy.path=FOLDER` says how far a checkpoint is from transformers, or why it is refused."""

import re

import pytest

from mmrl.__main__ import main
from mmrl.commands.doctor.model import check_model
from scripts.model_sweep.checkpoints import build_checkpoint
from tests.tiny_recipes import QUIET

POLICY = "mmrl.policies.text.policy.TextPolicy"


def test_the_difference_of_a_checkpoint_is_printed(tmp_path, capsys):
    build_checkpoint("qwen2", "text", tmp_path / "start")
    words = ("recipe=grpo", "policy=text", f"policy.path={tmp_path}/start", "sampling.max_tokens=4")
    main(["doctor", *words, *QUIET, f"run_dir={tmp_path}/run"])
    line = re.search(r"^ok +model +(.*)$", capsys.readouterr().out, flags=re.MULTILINE)
    assert line is not None
    nats = re.match(r"log-probs and entropies within (\S+) nats of transformers alone; rows share prompts", line[1])
    assert nats is not None and 0 < float(nats[1]) < 1e-4
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "kind, good, text",
    [
        ("bloom", True, r"within \S+ nats of transformers alone; rows are padded; bloom keeps its own attention"),
        ("roberta", False, "roberta computes something else here than in transformers alone: .* nats"),
    ],
)
def test_models_that_differ_say_how(kind, good, text, tmp_path):
    build_checkpoint(kind, "text", tmp_path)
    finding = check_model({"class_path": POLICY, "init_args": {"path": str(tmp_path)}})
    assert finding is not None and finding.good is good and re.search(text, finding.found), finding


def test_policies_without_a_checkpoint_are_not_loaded():
    assert check_model({"class_path": POLICY, "init_args": {"path": None, "config": {"model_type": "qwen2"}}}) is None
    assert check_model(None) is None
