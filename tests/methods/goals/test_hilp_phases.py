"""HILP: weights at the border, masks, random skills away from the origin, and the skill of recorded rewards."""

import logging
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.methods.goals.hilp import RandomSkills, TemporalDistanceLoss, ZeroShotSkill, _next
from tests.methods.goals.test_hilp import build_plain


def test_the_loss_at_an_advantage_of_0_and_outside_of_the_mask():
    """An advantage of 0 has the expectile 0.9 itself, 0.9 * 2^2 = 3.6; a row outside of the mask has none."""
    nothing = torch.zeros(2, 1)
    advantage = torch.tensor([[0.0], [-5.0]], requires_grad=True)
    extra = {"temporal_errors": torch.full((2, 1, 1), 2.0), "temporal_advantage": advantage}
    out, batch = PolicyOutput(nothing, nothing, extra=extra), Batch(action_mask=torch.tensor([[True], [False]]))
    assert_close(TemporalDistanceLoss(0.9)(out, batch), torch.tensor([[3.6], [0.0]]))
    logged = TemporalDistanceLoss(0.9).metrics(out, batch)["advantage"]
    assert logged.tolist() == [[0.0], [0.0]] and not logged.requires_grad


def test_the_next_observation_has_the_columns_of_the_next_state_alone():
    batch = Batch({"next.state": torch.ones(1, 1), "past.state": torch.zeros(1, 1), "obs.state": torch.zeros(1, 1)})
    assert list(_next(batch)) == ["state"] and _next(batch)["state"].tolist() == [[1]]


def test_random_skills_are_rewarded_for_the_change_of_place():
    """From (1, 1) to (4, 5), a step of 5 whose part along (1, 0) is 3; from (2, 0) to (2, 1), of 1, along (0, 1)."""
    places = {"obs.state": [[1.0, 1], [2, 0]], "next.state": [[4.0, 5], [2, 1]]}
    batch = Batch({name: torch.tensor(rows) for name, rows in places.items()})
    logged, draws = {}, torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    ctx = UpdateContext({"policy": build_plain()}, lambda *shape: draws, lambda loss: None, logged.update)
    assert RandomSkills()(batch, ctx)["reward"].tolist() == [3, 1]
    assert float(logged["step_length"]) == 3.0  # the mean of 5 and 1


class Recorded:
    """Two transitions, from (1, 1) to (2, 1) and from (2, 0) to (2, 1)."""

    def __init__(self, rewards):
        states = torch.tensor([[1.0, 1], [2, 0]])
        self.rows = {"obs.state": states, "next.state": torch.tensor([[2.0, 1], [2, 1]]), "reward": rewards}
        self.storage = SimpleNamespace(columns={"obs.state": states})

    def draw(self, count, rng):
        return torch.arange(count) % 2

    def read(self, places):
        return {name: column[:2] for name, column in self.rows.items()}


@pytest.mark.parametrize(
    "rewards, skill, warns", [([3.0, 4.0], [0.6, 0.8], 0), ([3.0, 0.0], [1, 0], 0), ([0.0, 0.0], [0, 0], 1)]
)
def test_the_skill_of_recorded_rewards_is_fitted_at_the_end(rewards, skill, warns, caplog):
    """The changes (1, 0) and (0, 1) have the rewards as they are; all rewards of 0 have no direction and a warning."""
    policy = build_plain()
    data = SimpleNamespace(seed=0, iteration=0, replay=Recorded(torch.tensor(rewards)))
    before = policy.skill.clone()
    module = SimpleNamespace(policy=policy)
    with caplog.at_level(logging.WARNING):
        ZeroShotSkill(2).on_train_batch_end(SimpleNamespace(is_last_batch=False, datamodule=data), module)
        assert torch.equal(policy.skill, before)
        ZeroShotSkill(2).on_train_batch_end(SimpleNamespace(is_last_batch=True, datamodule=data), module)
    assert_close(policy.skill, torch.tensor(skill, dtype=policy.skill.dtype))
    assert policy.landmarks.tolist() == [[1, 1], [2, 0], [1, 1], [2, 0], [1, 1]]
    assert sum("recorded rewards are 0" in record.message for record in caplog.records) == warns
