"""Schedules in a configuration: what is moved, which number is left, and what is refused."""

from types import SimpleNamespace

import pytest
from torch.testing import assert_close

from mmrl.core.errors import ConfigError
from mmrl.core.types import Sampling
from mmrl.objectives.objective import Objective
from mmrl.objectives.policy import ClippedSurrogate
from mmrl.rewards.compose import WeightedSum
from mmrl.schedules import Linear
from mmrl.schedules.extraction import extract_schedules
from mmrl.schedules.scheduled import ScheduledScalars
from tests.tiny_recipes import fit


def linear(start, end, iterations=2):
    return {"class_path": "mmrl.schedules.Linear", "init_args": {"start": start, "end": end, "iterations": iterations}}


def config(**data):
    """A data module with these arguments."""
    objective = {"class_path": "mmrl.objectives.objective.Objective", "init_args": {"coefficients": {"kl": 0.1}}}
    return {
        "trainer": {"max_epochs": 2},
        "model": {"class_path": "mmrl.learners.learner.Learner", "init_args": {"objective": objective}},
        "data": {"class_path": "mmrl.data.rollout_data.RolloutData", "init_args": data},
    }


def test_the_number_of_the_last_iteration_is_left():
    there = config(sampling={"temperature": linear(1, 0), "max_tokens": linear(64, 33)}, group_size=linear(8, 4))
    there["model"]["init_args"]["objective"]["init_args"]["coefficients"]["kl"] = linear(1, 0)
    extract_schedules(there)
    data = there["data"]["init_args"]
    assert data["sampling"] == {"temperature": 0.5, "max_tokens": 48} and data["group_size"] == 6
    assert [type(value) for value in data["sampling"].values()] == [float, int]
    assert there["model"]["init_args"]["objective"]["init_args"]["coefficients"] == {"kl": 0.5}
    assert data["schedules"]["data.sampling.temperature"] == linear(1, 0)
    assert len(data["schedules"]) == 4


def test_without_schedules_nothing_changes():
    there = config(group_size=8)
    extract_schedules(there)
    assert there == config(group_size=8)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"seed": linear(0, 1)}, "data.seed cannot have a schedule: those that can are below data.num_prompts"),
        ({"sampling": {"stop": linear(0, 1)}}, "data.sampling.stop is no number"),
        (
            {"group_size": linear(0, 1, iterations=0)},
            r"data.group_size \(Linear\): iterations must be",
        ),
    ],
)
def test_refused_with_the_key(data, message):
    with pytest.raises(ConfigError, match=message):
        extract_schedules(config(**data))


def test_the_learning_rate_has_schedulers():
    there = config()
    there["model"]["init_args"]["optimizer"] = {"class_path": "torch.optim.AdamW", "init_args": {"lr": linear(1, 0)}}
    with pytest.raises(ConfigError, match=r"model.optimizer.lr cannot have a schedule.*scheduler=linear"):
        extract_schedules(there)


def bound(key, schedule, iterations=3):
    """The scheduled scalars of a small data module and learner."""
    data = SimpleNamespace(
        sampling=Sampling(), reward=WeightedSum({"exact": 1.0}), group_size=4, check_sizes=lambda: None, noise="none"
    )
    learner = SimpleNamespace(objective=Objective({"policy": ClippedSurrogate()}))
    scalars = ScheduledScalars({key: schedule})
    scalars.bind(data, learner, iterations)
    return scalars, data, learner


def test_parts_get_their_values():
    scalars, data, _ = bound("data.reward.weights.exact", Linear(0, 1, 2))
    assert scalars.update_collection(scalars.values(1)) == {"schedule/data.reward.weights.exact": 0.5}
    assert data.reward == WeightedSum({"exact": 0.5})
    scalars.restore()
    assert data.reward == WeightedSum({"exact": 1.0})
    for key in ("model.objective.coefficients.policy", "model.objective.terms.policy.clip_low"):
        scalars, _, learner = bound(key, Linear(1.0, 0.5, 2))
        scalars.update_learning(scalars.values(1))
        one, low = learner.objective.coefficient("policy"), learner.objective.terms["policy"].clip_low
        assert 0.75 in (float(one), low)
        assert scalars.constants == (((key, 0.75),) if "terms" in key else ())


def test_the_context_gets_its_own():
    scalars, data, _ = bound("data.sampling.max_tokens", Linear(64, 32, 3))
    assert scalars.context_fields(scalars.values(1)) == {"sampling": Sampling(max_tokens=53)}
    assert data.sampling == Sampling() and scalars.all_values("data.sampling.max_tokens") == [64, 53, 43]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("data.sampling.temperature", "data.sampling.temperature cannot follow Linear: sampling.temperature must be"),
        ("data.reward.weights.other", "data.reward.weights.other cannot follow Linear: dict keeps no 'other'"),
        ("data.noise", "data.noise cannot follow Linear: it is 'none' and no number"),
    ],
)
def test_every_value_is_tried_before_training(key, message):
    with pytest.raises(ValueError, match=message):
        bound(key, Linear(1, 0, 2))


@pytest.mark.slow
def test_a_captured_update_has_the_numbers_of_its_iteration(tmp_path, monkeypatch):
    """At a ratio of 1 a clip range makes no difference, so comparing the first update of an iteration is not enough."""
    run = (
        *("recipe=ppo_control", "model.scheduler.total_iters=4000", "data.num_prompts=4", "data.update_epochs=10"),
        *("data.num_minibatches=4", "data.evaluation=null", "data.rollout.num_envs=3", "data.rollout.horizon=16"),
        "trainer.max_epochs=5",
        "objective.terms.policy.clip_high={_target_: mmrl.schedules.Linear, start: 0.001, end: 0.3, iterations: 4}",
        "objective.coefficients.value={_target_: mmrl.schedules.Linear, start: 0.5, end: 0.0, iterations: 3}",
    )
    one = fit(tmp_path / "replayed", *run, "capture=true")
    monkeypatch.setattr("mmrl.capture.graph.MIN_CALLS", 10**9)
    other = fit(tmp_path / "computed", *run, "capture=true")
    assert_close(one["weights"], other["weights"], atol=0, rtol=0)
    assert one["metrics"] == other["metrics"]
