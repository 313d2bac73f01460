"""HILP: losses and rewards by hand, the distance is a metric, what is trained, directions, and recorded rewards."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.learners.phases.base import UpdateContext
from mmrl.methods.goals.hilp import GoalDistances, RandomSkills, TemporalDistanceLoss, ZeroShotSkill
from mmrl.policies.control.hilbert import (
    HilbertPolicy,
    HilbertRepresentation,
    choose_midpoints,
    fit_skill,
    hilbert_distance,
)
from tests.laws.example import Example

LAWS = [Example(TemporalDistanceLoss(0.9))]


def build_policy(**options) -> HilbertPolicy:
    torch.manual_seed(0)
    sizes = {"hidden": [4], "skill_dims": 3, "representation_hidden": [8], "landmarks": 5}
    return HilbertPolicy(2, 2, **{**sizes, **options})


def build_plain(**options) -> HilbertPolicy:
    """A policy whose embedding is the state itself."""
    policy = build_policy(skill_dims=2, **options)
    policy.representation.networks = torch.nn.ModuleList([torch.nn.Identity(), torch.nn.Identity()])
    return policy


def context(policy, target=None, normal=torch.zeros) -> UpdateContext:
    models = {"policy": policy, "target_policy": target or copy.deepcopy(policy)}
    return UpdateContext(models, normal, lambda loss: None, lambda metrics: None)


def transitions() -> Batch:
    """s = (0, 0), s' = (1, 0), and the goals (3, 4) and s itself, which is reached."""
    places = {"obs.state": [[0.0, 0], [0, 0]], "next.state": [[1.0, 0], [1, 0]], "obs.goal": [[3.0, 4], [0, 0]]}
    columns = {name: torch.tensor(rows) for name, rows in places.items()}
    mask = torch.ones(2, 1, dtype=torch.bool)
    return Batch(columns, reward=torch.tensor([-1.0, 0]), discount=torch.tensor([0.99, 0]), action_mask=mask)


def test_errors_and_loss_by_hand():
    """V(s, g) = -5; q = -1 - 0.99 * sqrt(20) = -5.427407, so u = e = -0.427407, and 2 * 0.05 * u^2 = 0.018268.

    At the goal q = 0 and V = -0.001, the least distance, so u = 0.001 and 2 * 0.95 * u^2 = 1.9e-6.
    """
    out = GoalDistances()(transitions(), context(build_plain()))
    assert_close(out.extra["temporal_errors"][:, 0], torch.tensor([[-0.427407] * 2, [0.001] * 2]))
    assert_close(out.extra["temporal_advantage"], torch.tensor([[-0.427407], [0.001]]))
    loss = TemporalDistanceLoss(0.95)(out, transitions())
    assert_close(loss, torch.tensor([[0.018268], [1.9e-6]]), atol=1e-6, rtol=1e-4)


def test_the_smaller_target_and_the_mean_value_decide_the_weight():
    """V'(s', g) = -2, -6 and V'(s, g) = -3, -4: u = -1 - 0.5 * 6 + 3.5 = -0.5, e = -1 - 1 + 3 = 1 and -1 - 3 + 4 = 0.

    So the weight is 0.1 of expectile 0.9, whatever the sign of e is: the loss is 0.1 * (1 + 0).
    """
    policy = build_plain()
    policy.representation.forward = lambda s: torch.stack([s[:, :1], s[:, 1:]], dim=1)  # one number a network
    batch = Batch(
        {
            "obs.state": torch.tensor([[3.0, 4.0]]),
            "next.state": torch.tensor([[2.0, 6.0]]),
            "obs.goal": torch.zeros(1, 2),
        },
        reward=torch.tensor([-1.0]),
        discount=torch.tensor([0.5]),
        action_mask=torch.ones(1, 1, dtype=torch.bool),
    )
    out = GoalDistances()(batch, context(policy, policy))
    assert_close(out.extra["temporal_errors"], torch.tensor([[[1.0, 0.0]]]))
    assert_close(out.extra["temporal_advantage"], torch.tensor([[-0.5]]))
    assert_close(TemporalDistanceLoss(0.9)(out, batch), torch.tensor([[0.1]]))


def test_the_gradient_of_the_expectile_by_hand():
    """d/de of w e^2 is 2 w e: 2 * 0.9 * 0.5 = 0.9 above, and 2 * 0.1 * -0.5 = -0.1 below."""
    errors = torch.tensor([[[0.5]], [[-0.5]]], requires_grad=True)
    advantage = torch.tensor([[0.5], [-0.5]], requires_grad=True)
    nothing = torch.zeros(2, 1)
    out = PolicyOutput(nothing, nothing, extra={"temporal_errors": errors, "temporal_advantage": advantage})
    TemporalDistanceLoss(0.9)(out, Batch(action_mask=torch.ones(2, 1, dtype=torch.bool))).sum().backward()
    assert_close(errors.grad, torch.tensor([[[0.9]], [[-0.1]]]))
    assert advantage.grad is None


def test_the_distance_is_a_metric():
    torch.manual_seed(1)
    phi = HilbertRepresentation(4, 6, [16])
    a, b, c = (phi(torch.randn(200, 4) * 3) for _ in range(3))
    assert (hilbert_distance(a, a) == 1e-3).all()  # the least distance that has a derivative
    assert_close(hilbert_distance(a, b), hilbert_distance(b, a))
    assert (hilbert_distance(a, c) <= hilbert_distance(a, b) + hilbert_distance(b, c) + 1e-5).all()
    assert_close(hilbert_distance(a, b), torch.linalg.vector_norm(a - b, dim=-1))
    same = a.detach().requires_grad_()
    hilbert_distance(same, same.detach()).sum().backward()
    assert (same.grad == 0).all()


def test_the_gradient_reaches_the_representation_alone():
    policy = build_policy()
    target = copy.deepcopy(policy)
    out = GoalDistances()(transitions(), context(policy, target))
    TemporalDistanceLoss()(out, transitions()).sum().backward()
    trained = {name for name, p in policy.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    names = {name for name, _ in policy.named_parameters() if name.startswith("representation.")}
    assert trained == names - {f"representation.networks.{k}.3.bias" for k in (0, 1)}  # a shift changes no distance
    assert all(p.grad is None for p in target.parameters())


def test_a_line_of_states_learns_its_number_of_steps():
    """Eight states in a row, both ways: phi(0) and phi(7) end as far apart as the discounted steps allow, in order."""
    torch.manual_seed(0)
    policy = build_policy(representation_hidden=[32])
    target, optimizer = copy.deepcopy(policy), torch.optim.Adam(policy.representation.parameters(), 3e-3)
    rng = np.random.default_rng(0)
    line = torch.linspace(-1, 1, 8)[:, None].expand(8, 2)
    for _ in range(200):
        state, goal = torch.from_numpy(rng.integers(8, size=(2, 64)))
        after = (state + torch.from_numpy(rng.choice([-1, 1], 64))).clamp(0, 7)
        reached = state == goal
        batch = Batch(
            {"obs.state": line[state], "next.state": line[after], "obs.goal": line[goal]},
            reward=-(~reached).float(),
            discount=0.95 * (~reached).float(),
            action_mask=torch.ones(64, 1, dtype=torch.bool),
        )
        loss = TemporalDistanceLoss(0.95)(GoalDistances()(batch, context(policy, target)), batch).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for old, new in zip(target.representation.parameters(), policy.representation.parameters()):
            old.data.lerp_(new.data, 0.1)
    with torch.no_grad():
        steps = hilbert_distance(policy.embed(line), policy.embed(line[:1]))
    assert (steps.diff() > 0).all() and 4 < steps[7] < 8 and 0.5 < steps[1] < 1.5


def test_rewards_are_steps_in_the_direction():
    """z = (3, 4) / 5: the step (1, 0) has the reward 0.6; nothing ends."""
    draws = torch.tensor([[3.0, 4.0], [0.0, -2.0]])
    after = RandomSkills(0.9)(transitions(), context(build_plain(), normal=lambda *shape: draws))
    assert_close(after["reward"], torch.tensor([0.6, 0.0]))
    assert_close(after["obs.skill"], torch.tensor([[0.6, 0.8], [0.0, -1.0]]))
    assert torch.equal(after["obs.skill"], after["next.skill"]) and after["discount"].tolist() == pytest.approx(
        [0.9] * 2
    )


def test_directions_at_test_time_by_hand():
    policy = build_plain()
    states, goals = torch.tensor([[1.0, 1.0], [2.0, 2.0]]), torch.tensor([[4.0, 5.0], [2.0, 2.0]])
    assert_close(policy.find_direction(states, goals), torch.tensor([[0.6, 0.8], [0.0, 0.0]]))  # 0 at the goal
    features = policy.features({"state": states, "goal": goals})
    assert_close(features, torch.tensor([[1, 1, 0.6, 0.8], [2, 2, 0, 0]]))
    skill = torch.tensor([[0.0, 1.0]] * 2)
    assert_close(policy.features({"state": states, "goal": goals, "skill": skill})[:, 2:], skill)
    policy.skill.copy_(torch.tensor([-1.0, 0.0]))
    assert policy.features({"state": states})[:, 2:].tolist() == [[-1, 0], [-1, 0]]


def test_midpoints_by_brute_force():
    """From (0, 0) to (8, 0): (4, 1) is 4.12 from both; (4.5, 0) is 4.5 from the farther one, (1, 0) 7."""
    policy = build_plain(midpoints=1, landmarks=3)
    policy.landmarks.copy_(torch.tensor([[1.0, 0], [4.5, 0], [4, 1]]))
    direction = policy.find_direction(torch.zeros(1, 2), torch.tensor([[8.0, 0]]))
    assert_close(direction, torch.tensor([[4.0, 1.0]]) / 17**0.5)
    rng = np.random.default_rng(0)
    here, goal, marks = (rng.normal(size=(n, 3)) for n in (20, 20, 50))
    goal = goal + 5  # so far apart that some landmark is between
    expected = [min(marks, key=lambda w: max(np.linalg.norm(s - w), np.linalg.norm(w - g))) for s, g in zip(here, goal)]
    chosen = choose_midpoints(*(torch.tensor(rows) for rows in (here, goal, marks)))
    np.testing.assert_allclose(chosen.numpy(), np.stack(expected))
    near = choose_midpoints(torch.zeros(1, 2), torch.tensor([[1.0, 0]]), torch.tensor([[0.5, 1.0]]))
    assert near.tolist() == [[1, 0]]  # the landmark is 1.118 from both, farther than they are from each other


def test_the_direction_of_rewards_is_that_of_least_squares():
    rng = np.random.default_rng(0)
    change, reward = rng.normal(size=(200, 4)), rng.normal(size=200)
    expected = np.linalg.lstsq(change, reward, rcond=None)[0]
    z = fit_skill(torch.tensor(change), torch.tensor(reward))
    np.testing.assert_allclose(z.numpy(), expected / np.linalg.norm(expected), atol=1e-8)
    assert fit_skill(torch.tensor(change), torch.zeros(200)).tolist() == [0] * 4
    flat = np.concatenate([change[:, :1], np.zeros((200, 1))], axis=1)  # a dimension that nothing moves in
    assert fit_skill(torch.tensor(flat), torch.tensor(change[:, 0])).tolist() == pytest.approx([1, 0])


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"goal_dims": 1}, "a goal is a whole state vector"),
        ({"goal_dims": 0}, "policy.goal_dims=0"),
        ({"image_size": 17}, "there are no images"),
        ({"skill_dims": 0}, "policy.skill_dims must be at least 1"),
        ({"midpoints": -1}, "policy.midpoints must be at least 0"),
    ],
)
def test_policies_that_embed_no_goal_are_refused(options, refused):
    with pytest.raises(ValueError, match=refused):
        build_policy(**options)


@pytest.mark.parametrize(
    ("build", "refused"),
    [
        (lambda: TemporalDistanceLoss(1.0), "TemporalDistanceLoss.expectile"),
        (lambda: RandomSkills(1.5).check(), "RandomSkills.gamma"),
        (lambda: ZeroShotSkill(0), "ZeroShotSkill"),
    ],
)
def test_numbers_out_of_range_are_refused(build, refused):
    with pytest.raises(ValueError, match=refused):
        build()


def test_another_policy_has_no_skill_to_fit():
    trainer = SimpleNamespace(datamodule=SimpleNamespace(replay=None))
    with pytest.raises(ValueError, match="ZeroShotSkill fits the skill of policy=hilbert"):
        ZeroShotSkill().on_fit_start(trainer, SimpleNamespace(policy=torch.nn.Identity()))
