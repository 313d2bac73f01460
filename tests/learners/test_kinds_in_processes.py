"""Hybrids, and models whose batches leave out weights, under DDP: two processes make the run that one makes."""

import pytest
import torch

from mmrl.policies.text.fidelity.idle_weights import has_idle_weights
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.scorer import ScoringPolicy
from scripts.model_sweep.checkpoints import build_checkpoint
from scripts.model_sweep.experts import sample
from tests.learners.test_several_processes import EVERY, STRATEGIES, check_weights_and_metrics
from tests.runs.processes import run_ranks
from tests.tiny_recipes import fit, record, words

RECURRENT = ("mamba2", "bamba", "jamba", "nemotron_h", "falcon_h1", "granitemoehybrid", "kimi_linear", "minimax")
"""State-space models alone, beside attention and with experts; delta rules and linear attention."""
IDLE = {"qwen2": False, "mixtral": False, "lfm2": False, "deepseek_v32": True, "qwen4_exp_text": True}
"""Whether weights have no gradient: those of an indexer choose the tokens that attention reads."""
QUICK, SLOW = ("lfm2", "deepseek_v32"), (*RECURRENT, "qwen4_exp_text", "deepseek_v4")


@pytest.mark.parametrize("kind", [*QUICK, *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)])
def test_two_processes_are_one_run(kind, tmp_path):
    build_checkpoint(kind, "text", tmp_path / "start")
    chosen = ["policy=text", f"policy.path='{tmp_path}/start'", "policy.config=null", *EVERY]
    once = fit(tmp_path / "alone", *chosen)
    run_ranks(["fit", *words(tmp_path, *chosen, "trainer.devices=2", *STRATEGIES["ddp"])], tmp_path)
    check_weights_and_metrics(once, [record(tmp_path, rank) for rank in range(2)])
    begun = TextPolicy(path=str(tmp_path / "start")).state_dict()
    assert any(not torch.equal(value, once["weights"][f"policy.{name}"]) for name, value in begun.items())


@pytest.mark.slow
def test_two_processes_train_a_classifier_whose_image_encoder_reads_nothing(tmp_path):
    build_checkpoint("gemma3", "image", tmp_path / "start")
    few = ("data.num_prompts=8", "data.num_minibatches=2", "data.evaluation.count=8")
    chosen = ["recipe=bradley_terry", f"policy.path='{tmp_path}/start'", "policy.config=null", *few, *EVERY]
    once = fit(tmp_path / "alone", *chosen)
    run_ranks(["fit", *words(tmp_path, *chosen, "trainer.devices=2", *STRATEGIES["ddp"])], tmp_path)
    check_weights_and_metrics(once, [record(tmp_path, rank) for rank in range(2)])


@pytest.mark.parametrize("kind", IDLE)
def test_weights_that_batches_leave_out_are_found_at_load(kind, tmp_path):
    """The oracle is a backward pass over rows, after which they have no gradient."""
    build_checkpoint(kind, "text", tmp_path)
    policy = TextPolicy(path=str(tmp_path))
    batch, _ = sample(policy)
    policy.train()(batch).logprobs.sum().backward()
    without = [name for name, weight in policy.named_parameters() if weight.requires_grad and weight.grad is None]
    assert bool(without) == policy.leaves_weights_out == IDLE[kind], without
    assert TextPolicy(path=str(tmp_path)).leaves_weights_out == IDLE[kind]  # from the stored verdict


@pytest.mark.parametrize(("kind", "family", "idle"), [("qwen2", "text", False), ("gemma3", "image", True)])
def test_weights_that_classifiers_leave_out_are_found_at_load(kind, family, idle, tmp_path):
    build_checkpoint(kind, family, tmp_path)
    policy = ScoringPolicy(path=str(tmp_path))
    rows = [
        policy.encode({"messages": [{"role": "user", "content": "a b c"}], "answer": answer})
        for answer in ("12 3", "1")
    ]
    batch = policy.collate(rows)
    policy.scores(batch).sum().backward()
    without = [name for name, weight in policy.named_parameters() if weight.requires_grad and weight.grad is None]
    assert bool(without) == policy.leaves_weights_out == idle, without


def test_frozen_weights_and_failures_of_an_architecture(tmp_path):
    """Frozen weights need no gradient; a model that cannot read one token may leave out weights."""
    build_checkpoint("deepseek_v32", "text", tmp_path)
    policy = TextPolicy(path=str(tmp_path))
    for name, weight in policy.named_parameters():
        weight.requires_grad_("indexer" not in name)
    assert not has_idle_weights(policy)
    policy.model.forward = torch.nn.Identity().forward  # takes no input_ids
    assert has_idle_weights(policy)
