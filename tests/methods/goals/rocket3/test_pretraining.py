"""Pretraining: likelihoods of the labels by hand, labelled demonstrations, learning from them, and the KL anchor."""

from math import log

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput, Sampling
from mmrl.data.collate import collate
from mmrl.methods.goals.rocket3.pretraining import (
    GoalViewDemonstrations,
    TargetCentroid,
    TargetVisibility,
    find_cells,
)
from mmrl.objectives.imitation import NegativeLogLikelihood
from sims.task import SimTask
from tests.laws.example import Example
from tests.methods.goals.rocket3.test_policy import SIM, build_policy
from tests.tiny_recipes import fit, iterations

LAWS = [Example(TargetVisibility()), Example(TargetCentroid())]


def output(**extra) -> PolicyOutput:
    return PolicyOutput(
        torch.zeros(1, 1), torch.zeros(1, 1), extra={name: torch.tensor(x) for name, x in extra.items()}
    )


def test_visibility_by_hand():
    """A logit of ln 3 is a probability of 3/4: -ln 0.75 = 0.287682 in view and -ln 0.25 = 1.386294 out of it."""
    out = output(visible_logits=[log(3), log(3), -log(3)])
    batch = Batch(target_visible=torch.tensor([True, False, True]))
    assert TargetVisibility()(out, batch).tolist() == pytest.approx([0.287682, 1.386294, 1.386294], abs=1e-6)
    assert TargetVisibility().metrics(out, batch)["accuracy"].tolist() == [1, 0, 0]


def test_centroids_by_hand():
    """Of 2 x 2 cells (0.6, 0.2) is in row 0, column 1: number 1. Logits 0, ln 3, 0, 0 give it 3/6: ln 2 = 0.693147."""
    out = output(cell_logits=[[0.0, log(3), 0, 0]] * 3)
    batch = Batch(
        target_visible=torch.tensor([True, True, False]),
        target_centroid=torch.tensor([[0.6, 0.2], [0.2, 0.6], [0.0, 0.0]]),
    )
    assert TargetCentroid()(out, batch).tolist() == pytest.approx([0.693147, log(6), 0.0], abs=1e-6)


def test_cells_by_hand():
    """Of 3 x 3 cells; the right and the lower edge belong to the last ones."""
    centroid = torch.tensor([[0.0, 0.0], [0.99, 0.34], [1.0, 1.0], [0.33, 0.67]])
    assert find_cells(centroid, 3).tolist() == [0, 5, 8, 6]


def demonstrate(policy, count: int) -> Batch:
    task = SimTask(SIM, 64)
    ctx = Context(task, None, policy, Sampling(), seed=0, iteration=0, group_size=1)  # type: ignore[arg-type]
    return collate(GoalViewDemonstrations().collect([(slot, task[slot]) for slot in range(count)], ctx), policy)


def test_demonstrations_are_rows_with_labels():
    policy = build_policy()
    batch = demonstrate(policy, 5)
    expected = [
        step for each in SIM.demonstrate([SimTask(SIM, 64)[slot].info["seed"] for slot in range(5)]) for step in each
    ]
    assert batch["action"][:, 0].tolist() == [action for _, action in expected]
    assert batch["target_visible"].tolist() == [bool(raw["target_visible"]) for raw, _ in expected]
    assert_close(batch["target_centroid"], torch.tensor(np.stack([raw["target_centroid"] for raw, _ in expected])))
    assert (batch["obs.memory"] == 0).all() and batch["is_demo"].all()


def test_a_simulator_without_labels_is_refused():
    policy = build_policy()
    ctx = Context(SimTask(SIM, 4), None, policy, Sampling(), seed=0, iteration=0)  # type: ignore[arg-type]
    raw, action = SIM.demonstrate([0])[0][0]
    with pytest.raises(ValueError, match=r"lack .'target_visible'.*sim=goal_views"):
        GoalViewDemonstrations().encode({n: x for n, x in raw.items() if n != "target_visible"}, action, ctx)


def test_a_policy_learns_actions_and_labels_of_a_few_demonstrations():
    """After 150 steps on twelve episodes all three likelihoods are those of a policy that has seen them."""
    policy = build_policy(memory_size=32, image_features=32)
    policy.whole_sequences = True
    batch = demonstrate(policy, 12)
    terms = (NegativeLogLikelihood(), TargetVisibility(), TargetCentroid())
    optimizer = torch.optim.Adam(policy.parameters(), 5e-3)
    first: list[float] = []
    for _ in range(150):
        losses = [term(out, batch).mean() for out in [policy(batch)] for term in terms]
        first = first or [loss.item() for loss in losses]
        optimizer.zero_grad()
        sum(losses).backward()
        optimizer.step()
    last = [loss.item() for loss in losses]
    assert all(after < before / 4 for before, after in zip(first, last))
    assert TargetVisibility().metrics(policy(batch), batch)["accuracy"].mean() > 0.95


TINY = (
    "recipe=rocket3",
    "sim.kwargs={side: 5, walls: 2, objects: 2, distances: {near: 2}}",
    "sim.max_episode_steps=8",
    "policy.memory_size=6",
    "policy.hidden=[8]",
    "policy.image_features=12",
    "data.num_prompts=12",
    "data.num_minibatches=1",
    "data.update_epochs=1",
    "data.evaluation.count=6",
    "trainer.check_val_every_n_epoch=2",
)


def test_the_anchor_is_the_start_along_whole_episodes(tmp_path):
    """Before the first update the policy is its reference, so that the KL divergence is 0 in more than 64 rows."""
    done = iterations(fit(tmp_path, *TINY, "trainer.max_epochs=2", "data.num_prompts=24"))
    assert done[0]["train/kl/mean"] == pytest.approx(0, abs=1e-10) and done[1]["train/kl/mean"] > 1e-9


def test_the_anchor_holds_the_policy(tmp_path):
    """With a large coefficient the policy stays nearer to the start than without one."""
    options = ("trainer.max_epochs=4", "data.update_epochs=4", "optimizer.lr=3e-3")
    apart = [
        iterations(fit(tmp_path / str(beta), *TINY, *options, f"objective.coefficients.kl={beta}"))[-1]["train/kl/mean"]
        for beta in (0.0, 10.0)
    ]
    assert apart[1] < apart[0] / 2


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    whole = fit(tmp_path / "whole", *TINY, "trainer.max_epochs=3")
    fit(tmp_path / "first", *TINY, "trainer.max_epochs=1")
    torch.manual_seed(99)
    checkpoint = f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'"
    resumed = fit(tmp_path / "second", *TINY, "trainer.max_epochs=3", checkpoint)
    for part in ("weights", "optimizer"):
        assert_close(resumed[part], whole[part], atol=0, rtol=0)
