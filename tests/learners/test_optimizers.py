"""Optimisers of libraries in a run: states in 8 bits follow those in fp32, Muon orthogonalises, and both resume."""

import pytest
import torch

from mmrl.__main__ import main
from mmrl.runs.checkpoint_file import read_checkpoint
from tests.learners.test_resume import same
from tests.tiny_recipes import fit, words

BASE = (
    "trainer.check_val_every_n_epoch=1",
    "data.num_minibatches=1",
    "data.num_prompts=16",
    "data.evaluation.count=40",
    "data.evaluation.evaluators.digits._target_=mmrl.evaluation.metrics.means.MeanScores",
    "model.scheduler.total_iters=20",
    "optimizer.lr=2e-2",
)
WIDE = ("policy.config.hidden_size=64", "policy.config.intermediate_size=128")  # matrices of 8,192 entries have 8 bits
EIGHT_BIT = "optimizer._target_=bitsandbytes.optim.AdamW8bit"
MUON = "optimizer._target_=timm.optim.Muon"
LORA_MUON = ("optimizer._target_=torch.optim.Muon", "policy.lora.r=4")
MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def digits(done: dict) -> list[float]:
    names = [name for metrics in done["metrics"] for name in metrics if name.endswith("digits/digits")]
    return [metrics[names[0]] for metrics in done["metrics"] if names[0] in metrics]


@pytest.mark.parametrize("more", [(EIGHT_BIT, *WIDE), (MUON,), LORA_MUON], ids=["8bit", "muon", "muon_lora"])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(more, tmp_path):
    if EIGHT_BIT in more:
        pytest.importorskip("bitsandbytes")
    whole = fit(tmp_path / "whole", *BASE, *more, "trainer.max_epochs=4")
    fit(tmp_path / "first", *BASE, *more, "trainer.max_epochs=2")
    checkpoint = f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'"
    resumed = fit(tmp_path / "second", *BASE, *more, "trainer.max_epochs=4", checkpoint)
    for group in (group for run in (whole, resumed) for group in run["optimizer"][0]["param_groups"]):
        for name in [name for name, value in group.items() if isinstance(value, str)]:
            group.pop(name)  # numbers alone can be compared
    same(whole, resumed)


def test_training_with_states_in_8_bits_follows_that_in_fp32(tmp_path):
    optim = pytest.importorskip("bitsandbytes.optim")
    more = (*BASE, *WIDE, "optimizer.eps=1e-6", "optimizer.lr=5e-3", "trainer.max_epochs=8")
    more = tuple(word for word in more if word != "optimizer.lr=2e-2")
    runs = [fit(tmp_path / name, *more, *extra) for name, extra in (("fp32", ()), ("8bit", (EIGHT_BIT,)))]
    states = runs[1]["optimizer"][0]["state"].values()
    key = optim.AdamW8bit._FSDP_WRAPPED_QUANT_STATE_KEY
    assert sum(state.get(key, {}).get("state1", torch.zeros(0)).dtype == torch.uint8 for state in states) >= 6
    start = read_checkpoint(tmp_path / "fp32" / "checkpoints" / "start.ckpt")["state_dict"]
    names = [name for name in start if name.endswith(tuple(f"{part}.weight" for part in MATRICES))]
    moved = torch.cat([(runs[0]["weights"][name] - start[name]).flatten() for name in names])
    other = torch.cat([(runs[1]["weights"][name] - start[name]).flatten() for name in names])
    assert torch.cosine_similarity(moved, other, dim=0) > 0.7 and 0.8 < other.norm() / moved.norm() < 1.25
    full, low = (digits(run) for run in runs)
    assert full[-1] > 1.5 * full[0] and low[-1] > full[0] + 0.6 * (full[-1] - full[0])


def test_muon_makes_orthogonal_updates_of_matrices_and_adamw_updates_of_vectors(tmp_path):
    rate = 1e-2
    more = (*BASE[:-1], f"optimizer.lr={rate}", "optimizer.eps=1e-12", "trainer.max_epochs=1", MUON)
    after = fit(tmp_path, *more, "trainer.gradient_clip_val=null")["weights"]
    before = read_checkpoint(tmp_path / "checkpoints" / "start.ckpt")["state_dict"]
    for name, start in before.items():
        update = after[name] - start
        if name.endswith(tuple(f"{part}.weight" for part in MATRICES)):
            # Newton-Schulz of five steps brings singular values near 1; times 0.2 sqrt(larger side) and the rate
            values = torch.linalg.svdvals(update) / (0.2 * max(start.shape) ** 0.5 * rate)
            assert values.max() < 1.3 and values.median() > 0.6, name
        elif name.endswith(("norm.weight", "layernorm.weight")):  # the first step of Adam has the size of the rate
            assert torch.allclose(update.abs(), torch.full_like(update, rate), rtol=1e-2), name


def test_what_an_optimiser_does_not_take_is_refused_with_another(tmp_path, capsys):
    assert main(["fit", *words(tmp_path, *BASE, LORA_MUON[0])]) != 0
    text = capsys.readouterr().err
    assert "Muon only supports 2D parameters" in text and "policy.lora.r=16" in text and "timm.optim.Muon" in text


def test_sharded_weights_are_refused_before_a_run(tmp_path, capsys):
    pytest.importorskip("bitsandbytes")
    assert main(["fit", *words(tmp_path, *BASE, EIGHT_BIT, "strategy=fsdp2", "trainer.devices=2")]) != 0
    assert "strategy=fsdp2 cannot run it; use strategy=ddp" in capsys.readouterr().err
