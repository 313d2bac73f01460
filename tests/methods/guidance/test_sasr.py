"""The probability of a supervised iteration by hand, what it follows, and what such an iteration holds."""

import pytest
import torch

from mmrl.callbacks.gradient_norm import GradientNorm
from mmrl.core.types import Context, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.methods.guidance.sasr import GradientShare, StepMixture, share
from mmrl.policies.text.policy import TextPolicy
from tasks.arithmetic import Arithmetic
from tests.policies.text.oracle import TINY

LAWS = [lambda: GradientShare(2)]

TASK = Arithmetic()


@pytest.mark.parametrize(
    "norm, reference, gamma, expected",
    [
        (0.5, 1.0, 1.0, 1 / 3),
        (2.0, 1.0, 1.0, 2 / 3),
        (0.5, 1.0, 0.25, 2 / 3),
        (0.0, 1.0, 1.0, 0.0),
        (0.0, 0.0, 1.0, 0.0),
    ],
)
def test_the_share_by_hand(norm, reference, gamma, expected):
    assert share(norm, reference, gamma) == pytest.approx(expected)


def observed(schedule, *pairs):
    for imitation, norm in pairs:
        schedule.observe({"rollout/imitation": imitation, "train/gradient_norm": norm, "train/imitation": 1.0})
    return schedule


def test_it_follows_the_supervised_iterations_alone():
    schedule = GradientShare(warmup=4)
    assert [schedule(i) for i in range(6)] == [1.0] * 6  # nothing is known yet
    observed(schedule, (1, 9.0), (1, 7.0), (1, 1.5), (1, 0.5))
    assert schedule(3) == 1.0
    assert schedule(4) == pytest.approx(0.5 / 1.5)  # the reference is the mean of the last two norms of the warm-up: 1
    observed(schedule, (0, 50.0))
    assert schedule(5) == pytest.approx(1 / 3)
    observed(schedule, (1, 2.0))
    assert schedule(6) == pytest.approx(2 / 3)
    again = GradientShare(warmup=4)
    again.load_state_dict(schedule.state_dict())
    assert again(6) == schedule(6)


def test_a_missing_norm_is_reported():
    with pytest.raises(ValueError, match=r"'train/gradient_norm' is no metric.*trainer\.callbacks\.gradient_norm"):
        GradientShare(1).observe({"rollout/imitation": 1.0, "train/imitation": 2.0})
    GradientShare(1).observe({"rollout/imitation": 0.0, "train/policy": 2.0})
    GradientShare(1).observe({"rollout/imitation": 1.0, "train/learning_rate": 0.1})  # an iteration without rows
    for wrong in ((0, 1.0), (1, 0.0)):
        with pytest.raises(ValueError):
            GradientShare(*wrong)


def test_an_iteration_is_of_one_kind():
    torch.manual_seed(0)
    policy, engine, kinds = TextPolicy(config=TINY).eval(), LocalEngine(), []
    engine.sync(policy, 0)
    rollout = StepMixture(0.5)
    for iteration in range(40):
        ctx = Context(TASK, engine, policy, Sampling(max_tokens=1), 0, iteration, group_size=2)
        episodes = rollout.collect([(slot, TASK[slot]) for slot in range(3)], ctx)
        (kind,) = {episode.source for episode in episodes}
        assert len(episodes) == (3 if kind == "demo" else 6)
        assert rollout.metrics() == {"rollout/imitation": float(kind == "demo")}
        kinds.append(kind)
    assert 10 <= kinds.count("demo") <= 30
    assert episodes[0].output == TASK.demonstrate(0) or kinds[-1] == "policy"
    with pytest.raises(ValueError, match="imitation_probability"):
        StepMixture(2.0)


def test_the_norm_is_of_the_whole_gradient_and_a_mean_over_the_steps():
    class Reporting(torch.nn.Linear):
        def report(self, metrics):
            self.metrics = metrics

    network, callback = Reporting(2, 1), GradientNorm()
    optimizer = torch.optim.SGD(network.parameters())
    for weight, bias in ((3.0, 4.0), (0.0, 1.0)):  # norms 5 and 1
        network.weight.grad, network.bias.grad = torch.tensor([[weight, 0.0]]), torch.tensor([bias])
        callback.on_before_optimizer_step(None, network, optimizer)
    assert network.metrics == {"train/gradient_norm": 3.0}
    callback.on_train_epoch_start(None, network)
    callback.on_before_optimizer_step(None, network, optimizer)
    assert network.metrics == {"train/gradient_norm": 1.0}
