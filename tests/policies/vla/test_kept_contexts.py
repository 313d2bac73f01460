"""Contexts that a frozen vision-language model has read are kept: equal results, one reading for each decision."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.batch import Batch
from mmrl.core.evaluation_mode import no_learning
from mmrl.core.types import Request, Sampling
from mmrl.data.rollout_data import RolloutData
from mmrl.engines.local import LocalEngine
from mmrl.policies.base import copy_policy
from mmrl.policies.vla.pretrained.flow.kept_context import KEPT, MEAN
from mmrl.transforms.rows.concatenation import concatenate, from_plain, to_plain
from tests.laws.heads import pi0_folder, pi0_policy, pi05_policy, raws, sampled, smolvla_folder, smolvla_policy
from tests.tiny_recipes import QUIET, fit

POLICIES = {"pi0": pi0_policy, "pi05": pi05_policy, "smolvla": smolvla_policy}


def build(name: str, keep: bool = True):
    policy = POLICIES[name](freeze_context=True, keep_contexts=keep, value_head=True).eval()
    for parameter in policy.value_head.parameters():  # new weights, the same at every call
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(parameter.numel()))
    return policy


def count_reads(policy, monkeypatch) -> list[int]:
    """Number of contexts of each call of the vision-language model from now on."""
    found: list[int] = []
    read = policy.network.read

    def counted(inputs):
        found.append(len(inputs["input_ids"]))
        return read(inputs)

    monkeypatch.setattr(policy.network, "read", counted)
    return found


def complete(policy, batch: Batch) -> dict[str, torch.Tensor]:
    """Log-probs, entropies, values, and the gradient of each trained weight."""
    out = policy(batch)
    policy.zero_grad()
    (out.logprobs.sum() + out.values.square().sum()).backward()
    slopes = {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}
    return {"logprobs": out.logprobs, "entropy": out.entropy, "values": out.values, **slopes}


@pytest.mark.parametrize("name", POLICIES)
def test_later_passes_give_the_same_without_reading_again(name, monkeypatch):
    policy, plain = build(name), build(name, keep=False)
    reads = count_reads(policy, monkeypatch)
    batch, again = sampled(policy), sampled(plain)
    assert "obs.images" not in batch and reads == [6]
    lengths = batch[f"obs.{KEPT}"].lengths
    real = again["obs.attention_mask"].sum(dim=1)
    assert len(set(lengths.tolist())) > 1 and len(set((lengths - real).tolist())) == 1  # padding is not kept
    kept, read = complete(policy, batch), complete(plain, again)
    assert kept.keys() == read.keys() and len(kept) > 3
    for key, value in kept.items():
        assert_close(value, read[key], atol=1e-5, rtol=1e-5)
    # any rows in any order, and those of several iterations
    some = batch.select(torch.tensor([4, 1]))
    assert_close(policy(some).logprobs, read["logprobs"][[4, 1]], atol=1e-5, rtol=1e-5)
    numbered = some.with_columns(prompt_id=torch.arange(2), episode=torch.arange(2))
    both = concatenate([numbered, from_plain(to_plain(numbered.select(torch.tensor([1]))))], policy)
    assert_close(policy(both).logprobs, read["logprobs"][[4, 1, 1]], atol=1e-5, rtol=1e-5)
    assert_close(copy_policy(policy)(batch).logprobs, read["logprobs"], atol=1e-5, rtol=1e-5)  # as a reference does
    assert reads == [6]


def test_the_engine_stores_kept_contexts_in_place_of_images(monkeypatch):
    policy = build("smolvla")
    engine, reads = LocalEngine(max_rows=2), count_reads(policy, monkeypatch)
    engine.sync(policy, 0)
    done = engine.sample([Request(raw, seed) for seed, raw in enumerate(raws(3))], Sampling())
    assert sum(reads) == 3
    assert all({"proprio", "input_ids", KEPT, MEAN} == set(each.observation) for each in done)
    observation = policy.collate([each.observation for each in done])
    values = policy.encode_context(observation).values
    assert_close(values, torch.stack([each.value for each in done]), atol=1e-5, rtol=1e-5)
    assert sum(reads) == 3


def test_rows_that_are_not_learned_from_are_not_kept():
    policy = build("smolvla")
    with no_learning(policy):
        assert "obs.images" in sampled(policy)
    assert "obs.images" not in sampled(policy)


def test_demonstrations_are_read_once(monkeypatch):
    policy = build("smolvla")
    rows = policy.collate([policy.encode(raw) for raw in raws(3)])
    reads = count_reads(policy, monkeypatch)
    kept = policy.cache_features(rows)
    assert reads == [3] and set(kept) == {KEPT, MEAN}
    there = {name: column for name, column in rows.items() if name not in policy.cached_inputs} | kept
    found, whole = policy.encode_context(there), policy.encode_context(rows)
    assert_close(found.values, whole.values, atol=1e-5, rtol=1e-5)
    x, time = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0.2, 0.5, 1.0])
    velocities = [policy.predict(encoded.prefix, x, time)[0] for encoded in (found, whole)]
    assert_close(*velocities, atol=1e-5, rtol=1e-5)
    assert build("smolvla", keep=False).cache_features(rows) == {}


def test_what_cannot_be_kept_is_refused():
    with pytest.raises(ValueError, match=r"freeze_context=false trains that model: set policy\.freeze"):
        smolvla_policy(freeze_context=False, keep_contexts=True)
    policy, plain = build("smolvla"), build("smolvla", keep=False)
    batch = sampled(policy, count=2)
    with pytest.raises(ValueError, match="another policy kept"):
        plain(batch)
    row = {name: column[0] for name, column in batch.observation().items()}
    with pytest.raises(ValueError, match="1 of 2 rows have no kept context"):
        policy.collate([policy.encode(raws(1)[0]), row])


def train(folder, keep: bool, monkeypatch) -> tuple[dict[str, torch.Tensor], list[int], list[int]]:
    """An iteration of two update epochs; the weights, the contexts of each reading, and the rows."""
    words = [
        *("recipe=flow_sde_ppo", *QUIET, "policy=pi0", f"policy.path='{pi0_folder()}'", f"run_dir='{folder}'"),
        *("policy.critic=shared", "optimizer.lr=3e-4"),
        *("trainer.max_epochs=1", "trainer.check_val_every_n_epoch=1", "data.num_prompts=2", "data.evaluation.count=1"),
        *("data.update_epochs=2", "data.num_minibatches=2", "engine.max_rows=8", f"policy.keep_contexts={keep}"),
        "data.parity=null",  # which reads some rows too
    ]
    cli = CLI(to_lightning(compose(words)))
    learner = cli.model
    reads, rows, sizes = count_reads(learner.policy, monkeypatch), RolloutData._rows, []

    def counted(self, collected, ctx):
        batch = rows(self, collected, ctx)
        sizes.append(batch.rows)
        return batch

    monkeypatch.setattr(RolloutData, "_rows", counted)
    cli.fit()
    monkeypatch.setattr(RolloutData, "_rows", rows)
    return {name: p.detach() for name, p in learner.policy.named_parameters() if p.requires_grad}, reads, sizes


def test_a_run_reads_each_decision_once_and_gives_the_same_weights(tmp_path, monkeypatch):
    kept, once, sizes = train(tmp_path / "kept", True, monkeypatch)
    read, often, same = train(tmp_path / "read", False, monkeypatch)
    assert sizes == same and sizes[0] > 4
    # each of the two update epochs read all rows again
    assert sum(often) - sum(once) == 2 * sum(sizes)
    for name, value in kept.items():
        assert_close(value, read[name], atol=1e-5, rtol=1e-4)


def test_a_resumed_run_that_keeps_contexts_is_the_uninterrupted_one(tmp_path):
    chosen = (
        *("recipe=flow_sde_grpo", "policy=smolvla", f"policy.path='{smolvla_folder()}'", "policy.keep_contexts=true"),
        *("data.reward.weights={tip_distance_m: -1.0}", "data.num_prompts=2", "data.group_size=2"),
        *("data.num_minibatches=2", "data.update_epochs=2", "data.evaluation.count=1", "policy.chain.steps=4"),
        *("trainer.check_val_every_n_epoch=1", "trainer.callbacks.last.every_n_epochs=1", "optimizer.lr=3e-4"),
    )
    whole = fit(tmp_path / "whole", *chosen, "trainer.max_epochs=2")
    fit(tmp_path / "first", *chosen, "trainer.max_epochs=1")
    checkpoint = f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'"
    resumed = fit(tmp_path / "second", *chosen, "trainer.max_epochs=2", checkpoint)
    assert_close(resumed["weights"], whole["weights"], atol=0, rtol=0)
    assert resumed["minibatches"] == whole["minibatches"][len(whole["minibatches"]) // 2 :]
