"""Warm-start stages that were run before, with the same words, are not run again where they are kept."""

import pytest
import torch

from mmrl.callbacks.warm_start import WarmStart
from mmrl.policies.text.policy import TextPolicy
from mmrl.runs import child_process
from tests.policies.text.oracle import TINY

COMMON = ["task=arithmetic", "policy=mini_text", "seed=3"]


def test_a_kept_stage_is_taken(tmp_path, monkeypatch):
    ran = []

    def run(command, env):
        folder = next(word for word in command if word.startswith("run_dir=")).removeprefix("run_dir=")
        ran.append(folder)
        last = tmp_path / folder / "checkpoints" / "last.ckpt"
        last.parent.mkdir(parents=True)
        last.write_bytes(b"weights")

    monkeypatch.setattr(child_process, "run", run)
    monkeypatch.setenv("MMRL_STARTS", str(tmp_path / "starts"))

    def stage(name, words=("start=sums",), common=COMMON, checkpoint=None):
        folder = tmp_path / name
        WarmStart(str(tmp_path), common=list(common))._run("sft", list(words), folder, checkpoint)
        return (folder / "checkpoints" / "last.ckpt").read_bytes()

    assert stage("first") == stage("second") == b"weights" and len(ran) == 1
    stage("seed", common=[*COMMON[:2], "seed=4"])
    stage("words", words=["start=sums", "trainer.max_epochs=3"])
    stage("end", words=["start=sums", "trainer.callbacks.stop.stopping_threshold=0.15"])
    assert len(ran) == 4
    other = tmp_path / "other.ckpt"
    other.write_bytes(b"others")
    stage("after", checkpoint=str(other))
    assert len(ran) == 5
    monkeypatch.delenv("MMRL_STARTS")
    stage("alone")
    assert len(ran) == 6


def test_a_stage_named_like_a_frozen_model_trains_that_model(tmp_path):
    policy = TextPolicy(config=dict(TINY))
    trained = []

    class Spy(WarmStart):
        def _train(self, trainer, model, stages, checkpoint):
            trained.append((model, list(stages), checkpoint))

    learner = torch.nn.Module()
    learner.policy, learner.frozen_models = policy, frozenset({"teacher"})
    learner.models = torch.nn.ModuleDict({"teacher": TextPolicy(config=dict(TINY))})
    trainer = type("Trainer", (), {"ckpt_path": None})
    stages = {"sft": ["recipe=sft"], "teacher": ["recipe=grpo"], "more": ["recipe=grpo"]}
    Spy(str(tmp_path), stages, checkpoint="start.ckpt").setup(trainer, learner, "fit")
    assert trained == [(learner.models["teacher"], ["teacher"], None), (policy, ["sft", "more"], "start.ckpt")]


@pytest.mark.parametrize("pretrained", [False, True])
def test_stages_continue_weights_from_a_path_only_if_told_to(tmp_path, pretrained):
    policy = TextPolicy(config=dict(TINY))
    policy.path = "somewhere"
    ran = []

    class Spy(WarmStart):
        def _run(self, name, words, folder, checkpoint):
            ran.append((name, checkpoint))
            last = folder / "checkpoints" / "last.ckpt"
            last.parent.mkdir(parents=True)
            other = TextPolicy(config=dict(TINY))
            state = {f"policy.{key}": torch.full_like(value, 0.5) for key, value in other.state_dict().items()}
            torch.save({"state_dict": state}, last)

    learner = torch.nn.Module()
    learner.policy = policy
    trainer = type("Trainer", (), {"ckpt_path": None, "is_global_zero": True, "world_size": 1})
    Spy(str(tmp_path), {"sft": ["recipe=sft"]}, pretrained=pretrained).setup(trainer, learner, "fit")
    assert ran == ([("sft", None)] if pretrained else [])
    assert all((value == 0.5).all() for value in policy.parameters()) == pretrained


@pytest.mark.parametrize("path", [None, "somewhere"])
def test_a_checkpoint_is_loaded_into_a_policy_from_a_path_too(path, tmp_path):
    """As in the second stage of a loaded policy, which gets the checkpoint of the first."""
    policy = TextPolicy(config=dict(TINY))
    policy.path = path
    state = {f"policy.{key}": torch.full_like(value, 0.5) for key, value in policy.state_dict().items()}
    torch.save({"state_dict": state}, tmp_path / "first.ckpt")
    learner = torch.nn.Module()
    learner.policy = policy
    trainer = type("Trainer", (), {"ckpt_path": None, "is_global_zero": True, "world_size": 1})
    WarmStart(str(tmp_path), checkpoint=str(tmp_path / "first.ckpt")).setup(trainer, learner, "fit")
    assert all((value == 0.5).all() for value in policy.parameters())
